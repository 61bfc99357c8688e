//! Transactions over the firmware's write log (BY-7, BY-17).
//!
//! An operation gathers its updates — byte ranges of metadata pages, bitmap bits, orphan slots — in a [`Tx`]
//! and commits them at the end: each range becomes a byte-port store carrying the transaction's number, the
//! lines are flushed and verified, and `COMMIT` makes them durable together. The locks that guard the ranges
//! (inode and directory locks by the caller, bitmap groups and orphan lines by the commit itself, in
//! ascending order) are held until then, so that the log's order and the commits' order agree wherever they
//! touch.
//!
//! A `Tx` dropped without commit gives back what it allocated. A commit that fails leaves host and device
//! apart: the file system turns read-only.

use amphi_device::{BlockPort, BytePortExt, Structure, TxId, WriteLog};
use amphi_rt::sync::MutexGuard;
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;
use smallvec::SmallVec;

use crate::base::Base;
use crate::commit::pending::Update;
use crate::commit::redo;
use crate::format::{LINE, ORPHANS_PER_LINE};
use crate::planted::{self, Bug};
use crate::space::bitmap::Bitmap;
use crate::space::group_bits::{GroupBits, Run, change, line};
use crate::space::orphans::SlotLine;

/// One atomic change of the file system under construction.
pub struct Tx<'a, D: BlockPort + WriteLog> {
    /// The file system.
    pub base: &'a Base<D>,
    bytes: SmallVec<[u8; 512]>,
    updates: SmallVec<[Update; 8]>,
    blocks_taken: SmallVec<[Run; 4]>,
    blocks_freed: SmallVec<[Run; 4]>,
    inodes_taken: SmallVec<[Run; 1]>,
    inodes_freed: SmallVec<[Run; 1]>,
    orphans: SmallVec<[(u32, u32); 1]>,
    blocks_reserved: u64,
    slot_reserved: Option<u32>,
}

impl<'a, D: BlockPort + WriteLog> Tx<'a, D> {
    /// A transaction that may allocate up to `blocks` blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are not as many; [`Error::ReadOnly`] once the file system has failed.
    pub fn new(base: &'a Base<D>, blocks: u64) -> Result<Self> {
        Self::with_slot(base, blocks, false)
    }

    /// As [`new`](Self::new), with an orphan slot for an inode that it may put there, if it `needs_slot`.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::NoSpace`] too if the orphan table is full.
    #[inline]
    pub fn with_slot(base: &'a Base<D>, blocks: u64, needs_slot: bool) -> Result<Self> {
        base.writable()?;
        let slot = if needs_slot { Some(base.orphans.take_slot().ok_or(Error::NoSpace)?) } else { None };
        if blocks > 0 && !base.blocks.reserve(blocks) {
            slot.into_iter().for_each(|slot| base.orphans.return_slot(slot));
            return Err(Error::NoSpace);
        }
        Ok(Self::holding(base, blocks, slot))
    }

    /// As [`new`](Self::new), for what frees more than it takes: the blocks may be the last ones.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn freeing(base: &'a Base<D>, blocks: u64) -> Result<Self> {
        base.writable()?;
        if blocks > 0 && !base.blocks.reserve_last(blocks) {
            return Err(Error::NoSpace);
        }
        Ok(Self::with_reserved(base, blocks))
    }

    /// As [`new`](Self::new), taking over `blocks` that the caller has reserved.
    pub fn with_reserved(base: &'a Base<D>, blocks: u64) -> Self {
        Self::holding(base, blocks, None)
    }

    /// A transaction that holds these blocks and this orphan slot. It is large, and so made where it will be.
    #[inline]
    fn holding(base: &'a Base<D>, blocks: u64, slot: Option<u32>) -> Self {
        Self {
            base,
            bytes: SmallVec::new(),
            updates: SmallVec::new(),
            blocks_taken: SmallVec::new(),
            blocks_freed: SmallVec::new(),
            inodes_taken: SmallVec::new(),
            inodes_freed: SmallVec::new(),
            orphans: SmallVec::new(),
            blocks_reserved: blocks,
            slot_reserved: slot,
        }
    }

    /// The orphan slot that was reserved.
    pub fn take_slot(&mut self) -> u32 {
        self.slot_reserved
            .take()
            .expect("an operation reserves the slot it may need before it changes anything")
    }

    /// Adds an update of `bytes` at device byte address `at`, which must stay within one page. What continues
    /// the update before it travels with it, as one store.
    pub fn write(&mut self, at: u64, bytes: &[u8], tag: Structure) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        if let Some(last) = self.updates.last_mut()
            && last.continues(at, tag)
        {
            last.bytes.end = self.bytes.len();
            return;
        }
        self.updates.push(Update { at, bytes: start..self.bytes.len(), tag });
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
            && self.blocks_taken.is_empty()
            && self.blocks_freed.is_empty()
            && self.inodes_taken.is_empty()
            && self.inodes_freed.is_empty()
            && self.orphans.is_empty()
    }

    /// Bytes of updates so far.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Allocates 1 to `want` blocks of the reservation.
    pub fn allocate_blocks(&mut self, want: u64, goal: Option<u64>) -> Run {
        let want = want.min(self.blocks_reserved);
        assert!(want > 0, "an operation reserves the blocks it may need before it changes anything");
        let run = self.base.blocks.allocate(want, goal);
        self.blocks_reserved -= run.len;
        self.blocks_taken.push(run);
        run
    }

    /// Allocates one block for metadata.
    pub fn allocate_block(&mut self) -> u32 {
        self.allocate_blocks(1, None).start as u32
    }

    /// Frees blocks when the transaction commits.
    pub fn free_blocks(&mut self, run: Run) {
        self.blocks_freed.push(run);
    }

    /// Allocates an inode number, near the last one of this processor or, `apart`, of each processor in turn.
    ///
    /// # Errors
    /// [`Error::NoInodes`].
    pub fn allocate_inode(&mut self, apart: bool) -> Result<u32> {
        let inodes = &self.base.inodes;
        if !inodes.reserve(1) {
            return Err(Error::NoInodes);
        }
        let run = if apart { inodes.allocate_in_turn() } else { inodes.allocate(1, None) };
        self.inodes_taken.push(run);
        Ok(run.start as u32)
    }

    /// Frees an inode number when the transaction commits.
    pub fn free_inode(&mut self, ino: u32) {
        self.inodes_freed.push(Run { start: u64::from(ino), len: 1 });
    }

    /// Sets an orphan slot to `ino`, or empties it with 0: it can be taken again once the transaction has
    /// committed.
    pub fn set_slot(&mut self, slot: u32, ino: u32) {
        self.orphans.push((slot, ino));
    }

    /// Makes the transaction durable or, with `metadata=grouped`, part of the running group (`group.rs`).
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`]; the file system has then turned read-only.
    pub fn commit(mut self) -> Result<()> {
        let outcome = self.commit_updates();
        if let Err(error) = &outcome {
            self.base.fail(error);
        }
        // What was taken now belongs to the committed state, or, after a failure, to no one who may still
        // write.
        self.blocks_taken.clear();
        self.inodes_taken.clear();
        outcome
    }

    fn commit_updates(&mut self) -> Result<()> {
        let base = self.base;
        let orphan_lines = self.stage_orphans();
        let inode_groups = stage_bits(
            &base.inodes,
            &self.inodes_taken,
            &self.inodes_freed,
            &mut self.bytes,
            &mut self.updates,
        )?;
        let block_groups = stage_bits(
            &base.blocks,
            &self.blocks_taken,
            &self.blocks_freed,
            &mut self.bytes,
            &mut self.updates,
        )?;
        let grouped = base.groups_metadata();
        // What one that has failed meanwhile would have changed is in these lines now.
        base.health.sound()?;
        if grouped {
            let freed = if planted::has(Bug::FreedAtJoin) { &[][..] } else { &self.blocks_freed };
            base.join_group(&self.updates, &self.bytes, freed);
        } else {
            store_and_commit(base, &self.updates, &self.bytes).inspect_err(|error| base.fail(error))?;
        }
        drop((orphan_lines, inode_groups, block_groups));
        for update in self.updates.iter().filter(|update| base.layout.in_inode_table(update.at)) {
            base.inode_pages.note(update.at, &self.bytes[update.bytes.clone()]);
        }
        for (slot, _) in self.orphans.iter().filter(|(_, ino)| *ino == 0) {
            base.orphans.return_slot(*slot);
        }
        // A number is metadata alone, which are in order; blocks hold data, which go in place at once.
        let now = !grouped || planted::has(Bug::FreedAtJoin);
        let sound = (!now || self.blocks_freed.iter().all(|run| base.blocks.release(*run)))
            & self.inodes_freed.iter().all(|run| base.inodes.release(*run));
        if sound {
            if grouped { base.commit_full_group() } else { Ok(()) }
        } else {
            Err(Error::corrupt("bitmaps", None, "blocks or inodes are claimed twice"))
        }
    }

    /// Locks the orphan lines that change, in order, and adds their updates.
    fn stage_orphans(&mut self) -> SmallVec<[MutexGuard<'a, SlotLine>; 1]> {
        // Stable: of two settings of one slot the later one counts.
        self.orphans.sort_by_key(|(slot, _)| *slot);
        let mut guards: SmallVec<[MutexGuard<'a, SlotLine>; 1]> = SmallVec::new();
        let mut locked = None;
        for number in 0..self.orphans.len() {
            let (slot, ino) = self.orphans[number];
            let (line_index, at) = self.base.orphans.place(slot);
            if locked != Some(line_index) {
                guards.push(self.base.orphans.lock(line_index));
                locked = Some(line_index);
            }
            let Some(guard) = guards.last_mut() else { continue };
            guard[slot as usize % ORPHANS_PER_LINE] = ino;
            self.write(at, &ino.to_le_bytes(), Structure::Inode);
        }
        guards
    }
}

/// Makes updates, whose bytes lie among `bytes`, durable together.
///
/// # Errors
/// The device's, and what [`redo::commit`] says.
pub(super) fn store_and_commit<D: BlockPort + WriteLog>(
    base: &Base<D>,
    updates: &[Update],
    bytes: &[u8],
) -> Result<()> {
    let device = &*base.device;
    let atomic = base.contract.store_atomic_bytes as usize;
    match updates {
        [] => Ok(()),
        [only]
            if only.bytes.len() <= atomic
                && only.at % atomic as u64 + only.bytes.len() as u64 <= atomic as u64 =>
        {
            device.persist(only.at, &bytes[only.bytes.clone()], None, only.tag).map_err(io_error)
        }
        updates if !base.contract.transactions => {
            let bytes = |update: &Update| &bytes[update.bytes.clone()];
            let updates: SmallVec<[redo::Update<'_>; 8]> =
                updates.iter().map(|update| (update.at, bytes(update), update.tag)).collect();
            redo::commit(base, &updates)
        }
        updates => {
            let committed = base.txs.run(device, |id| store_under(device, updates, bytes, id));
            committed.map_err(io_error)
        }
    }
}

/// Stores the updates under a number, and commits it.
fn store_under<D: WriteLog>(
    device: &D,
    updates: &[Update],
    bytes: &[u8],
    id: TxId,
) -> amphi_device::Result<()> {
    for (number, update) in updates.iter().enumerate() {
        let outside = planted::has(Bug::BitmapOutsideTransaction) && update.tag == Structure::Bitmap
            || planted::has(Bug::EntryOutsideTransaction) && update.tag == Structure::Dentry;
        let tx = (!outside).then_some(id);
        device.store(update.at, &bytes[update.bytes.clone()], tx, update.tag)?;
        if !(planted::has(Bug::LastStoreNotFlushed) && number + 1 == updates.len()) {
            device.flush_lines(update.at, update.bytes.len());
        }
    }
    if !planted::has(Bug::FenceMissing) {
        device.fence();
    }
    if !planted::has(Bug::VerifyMissing) {
        device.verify_read()?;
    }
    device.commit(id)
}

/// Locks the bitmap groups that change, in ascending order, applies the changes to the device's copy, and
/// adds the lines as updates.
fn stage_bits<'a>(
    map: &'a Bitmap,
    taken: &[Run],
    freed: &[Run],
    bytes: &mut SmallVec<[u8; 512]>,
    updates: &mut SmallVec<[Update; 8]>,
) -> Result<SmallVec<[MutexGuard<'a, GroupBits>; 2]>> {
    let taken = taken.iter().flat_map(|run| run.by_group()).map(|(group, run)| (group, run, true));
    let freed = freed.iter().flat_map(|run| run.by_group()).map(|(group, run)| (group, run, false));
    let mut changes: SmallVec<[(usize, Run, bool); 4]> = taken.chain(freed).collect();
    // What one transaction takes and frees again is set before it is cleared.
    changes.sort_unstable_by_key(|(group, run, set)| (*group, run.start, !set));
    let mut guards: SmallVec<[MutexGuard<'a, GroupBits>; 2]> = SmallVec::new();
    for of_group in changes.chunk_by(|a, b| a.0 == b.0) {
        let group = of_group[0].0;
        let mut guard = map.lock_disk(group);
        for (_, run, set) in of_group {
            if !change(&mut guard, *run, *set) {
                return Err(Error::corrupt(
                    "bitmap's group",
                    group as u64,
                    format!("it disagrees about {run:?}"),
                ));
            }
        }
        let start = bytes.len();
        bytes.extend_from_slice(&line(&guard));
        for _ in 0..1 + usize::from(planted::has(Bug::BitmapLineTwice)) {
            updates.push(Update {
                at: map.address(group),
                bytes: start..start + LINE,
                tag: Structure::Bitmap,
            });
        }
        guards.push(guard);
    }
    Ok(guards)
}

impl<D: BlockPort + WriteLog> Drop for Tx<'_, D> {
    fn drop(&mut self) {
        let blocks_back = self.blocks_taken.iter().all(|run| self.base.blocks.release(*run));
        let inodes_back = self.inodes_taken.iter().all(|run| self.base.inodes.release(*run));
        debug_assert!(blocks_back && inodes_back, "what a transaction took was in use");
        self.base.blocks.unreserve(self.blocks_reserved);
        if let Some(slot) = self.slot_reserved {
            self.base.orphans.return_slot(slot);
        }
    }
}
