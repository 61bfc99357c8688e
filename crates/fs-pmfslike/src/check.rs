//! Whether what is on the device makes sense: records, trees, names, links, parents. There is nothing to
//! repair: free pages are not on the device.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_device::PageView;
use amphi_vfs::{Error, FileType, Ino};
use amphi_volume::{Report, Severity};
use serde_json::json;

use crate::format::PAGE;
use crate::fs::PmfsError;
use crate::inode::{self, Loaded};
use crate::log::Log;
use crate::medium::Medium;
use crate::mount::{Used, read_super};
use crate::table::Table;
use crate::xattr;

/// What is counted of an inode.
#[derive(Default)]
struct Seen {
    /// Type, links and parent.
    there: Option<(FileType, u32, Ino)>,
    /// Names that lead to it, and the directory of the last.
    names: u32,
    named_in: Option<Ino>,
    /// Directories in it.
    directories: u32,
}

/// Checks the file system on a device. What the log has open is undone, as mounting would.
///
/// # Errors
/// There is none, or the device fails.
pub fn check<D: PageView>(device: &Arc<D>) -> Result<Report, PmfsError> {
    let about = read_super(&**device)?;
    let layout = about.layout;
    let medium = Medium::new(device);
    let mut findings = Vec::new();
    match Log::recover(&medium, &layout) {
        Ok(_) => {}
        Err(Error::Corrupt(what)) => findings.push(what.to_string()),
        Err(error) => return Err(error.into()),
    }
    let mut seen: BTreeMap<Ino, Seen> = BTreeMap::new();
    let mut used = Used::new(&layout);
    let table = match Table::load(&medium, &layout) {
        Ok(table) => Some(table),
        Err(Error::Corrupt(what)) => {
            findings.push(what.to_string());
            None
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(table) = &table {
        for (page, count) in table.pages() {
            if !used.mark(page, count) {
                findings.push("the table of inodes has a page twice".to_owned());
            }
        }
        for ino in table.there(&medium, &layout)? {
            match inode::load(&medium, &layout, ino, table.address(ino)?) {
                Ok(loaded) => look(&medium, ino, &loaded, &mut used, &mut seen, &mut findings)?,
                Err(Error::Corrupt(what)) => findings.push(what.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
    }
    if !seen.get(&Ino::ROOT).is_some_and(|root| root.there.is_some_and(|(of, ..)| of == FileType::Directory))
    {
        findings.push("there is no root".to_owned());
    }
    for (ino, seen) in &seen {
        judge(*ino, seen, &mut findings);
    }
    let of = |wanted: FileType| {
        seen.values().filter(|seen| seen.there.is_some_and(|(of, ..)| of == wanted)).count() as u64
    };
    Ok(Report {
        errors: findings.len() as u64,
        warnings: 0,
        own: json!({ "findings": findings, "inodes": seen.len() }),
        findings: findings.into_iter().map(|what| (Severity::Error, what)).collect(),
        files: of(FileType::Regular),
        directories: of(FileType::Directory),
        symlinks: of(FileType::Symlink),
        pages: layout.pages,
        pages_used: layout.data() + used.count(),
        cleanly_unmounted: about.clean,
    })
}

fn look<D: PageView>(
    medium: &Medium<D>,
    ino: Ino,
    loaded: &Loaded,
    used: &mut Used,
    seen: &mut BTreeMap<Ino, Seen>,
    findings: &mut Vec<String>,
) -> Result<(), PmfsError> {
    let part = &loaded.part;
    for (page, count) in part.pages() {
        if !used.mark(page, count) {
            findings.push(format!("inode {} has a page that is another's", ino.0));
        }
    }
    let (page, bytes) = part.attributes_at();
    if page != 0 {
        let mut bytes = vec![0; bytes];
        medium.load(page * PAGE, &mut bytes, amphi_device::Structure::Inode)?;
        if xattr::decode(&bytes).is_none() {
            findings.push(format!("inode {}: its attributes make no sense", ino.0));
        }
    }
    seen.entry(ino).or_default().there = Some((loaded.file_type, part.record.nlink.get(), part.parent));
    for named in part.dir.children() {
        seen.entry(ino).or_default().directories += u32::from(named.is_dir());
        let child = seen.entry(named.ino).or_default();
        child.names += 1;
        child.named_in = Some(ino);
    }
    Ok(())
}

fn judge(ino: Ino, seen: &Seen, findings: &mut Vec<String>) {
    let number = ino.0;
    let Some((file_type, nlink, parent)) = seen.there else {
        findings.push(format!("inode {number} is referred to and is not there"));
        return;
    };
    let is_dir = file_type == FileType::Directory;
    let is_root = ino == Ino::ROOT;
    let links = match (is_dir, is_root || seen.names > 0) {
        (true, true) => 2 + seen.directories,
        (true, false) => 0,
        (false, _) => seen.names,
    };
    if nlink != links {
        findings.push(format!("inode {number} counts {nlink} links and has {links}"));
    }
    if is_dir && seen.names + u32::from(is_root) > 1 {
        findings.push(format!("directory {number} has several names"));
    }
    if is_dir && !is_root && seen.names > 0 && seen.named_in != Some(parent) {
        findings.push(format!("directory {number} is not in its parent {}", parent.0));
    }
}
