//! Repair: in rounds, each of which checks and mends what it can, until nothing is wrong or nothing more can
//! be mended. Each finding is mended by one change, so that a loss of power meanwhile leaves what is better.
//!
//! What makes files go comes before bitmaps: their blocks are free in the round that follows. Names for what
//! has none come last, since they take blocks that the bitmaps have to know.

use std::sync::Arc;

use amphi_device::{BlockPort, CommandPort, MemoryArea};
use amphi_names::{Change, Child};
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use zerocopy::IntoBytes;

use crate::away::HostMemory;
use crate::blocks::pages_needed;
use crate::check::{self, Report};
use crate::controller::Controller;
use crate::finding::Finding;
use crate::format::{self, Map, TYPES, UNIT};
use crate::mount::{self, MountError};
use crate::options::MountOptions;
use crate::planted::{self, Bug};
use crate::store::opened;
use crate::tx::Tx;

/// Most rounds: one for each thing that another round's mending shows, and some more.
const ROUNDS: usize = 8;

/// Checks the one on a device and mends what it finds. Returns what was wrong before, and what is after.
///
/// # Errors
/// [`MountError`].
pub fn repair<D: BlockPort + MemoryArea + CommandPort + 'static>(
    device: &Arc<D>,
) -> std::result::Result<(Report, Report), MountError> {
    let before = check::check(device)?;
    let mut now = before.clone();
    for _ in 0..ROUNDS {
        let is_done = now.findings.is_empty() && now.cleanly_unmounted;
        if is_done || now.findings.iter().any(forbids_repair) {
            break;
        }
        let mounted = mount::assemble(device, &MountOptions::default(), &Arc::new(HostMemory::new(0)))?;
        mounted.announce(MountOptions::default().crash)?;
        let mended = mend(&mounted.controller, &now.findings)?;
        mounted.settle_and_close()?;
        let left = check::check(device)?;
        let helped = mended > 0 && left.findings != now.findings;
        now = left;
        if !helped {
            break;
        }
    }
    Ok((before, now))
}

/// Whether nothing can be mended with this.
const fn forbids_repair(finding: &Finding) -> bool {
    matches!(finding, Finding::Unmountable(_) | Finding::Failed { .. })
}

/// Mends what goes in one round. Returns how many findings those were.
fn mend<D: BlockPort + MemoryArea + 'static>(fs: &Controller<D>, findings: &[Finding]) -> Result<u64> {
    let is_name = |finding: &&Finding| matches!(finding, Finding::Nameless { .. });
    let (bitmaps, others): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| finding.is_of_bitmap());
    let (names, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_name);
    for kind in [others, bitmaps, names] {
        let mut mended = 0;
        for finding in kind {
            mended += u64::from(mend_one(fs, finding)?);
        }
        if mended > 0 {
            return Ok(mended);
        }
    }
    Ok(0)
}

/// Whether it could be mended.
fn mend_one<D: BlockPort + MemoryArea + 'static>(fs: &Controller<D>, finding: &Finding) -> Result<bool> {
    let mut tx = Tx::new(fs, 0)?;
    match finding {
        Finding::Unreadable { ino, is_damaged: true, .. } if *ino != Ino::ROOT.0 => tx.free_ino(Ino(*ino)),
        Finding::NumberFree { ino } => tx.set_bits(Map::Inodes, *ino, 1, true),
        Finding::NumberTaken { ino } => {
            tx.set_bits(Map::Inodes, *ino, 1, false);
            tx.set_bits(Map::Orphans, *ino, 1, false);
        }
        Finding::PageFree { page } => tx.set_bits(Map::Blocks, *page, 1, true),
        Finding::PageTaken { page } => tx.set_bits(Map::Blocks, *page, 1, false),
        Finding::BlockCount { ino, has, .. } => {
            rewrite(&mut tx, *ino, |inode| inode.blocks = (*has).into())?;
        }
        // What has no name gets one first.
        Finding::LinkCount { has, ino, .. } if *has > 0 => {
            rewrite(&mut tx, *ino, |inode| inode.nlink = (*has).into())?;
        }
        Finding::WrongParent { ino, parent } => {
            rewrite(&mut tx, *ino, |inode| inode.parent = (*parent).into())?;
        }
        Finding::NameTwice { entry: (page, unit), units, .. }
        | Finding::Dangling { entry: (page, unit), units, .. } => {
            tx.parts.zeros((*page).into(), unit * UNIT, units * UNIT);
        }
        Finding::BadEntry { entry: (page, unit), .. } => {
            tx.parts.zeros((*page).into(), unit * UNIT, UNIT);
        }
        // A root that cannot be read has no room for names.
        Finding::Nameless { ino } => {
            return name(fs, Ino(*ino)).or_else(|error| match error {
                Error::Corrupt(_) => Ok(false),
                error => Err(error),
            });
        }
        _ => return Ok(false),
    }
    if planted::has(Bug::NothingMended) {
        return Ok(true);
    }
    tx.commit()?;
    Ok(true)
}

fn rewrite<D: BlockPort + MemoryArea + 'static>(
    tx: &mut Tx<'_, D>,
    ino: u64,
    change: impl FnOnce(&mut format::Inode),
) -> Result<()> {
    let mut inode = tx.fs.inode_on_flash(Ino(ino))?;
    change(&mut inode);
    let (page, at) = tx.fs.layout.inode(ino);
    tx.parts.bytes(page, at, inode.as_bytes());
    Ok(())
}

/// Gives an inode a name in the root. False: there is one of that name.
fn name<D: BlockPort + MemoryArea + 'static>(fs: &Controller<D>, ino: Ino) -> Result<bool> {
    let there = fs.inode_on_flash(ino)?;
    let Some(file_type) = TYPES.file_type(there.kind) else { return Ok(false) };
    let text = format!("#{}", ino.0);
    let name = Name::new(text.as_bytes())?;
    let root = amphi_names::inode(fs, Ino::ROOT)?;
    let mut state = root.state.write();
    fs.open_directory(&root, &mut state)?;
    let entries = opened(&state)?;
    if fs.find_name(entries, name.bytes())?.is_some() {
        return Ok(false);
    }
    let place = entries.place(name.bytes());
    let blocks = if place.grows { 1 + pages_needed(place.page.into(), 1) } else { 0 };
    let mut tx = match Tx::new(fs, blocks) {
        Ok(tx) => tx,
        Err(Error::NoSpace) => return Ok(false),
        Err(error) => return Err(error),
    };
    Change::insert(&mut tx, &root, &mut state, place, name, Child { ino, file_type })?;
    let is_dir = there.kind == TYPES.code(FileType::Directory);
    state.nlink += u32::from(is_dir);
    tx.write_inode(Ino::ROOT, Ino::ROOT, &state);
    // A directory's links are counted in the round that follows.
    rewrite(&mut tx, ino.0, |inode| {
        inode.nlink = if is_dir { inode.nlink } else { 1.into() };
        inode.parent = Ino::ROOT.0.into();
    })?;
    tx.commit()?;
    Ok(true)
}
