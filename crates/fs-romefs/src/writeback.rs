//! Per-block write-back of data logs (RO-8): a data block is read, its logs are put over it, and it is
//! written to another block by a transaction like a write's. It happens when a merge fails (in `plan`), and
//! when the memory zone runs short, here: then the blocks with the most logs go first.

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, Result};

use crate::core::Core;
use crate::execute::execute;
use crate::format::Map;
use crate::logs;
use crate::part::Inode;
use crate::plan::Plan;
use crate::tx::Tx;

/// Blocks that are written back by an operation that found no room, before it tries again.
const AT_ONCE: usize = 8;

/// What became of a block that was to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Its logs are in the block zone.
    Written,
    /// Somebody uses it, or its file.
    InUse,
    /// It has no logs, or is gone.
    Nothing,
}

/// Writes the logs of a data block back, unless somebody uses it.
///
/// # Errors
/// [`Error::NoSpace`] if the block zone is full; [`Error::Corrupt`], [`Error::Io`].
fn write_back<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode, block: u64) -> Result<Outcome> {
    let (_held, mut tx, plan, inline) = {
        let Some(mut state) = inode.state.try_write() else { return Ok(Outcome::InUse) };
        if state.gone || amphi_names::regular(inode.file_type).is_err() {
            return Ok(Outcome::Nothing);
        }
        let Some(held) = inode.beside.ranges.try_take(block..block + 1, true) else {
            return Ok(Outcome::InUse);
        };
        if logs::open(core, inode, &mut state)?.get(block).is_none_or(|leaf| leaf.logs.is_empty()) {
            return Ok(Outcome::Nothing);
        }
        let mut tx = Tx::new(core);
        let mut plan = Plan::default();
        plan.add_rewrite(&mut tx, &state, block, None)?;
        let inline = plan.store_slots(&mut tx, &state)?;
        (held, tx, plan, inline)
    };
    match execute(core, inode, &mut tx, &plan, &[], inline, |_| ()) {
        Ok(()) => Ok(Outcome::Written),
        // It was deleted meanwhile.
        Err(Error::Stale(_)) => Ok(Outcome::Nothing),
        Err(error) => Err(error),
    }
}

/// Writes the logs of up to `count` blocks back, those with the most first. Returns how many. Several tasks
/// that do so at the same time have different blocks.
///
/// # Errors
/// [`Error::NoSpace`] if the block zone is full and nothing was written; [`Error::Corrupt`], [`Error::Io`].
pub fn write_back_largest<D: BlockPort + MemoryArea>(core: &Core<D>, count: usize) -> Result<usize> {
    let (mut done, mut busy) = (0, Vec::new());
    let outcome = loop {
        if done + busy.len() == count {
            break Ok(done);
        }
        let Some(claimed) = core.victims.claim() else { break Ok(done) };
        let (ino, block, _) = claimed;
        let written = core.inode(ino).and_then(|inode| write_back(core, &inode, block));
        match written {
            Ok(Outcome::Written) => done += 1,
            Ok(Outcome::InUse) => busy.push(claimed),
            Ok(Outcome::Nothing) => {}
            Err(Error::Stale(_)) => core.victims.forget(ino),
            Err(error) => {
                busy.push(claimed);
                break if error == Error::NoSpace && done > 0 { Ok(done) } else { Err(error) };
            }
        }
    };
    busy.into_iter().for_each(|claimed| core.victims.give_back(claimed));
    outcome
}

/// Before a write that finds hardly a free log page: one block is written back by the writer itself, as the
/// background task does not keep up. So the blocks with the most logs go, and not the one that is written to.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn help<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    match write_back_largest(core, 1) {
        // The write itself finds out whether there is room for it.
        Ok(_) | Err(Error::NoSpace) => Ok(()),
        Err(error) => Err(error),
    }
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
