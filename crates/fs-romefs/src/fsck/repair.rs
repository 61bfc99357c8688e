//! Mending what a check finds, as long as that makes it better.
//!
//! Each step is a transaction of the journal, as a mount's are, and leaves the file system no worse than it
//! was: a crash in between leaves something for the next repair, and nothing else. References that cannot be
//! are let go of first (`mend`); entries that name nothing are removed; counts and bitmaps follow from what
//! is left. What has no name then comes to `lost+found`. Of a block or log that two files have, the file with
//! the lower inode number keeps it, and the other one reads zeros there.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Change, Changed, Child, FIRST_COOKIE, Need, Store};
use amphi_vfs::{Cred, DirEntry, Error, FileType, Ino, Name, Result};
use zerocopy::IntoBytes;

use super::finding::{Finding, things};
use super::mend::Mender;
use super::usage::{Known, Usage};
use super::{Report, check, check_core, inodes, names};
use crate::core::Core;
use crate::entries;
use crate::format::{InodeHead, Map, UNIT, entry_units};
use crate::mount::{self, MountError};
use crate::ops::Ops;
use crate::options::MountOptions;

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repair {
    /// What was wrong before.
    pub before: Report,
    /// And after it.
    pub after: Report,
}

/// Rounds after which what is still wrong stays: each round mends what the one before it has brought to
/// light.
const ROUNDS: usize = 6;
/// Where what has no name comes to.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Checks the file system on a device, which nobody uses, and mends what it finds.
///
/// # Errors
/// [`MountError`], if there is none, or its journal cannot be applied; the device fails.
pub fn repair<D: BlockPort + MemoryArea + 'static>(
    device: &Arc<D>,
) -> std::result::Result<Repair, MountError> {
    let before = check(device)?;
    if before.is_clean() && before.cleanly_unmounted {
        return Ok(Repair { after: before.clone(), before });
    }
    for _ in 0..2 {
        let (core, _) = mount::assemble(device, options())?;
        mount::restore_superblock(&**device, &core.superblock)?;
        core.journal.checkpoint(&core.meta)?;
        core.journal.clear()?;
        let report = mend(&core)?;
        core.journal.checkpoint(&core.meta)?;
        let unreachable: Vec<_> = report.findings.iter().filter_map(unreachable).collect();
        if unreachable.is_empty() {
            break;
        }
        // With the bitmaps as they are now: what is found needs pages.
        drop(core);
        let (core, _) = mount::assemble(device, options())?;
        core.journal.checkpoint(&core.meta)?;
        for ino in unreachable {
            match adopt(&core, ino) {
                // There is no room for a name; it stays as it is, and is told.
                Err(Error::NoSpace | Error::NoInodes) => break,
                outcome => outcome?,
            }
        }
        core.journal.checkpoint(&core.meta)?;
    }
    // What mounting mends, and an unmount that makes it clean.
    let (core, _) = mount::assemble(device, options())?;
    if check_core(&core)?.is_clean() {
        drop(core);
        let (core, _) = mount::open(device, options())?;
        mount::close(&core)?;
    }
    Ok(Repair { before, after: check(device)? })
}

fn options() -> MountOptions {
    MountOptions { checkpoint_interval_ns: 0, ..MountOptions::default() }
}

const fn unreachable(finding: &Finding) -> Option<u64> {
    match finding {
        Finding::Unreachable { ino } => Some(*ino),
        _ => None,
    }
}

/// Mends all but what has no name. Returns what is left.
fn mend<D: BlockPort + MemoryArea>(core: &Core<D>) -> std::result::Result<Report, MountError> {
    let mut report = check_core(core)?;
    for _ in 0..ROUNDS {
        let wrong = |finding: &Finding| {
            finding.severity() > amphi_volume::Severity::Info && unreachable(finding).is_none()
        };
        if !report.findings.iter().any(wrong) {
            break;
        }
        mend_root(core)?;
        Mender::new(core).run()?;
        remove_entries(core)?;
        // Counts and bitmaps, as they follow from what is left.
        for finding in check_core(core)?.findings {
            let mut ops = Ops::default();
            follow(core, &finding, &mut ops)?;
            if !ops.is_empty() {
                core.journal.append(&core.meta, &ops)?;
            }
        }
        report = check_core(core)?;
    }
    Ok(report)
}

/// Makes a root where there is none.
fn mend_root<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    let at = core.layout.inode(Ino::ROOT.0);
    let head: InodeHead = core.meta.read(at)?;
    let mut ops = Ops::default();
    if crate::format::TYPES.file_type(head.kind) != Some(FileType::Directory) {
        ops.zeros(at, crate::format::INODE_BYTES);
        ops.bytes(at, mount::root_inode().as_bytes());
    } else if head.parent.get() != Ino::ROOT.0 {
        ops.bytes(at, InodeHead { parent: Ino::ROOT.0.into(), ..head }.as_bytes());
    }
    if ops.is_empty() { Ok(()) } else { core.journal.append(&core.meta, &ops) }
}

/// Removes the entries that name no inode, or another one than they say.
fn remove_entries<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    let mut usage = Usage::new(&core.layout);
    inodes::check(core, &mut usage, &mut Report::default())?;
    let is_dir = |(_, known): &(&u64, &Known)| known.file_type == FileType::Directory;
    let dirs: Vec<u64> = usage.inodes.iter().filter(is_dir).map(|(ino, _)| *ino).collect();
    for ino in dirs {
        let inode = core.load_inode(Ino(ino))?;
        let state = inode.state.read();
        let Ok(open) = entries::read(core, &inode, &state) else { continue };
        let mut ops = Ops::default();
        let listed = entries::list(core, (inode.ino, &open), FIRST_COOKIE, &mut |entry: DirEntry<'_>| {
            if names::wrong_with(&usage, ino, entry.ino.0, entry.file_type).is_some() {
                let unit = (entry.next_cookie - FIRST_COOKIE - 1) as u32;
                let bytes = (entry_units(entry.name.len()) * UNIT) as u64;
                ops.zeros(open.address(&core.layout, unit), bytes);
            }
            true
        });
        listed?;
        if !ops.is_empty() {
            core.journal.append(&core.meta, &ops)?;
        }
    }
    Ok(())
}

/// What makes a count or a bitmap say what is there.
fn follow<D: BlockPort + MemoryArea>(core: &Core<D>, finding: &Finding, ops: &mut Ops) -> Result<()> {
    let map = |name: &str| Map::ALL.into_iter().find(|map| things(*map) == name);
    match finding {
        Finding::Count { ino, what, there, .. } => {
            let at = core.layout.inode(*ino);
            let mut head: InodeHead = core.meta.read(at)?;
            match *what {
                "links" => head.nlink = (*there as u32).into(),
                "entries" => head.entries = (*there).into(),
                "blocks" => head.blocks = (*there).into(),
                _ => head.logs = (*there).into(),
            }
            ops.bytes(at, head.as_bytes());
        }
        Finding::Leaked { map: name, first, count } => {
            map(name).into_iter().for_each(|map| ops.clear(map, *first, *count));
        }
        Finding::NotMarked { map: name, first, count } => {
            map(name).into_iter().for_each(|map| ops.set(map, *first, *count));
        }
        Finding::OrphanOfNothing { ino } | Finding::OrphanWithName { ino } => {
            ops.clear(Map::Orphans, *ino, 1)
        }
        _ => {}
    }
    Ok(())
}

/// Gives an inode that has no name one in `lost+found`, which is made if need be.
fn adopt<D: BlockPort + MemoryArea>(core: &Core<D>, ino: u64) -> Result<()> {
    let name = Name::new(LOST_AND_FOUND)?;
    let lost = match amphi_names::lookup(core, Ino::ROOT, name) {
        Err(Error::NotFound) => amphi_names::mkdir(core, Ino::ROOT, name, 0o700, &Cred::ROOT)?,
        found => found?,
    };
    let lost = core.inode(lost.attr.ino)?;
    if !lost.is_dir() || lost.ino.0 == ino {
        return Ok(());
    }
    let at = core.layout.inode(ino);
    let mut head: InodeHead = core.meta.read(at)?;
    let Some(file_type) = crate::format::TYPES.file_type(head.kind) else { return Ok(()) };
    let mut state = lost.state.write();
    if !Core::<D>::is_open(&state) {
        core.open_dir(&lost, &mut state)?;
    }
    let text = format!("#{ino}");
    let name = Name::new(text.as_bytes())?;
    if core.find(&lost, &state, name)?.is_some() {
        return Ok(());
    }
    let place = core.place(&lost, &state, name)?;
    let mut tx = core.begin(&Need { place: Some(&place), ..Need::NOTHING })?;
    tx.insert(&lost, &mut state, place, name, Child { ino: Ino(ino), file_type })?;
    if file_type == FileType::Directory {
        head.parent = lost.ino.0.into();
        state.nlink += 1;
    } else {
        head.nlink = 1.into();
    }
    tx.ops.bytes(at, head.as_bytes());
    tx.write_inode(&lost, &mut state, Changed::Entries)?;
    Change::commit(tx)
}
