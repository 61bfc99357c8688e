//! Checkpoints (RO-2), and what waits for them: leaves that have become empty are given back here, all at
//! once (RO-5).

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::Result;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::format::{INLINE_SLOTS, Map, Slot};
use crate::logs;
use crate::part::{Inode, State};
use crate::tx::Tx;

/// Leaves that one transaction gives back.
const LEAVES_AT_ONCE: usize = 128;

/// Gives empty leaves back and brings the metadata to the device.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn checkpoint<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    let mut files = Vec::new();
    core.names.cache.visit(0, |inode| {
        // A file that somebody has locked keeps its leaves until the next time.
        if inode.state.try_read().is_some_and(|state| has_empty_leaf(&state)) {
            files.push(std::sync::Arc::clone(inode));
        }
        std::ops::ControlFlow::Continue(())
    });
    for inode in files {
        while give_leaves_back(core, &inode)? {}
    }
    core.journal.checkpoint(&core.meta)
}

fn has_empty_leaf(state: &State) -> bool {
    let mut found = false;
    if let Some(tree) = logs::known(state) {
        tree.visit(0..u64::MAX, |_, leaf| found |= leaf.logs.is_empty());
    }
    found
}

/// Gives some of a file's empty leaves back, of data blocks that nobody reads or writes. Whether there are
/// more.
fn give_leaves_back<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode) -> Result<bool> {
    let Some(mut state) = inode.state.try_write() else { return Ok(false) };
    if state.gone {
        return Ok(false);
    }
    let (mut empty, mut more) = (Vec::new(), false);
    if let Some(tree) = logs::known(&state) {
        tree.visit(0..u64::MAX, |block, leaf| {
            if !leaf.logs.is_empty() {
                return;
            }
            if empty.len() == LEAVES_AT_ONCE {
                more = true;
            } else if let Some(held) = inode.beside.ranges.try_take(block..block + 1, true) {
                empty.push((block, leaf.number, held));
            }
        });
    }
    if empty.is_empty() {
        return Ok(false);
    }
    let mut tx = Tx::new(core);
    for (block, number, _) in &empty {
        let slot = Slot { leaf: 0.into(), ..core.slot(&state.part.mapping, *block)? };
        if *block < INLINE_SLOTS {
            state.part.mapping.slots[*block as usize] = slot;
        } else if let Some(at) = core.slot_address(&state.part.mapping, *block)? {
            tx.ops.bytes(at, slot.as_bytes());
        }
        tx.free(Map::Leaves, (*number).into(), 1);
    }
    tx.put_inode(inode, &state, true);
    tx.commit()?;
    let given_back = |block: u64| empty.binary_search_by_key(&block, |(block, ..)| *block).is_ok();
    logs::open(core, inode, &mut state)?.retain(|block, _| !given_back(block));
    Ok(more)
}
