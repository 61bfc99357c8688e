//! The transaction log: the order of commits (ByteFS §4.3).
//!
//! A circular array of 4 B transaction numbers in protected device memory, with beside each the commit's
//! number on the sequence clock, which orders it against stores without transaction. Writing the
//! transaction's number is the commit.
//!
//! Each processor takes up to 16 slots at a time, whose numbers are a cache line, and commits there without
//! asking the others for more than a number of the clock. So commits do not lie in their order, and slots
//! that were taken but not used hold 0.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{Error, Result, TxId};
use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, MutexGuard, Padded};
use zerocopy::little_endian::U32;

use crate::format::control;
use crate::log::Log;
use crate::log::commits::Commits;
use crate::planted::{self, Bug};

/// Most slots that a processor takes at a time: those whose numbers share a cache line.
const RUN_SLOTS_MAX: u64 = 16;
/// All processors' runs together take at most this part of the log.
const RUNS_SHARE: u64 = 8;
/// In place of the clock while a processor does not commit.
const NONE: u64 = u64::MAX;

/// The commits that log entries may still refer to, by transaction.
#[derive(Debug)]
pub(crate) struct TxLog {
    /// Held by whoever takes slots or gives them up. Taken after a processor's run.
    ends: Padded<Mutex<Ends>>,
    runs: Box<[Padded<Committing>]>,
    run_slots: u64,
    commits: Commits,
}

/// What the words in device memory say.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// Slots ever given up.
    head: u64,
    /// Slots ever taken.
    tail: u64,
}

impl Ends {
    fn used(self) -> u64 {
        self.tail.saturating_sub(self.head)
    }
}

/// Where a processor commits.
#[derive(Debug)]
struct Committing {
    run: Mutex<Run>,
    /// The clock before it numbers a commit, until that is visible; else [`NONE`].
    since: AtomicU64,
}

/// What is left of the slots that a processor has taken, as positions in the log.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    next: u64,
    end: u64,
    /// Slots in use when it was taken.
    used: u64,
}

/// A commit that has its number and does not count yet.
#[derive(Debug)]
struct Numbered<'a> {
    since: &'a AtomicU64,
    run: MutexGuard<'a, Run>,
    slot: u64,
    /// Its number on the sequence clock.
    at: u64,
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.since.store(NONE, Ordering::Release);
    }
}

impl TxLog {
    /// An empty one, for as many commits as the log holds.
    pub(crate) fn new(entries: u64) -> Self {
        let processors = cpu::count();
        let committing = || Padded(Committing { run: Mutex::default(), since: AtomicU64::new(NONE) });
        Self {
            ends: Padded::default(),
            runs: (0..processors).map(|_| committing()).collect(),
            run_slots: (entries / (RUNS_SHARE * processors as u64)).clamp(1, RUN_SLOTS_MAX),
            commits: Commits::new(entries),
        }
    }

    /// When a transaction was committed, on the sequence clock.
    #[inline]
    pub(crate) fn committed_at(&self, tx: u32) -> Option<u64> {
        self.commits.get(tx)
    }
}

impl Log {
    /// Slots of the transaction log in use.
    pub(crate) fn txlog_used(&self) -> u64 {
        self.txlog.ends.lock().used()
    }

    /// Commits in the transaction log.
    pub(crate) fn commits_logged(&self) -> u64 {
        let ends = *self.txlog.ends.lock();
        (ends.head..ends.tail).filter(|&position| self.txlog_at(position).0 != 0).count() as u64
    }

    fn txlog_at(&self, position: u64) -> (u32, u64) {
        let slot = position % self.layout.txlog_entries;
        let tx: U32 = self.image.read_struct(self.layout.txlog_ids + slot * 4);
        (tx.get(), self.image.word(self.layout.txlog_clock + slot * 8).load(Ordering::Relaxed))
    }

    /// Records a commit. Answers how many slots the log had in use when this processor last took some; none
    /// if there was no room.
    ///
    /// # Errors
    /// The transaction is in the log already; or power was lost.
    pub(crate) fn append_commit(&self, tx: TxId) -> Result<Option<u64>> {
        let mine = &self.txlog.runs[cpu::current() % self.txlog.runs.len()];
        let mut run = mine.run.lock();
        if self.txlog.committed_at(tx.get()).is_some() {
            return Err(Error::AlreadyCommitted(tx));
        }
        if run.next == run.end {
            let Some(taken) = self.take_run()? else { return Ok(None) };
            *run = taken;
        }
        self.power.step()?;
        if planted::has(Bug::CommitNotRecorded) {
            return Ok(Some(run.used));
        }
        let numbered = self.number_commit(mine, run);
        self.show_commit(numbered, tx).map(Some)
    }

    /// Numbers a commit, which nobody sees yet.
    fn number_commit<'a>(&self, mine: &'a Committing, run: MutexGuard<'a, Run>) -> Numbered<'a> {
        let slot = run.next % self.layout.txlog_entries;
        mine.since.store(self.image.word(control!(clock)).load(Ordering::Relaxed), Ordering::SeqCst);
        let at = self.tick();
        self.image.word(self.layout.txlog_clock + slot * 8).store(at, Ordering::Relaxed);
        Numbered { since: &mine.since, run, slot, at }
    }

    /// Makes a numbered commit count. Answers how many slots the log had in use when this processor last took
    /// some.
    ///
    /// # Errors
    /// Power was lost.
    fn show_commit(&self, mut numbered: Numbered<'_>, tx: TxId) -> Result<u64> {
        self.power.step()?;
        self.image.write_struct(self.layout.txlog_ids + numbered.slot * 4, &U32::new(tx.get()));
        self.txlog.commits.insert(tx.get(), numbered.at);
        numbered.run.next += 1;
        Ok(numbered.run.used)
    }

    /// Takes slots, up to the next whole line of numbers; none if there is no room. A crash finds them empty.
    fn take_run(&self) -> Result<Option<Run>> {
        let mut ends = self.txlog.ends.lock();
        let slots = self.txlog.run_slots;
        if ends.used() + slots > self.layout.txlog_entries {
            return Ok(None);
        }
        let (next, end) = (ends.tail, (ends.tail / slots + 1) * slots);
        let slot = next % self.layout.txlog_entries;
        if slot.is_multiple_of(1024) {
            let run = 1024.min(self.layout.txlog_entries - slot);
            self.image.allocate(self.layout.txlog_ids + slot * 4, run * 4)?;
            self.image.allocate(self.layout.txlog_clock + slot * 8, run * 8)?;
        }
        let empty = [0; 4 * RUN_SLOTS_MAX as usize];
        self.image.write(self.layout.txlog_ids + slot * 4, &empty[..4 * (end - next) as usize]);
        self.power.step()?;
        ends.tail = end;
        self.image.word(control!(txlog_tail)).store(end, Ordering::Release);
        Ok(Some(Run { next, end, used: ends.used() }))
    }

    /// A number of the sequence clock such that every commit numbered at or below it is visible.
    pub(crate) fn horizon(&self) -> u64 {
        let now = self.tick();
        // Whoever numbers a commit notes the clock before: one with a number below ours has noted it by now,
        // or is done.
        let since = self.txlog.runs.iter().map(|committing| committing.since.load(Ordering::SeqCst));
        since.fold(now, |horizon, since| horizon.min(since.saturating_sub(1)))
    }

    /// Forgets commits numbered at or below `upto`, to which no log entry refers any more: all but those
    /// behind a later one.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn trim_txlog(&self, upto: u64) -> Result<()> {
        let limit = self.txlog.ends.lock().tail;
        // Nobody commits below the limit from here on: what is left of slots taken before is given up with
        // them.
        for committing in &self.txlog.runs {
            let mut run = committing.run.lock();
            run.next = run.end;
        }
        let mut ends = self.txlog.ends.lock();
        while ends.head < limit {
            let (tx, at) = self.txlog_at(ends.head);
            if tx != 0 && at > upto {
                break;
            }
            self.power.step()?;
            ends.head += 1;
            self.image.word(control!(txlog_head)).store(ends.head, Ordering::Release);
            if tx != 0 {
                self.txlog.commits.remove(tx, at);
            }
        }
        Ok(())
    }

    /// Rebuilds the volatile table at power-up.
    ///
    /// # Errors
    /// The log's ends are impossible.
    pub(crate) fn load_txlog(&self) -> Result<()> {
        let head = self.image.word(control!(txlog_head)).load(Ordering::Acquire);
        let tail = self.image.word(control!(txlog_tail)).load(Ordering::Acquire);
        if head > tail || tail - head > self.layout.txlog_entries || tail >= 1 << 62 {
            return Err(Error::Image(format!(
                "the transaction log's head {head} and tail {tail} do not fit its {} entries",
                self.layout.txlog_entries
            )));
        }
        for (tx, at) in (head..tail).map(|position| self.txlog_at(position)).filter(|&(tx, _)| tx != 0) {
            self.txlog.commits.insert(tx, at);
        }
        *self.txlog.ends.lock() = Ends { head, tail };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use amphi_device::{BlockPort, BytePort, Lpa, Structure, WriteLog};

    use super::*;
    use crate::profile::Profile;
    use crate::ssd::Ssd;
    use crate::stats::Counter;

    /// A host thread may be kept waiting between a commit's number and the commit, for as long as a cleaning
    /// takes that begins after the number.
    #[test]
    fn a_commit_that_is_numbered_before_a_cleaning_and_seen_in_it_lasts() {
        let ssd = Arc::new(Ssd::in_memory(&Profile::named("free").expect("a profile"), 16 << 20));
        let (tx, at) = (TxId::new(1).expect("not 0"), Lpa(3).byte(0));
        ssd.store(at, b"committed", Some(tx), Structure::Data).expect("a store");
        ssd.flush_lines(at, 9);
        ssd.fence();
        ssd.verify_read().expect("power");
        {
            let log = ssd.core().log().expect("a log");
            let mine = &log.txlog.runs[0];
            let mut run = mine.run.lock();
            *run = log.take_run().expect("power").expect("room");
            let numbered = log.number_commit(mine, run);
            let cleaner = Arc::clone(&ssd);
            let cleaning = amphi_rt::task::spawn("cleaner", move || cleaner.clean_log());
            while log.count().get(Counter::EntriesCarried) == 0 {
                amphi_rt::task::yield_now();
            }
            log.show_commit(numbered, tx).expect("power");
            cleaning.join().expect("power");
        }
        ssd.power_cut(0);
        let ssd = Arc::into_inner(ssd).expect("the cleaner is gone").restart().expect("sound");
        ssd.recover().expect("power");
        let mut page = [0; 4096];
        ssd.read(Lpa(3), &mut page, Structure::Data).expect("readable");
        assert_eq!(&page[..9], b"committed");
    }
}
