//! Per-block write-back of data logs (RO-8): a data block is read, its logs are put over it, and it is
//! written to another block by a transaction like a write's. It happens when a merge fails (in `plan`), and
//! when the memory zone runs short, here: then the blocks with the most logs go first.

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, Result};

use crate::core::Core;
use crate::format::Map;
use crate::inode::Inode;
use crate::logs;
use crate::plan::Plan;
use crate::tx::Tx;
use crate::write::execute;

/// Blocks that are written back by an operation that found no room, before it tries again.
const AT_ONCE: usize = 8;

/// Writes the logs of a data block back. False if it is in use, or has none.
///
/// # Errors
/// [`Error::NoSpace`] if the block zone is full; [`Error::Corrupt`], [`Error::Io`].
pub fn write_back<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode<D>, block: u64) -> Result<bool> {
    let (_held, tx, plan, inline) = {
        let Some(mut state) = inode.state.try_write() else { return Ok(false) };
        if state.gone || amphi_names::regular(inode.file_type).is_err() {
            return Ok(false);
        }
        let Some(held) = inode.beside.ranges.try_take(block..block + 1, true) else { return Ok(false) };
        if logs::open(core, inode, &mut state)?.get(block).is_none_or(|leaf| leaf.logs.is_empty()) {
            return Ok(false);
        }
        let mut tx = Tx::new(core);
        let mut plan = Plan::default();
        plan.add_rewrite(&mut tx, &state, block, None)?;
        let inline = plan.store_slots(&mut tx, &state)?;
        (held, tx, plan, inline)
    };
    match execute(core, inode, tx, &plan, &[], inline, |_| ()) {
        Ok(()) => Ok(true),
        // It was deleted meanwhile.
        Err(Error::Stale(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes the logs of up to `count` blocks back, those with the most first. Returns how many.
///
/// # Errors
/// [`Error::NoSpace`] if the block zone is full and nothing was written; [`Error::Corrupt`], [`Error::Io`].
pub fn write_back_largest<D: BlockPort + MemoryArea>(core: &Core<D>, count: usize) -> Result<usize> {
    let mut done = 0;
    for (ino, block) in core.victims.largest(count) {
        let inode = match core.inode(ino) {
            Err(Error::Stale(_)) => {
                core.victims.forget(ino);
                continue;
            }
            found => found?,
        };
        match write_back(core, &inode, block) {
            Ok(written) => done += usize::from(written),
            Err(Error::NoSpace) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// After [`Error::NoSpace`]: whether write-back has made room.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn make_room<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<bool> {
    let pages = core.pool(Map::Logs);
    if pages.free() * 4 > pages.bits() && core.pool(Map::Leaves).free() > 0 {
        // It is not the memory zone that is full.
        return Ok(false);
    }
    match write_back_largest(core, AT_ONCE) {
        Ok(written) => Ok(written > 0),
        Err(Error::NoSpace) => Ok(false),
        Err(error) => Err(error),
    }
}
