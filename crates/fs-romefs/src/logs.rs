//! A file's data logs in host memory and in the leaf table.

use std::ops::ControlFlow;

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::core::Core;
use crate::format::{LEAF_BYTES, LEAF_ENTRIES, LEAF_ENTRIES_AT, LeafHead, LogEntry, PAGE};
use crate::ops::Ops;
use crate::part::{Body, Inode, State};
use crate::tree::{Leaf, Log, Logs, Tree};

/// Makes a file's logs known.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn open<'s, D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    state: &'s mut State,
) -> Result<&'s mut Tree> {
    if matches!(state.part.body, Body::Unknown) {
        let mut leaves = Vec::new();
        core.visit_slots(&state.part.mapping, 0..u64::MAX, |index, slot| {
            leaves.extend(slot.leaf().map(|leaf| (index, leaf)));
            ControlFlow::Continue(())
        })?;
        let mut tree = Tree::default();
        for (block, number) in leaves {
            let (head, logs) = read_leaf(core, number)?;
            if (head.ino.get(), head.block.get()) != (inode.ino.0, block) {
                return Err(Error::corrupt(
                    "leaf",
                    u64::from(number),
                    format!("block {block} of inode {} has it, and it belongs to another", inode.ino.0),
                ));
            }
            tree.set(block, &Leaf { number, logs });
        }
        state.part.body = Body::File(Box::new(tree));
    }
    match &mut state.part.body {
        Body::File(tree) => Ok(tree),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

/// The logs of a file that are known.
pub fn known(state: &State) -> Option<&Tree> {
    match &state.part.body {
        Body::File(tree) => Some(tree),
        _ => None,
    }
}

/// Reads a leaf.
///
/// # Errors
/// [`Error::Corrupt`] for a log that cannot be; [`Error::Io`].
pub fn read_leaf<D: BlockPort + MemoryArea>(core: &Core<D>, number: u32) -> Result<(LeafHead, Logs)> {
    let at = core.layout.leaf(number);
    let head: LeafHead = core.meta.read(at)?;
    let entries: [LogEntry; LEAF_ENTRIES] = core.meta.read(at + LEAF_ENTRIES_AT)?;
    let mut logs = Logs::new();
    for entry in entries {
        let Some(page) = entry.page.get().checked_sub(1) else { continue };
        let log = Log { page, offset: entry.offset.get(), size: entry.size.get() };
        let end = u64::from(log.offset) + u64::from(log.size);
        let sound = u64::from(page) < core.layout.plan.logs
            && log.size > 0
            && end <= core.block_bytes()
            && log.in_page() + u64::from(log.size) <= PAGE as u64
            && !logs.iter().any(|other: &Log| other.meets(&log.range()));
        if !sound {
            return Err(Error::corrupt("leaf", u64::from(number), "it has a data log that cannot be"));
        }
        logs.push(log);
    }
    Ok((head, logs))
}

/// Stores the entries of a leaf that had `before` of them.
pub fn store_entries<D: BlockPort + MemoryArea>(ops: &mut Ops, core: &Core<D>, leaf: &Leaf, before: usize) {
    let mut entries = [LogEntry::new_zeroed(); LEAF_ENTRIES];
    for (entry, log) in entries.iter_mut().zip(&leaf.logs) {
        *entry = LogEntry { page: (log.page + 1).into(), offset: log.offset.into(), size: log.size.into() };
    }
    let count = before.max(leaf.logs.len());
    if count > 0 {
        ops.bytes(core.layout.leaf(leaf.number) + LEAF_ENTRIES_AT, entries[..count].as_bytes());
    }
}

/// Stores a new leaf.
pub fn store_leaf<D: BlockPort + MemoryArea>(
    ops: &mut Ops,
    core: &Core<D>,
    ino: u64,
    block: u64,
    leaf: &Leaf,
) {
    let mut bytes = [0; LEAF_BYTES as usize];
    let head = LeafHead { ino: ino.into(), block: block.into(), ..LeafHead::default() };
    bytes[..size_of::<LeafHead>()].copy_from_slice(head.as_bytes());
    ops.bytes(core.layout.leaf(leaf.number), &bytes);
    store_entries(ops, core, leaf, 0);
}
