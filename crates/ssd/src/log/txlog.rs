//! The transaction log: the order of commits (ByteFS §4.3).
//!
//! A circular array of 4 B transaction numbers in protected device memory, with beside each the commit's number on the sequence clock,
//! which orders it against stores without transaction. Moving the tail is the commit.

use std::sync::atomic::Ordering;

use amphi_device::{Error, Result, TxId};
use amphi_rt::sync::{Mutex, Padded};
use zerocopy::little_endian::U32;

use crate::core::Core;
use crate::format::control;
use crate::log::commits::Commits;
use crate::planted::{self, Bug};

/// The commits that log entries may still refer to, by transaction.
#[derive(Debug)]
pub(crate) struct TxLog {
    /// Held by whoever changes log or table.
    ends: Padded<Mutex<Ends>>,
    commits: Commits,
}

/// What the words in device memory say, on the lock's cache line: those words lie beside the clock, which whoever stores takes to his processor.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// Commits ever trimmed.
    head: u64,
    /// Commits ever appended.
    tail: u64,
}

impl Ends {
    fn used(self) -> u64 {
        self.tail.saturating_sub(self.head)
    }
}

impl TxLog {
    /// An empty one, for as many commits as the log holds.
    pub(crate) fn new(entries: u64) -> Self {
        Self { ends: Padded::default(), commits: Commits::new(entries) }
    }

    /// When a transaction was committed, on the sequence clock.
    #[inline]
    pub(crate) fn committed_at(&self, tx: u32) -> Option<u64> {
        self.commits.get(tx)
    }
}

impl Core {
    /// Commits in the transaction log.
    pub(crate) fn txlog_used(&self) -> u64 {
        self.txlog.ends.lock().used()
    }

    fn txlog_at(&self, position: u64) -> (u32, u64) {
        let slot = position % self.layout.txlog_entries;
        let tx: U32 = self.image.read_struct(self.layout.txlog_ids + slot * 4);
        (tx.get(), self.image.word(self.layout.txlog_clock + slot * 8).load(Ordering::Relaxed))
    }

    /// Appends a commit. Answers how many the log holds now; none if there was no room.
    ///
    /// # Errors
    /// The transaction is in the log already; or power was lost.
    pub(crate) fn append_commit(&self, tx: TxId) -> Result<Option<u64>> {
        let mut ends = self.txlog.ends.lock();
        if self.txlog.committed_at(tx.get()).is_some() {
            return Err(Error::AlreadyCommitted(tx));
        }
        if ends.used() >= self.layout.txlog_entries {
            return Ok(None);
        }
        let slot = ends.tail % self.layout.txlog_entries;
        if slot.is_multiple_of(1024) {
            let run = 1024.min(self.layout.txlog_entries - slot);
            self.image.allocate(self.layout.txlog_ids + slot * 4, run * 4)?;
            self.image.allocate(self.layout.txlog_clock + slot * 8, run * 8)?;
        }
        self.power.step()?;
        if planted::has(Bug::CommitNotRecorded) {
            return Ok(Some(ends.used()));
        }
        let at = self.tick();
        self.image.word(self.layout.txlog_clock + slot * 8).store(at, Ordering::Relaxed);
        self.image.write_struct(self.layout.txlog_ids + slot * 4, &U32::new(tx.get()));
        self.power.step()?;
        ends.tail += 1;
        self.image.word(control!(txlog_tail)).store(ends.tail, Ordering::Release);
        self.txlog.commits.insert(tx.get(), at);
        Ok(Some(ends.used()))
    }

    /// A number of the sequence clock such that every commit numbered at or below it is visible.
    pub(crate) fn horizon(&self) -> u64 {
        let _ends = self.txlog.ends.lock();
        self.tick()
    }

    /// Forgets the commits numbered at or below `upto`: no log entry refers to them any more.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn trim_txlog(&self, upto: u64) -> Result<()> {
        let mut ends = self.txlog.ends.lock();
        while ends.head < ends.tail {
            let (tx, at) = self.txlog_at(ends.head);
            if at > upto {
                break;
            }
            self.power.step()?;
            ends.head += 1;
            self.image.word(control!(txlog_head)).store(ends.head, Ordering::Release);
            self.txlog.commits.remove(tx, at);
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
        for position in head..tail {
            let (tx, at) = self.txlog_at(position);
            self.txlog.commits.insert(tx, at);
        }
        *self.txlog.ends.lock() = Ends { head, tail };
        Ok(())
    }
}
