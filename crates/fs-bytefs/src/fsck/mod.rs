//! The file system check: rebuilds from the device alone what allocation, link counts, directories and
//! extents must be, and compares.
//!
//! Passes, each in a module of its own: load bitmaps and the orphan table (`allocation`); decode inodes, walk
//! extent trees and claim pages (`inodes`, `extents`); parse directories (`dirs`); read targets and
//! attributes (`contents`); connectivity and link counts (`links`); compare bitmaps (`allocation`). If pages
//! are claimed twice, `contested` finds out by whom first. They write into one `state`. All reading goes
//! through `read`, in large block commands.
//!
//! No number read from the device is trusted: memory and time grow with the inodes and pages that the
//! superblock's verified geometry has and that are in use, whatever an image claims.

mod allocation;
mod contents;
mod contested;
mod dirs;
mod extents;
mod finding;
mod inodes;
mod links;
mod owners;
mod read;
mod repair;
mod report;
mod state;

use amphi_device::{BlockPort, RecoverReport, Structure, WriteLog};
pub use amphi_volume::{Progress, Severity};
pub use finding::{EntryAt, Finding, FindingKind, FoundName, Half};
pub use repair::{Repaired, repair};
pub use report::{Beside, FsckError, Report};

use crate::commit::replay;
use crate::format::{FormatError, LINE, SUPER_STATE_OFFSET, SuperState, Superblock};
use crate::mount::recover_log;
use crate::options::MountOptions;
use read::{Overlay, Reader};
use report::Findings;
use state::State;

/// Checks the file system on `device`, which nobody else uses meanwhile, and changes nothing but what
/// mounting would: the device's log is recovered and the data journal replayed first (§4.7).
///
/// # Errors
/// [`FsckError`] if there is no ByteFS or the device fails. Damage is not an error but a finding.
pub fn check<D: BlockPort + WriteLog>(
    device: &D,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, FsckError> {
    progress(Progress { phase: "loading log and bitmaps", done: 0, total: 0 });
    let recovered = recover(device)?;
    let (mut report, _) = examine(device, &Overlay::new(), progress)?;
    report.own.log_entries_dropped = recovered.entries_dropped;
    Ok(report)
}

/// Recovers the device's log and replays the data journal, unless the device holds something else: then its
/// log is none of our business.
fn recover<D: BlockPort + WriteLog>(device: &D) -> Result<RecoverReport, FsckError> {
    let page = Reader::new(device, &Overlay::new()).page(0, Structure::Superblock)??;
    match Superblock::decode(&page, device.capacity_pages()) {
        Err(error @ (FormatError::NotByteFs | FormatError::Version(_))) => Err(error.into()),
        Err(_) => Ok(recover_log(device)?),
        Ok(superblock) => {
            let recovered = recover_log(device)?;
            // Slots that make no sense stay, and are found.
            replay::replay(device, &superblock.layout())?;
            Ok(recovered)
        }
    }
}

/// Runs all passes over the device as it would be with `overlay` written.
fn examine<D: BlockPort>(
    device: &D,
    overlay: &Overlay,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Report, Option<State>), FsckError> {
    let mut reader = Reader::new(device, overlay);
    let page = reader.page(0, Structure::Superblock)??;
    let superblock = match Superblock::decode(&page, device.capacity_pages()) {
        Ok(superblock) => superblock,
        Err(error @ (FormatError::NotByteFs | FormatError::Version(_))) => return Err(error.into()),
        Err(error) => {
            let mut findings = Findings::default();
            findings.add(FindingKind::SuperblockUnreadable { reason: error.to_string() });
            return Ok((findings.report, None));
        }
    };
    let mut state = State::new(superblock.layout());
    let super_state = SuperState::decode(&page);
    if super_state.encode() != page[SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE] {
        state.findings.add(FindingKind::SuperStateDamaged);
    } else if super_state.clean.get() != 1 {
        state.findings.add(FindingKind::NotCleanlyUnmounted);
    }
    if let Err(reason) = MountOptions::default().set_all(&superblock.option_text()) {
        state.findings.add(FindingKind::MountOptionsBad { reason });
    }
    allocation::load(&mut state, &mut reader)?;
    inodes::check_table(&mut state, &mut reader, progress)?;
    dirs::check_directories(&mut state, &mut reader, progress)?;
    contents::check_long_targets(&mut state, &mut reader)?;
    contents::check_attributes(&mut state, &mut reader)?;
    progress(Progress { phase: "comparing counts", done: 0, total: 0 });
    links::check_links(&mut state);
    allocation::compare(&mut state);
    contested::name_owners(&mut state.findings.report.findings, state.layout, &mut reader)?;
    let report = Report {
        label: superblock.label_text(),
        directories: state.dirs.len() as u64,
        inodes: u64::from(state.layout.inodes),
        pages: state.layout.pages,
        pages_used: state.claims.bits.count(),
        cleanly_unmounted: super_state.clean.get() == 1,
        ..std::mem::take(&mut state.findings.report)
    };
    Ok((report, Some(state)))
}
