//! Checking an unmounted file system as the next mount would find it: names against inodes, inodes against
//! nodes, nodes against NAT and SIT. It changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_vfs::{Error, FileType, Ino, Result};
use amphi_volume::{Report, Severity};

use crate::core::Core;
use crate::format::{
    Address, INODE, InodeRecord, LINK, LINK_BYTES, LINK_WORD, NAT_ENTRIES, PAGE, TYPES, XATTR, address_words,
    record_of,
};
use crate::mount::{self, MountError};
use crate::nodes::first_page;
use crate::volume::{report, usual};

/// Most findings that are listed.
const LISTED: usize = 1000;

/// What is found.
#[derive(Default)]
pub struct Outcome {
    /// What is wrong, up to a thousand things.
    pub findings: Vec<(Severity, String)>,
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
    blocks: BTreeSet<u32>,
    nids: BTreeSet<u32>,
    held: u64,
}

/// What is found of an inode.
#[derive(Default)]
struct Seen {
    /// Directories that have a name of it, one for each name.
    parents: Vec<u32>,
    entries: u64,
    subdirectories: u32,
}

impl Outcome {
    fn add(&mut self, severity: Severity, what: String) {
        match severity {
            Severity::Error => self.errors += 1,
            _ => self.warnings += 1,
        }
        if self.findings.len() < LISTED {
            self.findings.push((severity, what));
        }
    }

    fn error(&mut self, what: String) {
        self.add(Severity::Error, what);
    }
}

/// Checks the file system on a device. Damage is no error but a finding.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`]; [`MountError::Damaged`] if there is no checkpoint.
pub fn check<D: BlockPort>(device: &Arc<D>) -> std::result::Result<Report, MountError> {
    let (options, names) = usual(true);
    let core = match mount::open(device, options, names) {
        Err(MountError::Damaged(Error::Corrupt(damage))) => {
            let mut outcome = Outcome::default();
            outcome.error(damage.to_string());
            return Ok(Report::of(outcome.findings));
        }
        opened => opened?,
    };
    let mut outcome = Outcome::default();
    match check_all(&core, &mut outcome) {
        Err(Error::Corrupt(damage)) => outcome.error(damage.to_string()),
        done => done?,
    }
    Ok(report(&core, outcome))
}

fn check_all<D: BlockPort>(core: &Core<D>, outcome: &mut Outcome) -> Result<()> {
    let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
    let mut inodes: BTreeMap<u32, InodeRecord> = BTreeMap::new();
    let mut waiting: Vec<u32> = core.orphans.lock().iter().copied().collect();
    waiting.push(Ino::ROOT.0 as u32);
    while let Some(ino) = waiting.pop() {
        if inodes.contains_key(&ino) {
            continue;
        }
        let record = match check_inode(core, ino, outcome) {
            Err(Error::Corrupt(damage)) => {
                outcome.error(damage.to_string());
                continue;
            }
            checked => checked?,
        };
        inodes.insert(ino, record);
        if TYPES.file_type(record.kind) == Some(FileType::Directory) {
            let children = check_entries(core, ino, &record, outcome);
            let children = match children {
                Err(Error::Corrupt(damage)) => {
                    outcome.error(damage.to_string());
                    continue;
                }
                children => children?,
            };
            for (child, is_dir) in children {
                let directory = seen.entry(ino).or_default();
                directory.entries += 1;
                directory.subdirectories += u32::from(is_dir);
                seen.entry(child).or_default().parents.push(ino);
                waiting.push(child);
            }
        }
    }
    let nothing = Seen::default();
    for (ino, record) in &inodes {
        let is_orphan = core.orphans.lock().contains(ino);
        judge(*ino, record, seen.get(ino).unwrap_or(&nothing), is_orphan, outcome);
    }
    let counted = core.inodes.load(std::sync::atomic::Ordering::Acquire);
    if inodes.len() as u64 != counted {
        let there = inodes.len();
        outcome.add(Severity::Warning, format!("there are {there} inodes, and {counted} are counted"));
    }
    check_maps(core, outcome);
    Ok(())
}

/// The inodes that a directory names, and whether they are directories.
fn check_entries<D: BlockPort>(
    core: &Core<D>,
    dir: u32,
    record: &InodeRecord,
    outcome: &mut Outcome,
) -> Result<Vec<(u32, bool)>> {
    let mut children = Vec::new();
    let mut names = BTreeSet::new();
    core.visit_entries(dir, record.levels.get(), (0, 0), |name, ino, kind, _| {
        if !names.insert(name.to_vec()) {
            outcome.error(format!("directory {dir} has a name twice"));
        }
        if TYPES.file_type(kind).is_none() || !core.is_number(Ino(ino.into())) {
            outcome.error(format!("an entry of directory {dir} has no sense"));
        } else {
            children.push((ino, TYPES.file_type(kind) == Some(FileType::Directory)));
        }
        true
    })?;
    for name in &names {
        if core.find_entry(dir, record.levels.get(), name)?.is_none() {
            outcome.error(format!("an entry of directory {dir} is not where its name's hash says"));
        }
    }
    Ok(children)
}

/// Follows an inode's nodes, and notes what they use.
fn check_inode<D: BlockPort>(core: &Core<D>, ino: u32, outcome: &mut Outcome) -> Result<InodeRecord> {
    let node = core.parts(&[ino])?.nodes[&ino].clone();
    let record = record_of(&node.addresses);
    let wrong = |what: &'static str| Error::corrupt("inode", u64::from(ino), what);
    let file_type =
        TYPES.file_type(record.kind).filter(|_| node.index == INODE && node.ino.0 == u64::from(ino));
    let file_type = file_type.ok_or_else(|| wrong("it is none"))?;
    note_node(core, ino, outcome);
    if record.xattr.get() != 0 {
        let xattr = record.xattr.get();
        let node = core.parts(&[xattr])?.nodes[&xattr].clone();
        if node.index != XATTR || node.ino.0 != u64::from(ino) {
            return Err(wrong("its attributes are another's"));
        }
        note_node(core, xattr, outcome);
    }
    match file_type {
        FileType::Regular => outcome.files += 1,
        FileType::Directory => outcome.directories += 1,
        FileType::Symlink => outcome.symlinks += 1,
        _ => {}
    }
    if file_type == FileType::Symlink && record.size.get() > LINK_BYTES as u64 {
        let rest = core.named(ino, LINK_WORD, ino, LINK)?.ok_or_else(|| wrong("its target is cut off"))?;
        note_node(core, rest, outcome);
    }
    if !matches!(file_type, FileType::Regular | FileType::Directory) {
        return Ok(record);
    }
    let end = record.size.get().div_ceil(PAGE as u64);
    let words = address_words(INODE, &node.addresses);
    let mut blocks = note_pages(&node.addresses[words], (ino, 0, end), outcome);
    core.each_node(ino, &mut |nid, index, words| {
        note_node(core, nid, outcome);
        let pages = address_words(index, words);
        blocks += note_pages(&words[pages], (ino, first_page(Some(index)), end), outcome);
    })?;
    if blocks != record.blocks.get() {
        let says = record.blocks.get();
        outcome.error(format!("inode {ino} has {blocks} blocks and says that it has {says}"));
    }
    Ok(record)
}

fn note_node<D: BlockPort>(core: &Core<D>, nid: u32, outcome: &mut Outcome) {
    let address = core.domain.parts.lock().node_address(nid);
    if !outcome.nids.insert(nid) {
        outcome.error(format!("node {nid} is used twice"));
    }
    if let Some(block) = address.block()
        && !outcome.blocks.insert(block)
    {
        outcome.error(format!("block {block} of node {nid} is used twice"));
    }
}

/// Notes the pages that a node of an inode names, from page `first` on. Returns how many.
fn note_pages(words: &[Address], (ino, first, end): (u32, u64, u64), outcome: &mut Outcome) -> u64 {
    let mut blocks = 0;
    for (page, address) in (first..).zip(words).filter(|(_, address)| !address.is_hole()) {
        blocks += 1;
        outcome.held += u64::from(*address == Address::RESERVED);
        let Some(block) = address.block() else { continue };
        if page >= end {
            // What was written and not yet counted when power went.
            outcome.add(Severity::Warning, format!("inode {ino} has page {page} behind its end"));
        }
        if !outcome.blocks.insert(block) {
            outcome.error(format!("block {block} is used twice, by inode {ino} too"));
        }
    }
    blocks
}

fn judge(ino: u32, record: &InodeRecord, seen: &Seen, is_orphan: bool, outcome: &mut Outcome) {
    let (names, nlink) = (seen.parents.len() as u32, record.nlink.get());
    if TYPES.file_type(record.kind) == Some(FileType::Directory) {
        let place = if u64::from(ino) == Ino::ROOT.0 {
            names == 0
        } else {
            seen.parents == [record.parent.get()] || (names == 0 && is_orphan)
        };
        if !place {
            outcome.error(format!("directory {ino} is not where it says that it is"));
        }
        let (entries, says) = (seen.entries, record.entries.get());
        if entries != says {
            outcome.error(format!("directory {ino} has {entries} entries and says that it has {says}"));
        }
        let links = if is_orphan { 0 } else { 2 + seen.subdirectories };
        if nlink != links {
            outcome.error(format!("directory {ino} counts {nlink} links and has {links}"));
        }
    } else if nlink != names {
        outcome.error(format!("inode {ino} counts {nlink} links and has {names}"));
    }
    if nlink == 0 && !is_orphan {
        outcome.error(format!("inode {ino} has no name and is no orphan"));
    }
}

/// Compares what is used with SIT and NAT.
fn check_maps<D: BlockPort>(core: &Core<D>, outcome: &mut Outcome) {
    let parts = core.domain.parts.lock();
    let size = core.layout.segment_blocks;
    let blocks = std::mem::take(&mut outcome.blocks);
    for block in &blocks {
        let segment = parts.sit.get(u64::from(block / size));
        if !segment.is_some_and(|segment| segment.is_valid(block % size)) {
            outcome.error(format!("block {block} is used and invalid in the SIT"));
        }
    }
    for segment in parts.segments(|_| true) {
        let Some(sit) = parts.sit.get(segment.into()) else { continue };
        let all = (segment * size..).take(size as usize);
        let leaked = all.filter(|block| sit.is_valid(block % size) && !blocks.contains(block)).count();
        if leaked > 0 {
            let what = format!("{leaked} blocks of segment {segment} are valid in the SIT, and nobody's");
            outcome.add(Severity::Warning, what);
        }
    }
    if parts.held != outcome.held {
        let (held, found) = (parts.held, outcome.held);
        outcome.add(Severity::Warning, format!("{held} blocks are held, and files hold {found}"));
    }
    let mut from = 0;
    while let Some((block, part)) = parts.nat.next(from) {
        from = block + 1;
        let nids = block as u32 * NAT_ENTRIES as u32..;
        let lost = nids.zip(&part.entries).filter(|(nid, at)| !at.is_hole() && !outcome.nids.contains(nid));
        let lost: Vec<_> = lost.map(|(nid, _)| nid).collect();
        for nid in lost {
            outcome.add(Severity::Warning, format!("node {nid} is nobody's"));
        }
    }
}
