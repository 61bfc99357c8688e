//! The stages of all tasks: stores by the line that they are in, from dirty to posted.

use amphi_device::{Error, LINE_BYTES, Structure};
use amphi_rt::sync::{Mutex, Padded};

use crate::format::PAGE;
use crate::planted::{self, Bug};

const SHARDS: usize = 64;
/// Idle stages a shard keeps for tasks that may come back.
const IDLE: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub at: u64,
    pub start: usize,
    pub len: usize,
    pub tx: u32,
    pub tag: Structure,
    /// One bit per line of the page.
    pub flushed: u64,
    pub posted: u64,
}

/// The lines of its page that `len` bytes at `at` touch, one bit each.
pub(super) fn page_lines(at: u64, len: usize) -> u64 {
    let first = (at % PAGE) as usize / LINE_BYTES;
    let last = ((at % PAGE) as usize + len - 1) / LINE_BYTES;
    (u64::MAX >> (63 - (last - first))) << first
}

impl Staged {
    pub(super) fn end(&self) -> u64 {
        self.at + self.len as u64
    }

    pub(super) fn lines(&self) -> u64 {
        page_lines(self.at, self.len)
    }

    pub(super) fn is_posted(&self) -> bool {
        self.posted == self.lines()
    }

    /// The part of the store in lines `first..=last` of its page, as (address, position in the stage,
    /// length).
    pub(super) fn part(&self, first: u32, last: u32) -> (u64, usize, usize) {
        let page = self.at / PAGE * PAGE;
        let from = self.at.max(page + u64::from(first) * LINE_BYTES as u64);
        let to = self.end().min(page + u64::from(last + 1) * LINE_BYTES as u64);
        (from, self.start + (from - self.at) as usize, (to - from) as usize)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    pub task: u64,
    pub stores: Vec<Staged>,
    pub bytes: Vec<u8>,
    /// Stores before this one have no dirty line left.
    pub dirty_from: usize,
    /// What an arrival met where nobody could be told.
    pub failure: Option<Error>,
}

impl Stage {
    pub(super) fn flush(&mut self, at: u64, len: usize) {
        let end = at.saturating_add(len as u64);
        let (first_line, mut last_line) = (at / 64 * 64, end.div_ceil(64).saturating_mul(64));
        if planted::has(Bug::LastLineNotFlushed) {
            last_line -= 64;
        }
        for store in &mut self.stores[self.dirty_from..] {
            let (from, to) = (first_line.max(store.at), last_line.min(store.end()));
            if from < to {
                store.flushed |= page_lines(from, (to - from) as usize);
            }
        }
        while self.stores.get(self.dirty_from).is_some_and(|store| store.flushed == store.lines()) {
            self.dirty_from += 1;
        }
    }
}

/// Every task's stage.
#[derive(Debug)]
pub(crate) struct Stages {
    /// Each on lines of its own: consecutive tasks are in neighbouring shards, and each store locks one.
    pub(super) shards: Box<[Padded<Mutex<Vec<Stage>>>]>,
}

impl Stages {
    /// No task has stored anything.
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Padded::default()).collect() }
    }

    /// A copy of what is staged.
    pub(crate) fn copy(&self) -> Self {
        Self { shards: self.shards.iter().map(|shard| Padded(Mutex::new(shard.lock().clone()))).collect() }
    }

    /// Takes over what another device's host threads have staged.
    pub(crate) fn take_from(&self, other: Self) {
        for (mine, theirs) in self.shards.iter().zip(other.shards) {
            *mine.lock() = theirs.0.into_inner();
        }
    }

    /// Runs `work` on the calling task's stage.
    pub(super) fn with_mine<T>(&self, work: impl FnOnce(&mut Stage) -> T) -> T {
        let task = amphi_rt::task::id();
        let mut stages = self.shards[task as usize % SHARDS].lock();
        let position = stages.iter().position(|stage| stage.task == task).unwrap_or_else(|| {
            if stages.len() >= IDLE {
                stages.retain(|stage| !stage.stores.is_empty() || stage.failure.is_some());
            }
            stages.push(Stage { task, ..Stage::default() });
            stages.len() - 1
        });
        work(&mut stages[position])
    }
}
