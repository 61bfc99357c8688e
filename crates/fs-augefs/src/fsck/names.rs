//! Whether names and inodes are of one mind.

use std::collections::{BTreeMap, BTreeSet};

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use amphi_volume::Severity;

use super::Report;
use crate::core::Core;
use crate::format::{EntryRecord, InodeRecord, decode_attributes, decode_entry, name_hash};
use crate::inode::unsound;
use crate::store::child_of;

/// What was found of an inode.
#[derive(Default)]
pub struct Found {
    /// What stands of it.
    pub record: Option<Box<InodeRecord>>,
    /// Directories that have a name of it, one for each name.
    pub parents: Vec<Ino>,
    /// Where its locator says that it stands.
    locator: Option<(Ino, Vec<u8>)>,
    /// Where it stands under a name.
    stands: Option<(Ino, Vec<u8>)>,
    /// Of a directory: entries, and directories among them.
    entries: u64,
    subdirectories: u32,
    orphan: bool,
}

/// Reads all names and inodes. What contradicts itself is reported.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn check<D: BlockPort + MemoryArea>(core: &Core<D>, report: &mut Report) -> Result<BTreeMap<Ino, Found>> {
    let mut found: BTreeMap<Ino, Found> = BTreeMap::new();
    read_entries(core, &mut found, report)?;
    read_numbers(core, &mut found, report)?;
    core.meta.visit(b"o:", b"o:", |key, _| {
        found.entry(number(&key[2..])?).or_default().orphan = true;
        Ok(true)
    })?;
    for (ino, inode) in &found {
        check_inode(*ino, inode, report);
    }
    check_reachable(&found, report);
    check_apart(core, &found, report)?;
    let there = found.values().filter(|inode| inode.record.is_some()).count() as u64;
    let counted = core.inodes.load(std::sync::atomic::Ordering::Acquire);
    if there != counted {
        report.add(Severity::Warning, format!("there are {there} inodes, and {counted} are counted"));
    }
    Ok(found)
}

/// A number in a key.
fn number(bytes: &[u8]) -> Result<Ino> {
    let number = bytes.get(..8).and_then(|bytes| bytes.try_into().ok());
    Ok(Ino(u64::from_be_bytes(
        number.ok_or_else(|| Error::corrupt("metadata store", None, "a key is too short"))?,
    )))
}

fn read_entries<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    found: &mut BTreeMap<Ino, Found>,
    report: &mut Report,
) -> Result<()> {
    core.meta.visit(b"m:", b"m:", |key, value| {
        let parent = number(&key[2..])?;
        let (Some(hash), Some(name)) = (key.get(11..19), key.get(19..)) else {
            report.error(format!("a key of directory {} is too short", parent.0));
            return Ok(true);
        };
        if hash != name_hash(name).to_be_bytes() {
            report.error(format!("an entry of directory {} stands under another hash", parent.0));
        }
        if Name::new(name).is_err() {
            report.error(format!("directory {} has a name that no file can have", parent.0));
        }
        let entry = decode_entry(value);
        let Some(child) = entry.as_ref().and_then(child_of) else {
            report.error(format!("an entry of directory {} has no sense", parent.0));
            return Ok(true);
        };
        let directory = found.entry(parent).or_default();
        directory.entries += 1;
        directory.subdirectories += u32::from(child.is_dir());
        let inode = found.entry(child.ino).or_default();
        inode.parents.push(parent);
        if let Some(EntryRecord::Inode(record, target)) = entry {
            check_record(core, &record, target, report)?;
            if inode.record.is_some() {
                report.error(format!("inode {} stands under two names", child.ino.0));
            }
            inode.record = Some(record);
            inode.stands = Some((parent, name.to_vec()));
        }
        Ok(true)
    })
}

fn read_numbers<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    found: &mut BTreeMap<Ino, Found>,
    report: &mut Report,
) -> Result<()> {
    core.meta.visit(b"i:", b"i:", |key, value| {
        let ino = number(&key[2..])?;
        let inode = found.entry(ino).or_default();
        match decode_entry(value) {
            Some(EntryRecord::Inode(record, target)) if record.ino.get() == ino.0 => {
                check_record(core, &record, target, report)?;
                if inode.record.is_some() {
                    report.error(format!("inode {} stands under a name and by its number", ino.0));
                }
                inode.record = Some(record);
            }
            Some(EntryRecord::Locator(parent, name)) => inode.locator = Some((parent, name)),
            _ => report.error(format!("what stands by number {} has no sense", ino.0)),
        }
        Ok(true)
    })
}

fn check_record<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    record: &InodeRecord,
    target: Vec<u8>,
    report: &mut Report,
) -> Result<()> {
    let is_apart = record.file_type() == Some(FileType::Symlink) && target.is_empty();
    let target = if is_apart { core.find_target(Ino(record.ino.get()))? } else { target };
    if let Some(what) = unsound(record, &target) {
        report.error(format!("{what} {} makes no sense", record.ino.get()));
    }
    Ok(())
}

/// Extended attributes and targets that stand apart are some inode's, and can be read.
fn check_apart<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    found: &BTreeMap<Ino, Found>,
    report: &mut Report,
) -> Result<()> {
    core.meta.visit(b"x:", b"x:", |key, value| {
        let ino = number(&key[2..])?;
        if decode_attributes(value).is_none() {
            report.error(format!("the attributes of inode {} make no sense", ino.0));
        } else if found.get(&ino).is_none_or(|inode| inode.record.is_none()) {
            report.add(
                Severity::Warning,
                format!("there are attributes of inode {}, which is not there", ino.0),
            );
        }
        Ok(true)
    })?;
    core.meta.visit(b"l:", b"l:", |key, _| {
        let ino = number(&key[2..])?;
        let record = found.get(&ino).and_then(|inode| inode.record.as_ref());
        if record.is_none_or(|record| record.file_type() != Some(FileType::Symlink)) {
            report.add(Severity::Warning, format!("there is a target of inode {}, which is no link", ino.0));
        }
        Ok(true)
    })
}

fn check_inode(ino: Ino, inode: &Found, report: &mut Report) {
    let number = ino.0;
    let Some(record) = &inode.record else {
        report.error(format!("inode {number} is named or has entries, and is not there"));
        return;
    };
    if inode.locator != inode.stands {
        report.error(format!("inode {number} is not where its locator says"));
    }
    let (names, nlink) = (inode.parents.len() as u32, record.head.nlink.get());
    if record.file_type() == Some(FileType::Directory) {
        let right_place = if ino == Ino::ROOT {
            names == 0
        } else {
            inode.parents == [Ino(record.parent.get())] || (names == 0 && inode.orphan)
        };
        if !right_place {
            report.error(format!("directory {number} is not where it says that it is"));
        }
        if inode.entries != record.entries.get() {
            let says = record.entries.get();
            report.error(format!("directory {number} has {} entries and says {says}", inode.entries));
        }
        let wanted = if inode.orphan { 0 } else { inode.subdirectories + 2 };
        if nlink != wanted {
            report.error(format!("directory {number} has {nlink} links, and should have {wanted}"));
        }
        return;
    }
    if inode.entries > 0 {
        report.error(format!("inode {number} is no directory and has entries"));
    }
    if nlink != names {
        report.error(format!("inode {number} has {names} names and {nlink} links"));
    }
    if names == 0 && !inode.orphan {
        report.add(Severity::Warning, format!("inode {number} has no name, and is not among the orphans"));
    }
    if names > 0 && inode.orphan {
        report.error(format!("inode {number} has a name, and is among the orphans"));
    }
}

/// Directories that do not lead to the root have names nobody can find.
fn check_reachable(found: &BTreeMap<Ino, Found>, report: &mut Report) {
    let mut sound = BTreeSet::from([Ino::ROOT]);
    for ino in found.keys() {
        let (mut path, mut at) = (BTreeSet::new(), *ino);
        while !sound.contains(&at) && path.insert(at) {
            let Some(parent) = found.get(&at).and_then(|inode| inode.parents.first()) else { break };
            at = *parent;
        }
        if sound.contains(&at) || found.get(&at).is_some_and(|inode| inode.orphan) {
            sound.append(&mut path);
        } else {
            report.error(format!("inode {} cannot be reached from the root", ino.0));
        }
    }
}
