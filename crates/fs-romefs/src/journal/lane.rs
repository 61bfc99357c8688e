//! One lane of the journal: a ring of records, and which of them are finished.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_device::{MemoryArea, Structure};
use amphi_rt::sync::{Condvar, Mutex};
use amphi_vfs::Result;
use zerocopy::IntoBytes;

use crate::format::RecordHeader;
use crate::memory::Memory;

/// A lane.
pub struct Lane {
    base: u64,
    bytes: u64,
    state: Mutex<State>,
    finished: Condvar,
    half_full: AtomicBool,
}

struct State {
    /// Position of the oldest record that recovery may need.
    head: u64,
    /// Position of the next record.
    tail: u64,
    /// Records from the oldest that is not finished on, and whether they are.
    records: VecDeque<(u64, bool)>,
    /// A checkpoint would make room: records were finished that nothing unfinished lies before.
    reclaimable: bool,
    waiting: usize,
}

impl State {
    fn drop_finished(&mut self) {
        while let Some((_, true)) = self.records.front() {
            self.records.pop_front();
            self.reclaimable = true;
        }
    }
}

impl Lane {
    /// An empty lane whose next record is at `position`.
    pub fn new(base: u64, bytes: u64, position: u64) -> Self {
        let state = State {
            head: position,
            tail: position,
            records: VecDeque::new(),
            reclaimable: false,
            waiting: 0,
        };
        let (state, finished) = (Mutex::new(state), Condvar::named("journal"));
        Self { base, bytes, state, finished, half_full: AtomicBool::new(false) }
    }

    /// Where a position is.
    pub const fn address(&self, position: u64) -> u64 {
        self.base + position % self.bytes
    }

    /// Whether more than half of it is in use.
    pub fn is_half_full(&self) -> bool {
        self.half_full.load(Ordering::Relaxed)
    }

    /// Takes a place of `bytes` and has `write` make what lies there durable, as far as a record behind it
    /// needs it; none can be taken before. None if there is no room.
    ///
    /// # Errors
    /// What `write` says; [`amphi_vfs::Error::Io`].
    pub fn reserve<T, D: MemoryArea>(
        &self,
        memory: &Memory<D>,
        bytes: u64,
        write: impl FnOnce(u64) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut state = self.state.lock();
        let to_end = self.bytes - state.tail % self.bytes;
        let filler = if to_end < bytes { to_end } else { 0 };
        if state.tail + filler + bytes > state.head + self.bytes {
            return Ok(None);
        }
        if filler > 0 {
            let header = RecordHeader::new(state.tail, filler, 0, 0, 0);
            memory.store(self.address(state.tail), header.as_bytes(), Structure::Journal)?;
            let position = state.tail;
            state.records.push_back((position, true));
            state.tail += filler;
        }
        let written = write(state.tail)?;
        let position = state.tail;
        state.records.push_back((position, false));
        state.tail += bytes;
        self.note_use(&state);
        Ok(Some(written))
    }

    fn note_use(&self, state: &State) {
        self.half_full.store(state.tail - state.head > self.bytes / 2, Ordering::Relaxed);
    }

    /// The record has been applied, or given up.
    pub fn finish(&self, position: u64) {
        let mut state = self.state.lock();
        // They lie in order of their positions.
        let at = state.records.partition_point(|(other, _)| *other < position);
        if let Some((_, finished)) = state.records.get_mut(at) {
            *finished = true;
        }
        state.drop_finished();
        if state.waiting > 0 {
            self.finished.notify_all();
        }
    }

    /// Position of the oldest record that is not finished.
    pub fn oldest(&self) -> u64 {
        let mut state = self.state.lock();
        state.drop_finished();
        state.reclaimable = false;
        state.records.front().map_or(state.tail, |(position, _)| *position)
    }

    /// What lies before `position` may be written over.
    pub fn release_up_to(&self, position: u64) {
        let mut state = self.state.lock();
        state.head = state.head.max(position);
        self.note_use(&state);
    }

    /// Waits while a record of `bytes` has no room and the oldest is not finished: a checkpoint makes room
    /// once it is.
    pub fn wait_for_room(&self, bytes: u64) {
        let mut state = self.state.lock();
        while state.tail + 2 * bytes > state.head + self.bytes
            && !state.reclaimable
            && state.records.front().is_some_and(|(_, finished)| !finished)
        {
            state.waiting += 1;
            self.finished.wait(&mut state);
            state.waiting -= 1;
        }
    }
}
