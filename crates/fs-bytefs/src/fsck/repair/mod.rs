//! Repair: mends what a check finds, in memory, checks the outcome again, and writes it only if it is better
//! than what was there.
//!
//! Findings depend on each other, so they are mended in stages: what a later stage would do for a damage may
//! be wrong while an earlier one is not mended. After every stage that changed something the whole check runs
//! again over the changed pages. What has no name any more gets one in `lost+found`. Nothing is written
//! before the last round; then everything becomes durable in one transaction, unless it is too much for one.

mod edit;
mod names;
mod trees;

use std::collections::{BTreeMap, BTreeSet};

use amphi_device::{BlockPort, WriteLog};
use amphi_volume::Progress;

use super::finding::{Finding, FindingKind};
use super::read::Overlay;
use super::report::{FsckError, Report};
use super::state::State;
use super::{examine, recover};
use edit::Edit;
use names::LostAndFound;
use trees::{Shared, mend_inode, write_root};

/// Most rounds of mending and checking.
const ROUNDS: u64 = 64;

/// Stages of mending, in order.
const STAGES: std::ops::Range<u8> = 0..7;

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// What was found.
    pub before: Report,
    /// What is left.
    pub after: Report,
    /// Bytes of existing structures that were changed; 0: nothing was written.
    pub bytes_written: u64,
}

/// Checks the file system on `device`, which nobody else uses meanwhile, and mends what it finds.
///
/// Never makes it worse: nothing is written unless fewer findings are left. Damage that cannot be mended (a
/// superblock, pages with media errors) is left as it is.
///
/// # Errors
/// As [`check`](super::check).
pub fn repair<D: BlockPort + WriteLog>(
    device: &D,
    progress: &mut dyn FnMut(Progress),
) -> Result<Repaired, FsckError> {
    let recovered = recover(device)?;
    let (mut before, state) = examine(device, &Overlay::new(), progress)?;
    before.own.log_entries_dropped = recovered.entries_dropped;
    let mut after = before.clone();
    let Some(mut state) = state.filter(|_| !before.is_clean()) else {
        return Ok(Repaired { before, after, bytes_written: 0 });
    };
    let mut edit = Edit::new(device, &state);
    let mut copies = 0;
    for round in 0..ROUNDS {
        let mut changed = false;
        let damaged = after.findings.iter().any(|f| matches!(stage_of(&f.kind), Some(1 | 2)));
        for stage in STAGES {
            // Pages that nothing claims may belong to an inode that could not be mended.
            state.findings.unreadable |= damaged && stage > 2;
            changed = mend(&mut edit, &mut state, stage, &after.findings, &mut copies)?;
            if changed {
                break;
            }
        }
        if !changed {
            break;
        }
        progress(Progress { phase: "repairing", done: round, total: 0 });
        let (report, checked) = examine(device, &edit.overlay, progress)?;
        after = report;
        let Some(checked) = checked else { break };
        state = checked;
        if after.is_clean() {
            break;
        }
    }
    if after.errors + after.warnings >= before.errors + before.warnings {
        return Ok(Repaired { after: before.clone(), before, bytes_written: 0 });
    }
    let bytes_written = edit.write()?;
    Ok(Repaired { before, after, bytes_written })
}

/// The stage that mends a finding; `None` for what is no damage or cannot be mended.
const fn stage_of(kind: &FindingKind) -> Option<u8> {
    use FindingKind as F;
    Some(match kind {
        F::SuperblockUnreadable { .. }
        | F::PageUnreadable { .. }
        | F::NotCleanlyUnmounted
        | F::ClaimsNotListed => return None,
        F::SuperStateDamaged
        | F::MountOptionsBad { .. }
        | F::JournalSlotBad { .. }
        | F::InodeZeroFree
        | F::InodeMarkedFree { .. }
        | F::OrphanSlotInvalid { .. }
        | F::OrphanSlotDuplicate { .. } => 0,
        F::RootMissing
        | F::InodeHalfBad { .. }
        | F::InodeFieldBad { .. }
        | F::ExtentOutOfRange { .. }
        | F::ExtentLengthBad { .. }
        | F::ExtentsUnsorted { .. }
        | F::ExtentsOverlap { .. }
        | F::NodeKeyWrong { .. }
        | F::NodeBad { .. }
        | F::DataBeyondEnd { .. }
        | F::DirectoryHole { .. }
        | F::DirectorySizeWrong { .. }
        | F::SymlinkTargetBad { .. }
        | F::AttributesBad { .. }
        | F::SpecialHasContents { .. } => 1,
        // Not before extents of impossible length are: they claim most of what is claimed twice.
        F::BlocksClaimedTwice { .. } => 2,
        F::EntryLengthBad { .. }
        | F::EntryNameBad { .. }
        | F::EntryNameDuplicate { .. }
        | F::EntryToFreeInode { .. }
        | F::EntryTypeWrong { .. }
        | F::DirectoryTwoParents { .. }
        | F::DirectoryCycle { .. } => 3,
        F::OrphanNotInTable { .. } | F::OrphanDirectoryNotEmpty { .. } | F::InodeUnreachable { .. } => 4,
        F::LinkCountWrong { .. } | F::DirectoryParentWrong { .. } | F::PageCountWrong { .. } => 5,
        F::BlocksMarkedFree { .. } | F::BlocksLeaked { .. } => 6,
    })
}

/// Mends the findings of one stage; returns whether anything changed.
fn mend<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &mut State,
    stage: u8,
    findings: &[Finding],
    copies: &mut usize,
) -> Result<bool, FsckError> {
    let mut changed = false;
    let found = || findings.iter().filter(|f| stage_of(&f.kind) == Some(stage));
    if matches!(stage, 1 | 2) {
        let shared = shared_pages(findings);
        let inodes: BTreeSet<u32> = found().filter_map(|f| inode_of(&f.kind)).collect();
        for ino in inodes {
            let none = Shared::new();
            let copies = (stage == 2).then_some(&mut *copies);
            changed |= mend_inode(edit, state, ino, shared.get(&ino).unwrap_or(&none), copies)?;
        }
        if found().any(|f| f.kind == FindingKind::RootMissing) {
            changed |= write_root(edit)?;
        }
        return Ok(changed);
    }
    let mut lost_and_found = None;
    for finding in found() {
        changed |= match &finding.kind {
            FindingKind::InodeUnreachable { ino, .. } => {
                if lost_and_found.is_none() {
                    lost_and_found = LostAndFound::open(edit, state)?;
                }
                match &mut lost_and_found {
                    Some(place) => place.add(edit, state, *ino)?,
                    None => false,
                }
            }
            kind => mend_one(edit, state, kind)?,
        };
    }
    Ok(changed)
}

/// The pages that each inode shares with others.
fn shared_pages(findings: &[Finding]) -> BTreeMap<u32, Shared> {
    let mut inodes: BTreeMap<u32, Shared> = BTreeMap::new();
    for finding in findings {
        if let FindingKind::BlocksClaimedTwice { ino, page, pages, .. } = finding.kind {
            inodes.entry(ino).or_default().push((page, page + pages));
        }
    }
    inodes.values_mut().for_each(trees::join);
    inodes
}

/// The inode that is mended as a whole.
const fn inode_of(kind: &FindingKind) -> Option<u32> {
    use FindingKind as F;
    match kind {
        F::BlocksClaimedTwice { ino, .. }
        | F::InodeHalfBad { ino, .. }
        | F::InodeFieldBad { ino, .. }
        | F::ExtentOutOfRange { ino, .. }
        | F::ExtentLengthBad { ino, .. }
        | F::ExtentsUnsorted { ino, .. }
        | F::ExtentsOverlap { ino, .. }
        | F::NodeKeyWrong { ino, .. }
        | F::NodeBad { ino, .. }
        | F::DataBeyondEnd { ino, .. }
        | F::DirectoryHole { ino, .. }
        | F::DirectorySizeWrong { ino, .. }
        | F::SymlinkTargetBad { ino, .. }
        | F::AttributesBad { ino, .. }
        | F::SpecialHasContents { ino } => Some(*ino),
        _ => None,
    }
}

/// Mends one finding that stands for itself.
fn mend_one<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &State,
    kind: &FindingKind,
) -> Result<bool, FsckError> {
    use FindingKind as F;
    match kind {
        F::SuperStateDamaged => edit.reset_super_state(),
        F::MountOptionsBad { .. } => edit.clear_mount_options(),
        F::JournalSlotBad { slot, .. } => edit.clear_journal_slot(*slot),
        F::InodeZeroFree => edit.mark_inode(0),
        F::InodeMarkedFree { ino } => edit.mark_inode(*ino),
        F::OrphanSlotInvalid { slot, .. } | F::OrphanSlotDuplicate { slot, .. } => edit.clear_slot(*slot),
        F::EntryLengthBad { at } => names::resynchronise(edit, state, *at),
        F::EntryNameBad { at, .. } => names::mend_name(edit, *at),
        F::EntryNameDuplicate { at, .. }
        | F::EntryToFreeInode { at, .. }
        | F::DirectoryTwoParents { at, .. } => edit.free_entry(*at),
        F::EntryTypeWrong { at, expected, .. } => names::set_type(edit, *at, *expected),
        F::DirectoryCycle { ino } => {
            let dir = state.inodes.get(*ino).dir as usize;
            edit.free_entry(state.dirs[dir].found)
        }
        // What has neither name nor links is deleted; what a deleted directory held turns up without a name.
        F::OrphanNotInTable { ino } | F::OrphanDirectoryNotEmpty { ino, .. } => edit.free_inode(*ino),
        F::LinkCountWrong { ino, actual, .. } => {
            let (Some(mut lower), Some(upper)) = edit.inode(*ino)? else { return Ok(false) };
            lower.nlink = (*actual).into();
            edit.set_inode(*ino, lower, upper)
        }
        F::PageCountWrong { ino, actual, .. } => {
            let (Some(mut lower), Some(upper)) = edit.inode(*ino)? else { return Ok(false) };
            lower.pages = u32::try_from(*actual).unwrap_or(u32::MAX).into();
            edit.set_inode(*ino, lower, upper)
        }
        F::DirectoryParentWrong { ino, actual, .. } => {
            let (Some(lower), Some(mut upper)) = edit.inode(*ino)? else { return Ok(false) };
            upper.parent_or_rdev = (*actual).into();
            edit.set_inode(*ino, lower, upper)
        }
        F::BlocksMarkedFree { page, pages } => edit.mark_pages(*page, *pages, true),
        // What cannot be read may own them.
        F::BlocksLeaked { .. } if state.findings.unreadable => Ok(false),
        F::BlocksLeaked { page, pages } => edit.mark_pages(*page, *pages, false),
        _ => Ok(false),
    }
}
