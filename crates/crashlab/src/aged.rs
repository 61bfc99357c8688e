//! A device that has been in use for a while: written over until free flash blocks are few, so that whatever
//! is written next makes garbage collection due.
//!
//! A new device would take all that a few hundred operations write without collecting anything.

use amphi_device::PAGE_BYTES;
use amphi_rt::random::Generator;
use amphi_vfs::FileSystem;

use crate::rig::Rig;
use crate::workload::{How, Operation, Place};

const FILE: &str = "filler";
/// Decides in which order pages are written over.
const SEED: u64 = 1;
/// The file covers more than half of the cramped device, or nine tenths of what a file system offers there;
/// what it leaves in flash when it is gone is data that nobody has trimmed.
const PAGES: u64 = 640;
/// Pages written over at random once garbage collection is due, so that erase blocks hold some that are
/// current and some that are not.
const MIXED: u64 = 400;
/// More than any device needs; one that keeps what is written in a page cache is none.
const MOST_WRITES: u64 = 4000;

/// Writes a file over and over until garbage collection is due, and removes it.
///
/// # Errors
/// The file system's, in words.
pub fn age(fs: &dyn FileSystem, rig: &Rig) -> Result<(), String> {
    let apply = |operation: &Operation, number: u64| {
        operation.apply(fs, number).map_err(|error| format!("{operation}: {error}"))
    };
    let write = |page: u64, pages: u64, number: u64| {
        let (at, len) = (Place::At(page * PAGE_BYTES as u64), (pages as usize * PAGE_BYTES) as u32);
        apply(&Operation::Write(FILE.to_owned(), How::Buffered, at, len), number)?;
        apply(&Operation::Fsync(FILE.to_owned(), false), number)
    };
    let room = fs.statfs().map_err(|error| error.to_string())?;
    let free = room.blocks_available * u64::from(room.block_bytes) / PAGE_BYTES as u64;
    let pages = PAGES.min(free * 9 / 10);
    apply(&Operation::Create(FILE.to_owned()), 0)?;
    write(0, pages, 0)?;
    let mut dice = Generator::new(SEED);
    let mut left = MIXED;
    for number in 1..MOST_WRITES {
        write(dice.below(pages), 1, number)?;
        let is_due = rig.ssd().is_collection_due();
        left -= u64::from(left > 0 && (left < MIXED || is_due));
        if left == 0 && is_due {
            break;
        }
    }
    apply(&Operation::Unlink(FILE.to_owned()), 0)?;
    apply(&Operation::Sync, 0)
}
