//! Whether what the log holds makes sense: names and entries, counts, pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_vfs::{FileType, Ino};
use amphi_volume::{Report, Result, Severity};
use serde_json::json;

use crate::log::Log;
use crate::map::{Key, Map, Record, Value};
use crate::store::read_super;

/// What is counted of an inode.
#[derive(Default)]
struct Seen {
    record: Option<Record>,
    /// Names that lead to it.
    names: u32,
    /// Directories in it.
    directories: u32,
    /// Entries in it.
    entries: u64,
    pages: u64,
    is_orphan: bool,
}

/// Checks the toy on a device.
///
/// # Errors
/// There is none, or the device fails.
pub fn check<D: BlockPort>(device: &Arc<D>) -> Result<Report> {
    let superblock = read_super(&**device)?;
    let mut findings = Vec::new();
    let mut seen: BTreeMap<Ino, Seen> = BTreeMap::new();
    match Map::recover(Log::new(Arc::clone(device), superblock)) {
        Ok(map) => map.scan(Key::Inode(Ino(0)), Key::Orphan(Ino(u64::MAX)), |key, value| {
            count(&mut seen, &map, key, value, &mut findings);
            true
        }),
        Err(amphi_vfs::Error::Corrupt(what)) => findings.push(what.to_string()),
        Err(error) => return Err(error.into()),
    }
    for (ino, seen) in &seen {
        judge(*ino, seen, &mut findings);
    }
    let of = |wanted: FileType| {
        let is = |seen: &&Seen| seen.record.as_ref().is_some_and(|record| record.file_type == wanted);
        seen.values().filter(is).count() as u64
    };
    Ok(Report {
        errors: findings.len() as u64,
        warnings: 0,
        own: json!({ "findings": findings, "inodes": seen.len() }),
        findings: findings.into_iter().map(|what| (Severity::Error, what)).collect(),
        files: of(FileType::Regular),
        directories: of(FileType::Directory),
        symlinks: of(FileType::Symlink),
        pages: superblock.pages.get(),
        pages_used: seen.values().map(|seen| seen.pages).sum(),
        cleanly_unmounted: superblock.clean.get() == 1,
    })
}

fn count<D: BlockPort>(
    seen: &mut BTreeMap<Ino, Seen>,
    map: &Map<D>,
    key: &Key,
    value: &Value,
    findings: &mut Vec<String>,
) {
    let entry =
        |ino: &Ino, name: &[u8]| format!("the entry {:?} of {}", String::from_utf8_lossy(name), ino.0);
    match (key, value) {
        (Key::Inode(ino), Value::Inode(record)) => {
            seen.entry(*ino).or_default().record = Some(Record::clone(record));
        }
        (Key::Name(dir, name), Value::Name(cookie)) => {
            let is_it = |value: &Value| matches!(value, Value::Entry(other, _) if other == name);
            if map.get(&Key::Entry(*dir, *cookie), is_it) != Some(true) {
                findings.push(format!("{} is not there", entry(dir, name)));
            }
        }
        (Key::Entry(dir, at), Value::Entry(name, child)) => {
            let is_it = |value: &Value| matches!(value, Value::Name(cookie) if cookie == at);
            if map.get(&Key::Name(*dir, name.clone()), is_it) != Some(true) {
                findings.push(format!("{} has no name", entry(dir, name)));
            }
            let parent = seen.entry(*dir).or_default();
            parent.entries += 1;
            parent.directories += u32::from(child.is_dir());
            seen.entry(child.ino).or_default().names += 1;
        }
        (Key::Page(ino, _), Value::Page(_)) => seen.entry(*ino).or_default().pages += 1,
        (Key::Orphan(ino), Value::Orphan) => seen.entry(*ino).or_default().is_orphan = true,
        (key, _) => findings.push(format!("{key:?} holds something else")),
    }
}

fn judge(ino: Ino, seen: &Seen, findings: &mut Vec<String>) {
    let ino = ino.0;
    let Some(record) = &seen.record else {
        findings.push(format!("inode {ino} is referred to and is not there"));
        return;
    };
    let is_dir = record.file_type == FileType::Directory;
    let own = if is_dir && seen.names + u32::from(ino == Ino::ROOT.0) > 0 { 1 } else { 0 };
    let links = if is_dir && own > 0 { 2 + seen.directories } else { seen.names };
    if record.nlink != links {
        findings.push(format!("inode {ino} counts {} links and has {links}", record.nlink));
    }
    if record.nlink == 0 && !seen.is_orphan {
        findings.push(format!("inode {ino} has no name and is no orphan"));
    }
    if record.entries != seen.entries {
        findings.push(format!("directory {ino} counts {} entries and has {}", record.entries, seen.entries));
    }
    if record.pages != seen.pages {
        findings.push(format!("inode {ino} counts {} pages and has {}", record.pages, seen.pages));
    }
}
