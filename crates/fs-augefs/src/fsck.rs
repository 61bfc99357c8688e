//! Checking an unmounted AugeFS: names against inodes, inodes against nodes, nodes against NAT and SIT.
//!
//! It mounts as a read-only mount does, over a device that stays as it is (`overlay`).

mod names;
mod repair;
mod tree;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_segments::Used;
use amphi_vfs::{Error, FileType, Ino};
use amphi_volume::Severity;
use serde::Serialize;

use crate::core::Core;
use crate::format::{InodeRecord, PAGE};
use crate::mount::{self, MountError};
use crate::options::MountOptions;
use crate::overlay::Overlay;
use names::Found;
pub use repair::{Repair, repair};

/// Most findings that are listed.
const LISTED: usize = 1000;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in a sentence.
    pub what: String,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// What is wrong, up to a thousand things.
    pub findings: Vec<Finding>,
    /// Errors, also those not listed.
    pub errors: u64,
    /// Warnings, also those not listed.
    pub warnings: u64,
    /// Regular files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Blocks of the main area that can be used.
    pub blocks: u64,
    /// Blocks in use, and held.
    pub blocks_used: u64,
    /// Whether the last mount ended with an unmount.
    pub cleanly_unmounted: bool,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0 && self.warnings == 0
    }

    fn add(&mut self, severity: Severity, what: String) {
        match severity {
            Severity::Error => self.errors += 1,
            _ => self.warnings += 1,
        }
        if self.findings.len() < LISTED {
            self.findings.push(Finding { severity, what });
        }
    }

    fn error(&mut self, what: impl Into<String>) {
        self.add(Severity::Error, what.into());
    }
}

/// Checks the file system on a device, and changes nothing there. Damage is no error but a finding.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn check<D: BlockPort + MemoryArea>(device: &Arc<D>) -> Result<Report, MountError> {
    let mut report = Report::default();
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let (core, recovered) = match mount::open(&Overlay::over(device), options) {
        Ok(opened) => opened,
        Err(error @ MountError::Damaged(Error::Corrupt(_))) => {
            report.error(error.to_string());
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    report.cleanly_unmounted = recovered.clean;
    report.blocks = core.space.capacity();
    report.blocks_used = report.blocks - core.space.free();
    match names::check(&core, &mut report).and_then(|found| check_data(&core, &found, &mut report)) {
        Err(Error::Corrupt(damage)) => report.error(damage.to_string()),
        Err(error) => return Err(error.into()),
        Ok(()) => {}
    }
    Ok(report)
}

fn check_data<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    found: &BTreeMap<Ino, Found>,
    report: &mut Report,
) -> amphi_vfs::Result<()> {
    let mut used: Vec<_> = core.domains.iter().map(|_| Used::default()).collect();
    for (ino, inode) in found {
        let Some(record) = &inode.record else { continue };
        match record.file_type() {
            Some(FileType::Directory) => report.directories += 1,
            Some(FileType::Symlink) => report.symlinks += 1,
            Some(FileType::Regular) => {
                report.files += 1;
                let of = &mut used[usize::from(core.domain(*ino).number)];
                match check_file(core, *ino, record, of, report) {
                    Err(Error::Corrupt(damage)) => report.error(damage.to_string()),
                    done => done?,
                }
            }
            _ => {}
        }
    }
    for (domain, used) in core.domains.iter().zip(&used) {
        used.compare(domain, core.layout.segment_blocks, |severity, what| report.add(severity, what));
    }
    Ok(())
}

/// Follows a file's nodes, and notes what they use.
fn check_file<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    ino: Ino,
    record: &InodeRecord,
    used: &mut Used,
    report: &mut Report,
) -> amphi_vfs::Result<()> {
    let domain = core.domain(ino);
    let end = record.head.size.get().div_ceil(PAGE as u64);
    let mut blocks = 0;
    for (index, nid) in core.find_nodes(ino, record)? {
        let address = domain.parts.lock().node_address(nid);
        let node = core.ground.read_node(domain, nid, address)?;
        if node.ino != ino || node.index != index || !used.add_node(nid) {
            report.error(format!("node {nid} of inode {} is another's", ino.0));
            continue;
        }
        let first = u64::from(index) * node.addresses.len() as u64;
        let place = (first, end, Severity::Error);
        blocks +=
            used.add_pages(ino.0, &node.addresses[..], place, |severity, what| report.add(severity, what));
        used.add_node_block(nid, address, |severity, what| report.add(severity, what));
    }
    if blocks != record.blocks.get() {
        report.error(format!(
            "inode {} has {blocks} blocks and says that it has {}",
            ino.0,
            record.blocks.get()
        ));
    }
    Ok(())
}
