//! Checking an unmounted file system as the next mount would find it: names against inodes, inodes against
//! nodes, nodes against NAT and SIT. It changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_segments::Used;
use amphi_vfs::{Error, FileType, Ino, Result};
use amphi_volume::{Links, Report, Severity};
use serde_json::json;

use crate::core::{Core, Options};
use crate::format::{
    ADDRESSES, Address, INODE, InodeRecord, LINK, LINK_BYTES, LINK_WORD, PAGE, TYPES, XATTR, address_words,
    record_of,
};
use crate::mount::{self, MountError};
use crate::nodes::first_page;

/// A check that is under way.
struct Check<'c, D: BlockPort + 'static> {
    core: &'c Core<D>,
    report: Report,
    links: Links,
    used: Used,
}

/// Checks the file system on a device. Damage is no error but a finding.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`]; [`MountError::Damaged`] if there is no checkpoint.
pub fn check<D: BlockPort>(device: &Arc<D>) -> std::result::Result<Report, MountError> {
    let (options, names) = Options::usual(true);
    let core = match mount::open(device, options, names) {
        Err(MountError::Damaged(Error::Corrupt(damage))) => {
            return Ok(Report::of(vec![(Severity::Error, damage.to_string())]));
        }
        opened => opened?,
    };
    let (links, used) = (Links::default(), Used::default());
    let mut check = Check { core: &core, report: Report::of(Vec::new()), links, used };
    let done = check.all();
    check.noted(done)?;
    let Check { report, links, .. } = check;
    Ok(Report {
        files: links.count(FileType::Regular),
        directories: links.count(FileType::Directory),
        symlinks: links.count(FileType::Symlink),
        pages: core.space.capacity(),
        pages_used: core.space.capacity() - core.space.free(),
        cleanly_unmounted: core.standing.lock().clean,
        own: json!({ "inodes": core.inodes.load(Ordering::Acquire) }),
        ..report
    })
}

impl<D: BlockPort> Check<'_, D> {
    fn error(&mut self, what: String) {
        self.report.add(Severity::Error, what);
    }

    /// What was asked for, unless damage is in the way, which is a finding.
    fn noted<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Err(Error::Corrupt(damage)) => {
                self.error(damage.to_string());
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    fn all(&mut self) -> Result<()> {
        let mut waiting: Vec<u32> = self.core.orphans.lock().iter().copied().collect();
        waiting.push(Ino::ROOT.0 as u32);
        let (mut seen, mut inodes) = (BTreeSet::new(), 0);
        while let Some(ino) = waiting.pop() {
            if !seen.insert(ino) {
                continue;
            }
            let checked = self.inode(ino);
            let Some(record) = self.noted(checked)? else { continue };
            inodes += 1;
            if TYPES.file_type(record.head.kind) == Some(FileType::Directory) {
                let children = self.entries(ino, &record);
                for (child, is_dir) in self.noted(children)?.unwrap_or_default() {
                    self.links.name(Ino(ino.into()), Ino(child.into()), is_dir);
                    waiting.push(child);
                }
            }
        }
        let report = &mut self.report;
        self.links.judge(|_, what| report.add(Severity::Error, what));
        let counted = self.core.inodes.load(Ordering::Acquire);
        if inodes != counted {
            let what = format!("there are {inodes} inodes, and {counted} are counted");
            report.add(Severity::Warning, what);
        }
        let size = self.core.layout.segment_blocks;
        self.used.compare(&self.core.domain, size, |severity, what| report.add(severity, what));
        Ok(())
    }

    /// The inodes that a directory names, and whether they are directories.
    fn entries(&mut self, dir: u32, record: &InodeRecord) -> Result<Vec<(u32, bool)>> {
        let (core, levels) = (self.core, record.levels.get());
        let (mut children, mut names) = (Vec::new(), BTreeSet::new());
        core.visit_entries(dir, levels, (0, 0), |found, _| {
            if !names.insert(found.name.to_vec()) {
                self.error(format!("directory {dir} has a name twice"));
            }
            match TYPES.file_type(found.kind) {
                Some(file_type) if core.is_number(Ino(found.ino.into())) => {
                    children.push((found.ino, file_type == FileType::Directory));
                }
                _ => self.error(format!("an entry of directory {dir} has no sense")),
            }
            true
        })?;
        for name in &names {
            if core.find_entry(dir, levels, name)?.is_none() {
                self.error(format!("an entry of directory {dir} is not where its name's hash says"));
            }
        }
        let (entries, says) = (children.len() as u64, record.entries.get());
        if entries != says {
            self.error(format!("directory {dir} has {entries} entries and says that it has {says}"));
        }
        Ok(children)
    }

    /// Follows an inode's nodes, and notes what they use.
    fn inode(&mut self, ino: u32) -> Result<InodeRecord> {
        let core = self.core;
        let node = core.parts(&[ino])?.nodes[&ino].clone();
        let record = record_of(&node.addresses);
        let wrong = |what: &'static str| Error::corrupt("inode", u64::from(ino), what);
        let is_inode = node.index == INODE && node.ino.0 == u64::from(ino);
        let file_type = TYPES.file_type(record.head.kind).filter(|_| is_inode);
        let file_type = file_type.ok_or_else(|| wrong("it is none"))?;
        self.node(ino);
        let xattr = record.xattr.get();
        if xattr != 0 {
            let node = core.parts(&[xattr])?.nodes[&xattr].clone();
            if node.index != XATTR || node.ino.0 != u64::from(ino) {
                return Err(wrong("its attributes are another's"));
            }
            self.node(xattr);
        }
        let (size, parent) = (record.head.size.get(), Ino(record.parent.get().into()));
        self.links.inode(Ino(ino.into()), file_type, record.head.nlink.get(), parent);
        if file_type == FileType::Symlink && size > LINK_BYTES as u64 {
            let rest =
                core.named(ino, LINK_WORD, ino, LINK)?.ok_or_else(|| wrong("its target is cut off"))?;
            self.node(rest);
        }
        if !matches!(file_type, FileType::Regular | FileType::Directory) {
            return Ok(record);
        }
        let end = size.div_ceil(PAGE as u64);
        let mut blocks = self.pages((ino, INODE), &node.addresses, (0, end));
        core.each_node(ino, &mut |nid, index, words| {
            self.node(nid);
            blocks += self.pages((ino, index), words, (first_page(Some(index)), end));
        })?;
        let says = record.blocks.get();
        if blocks != says {
            self.error(format!("inode {ino} has {blocks} blocks and says that it has {says}"));
        }
        Ok(record)
    }

    fn node(&mut self, nid: u32) {
        let address = self.core.domain.parts.lock().node_address(nid);
        if !self.used.add_node(nid) {
            self.error(format!("node {nid} is used twice"));
        }
        let report = &mut self.report;
        self.used.add_node_block(nid, address, |severity, what| report.add(severity, what));
    }

    /// Notes the pages that a node of an inode names. Returns how many.
    fn pages(
        &mut self,
        (ino, index): (u32, u32),
        words: &[Address; ADDRESSES],
        (first, end): (u64, u64),
    ) -> u64 {
        let report = &mut self.report;
        // Behind the end is what was written and not yet counted when power went.
        let place = (first, end, Severity::Warning);
        let words = &words[address_words(index, words)];
        self.used.add_pages(ino.into(), words, place, |severity, what| report.add(severity, what))
    }
}
