//! The first pass: every inode, its slots, leaves, logs and pages.

use std::ops::ControlFlow;

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, FileType, Ino, Result};

use super::usage::{Known, Usage};
use super::{Finding, Report};
use crate::core::Core;
use crate::format::{InodeHead, Map, Slot};
use crate::logs;
use crate::part::Inode;
use crate::xattr;

/// Reads every inode.
///
/// # Errors
/// [`Error::Io`].
pub fn check<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    usage: &mut Usage,
    report: &mut Report,
) -> Result<()> {
    // Nobody's, and never free.
    let _first = usage.take(Map::Inodes, 0, 0, report);
    let mut marked = vec![0; core.layout.plan.inodes.div_ceil(64) as usize];
    core.meta.words(Map::Inodes, |number, word| marked[number as usize] = word)?;
    for ino in 1..core.layout.plan.inodes {
        let is_marked = marked[(ino / 64) as usize] >> (ino % 64) & 1 == 1;
        let head: InodeHead = core.meta.read(core.layout.inode(ino))?;
        if head.kind == 0 {
            continue;
        }
        let inode = match core.load_inode(Ino(ino)) {
            Ok(inode) => inode,
            Err(error @ Error::Io(_)) => return Err(error),
            Err(error) => {
                report.findings.push(Finding::InodeDamaged { ino, what: error.to_string() });
                continue;
            }
        };
        if !is_marked {
            report.findings.push(Finding::InodeNotMarked { ino });
        }
        let _fresh = usage.take(Map::Inodes, ino, ino, report);
        check_inode(core, &inode, usage, report)?;
    }
    Ok(())
}

fn check_inode<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    usage: &mut Usage,
    report: &mut Report,
) -> Result<()> {
    let state = inode.state.read();
    let ino = inode.ino.0;
    let (file_type, nlink, parent) = (state.file_type, state.nlink, inode.parent().0);
    let known = Known { file_type, nlink, parent, names: 0, is_named: false };
    usage.inodes.insert(ino, known);
    match state.file_type {
        FileType::Regular => report.files += 1,
        FileType::Directory => report.directories += 1,
        FileType::Symlink => report.symlinks += 1,
        _ => report.special += 1,
    }
    if let Some(page) = state.part.attributes_page.checked_sub(1) {
        let what = if u64::from(page) < core.layout.plan.pages {
            let _fresh = usage.take(Map::Pages, page.into(), ino, report);
            (!xattr::is_sound(core, page)?).then_some("its extended attributes make no sense")
        } else {
            Some("its attributes are in a page that does not exist")
        };
        if let Some(what) = what {
            report.findings.push(Finding::InodeDamaged { ino, what: what.into() });
        }
    }
    let pages = match core.mapping_pages(&state.part.mapping) {
        Err(error @ Error::Io(_)) => return Err(error),
        Err(error) => {
            report.findings.push(Finding::InodeDamaged { ino, what: error.to_string() });
            return Ok(());
        }
        Ok(pages) => pages,
    };
    for page in pages {
        let _fresh = usage.take(Map::Pages, page.into(), ino, report);
    }
    if !matches!(state.file_type, FileType::Regular | FileType::Directory) {
        return Ok(());
    }
    let mut slots = Vec::new();
    let visited = core.visit_slots(&state.part.mapping, 0..u64::MAX, |index, slot| {
        slots.push((index, slot));
        ControlFlow::Continue(())
    });
    match visited {
        Err(error @ Error::Io(_)) => return Err(error),
        Err(error) => report.findings.push(Finding::InodeDamaged { ino, what: error.to_string() }),
        Ok(()) => {}
    }
    let (mut blocks, mut log_pages) = (0, 0);
    for (index, slot) in slots {
        let is_dir = state.file_type == FileType::Directory;
        let map = if is_dir { Map::Pages } else { Map::Blocks };
        if let Some(block) = slot.block() {
            if u64::from(block) < core.layout.bits(map) {
                blocks += u64::from(usage.take(map, block.into(), ino, report));
            } else {
                let what = "a slot names a block that does not exist".into();
                report.findings.push(Finding::InodeDamaged { ino, what });
            }
        }
        if !is_dir {
            log_pages += check_leaf(core, (ino, index), slot, usage, report)?;
        }
    }
    let mut count = |what, said, there| {
        if said != there {
            report.findings.push(Finding::Count { ino, what, said, there });
        }
    };
    count("blocks", state.part.blocks, blocks);
    count("log pages", state.part.logs, log_pages);
    Ok(())
}

fn check_leaf<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    (ino, block): (u64, u64),
    slot: Slot,
    usage: &mut Usage,
    report: &mut Report,
) -> Result<u64> {
    let Some(leaf) = slot.leaf() else { return Ok(0) };
    if !usage.take(Map::Leaves, leaf.into(), ino, report) {
        return Ok(0);
    }
    let (head, logs) = match logs::read_leaf(core, leaf) {
        Ok(found) => found,
        Err(error @ Error::Io(_)) => return Err(error),
        Err(_) => {
            report.findings.push(Finding::LeafDamaged { ino, block });
            return Ok(0);
        }
    };
    if (head.ino.get(), head.block.get()) != (ino, block) {
        report.findings.push(Finding::LeafOfAnother { ino, block });
    }
    Ok(logs.iter().map(|log| u64::from(usage.take(Map::Logs, log.page.into(), ino, report))).sum())
}
