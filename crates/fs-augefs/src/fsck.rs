//! Checking an unmounted AugeFS: names against inodes, inodes against nodes, nodes against NAT and SIT.
//!
//! It mounts as a read-only mount does, over a device that stays as it is (`overlay`).

mod names;
mod repair;
mod tree;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, FileType, Ino};
use amphi_volume::Severity;
use serde::Serialize;

use crate::core::Core;
use crate::format::{Address, InodeRecord, NAT_ENTRIES, PAGE};
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

/// What files use of one domain.
#[derive(Default)]
struct Used {
    /// Blocks.
    blocks: BTreeSet<u32>,
    /// Numbers of nodes.
    nids: BTreeSet<u32>,
    /// Pages for which space is held.
    held: u64,
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
    for (number, used) in used.iter().enumerate() {
        check_domain(core, number, used, report);
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
    let end = record.size.get().div_ceil(PAGE as u64);
    let mut blocks = 0;
    for (index, nid) in core.find_nodes(ino, record)? {
        let address = domain.parts.lock().node_address(nid);
        let node = core.read_node(domain, nid, address)?;
        if node.ino != ino || node.index != index || !used.nids.insert(nid) {
            report.error(format!("node {nid} of inode {} is another's", ino.0));
            continue;
        }
        let first = u64::from(index) * node.addresses.len() as u64;
        for (page, address) in (first..).zip(node.addresses.iter().copied()).filter(|(_, at)| !at.is_hole()) {
            blocks += 1;
            used.held += u64::from(address == Address::RESERVED);
            let Some(block) = address.block() else { continue };
            if page >= end {
                report.error(format!("inode {} has page {page} behind its end", ino.0));
            }
            if !used.blocks.insert(block) {
                report.error(format!("block {block} is used twice, by inode {} too", ino.0));
            }
        }
        if let Some(block) = address.block()
            && !used.blocks.insert(block)
        {
            report.error(format!("block {block} of node {nid} is used twice"));
        }
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

/// Compares what a domain's files use with its SIT and NAT.
fn check_domain<D: BlockPort + MemoryArea>(core: &Core<D>, number: usize, used: &Used, report: &mut Report) {
    let parts = core.domains[number].parts.lock();
    let size = core.layout.segment_blocks;
    for block in &used.blocks {
        let segment = parts.sit.get(u64::from(block / size));
        if !segment.is_some_and(|segment| segment.is_valid(block % size)) {
            report.error(format!("block {block} is used and invalid in the SIT of domain {number}"));
        }
    }
    for segment in parts.segments(|_| true) {
        let Some(sit) = parts.sit.get(segment.into()) else { continue };
        let leaked = (segment * size..)
            .take(size as usize)
            .filter(|block| sit.is_valid(block % size) && !used.blocks.contains(block));
        let leaked = leaked.count();
        if leaked > 0 {
            report.add(
                Severity::Warning,
                format!("{leaked} blocks of segment {segment} are valid in the SIT, and nobody's"),
            );
        }
    }
    if parts.held != used.held {
        let held = parts.held;
        report.add(
            Severity::Warning,
            format!("domain {number} holds {held} blocks, and its files {}", used.held),
        );
    }
    let mut from = 0;
    while let Some((block, part)) = parts.nat.next(from) {
        from = block + 1;
        let nids = block as u32 * NAT_ENTRIES as u32..;
        let lost = nids.zip(&part.entries).filter(|(nid, at)| !at.is_hole() && !used.nids.contains(nid));
        for (nid, _) in lost {
            report.add(Severity::Warning, format!("node {nid} is nobody's"));
        }
    }
}
