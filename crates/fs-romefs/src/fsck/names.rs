//! The second pass: directories, what their entries name, and who has no name.

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::FIRST_COOKIE;
use amphi_rt::hash::HashSet;
use amphi_vfs::{DirEntry, Error, FileType, Ino, Result};

use super::usage::Usage;
use super::{Finding, Report};
use crate::core::Core;
use crate::entries;
use crate::format::Map;

/// An entry: its inode, its type, its name.
pub type Listed = (u64, FileType, Vec<u8>);

/// The entries of a directory; none if they make no sense.
///
/// # Errors
/// [`Error::Io`].
pub fn entries<D: BlockPort + MemoryArea>(core: &Core<D>, ino: u64) -> Result<Option<Vec<Listed>>> {
    let inode = core.load_inode(Ino(ino))?;
    let state = inode.state.read();
    let mut listed = Vec::new();
    let opened = entries::read(core, &inode, &state).and_then(|open| {
        entries::list(core, (inode.ino, &open), FIRST_COOKIE, &mut |entry: DirEntry<'_>| {
            listed.push((entry.ino.0, entry.file_type, entry.name.to_vec()));
            true
        })
    });
    match opened {
        Ok(()) => Ok(Some(listed)),
        Err(error @ Error::Io(_)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Reads every directory.
///
/// # Errors
/// [`Error::Io`].
pub fn check<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    usage: &mut Usage,
    report: &mut Report,
) -> Result<()> {
    if !usage.inodes.get(&Ino::ROOT.0).is_some_and(|root| root.file_type == FileType::Directory) {
        let what = "the root is no directory".into();
        report.findings.push(Finding::InodeDamaged { ino: Ino::ROOT.0, what });
    }
    let mut dirs: Vec<u64> = usage
        .inodes
        .iter()
        .filter(|(_, known)| known.file_type == FileType::Directory)
        .map(|(ino, _)| *ino)
        .collect();
    dirs.sort_unstable();
    for dir in &dirs {
        add(usage, *dir, 2 - u32::from(*dir != Ino::ROOT.0));
    }
    for dir in rings(usage, &dirs) {
        report.findings.push(Finding::Unreachable { ino: dir });
    }
    for dir in dirs {
        let Some(listed) = entries(core, dir)? else {
            report.findings.push(Finding::DirectoryDamaged { ino: dir });
            continue;
        };
        let said = core.load_inode(Ino(dir))?.state.read().part.entries;
        if said != listed.len() as u64 {
            let there = listed.len() as u64;
            report.findings.push(Finding::Count { ino: dir, what: "entries", said, there });
        }
        for (ino, file_type, name) in listed {
            if let Some(what) = wrong_with(usage, dir, ino, file_type) {
                let name = name.escape_ascii().to_string();
                report.findings.push(Finding::Entry { dir, name, ino, what });
                continue;
            }
            add(usage, ino, 1);
            if let Some(known) = usage.inodes.get_mut(&ino) {
                known.is_named = true;
            }
            if file_type == FileType::Directory {
                add(usage, dir, 1);
            }
        }
    }
    let mut orphans = vec![0; core.layout.plan.inodes.div_ceil(64) as usize];
    core.meta.words(Map::Orphans, |number, word| orphans[number as usize] = word)?;
    let is_orphan = |ino: u64| orphans[(ino / 64) as usize] >> (ino % 64) & 1 == 1;
    for ino in (0..core.layout.plan.inodes).filter(|ino| is_orphan(*ino)) {
        report.orphans += 1;
        report.findings.push(match usage.inodes.get(&ino) {
            Some(known) if known.nlink > 0 && known.file_type != FileType::Regular => {
                Finding::OrphanWithName { ino }
            }
            Some(_) => Finding::Orphan { ino },
            None => Finding::OrphanOfNothing { ino },
        });
    }
    for (ino, known) in &usage.inodes {
        if !known.is_named && *ino != Ino::ROOT.0 {
            let lost = Finding::Unreachable { ino: *ino };
            // A mount deletes an orphan without links. One with links it finishes cutting, and leaves.
            let is_left = known.nlink > 0 || !is_orphan(*ino);
            if is_left && !report.findings.contains(&lost) {
                report.findings.push(lost);
            }
        } else if known.names != known.nlink {
            let (said, there) = (known.nlink.into(), known.names.into());
            report.findings.push(Finding::Count { ino: *ino, what: "links", said, there });
        }
    }
    Ok(())
}

/// One directory of each ring: they name each other as parents, and nobody comes to them from the root.
fn rings(usage: &Usage, dirs: &[u64]) -> Vec<u64> {
    let mut seen = HashSet::from_iter([Ino::ROOT.0]);
    let mut rings = Vec::new();
    for dir in dirs {
        let (mut at, mut path) = (*dir, HashSet::default());
        while !seen.contains(&at) && path.insert(at) {
            let known = usage.inodes.get(&at).filter(|known| known.file_type == FileType::Directory);
            // One whose parent is none has no entry there, which the names tell.
            at = known.map_or(Ino::ROOT.0, |known| known.parent);
        }
        if !seen.contains(&at) {
            rings.push(at);
        }
        seen.extend(path);
    }
    rings
}

fn add(usage: &mut Usage, ino: u64, names: u32) {
    if let Some(known) = usage.inodes.get_mut(&ino) {
        known.names += names;
    }
}

/// What is wrong with an entry of `dir` that names `ino` as a file of this type.
pub fn wrong_with(usage: &Usage, dir: u64, ino: u64, file_type: FileType) -> Option<&'static str> {
    let Some(known) = usage.inodes.get(&ino) else { return Some("is free") };
    if known.file_type != file_type {
        Some("has another type")
    } else if known.file_type == FileType::Directory && (known.parent != dir || ino == Ino::ROOT.0) {
        Some("has another parent")
    } else {
        None
    }
}
