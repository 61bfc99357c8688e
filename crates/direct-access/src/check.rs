//! Whether what is on the device makes sense: inodes, pages, names, links, parents. There is nothing to
//! repair: free pages are not on the device.

use std::sync::Arc;

use amphi_device::Structure;
use amphi_names::{Inode, State};
use amphi_vfs::{Error, FileType};
use amphi_volume::{Claims, Links, Report, Result, Severity, decode_attributes};
use serde_json::json;

use crate::format::PAGE;
use crate::ground::{DirectAccess, Layout};
use crate::medium::Medium;
use crate::mount::{fixed_pages, read_super};

/// What the check has seen.
struct Seen {
    claims: Claims,
    links: Links,
    findings: Vec<String>,
}

impl Seen {
    /// Damage is a finding; what else fails ends the check.
    fn sound<T>(&mut self, read: amphi_vfs::Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Error::Corrupt(what)) => {
                self.findings.push(what.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Claims pages for something. Returns whether nobody else has them.
    fn claim(&mut self, pages: Vec<(u64, u64)>) -> bool {
        let mut alone = true;
        for (first, count) in pages {
            let whole = self.claims.claim(first, count, |_, _| alone = false);
            alone &= whole;
        }
        alone
    }
}

/// Checks the file system on a device. What was open when it was last used is undone, as mounting would.
///
/// # Errors
/// As [`amphi_volume::Volume::check`].
pub fn check<F: DirectAccess>(device: &Arc<F::Device>) -> Result<Report> {
    let found = read_super::<F>(device)?;
    let layout = found.layout;
    let medium = Medium::new(device);
    let mut seen = Seen { claims: fixed_pages(&layout), links: Links::default(), findings: Vec::new() };
    seen.sound(F::undo(&medium, &layout))?;
    if let Some(table) = seen.sound(F::table(&medium, &layout))? {
        if !seen.claim(F::pages_of_table(&table)) {
            seen.findings.push("the table of inodes has a page twice".to_owned());
        }
        for ino in F::there(&medium, &layout, &table)? {
            if let Some(inode) = seen.sound(F::read_inode(&medium, &layout, &table, ino))? {
                look::<F>(&medium, &inode, &inode.state.read(), &mut seen)?;
            }
        }
    }
    let Seen { claims, links, mut findings } = seen;
    links.judge(|_, what| findings.push(what));
    Ok(Report {
        own: json!({ "findings": findings, "inodes": links.inodes() }),
        files: links.count(FileType::Regular),
        directories: links.count(FileType::Directory),
        symlinks: links.count(FileType::Symlink),
        pages: layout.numbers().0,
        pages_used: claims.bits.count(),
        cleanly_unmounted: found.clean,
        ..Report::of(findings.into_iter().map(|what| (Severity::Error, what)).collect())
    })
}

fn look<F: DirectAccess>(
    medium: &Medium<F::Device>,
    inode: &Inode<F::Part>,
    state: &State<F::Part>,
    seen: &mut Seen,
) -> Result<()> {
    let ino = inode.ino;
    if !seen.claim(F::pages(&state.part)) {
        seen.findings.push(format!("inode {} has a page that is another's", ino.0));
    }
    let (page, bytes) = F::attributes_at(&state.part);
    if page != 0 {
        let mut bytes = vec![0; bytes];
        medium.load(page * PAGE, &mut bytes, Structure::Inode)?;
        if decode_attributes(&bytes).is_none() {
            seen.findings.push(format!("inode {}: its attributes make no sense", ino.0));
        }
    }
    seen.links.inode(ino, state.file_type, state.nlink, inode.parent());
    for child in F::children(&state.part) {
        seen.links.name(ino, child.ino, child.is_dir());
    }
    Ok(())
}
