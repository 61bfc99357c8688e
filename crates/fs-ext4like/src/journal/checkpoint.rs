//! Bringing committed blocks to their places, and moving the tail of the log.
//!
//! As on ext4, that happens when blocks have waited for half a minute, on `sync`, and when the log is full;
//! to journaled file data also on `fsync` of their file. The journal's superblock is written only when a
//! third of the log can be freed by it, so a recovery may write again what was in place.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_vfs::{Error, Failure, Result};

use crate::base::Base;
use crate::journal::Logged;
use crate::journal::buffers::{Buffer, BufferState, Committed, Kind, SharedBlock};
use crate::journal::commit::COMMAND_BLOCKS;

/// A block on its way to its place.
struct Leaving {
    buffer: Arc<Buffer>,
    data: SharedBlock,
    structure: amphi_device::Structure,
}

impl Leaving {
    /// A block, if something committed waits to be written in place and `goes` says so.
    fn of(buffer: &Arc<Buffer>, goes: impl Fn(&BufferState, &Committed) -> bool) -> Option<Self> {
        let state = buffer.state.lock();
        let committed = state.committed.as_ref().filter(|committed| goes(&state, committed))?;
        Some(Self {
            buffer: Arc::clone(buffer),
            data: Arc::clone(&committed.data),
            structure: state.kind.structure(),
        })
    }
}

impl<D: BlockPort> Base<D> {
    /// Writes what has waited since before `before_ns` in place. Blocks that a transaction not committed yet
    /// has changed again are left to it unless `also_changed`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_in_place(&self, before_ns: u64, also_changed: bool) -> Result<()> {
        let _alone = self.journal.in_place.lock();
        self.write_in_place_alone(before_ns, also_changed)
    }

    /// Writes the journaled file data of `ranges` of blocks in place, but for those that a transaction not
    /// committed yet has changed again. Returns how many blocks that were.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_data_in_place(&self, ranges: &[Range<u64>]) -> Result<usize> {
        let _alone = self.journal.in_place.lock();
        let mut leaving = Vec::new();
        let dirty = self.journal.dirty.lock();
        for range in ranges {
            for (_, buffer) in dirty.range(range.clone()) {
                leaving.extend(Leaving::of(buffer, |state, _| state.kind == Kind::Data && state.tid == 0));
            }
        }
        drop(dirty);
        leaving.sort_by_key(|block| block.buffer.lba);
        self.write_leaving(&leaving)?;
        Ok(leaving.len())
    }

    fn write_in_place_alone(&self, before_ns: u64, also_changed: bool) -> Result<()> {
        let leaving: Vec<Leaving> = self
            .journal
            .dirty
            .lock()
            .values()
            .filter_map(|buffer| {
                Leaving::of(buffer, |state, committed| {
                    committed.since_ns <= before_ns && (state.tid == 0 || also_changed)
                })
            })
            .collect();
        self.write_leaving(&leaving)
    }

    /// The caller holds `in_place`.
    fn write_leaving(&self, leaving: &[Leaving]) -> Result<()> {
        let mut runs: Vec<(u64, Vec<&[u8]>)> = Vec::new();
        let mut structures = Vec::new();
        for block in leaving {
            match runs.last_mut() {
                Some((first, run))
                    if *first + run.len() as u64 == block.buffer.lba
                        && run.len() < COMMAND_BLOCKS
                        && structures.last() == Some(&block.structure) =>
                {
                    run.push(&block.data[..]);
                }
                _ => {
                    runs.push((block.buffer.lba, vec![&block.data[..]]));
                    structures.push(block.structure);
                }
            }
        }
        if let Err(error) = self.write_runs(&runs, |index| structures[index]) {
            self.fail(&error);
            return Err(error);
        }
        self.note_in_place(leaving);
        Ok(())
    }

    fn note_in_place(&self, leaving: &[Leaving]) {
        let mut arrived = Vec::with_capacity(leaving.len());
        let mut dirty = self.journal.dirty.lock();
        for block in leaving {
            let mut state = block.buffer.state.lock();
            // A commit may have replaced it meanwhile.
            if let Some(committed) = state.committed.take_if(|c| Arc::ptr_eq(&c.data, &block.data)) {
                arrived.push(committed.tid);
                dirty.remove(&block.buffer.lba);
            }
        }
        drop(dirty);
        let mut state = self.journal.state.lock();
        for tid in arrived {
            if let Some(logged) = state.logged.iter_mut().find(|logged| logged.tid == tid) {
                logged.left -= 1;
            }
        }
    }

    /// The tail that the log can have now: its block and the transaction there, and how many blocks that
    /// frees.
    fn possible_tail(&self) -> (u32, u32, u32) {
        let state = self.journal.state.lock();
        let mut freed = 0;
        for logged in &state.logged {
            if logged.left > 0 {
                return (logged.start, logged.tid, freed);
            }
            freed += logged.blocks;
        }
        let last = state.logged.back();
        // One that is logged is committed, even if that has not been noted yet.
        let committing = state.committing != 0 && last.is_none_or(|last| last.tid < state.committing);
        let unfinished = if committing { state.committing } else { state.running.tid };
        // The transaction being committed may have its place already; it starts where those before it end.
        let end = |last: &Logged| (last.start - 1 + last.blocks) % (self.journal.blocks - 1) + 1;
        (last.map_or(state.head, end), unfinished, freed)
    }

    fn drop_logged_before(&self, sequence: u32) {
        let mut state = self.journal.state.lock();
        while let Some(logged) = state.logged.pop_front_if(|logged| logged.tid < sequence) {
            state.free += logged.blocks;
        }
    }

    /// The tail to write after a commit, if that frees as much of the log as one transaction may need. What
    /// frees it is in place, and the commit's first flush makes it durable.
    pub fn tail_worth_moving(&self) -> Option<(u32, u32)> {
        let (start, sequence, freed) = self.possible_tail();
        if (freed as usize) < self.journal.transaction_max {
            return None;
        }
        self.drop_logged_before(sequence);
        Some((start, sequence))
    }

    /// Writes everything committed in place and frees the log up to there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn move_tail(&self) -> Result<()> {
        let alone = self.journal.in_place.lock();
        self.write_in_place_alone(u64::MAX, true)?;
        let (start, sequence, freed) = self.possible_tail();
        if freed == 0 {
            return Ok(());
        }
        self.barrier()?;
        self.write_tail(start, sequence)?;
        self.drop_logged_before(sequence);
        drop(alone);
        Ok(())
    }

    /// Makes room for handles that wait for it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn make_room_in_log(&self) -> Result<()> {
        let before = self.journal.state.lock().free;
        self.move_tail()?;
        let state = self.journal.state.lock();
        if state.free > before {
            return Ok(());
        }
        let (tid, idle) = (state.running.tid, state.running.is_empty() && state.committing == 0);
        drop(state);
        if idle {
            return Err(Error::Io(Failure::Stuck("the journal is too small for the operation")));
        }
        self.commit_to(tid)
    }
}
