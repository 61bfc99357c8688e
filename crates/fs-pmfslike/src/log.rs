//! The log of the file system (PMFS §3.2): before metadata change in place, their bytes as they were are
//! durable in it, an entry of 64 B for each 48. A change counts when its last entry, which says that it is
//! complete, is durable. What is not complete when the file system is mounted is undone.
//!
//! The log is a ring. A change takes as many entries as it needs at a time, so those of one lie behind each
//! other, and several are written at once. An entry says by its lap whether it is of now; so the end of the
//! log is stored nowhere, and its beginning only when room is needed.

use std::collections::VecDeque;

use amphi_device::{Lpa, PageView, Structure};
use amphi_direct_access::{Medium, PAGE};
use amphi_rt::sync::Mutex;
use amphi_rt::task;
use amphi_vfs::{Error, Failure, Result};
use amphi_volume::io_error;
use smallvec::SmallVec;
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{COMMIT, ENTRY, ENTRY_DATA, FIRST, LOG_AT, LOG_PAGES, Layout, LogEntry, log_word};
use crate::planted::{self, Bug};

/// Bytes that change in place.
#[derive(Clone, Debug)]
pub struct Range {
    pub at: u64,
    pub old: SmallVec<[u8; 64]>,
    pub new: SmallVec<[u8; 64]>,
    pub tag: Structure,
}

/// The log.
pub struct Log {
    entries: u64,
    ring: Mutex<Ring>,
}

/// Entries count on from lap to lap.
struct Ring {
    /// The lap of entry 0.
    generation: u32,
    /// The first entry that may have to be read, and the one behind the last.
    head: u64,
    tail: u64,
    /// The changes in between: their ends, and whether each is over.
    changes: VecDeque<(u64, bool)>,
    /// One of them has failed, and is never over: it is undone when the file system is mounted next.
    failed: bool,
}

impl Ring {
    const fn new(generation: u32, head: u64) -> Self {
        Self { generation, head, tail: head, changes: VecDeque::new(), failed: false }
    }
}

impl Log {
    const fn word(&self, generation: u32, entry: u64) -> u64 {
        log_word(entry % self.entries, self.lap(generation, entry))
    }

    const fn lap(&self, generation: u32, entry: u64) -> u32 {
        generation.wrapping_add((entry / self.entries) as u32)
    }

    /// Undoes what was not complete when the device was last used, and forgets what the log says.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn recover<D: PageView>(medium: &Medium<D>, layout: &Layout) -> Result<Self> {
        let corrupt = |what: &'static str| Error::corrupt("log", 0, what);
        let entries = layout.log_entries();
        let word = medium.word(LOG_AT, Structure::Journal)?;
        let (head, generation) = (word & u64::from(u32::MAX), (word >> 32) as u32);
        if head >= entries {
            return Err(corrupt("it begins outside of itself"));
        }
        let mut bytes = vec![0; (layout.log_pages * PAGE) as usize];
        for first in (0..layout.log_pages).step_by(*LOG_PAGES.start() as usize) {
            let count = (layout.log_pages - first).min(*LOG_PAGES.start());
            let part = &mut bytes[(first * PAGE) as usize..((first + count) * PAGE) as usize];
            medium.device.read(Lpa(2 + first), part, Structure::Journal).map_err(io_error)?;
        }
        let mut log = Self { entries, ring: Mutex::new(Ring::new(generation, head)) };
        let (open, any) = log.open_changes(&bytes, head, generation);
        if any {
            for entry in open.iter().rev().filter(|_| !planted::has(Bug::LogNotUndone)) {
                let (at, old) = entry.bytes();
                if old.is_empty() || !layout.changes(at, old.len() as u64) {
                    return Err(corrupt("it would undo what nothing changes"));
                }
                medium.store(at, old, Structure::Other)?;
            }
            medium.barrier()?;
            // No entry is of this lap or of the next.
            let generation = generation.wrapping_add(2);
            medium.store_word(LOG_AT, log_word(0, generation), Structure::Journal)?;
            medium.barrier()?;
            *log.ring.get_mut() = Ring::new(generation, 0);
        }
        Ok(log)
    }

    /// The entries of changes that are not complete, and whether there are any entries.
    fn open_changes(&self, bytes: &[u8], head: u64, generation: u32) -> (Vec<LogEntry>, bool) {
        let (mut open, mut current, mut any) = (Vec::new(), Vec::new(), false);
        for index in head..head + self.entries {
            let at = (index % self.entries * ENTRY) as usize;
            let mut entry = LogEntry::new_zeroed();
            entry.as_mut_bytes().copy_from_slice(&bytes[at..at + ENTRY as usize]);
            if !entry.is_of(self.lap(generation, index)) {
                open.append(&mut current);
                continue;
            }
            any = true;
            match entry.kind() {
                COMMIT if !planted::has(Bug::CommitsForgotten) => current.clear(),
                COMMIT => {}
                kind => {
                    if kind == FIRST {
                        open.append(&mut current);
                    }
                    current.push(entry);
                }
            }
        }
        open.append(&mut current);
        (open, any)
    }

    /// Makes ranges change as a whole. What this task has stored before is durable by then.
    ///
    /// # Errors
    /// [`Error::Io`]; so behind a change that has failed.
    pub fn change<D: PageView>(&self, medium: &Medium<D>, layout: &Layout, ranges: &[Range]) -> Result<()> {
        self.change_logged(medium, layout, ranges).inspect_err(|_| self.ring.lock().failed = true)
    }

    fn change_logged<D: PageView>(
        &self,
        medium: &Medium<D>,
        layout: &Layout,
        ranges: &[Range],
    ) -> Result<()> {
        if planted::has(Bug::LogSkipped) {
            medium.barrier()?;
            return self.in_place(medium, ranges);
        }
        let count = ranges.iter().map(|range| range.old.len().div_ceil(ENTRY_DATA) as u64).sum::<u64>() + 1;
        let (first, generation) = self.take(medium, count)?;
        let mut next = first;
        let mut write = |kind: u8, at: u64, bytes: &[u8]| {
            let entry = LogEntry::new(self.lap(generation, next), kind, at, bytes);
            let to = layout.log_entry(next % self.entries);
            next += 1;
            medium.store(to, entry.as_bytes(), Structure::Journal)
        };
        let mut kind = FIRST;
        for range in ranges {
            for (part, old) in range.old.chunks(ENTRY_DATA).enumerate() {
                write(kind, range.at + (part * ENTRY_DATA) as u64, old)?;
                kind = 0;
            }
            // For each range, as it is PMFS's calls that log: what changes next is not known yet.
            if !planted::has(Bug::PlaceBeforeLog) {
                medium.barrier()?;
            }
        }
        self.in_place(medium, ranges)?;
        write(COMMIT, 0, &[])?;
        if !planted::has(Bug::CommitNotDurable) {
            medium.barrier()?;
        }
        let mut ring = self.ring.lock();
        let end = first + count;
        if let Some((_, over)) = ring.changes.iter_mut().find(|(its, _)| *its == end) {
            *over = true;
        }
        Ok(())
    }

    fn in_place<D: PageView>(&self, medium: &Medium<D>, ranges: &[Range]) -> Result<()> {
        for range in ranges {
            medium.store(range.at, &range.new, range.tag)?;
        }
        if planted::has(Bug::CommitBeforePlace) { Ok(()) } else { medium.barrier() }
    }

    /// Takes entries behind each other. Where there are too few, the log's beginning moves past the changes
    /// that are over, which in PMFS a thread of its own does from time to time.
    fn take<D: PageView>(&self, medium: &Medium<D>, count: u64) -> Result<(u64, u32)> {
        debug_assert!(count <= self.entries, "a change fits the log");
        loop {
            let mut ring = self.ring.lock();
            if ring.failed {
                return Err(Error::Io(Failure::Earlier("a change in the log is not complete".to_owned())));
            }
            if ring.tail + count - ring.head <= self.entries {
                let first = ring.tail;
                ring.tail += count;
                let end = ring.tail;
                ring.changes.push_back((end, false));
                return Ok((first, ring.generation));
            }
            let before = ring.head;
            while let Some((end, _)) = ring.changes.front().copied().filter(|(_, over)| *over) {
                ring.changes.pop_front();
                ring.head = end;
            }
            if ring.head != before {
                medium.store_word(LOG_AT, self.word(ring.generation, ring.head), Structure::Journal)?;
                medium.barrier()?;
                continue;
            }
            drop(ring);
            task::yield_now();
        }
    }
}
