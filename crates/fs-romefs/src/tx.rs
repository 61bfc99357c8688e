//! A transaction of metadata alone (RO-2).

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, Result};
use smallvec::SmallVec;

use crate::core::Core;
use crate::format::{INODE_HEAD_BYTES, LEAF_ENTRIES_AT, Map, PAGE, Slot};
use crate::inode;
use crate::ops::Ops;
use crate::part::{Inode, State};
use crate::planted::{self, Bug};
use crate::pool::Run;

/// A transaction under construction. Dropped before it is committed, it gives back what it took.
pub struct Tx<'a, D: BlockPort + MemoryArea + 'static> {
    /// Of what.
    pub core: &'a Core<D>,
    /// What it does.
    pub ops: Ops,
    /// What it took, as runs.
    taken: SmallVec<[(Map, Run); 6]>,
    /// What is free once it counts.
    freed: SmallVec<[(Map, Run); 6]>,
    /// Metadata pages that it may use.
    spare: SmallVec<[u32; 8]>,
}

impl<'a, D: BlockPort + MemoryArea> Tx<'a, D> {
    /// An empty one.
    pub fn new(core: &'a Core<D>) -> Self {
        Self {
            core,
            ops: Ops::default(),
            taken: SmallVec::new(),
            freed: SmallVec::new(),
            spare: SmallVec::new(),
        }
    }

    /// Lays metadata pages aside, for [`page`](Self::page).
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn reserve_pages(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let run = self.core.pool(Map::Pages).take(1).ok_or(Error::NoSpace)?;
            self.spare.push(run.first as u32);
        }
        Ok(())
    }

    /// A metadata page that was laid aside, with zeros in it if `zeroed`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if too few were laid aside.
    pub fn page(&mut self, zeroed: bool) -> Result<u32> {
        let page = self
            .spare
            .pop()
            .ok_or_else(|| Error::corrupt("mapping", None, "it needs more pages than it can"))?;
        self.note_taken(Map::Pages, Run { first: page.into(), count: 1 });
        if zeroed {
            self.ops.zeros(self.core.layout.page(page), PAGE as u64);
        }
        Ok(page)
    }

    /// Takes up to `wanted` in a row.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is not one.
    pub fn take(&mut self, map: Map, wanted: u64) -> Result<Run> {
        let run = self.core.pool(map).take(wanted).ok_or(Error::NoSpace)?;
        self.note_taken(map, run);
        Ok(run)
    }

    /// Takes log pages, and a leaf if `leaf`; or none of them, if some are not there.
    pub fn take_for_logs(&mut self, pages: usize, leaf: bool) -> Option<(SmallVec<[u32; 4]>, Option<u32>)> {
        let mut taken: SmallVec<[u32; 4]> = SmallVec::new();
        let pool = self.core.pool(Map::Logs);
        while taken.len() < pages
            && let Some(run) = pool.take((pages - taken.len()) as u64)
        {
            taken.extend((run.first..run.first + run.count).map(|page| page as u32));
        }
        let number = if leaf { self.core.pool(Map::Leaves).take(1) } else { None };
        if taken.len() < pages || (leaf && number.is_none()) {
            taken.iter().for_each(|page| pool.give_back(Run { first: (*page).into(), count: 1 }));
            if let Some(run) = number {
                self.core.pool(Map::Leaves).give_back(run);
            }
            return None;
        }
        for page in &taken {
            self.note_taken(Map::Logs, Run { first: (*page).into(), count: 1 });
        }
        if let Some(run) = number {
            self.note_taken(Map::Leaves, run);
        }
        Some((taken, number.map(|run| run.first as u32)))
    }

    fn note_taken(&mut self, map: Map, run: Run) {
        self.ops.set(map, run.first, run.count);
        self.taken.push((map, run));
    }

    /// Frees a run once the transaction counts.
    pub fn free(&mut self, map: Map, first: u64, count: u64) {
        if !planted::has(Bug::BitsLeaked) {
            self.ops.clear(map, first, count);
        }
        match self.freed.last_mut() {
            Some((last, run)) if *last == map && run.first + run.count == first => run.count += count,
            _ => self.freed.push((map, Run { first, count })),
        }
    }

    /// Frees what a slot has: its block, its leaf and the logs in there. Returns the blocks and the log
    /// pages.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn free_slot(&mut self, slot: Slot, tree: Option<&crate::tree::Leaf>) -> (u64, u64) {
        if let Some(block) = slot.block() {
            self.free(Map::Blocks, block.into(), 1);
        }
        let mut logs = 0;
        if let Some(leaf) = tree {
            self.clear_leaf(leaf.number);
            self.free(Map::Leaves, leaf.number.into(), 1);
            for log in &leaf.logs {
                self.free(Map::Logs, log.page.into(), 1);
                logs += 1;
            }
        }
        (slot.block().is_some().into(), logs)
    }

    /// Empties a leaf.
    pub fn clear_leaf(&mut self, number: u32) {
        let at = self.core.layout.leaf(number);
        self.ops.zeros(at + LEAF_ENTRIES_AT, crate::format::LEAF_BYTES - LEAF_ENTRIES_AT);
    }

    /// Stores an inode: with its slots, or what comes before them.
    pub fn put_inode(&mut self, inode: &Inode, state: &State, slots: bool) {
        put_inode(&mut self.ops, self.core, inode, state, slots);
    }

    /// Takes the place of the operations on the way to [`commit_into`](Self::commit_into): what was taken and
    /// what will be free.
    fn settle(&mut self) {
        self.taken.clear();
        for (map, run) in self.freed.drain(..) {
            self.core.pool(map).give_back(run);
        }
    }

    /// Makes the transaction count, which had its record made by `journal`, and hands out what it freed.
    ///
    /// # Errors
    /// Whatever `journal` says; the file system is read-only then.
    pub fn commit_by(&mut self, journal: impl FnOnce(&Core<D>, &Ops) -> Result<()>) -> Result<()> {
        let done = journal(self.core, &self.ops);
        match &done {
            Ok(()) => self.settle(),
            Err(error) => self.core.names.health.fail(error),
        }
        done
    }

    /// Makes the transaction count.
    ///
    /// # Errors
    /// [`Error::Io`]; the file system is read-only then.
    pub fn commit(mut self) -> Result<()> {
        if self.ops.is_empty() {
            return Ok(());
        }
        let core = self.core;
        let done = self.commit_by(|core, ops| core.journal.append(&core.meta, ops));
        if core.journal.is_half_full() {
            core.background.call();
        }
        done
    }
}

/// Stores an inode: with its slots, or what comes before them.
pub fn put_inode<D: BlockPort + MemoryArea>(
    ops: &mut Ops,
    core: &Core<D>,
    inode: &Inode,
    state: &State,
    slots: bool,
) {
    let bytes = inode::encode(inode, state);
    let end = if slots { bytes.len() } else { INODE_HEAD_BYTES };
    ops.bytes(core.layout.inode(inode.ino.0), &bytes[..end]);
}

impl<D: BlockPort + MemoryArea> Drop for Tx<'_, D> {
    fn drop(&mut self) {
        for (map, run) in self.taken.drain(..) {
            self.core.pool(map).give_back(run);
        }
        for page in self.spare.drain(..) {
            self.core.pool(Map::Pages).give_back(Run { first: page.into(), count: 1 });
        }
    }
}
