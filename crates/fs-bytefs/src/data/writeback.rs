//! Write-back: brings a file's dirty pages and attributes to the device (BY-14, BY-16, figure 5).
//!
//! Pages without a block get extents; they, and pages modified in an eighth or more, go by block, in commands
//! as long as the pages are contiguous; of the others only the modified lines go, by bytes. In ordered mode
//! all of it is durable before the transaction that makes it count, with the new extents, bitmap lines and
//! the inode, commits. With data journaling, what overwrites something counts with that transaction too:
//! modified lines are stores of the transaction, pages that go by block are first written to the journal
//! (`journal.rs`).

use std::ops::Range;

use amphi_device::{BlockPort, Completion, Lpa, Structure, WriteLog};
use amphi_page_cache::{Mapped, Mapping, commands};
use amphi_vfs::Result;
use smallvec::SmallVec;

use crate::base::WRITE_RUN_MAX;
use crate::commit::journal::Record;
use crate::commit::record::write_record;
use crate::commit::tx::Tx;
use crate::core::Core;
use crate::data::body::FileBody;
use crate::data::diff::runs;
use crate::data::duplicate::{self, lines_by_bytes};
use crate::format::LINE;
use crate::index::extent::ExtentTree;
use crate::index::inode::{Inode, State, number};
use crate::planted::{self, Bug};

/// Pages that a write-back handles without touching the heap.
const FEW: usize = 8;
/// Most bytes of file data in one transaction, far below the smallest log; with data journaling the rest goes
/// through the journal.
const TX_DATA_MAX: usize = 32 << 10;

/// Makes the file's data durable, and its attributes too unless `data_only` and they are not needed to read
/// the data.
///
/// # Errors
/// [`amphi_vfs::Error::Io`]; the file system has then turned read-only.
pub fn write_back<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    data_only: bool,
) -> Result<()> {
    // What another call has taken and could not write is dirty no more.
    core.health.sound()?;
    let attributes = state.attributes_dirty && !data_only;
    if state.body.file()?.pages.is_clean() && state.size == state.size_on_device && !attributes {
        return Ok(());
    }
    core.writable()?;
    let file = state.body.file_mut()?;
    let reserved = std::mem::take(&mut file.unmapped) + std::mem::take(&mut file.reserved_nodes);
    write_back_in(core, inode, state, Tx::with_reserved(core, reserved), attributes)
}

/// As [`write_back`], as part of `tx`, which may already change the file; `attributes`: the inode is written
/// in any case.
///
/// # Errors
/// As there.
pub fn write_back_in<'a, D: BlockPort + WriteLog>(
    core: &'a Core<D>,
    inode: &Inode,
    state: &mut State,
    mut tx: Tx<'a, D>,
    attributes: bool,
) -> Result<()> {
    let grows = state.size != state.size_on_device;
    let file = state.body.file_mut()?;
    file.version += 1;
    let dirty = file.pages.take_dirty();
    if grows && planted::has(Bug::SizeBeforeData) {
        let mut early = Tx::new(core, 0)?;
        let size_on_device = state.size_on_device;
        state.size_on_device = state.size;
        early.write_lower(inode, state);
        early.commit()?;
        state.size_on_device = size_on_device;
    }
    let file = state.body.file_mut()?;
    let (new_pages, fresh) = map_pages(file, &dirty, &mut tx);
    if planted::has(Bug::CommitBeforeData) {
        state.size_on_device = state.size;
        tx.write_changed(inode, state);
        tx.commit()?;
        tx = Tx::new(core, 0)?;
    }
    let file = state.body.file_mut()?;
    let sent = write_data(core, number(inode), file, &dirty, &fresh, &mut tx)?;
    let grows = grows && (attributes || !planted::has(Bug::SizeForgotten));
    let attributes = attributes && !planted::has(Bug::AttributesForgotten);
    let metadata = grows || !fresh.is_empty() || attributes;
    if metadata {
        state.data_pages += new_pages;
        state.size_on_device = state.size;
        tx.write_changed(inode, state);
    }
    let alone = tx.is_empty();
    // Whoever commits a group does not know of our stores, so they arrive before the group has our change.
    if sent.stored && (alone || core.groups_metadata()) && !planted::has(Bug::DataNotVerified) {
        core.device.fence();
        core.device.verify_read().map_err(|error| core.broken(error))?;
    }
    if alone {
        drop(tx);
    } else {
        tx.commit()?;
    }
    if metadata {
        state.attributes_dirty = false;
    }
    let file = state.body.file_mut()?;
    if let Some((record, overwritten)) = sent.journaled {
        put_in_place(core, file, &record, &overwritten).map_err(|error| core.broken(error))?;
    }
    let mut duplicates: SmallVec<[_; FEW]> = SmallVec::new();
    file.pages.written(&core.pages, dirty, |page| duplicates.extend(duplicate::written(page)));
    if !duplicates.is_empty() {
        core.pages.pool.give(duplicates);
    }
    Ok(())
}

/// Writes the pages of a record that counts to where they belong, and retires it.
fn put_in_place<D: BlockPort + WriteLog>(
    core: &Core<D>,
    file: &FileBody,
    record: &Record,
    overwritten: &[u64],
) -> amphi_device::Result<()> {
    let place = |index: &u64| match (file.pages.get(*index), file.tree.map(*index)) {
        (Some(page), Mapped::At { lba, .. }) => Some((lba, &page.data[..])),
        _ => None,
    };
    let blocks: Vec<(u64, &[u8])> = overwritten.iter().filter_map(place).collect();
    write_blocks(core, &blocks)?;
    core.journal.retire(&*core.device, record)
}

/// Gives every dirty page a block, or puts the one reserved for it to use. Returns how many pages had none,
/// and the pages, ascending, of which the device holds nothing.
fn map_pages<D: BlockPort + WriteLog>(
    file: &mut FileBody,
    dirty: &[u64],
    tx: &mut Tx<'_, D>,
) -> (u64, Vec<u64>) {
    let mut extent = Extent::default();
    let fresh: Vec<u64> =
        dirty.iter().copied().filter(|index| extent.block_of(&file.tree, *index).is_none()).collect();
    let mut added = 0;
    for run in fresh.chunk_by(|a, b| a + 1 == *b) {
        let mut index = run[0];
        let end = index + run.len() as u64;
        while index < end {
            let hole = match file.tree.map(index) {
                Mapped::Hole { pages } => pages.min(end - index),
                Mapped::At { pages, .. } | Mapped::Unwritten { pages, .. } => {
                    let reserved = pages.min(end - index);
                    let freed = file.tree.mark_written(index, index + reserved, &mut || tx.allocate_block());
                    freed.free(tx);
                    index += reserved;
                    continue;
                }
            };
            let blocks = tx.allocate_blocks(hole, file.tree.goal(index));
            file.tree.insert(index, blocks.start as u32, blocks.len as u32, &mut || tx.allocate_block());
            index += blocks.len;
            added += blocks.len;
        }
    }
    (added, fresh)
}

/// The extent in which the page before was found: the next one mostly is in it too.
#[derive(Default)]
struct Extent {
    pages: Range<u64>,
    lba: u64,
}

impl Extent {
    /// The block of a page, if it has one that holds data.
    fn block_of(&mut self, tree: &ExtentTree, index: u64) -> Option<u64> {
        if !self.pages.contains(&index) {
            let Mapped::At { lba, pages } = tree.map(index) else { return None };
            *self = Self { pages: index..index + pages, lba };
        }
        Some(self.lba + (index - self.pages.start))
    }
}

/// What [`write_data`] did.
struct Sent {
    /// Bytes were stored outside the transaction, which a verify read must still follow.
    stored: bool,
    /// The record of pages, of the file, that are to be written in place once the transaction has committed.
    journaled: Option<(Record, Vec<u64>)>,
}

/// Sends the dirty pages by block or by bytes and waits for the blocks.
fn write_data<D: BlockPort + WriteLog>(
    core: &Core<D>,
    ino: u32,
    file: &FileBody,
    dirty: &[u64],
    fresh: &[u64],
    tx: &mut Tx<'_, D>,
) -> Result<Sent> {
    let device = &*core.device;
    let journals = core.journals_data();
    let mut sent = Sent { stored: false, journaled: None };
    let mut blocks: SmallVec<[(u64, &[u8]); FEW]> = SmallVec::new();
    let mut overwrites: Vec<(u64, &[u8])> = Vec::new();
    let mut overwritten = Vec::new();
    let mut extent = Extent::default();
    for index in dirty {
        let (Some(page), Some(lba)) = (file.pages.get(*index), extent.block_of(&file.tree, *index)) else {
            continue;
        };
        if fresh.binary_search(index).is_ok() {
            blocks.push((lba, &page.data[..]));
            continue;
        }
        let threshold = core.keeps_duplicates().then_some(core.options.byte_threshold);
        let mask = threshold.and_then(|threshold| lines_by_bytes(page, threshold));
        match mask {
            Some(mask) if !journals || tx.bytes() < TX_DATA_MAX => {
                for (line, lines) in runs(mask) {
                    let (from, len) = (line * LINE, lines * LINE);
                    let (at, bytes) = (Lpa(lba).byte(from), &page.data[from..from + len]);
                    if journals {
                        tx.write(at, bytes, Structure::Data);
                        continue;
                    }
                    device.store(at, bytes, None, Structure::Data).map_err(|error| core.broken(error))?;
                    if !planted::has(Bug::DataLinesNotFlushed) {
                        device.flush_lines(at, len);
                    }
                    sent.stored = true;
                }
            }
            _ if journals => {
                overwrites.push((lba, &page.data[..]));
                overwritten.push(*index);
            }
            _ => blocks.push((lba, &page.data[..])),
        }
    }
    write_blocks(core, &blocks).map_err(|error| core.broken(error))?;
    if !overwrites.is_empty() {
        let record = write_record(core, ino, &overwrites, tx)?;
        sent.journaled = Some((record, overwritten));
    }
    Ok(sent)
}

/// Writes pages, in commands as long as they are contiguous, and waits until they are durable.
fn write_blocks<D: BlockPort + WriteLog>(
    core: &Core<D>,
    blocks: &[(u64, &[u8])],
) -> amphi_device::Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    let pages: SmallVec<[&[u8]; FEW]> = blocks.iter().map(|(_, data)| *data).collect();
    let mut tickets: SmallVec<[_; 1]> = SmallVec::new();
    let mut rest = &pages[..];
    for run in commands(blocks, WRITE_RUN_MAX, |(lba, _)| *lba) {
        let (data, behind) = rest.split_at(run.len());
        tickets.push(core.device.submit_write(Lpa(run[0].0), data, Structure::Data)?);
        rest = behind;
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    core.settle_blocks()
}
