//! Checking a RomeFS that is not mounted, or mounted and idle: what the inodes say against what the bitmaps,
//! the leaves and the directories say.
//!
//! The journal is applied in host memory first, as a mount does; a check changes nothing on the device.

mod finding;
mod inodes;
mod mend;
mod names;
mod repair;
mod usage;

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};

use crate::core::Core;
use crate::mount::{self, MountError};
use crate::options::MountOptions;
pub use amphi_volume::Severity;
pub use finding::Finding;
pub use repair::{Repair, repair};
use usage::Usage;

/// The outcome of a check.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// The file system's label.
    pub label: String,
    /// Regular files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Device files, FIFOs and sockets.
    pub special: u64,
    /// Inodes that the next mount deletes, or cuts to their size.
    pub orphans: u64,
    /// Pages of the block zone.
    pub block_pages: u64,
    /// Those of them that are in data blocks in use.
    pub block_pages_used: u64,
    /// Log pages in use.
    pub logs_used: u64,
    /// Transactions of the journal that a mount applies.
    pub transactions: u64,
    /// Whether the last mount ended with an unmount.
    pub cleanly_unmounted: bool,
    /// What is wrong, or worth knowing.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity() == Severity::Info)
    }
}

/// Checks the file system on a device.
///
/// # Errors
/// [`MountError`], if there is none, or its journal cannot be applied.
pub fn check<D: BlockPort + MemoryArea + 'static>(device: &Arc<D>) -> Result<Report, MountError> {
    let options = MountOptions { read_only: true, checkpoint_interval_ns: 0, ..MountOptions::default() };
    let (core, recovered) = mount::assemble(device, options)?;
    let mut report = check_core(&core)?;
    report.transactions = recovered.applied;
    if mount::needs_superblock(&**device)? {
        report.findings.insert(0, Finding::SuperblockDamaged);
    }
    Ok(report)
}

/// Checks what `core`, which nobody uses, has.
fn check_core<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<Report, MountError> {
    let mut report =
        Report { label: core.superblock.label(), cleanly_unmounted: core.was_clean, ..Report::default() };
    let mut usage = Usage::new(&core.layout);
    inodes::check(core, &mut usage, &mut report)?;
    names::check(core, &mut usage, &mut report)?;
    usage.compare(core, &mut report)?;
    report.findings.sort();
    Ok(report)
}
