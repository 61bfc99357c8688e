//! `sync` and `fsync`: by a checkpoint, or, where recovery finds out the rest, by the file's own nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, Structure};
use amphi_segments::as_writes;
use amphi_segments::files::write_back_all;
use amphi_vfs::{FileType, Ino, Result};

use crate::checkpoint;
use crate::core::Core;
use crate::format::NodeHead;
use crate::part::Inode;
use crate::planted::{self, Bug};
use crate::writeback::{Goes, write_back};

/// Most nodes of a set.
const SET_MOST: usize = 4096;

/// Makes everything completed so far durable.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`]; the file system is read-only then.
pub fn sync<D: BlockPort>(core: &Core<D>) -> Result<()> {
    core.names.health.writable()?;
    write_back_all(core)?;
    checkpoint::now(core)
}

/// Makes a file durable: its pages and its nodes, if recovery finds out the rest from them; else by a
/// checkpoint, as on F2FS. With `data_only`, nodes that say nothing new but times stay in memory.
///
/// # Errors
/// As for [`sync`].
pub fn fsync<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
    core.names.health.writable()?;
    if planted::has(Bug::FsyncForgotten) {
        return Ok(());
    }
    if inode.file_type == FileType::Regular {
        let mut state = inode.state.write();
        if state.gone {
            return Ok(());
        }
        // Another call may have taken what it could not write.
        core.names.health.sound()?;
        if !planted::has(Bug::PagesForgotten) {
            let goes = if data_only { Goes::InPlace } else { Goes::InPlaceIfFew };
            write_back(core, inode, &mut state, goes)?;
        }
        let ino = inode.ino.0 as u32;
        if state.nlink > 0 && core.rolls(ino, &state.part) {
            let unsaved = core.fresh.lock().unsaved.contains(&ino) && !planted::has(Bug::NodesForgotten);
            if data_only && !unsaved {
                return core.names.health.judge(core.ground.settle());
            }
            let written = core.names.health.judge(write_set(core, ino))?;
            if written {
                return Ok(());
            }
        }
    }
    checkpoint::now(core)
}

/// Writes the nodes of a file that have changed as a set that recovery finds. The caller has the file locked.
/// False if it takes a checkpoint to find them.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
fn write_set<D: BlockPort>(core: &Core<D>, ino: u32) -> Result<bool> {
    let _gate = core.domain.gate.read();
    // A checkpoint that has failed meanwhile takes for written what is not.
    core.names.health.sound()?;
    let mut parts = core.domain.parts.lock();
    let nids: Vec<_> = parts.nodes.dirty_of(Ino(ino.into())).collect();
    if nids.is_empty() {
        core.ground.settle()?;
        return Ok(true);
    }
    if nids.len() > SET_MOST {
        return Ok(false);
    }
    let Some(blocks) = core.take_ahead(&mut parts, nids.len())? else { return Ok(false) };
    let set = parts.next_sequence();
    let stamp = |head: &mut NodeHead| {
        (head.write_version, head.fsync) = (set.into(), (nids.len() as u16).into());
    };
    let sealed = core.ground.seal(&core.domain, &mut parts, nids.iter(), &blocks, stamp)?;
    core.dirtied.fetch_sub(sealed.len(), Ordering::Relaxed);
    drop(parts);
    if core.fresh.lock().unsaved.contains(&ino) && !planted::has(Bug::NodesBeforeData) {
        // Blocks that they name, and bytes up to the new end.
        core.names.health.judge(core.ground.settle())?;
    }
    let written = core.ground.write_blocks(&[(&as_writes(&sealed), Structure::Inode)]);
    core.names.health.judge(written.and_then(|()| core.ground.settle()))?;
    core.domain.parts.lock().arrived(&sealed);
    core.fresh.lock().unsaved.remove(&ino);
    Ok(true)
}
