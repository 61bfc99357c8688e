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
    order: Padded<Mutex<()>>,
    commits: Commits,
}

impl TxLog {
    /// An empty one, for as many commits as the log holds.
    pub(crate) fn new(entries: u64) -> Self {
        Self { order: Padded::default(), commits: Commits::new(entries) }
    }

    /// When a transaction was committed, on the sequence clock.
    #[inline]
    pub(crate) fn committed_at(&self, tx: u32) -> Option<u64> {
        self.commits.get(tx)
    }
}

impl Core {
    fn txlog_ends(&self) -> (u64, u64) {
        let head = self.image.word(control!(txlog_head)).load(Ordering::Acquire);
        (head, self.image.word(control!(txlog_tail)).load(Ordering::Acquire))
    }

    /// Commits in the transaction log.
    pub(crate) fn txlog_used(&self) -> u64 {
        let (head, tail) = self.txlog_ends();
        tail.saturating_sub(head)
    }

    fn txlog_at(&self, position: u64) -> (u32, u64) {
        let slot = position % self.layout.txlog_entries;
        let tx: U32 = self.image.read_struct(self.layout.txlog_ids + slot * 4);
        (tx.get(), self.image.word(self.layout.txlog_clock + slot * 8).load(Ordering::Relaxed))
    }

    /// Appends a commit. Answers whether there was room.
    ///
    /// # Errors
    /// The transaction is in the log already; or power was lost.
    pub(crate) fn append_commit(&self, tx: TxId) -> Result<bool> {
        let _order = self.txlog.order.lock();
        if self.txlog.committed_at(tx.get()).is_some() {
            return Err(Error::AlreadyCommitted(tx));
        }
        let (head, tail) = self.txlog_ends();
        if tail.saturating_sub(head) >= self.layout.txlog_entries {
            return Ok(false);
        }
        let slot = tail % self.layout.txlog_entries;
        if slot.is_multiple_of(1024) {
            let run = 1024.min(self.layout.txlog_entries - slot);
            self.image.allocate(self.layout.txlog_ids + slot * 4, run * 4)?;
            self.image.allocate(self.layout.txlog_clock + slot * 8, run * 8)?;
        }
        self.power.step()?;
        if planted::has(Bug::CommitNotRecorded) {
            return Ok(true);
        }
        let at = self.tick();
        self.image.word(self.layout.txlog_clock + slot * 8).store(at, Ordering::Relaxed);
        self.image.write_struct(self.layout.txlog_ids + slot * 4, &U32::new(tx.get()));
        self.power.step()?;
        self.image.word(control!(txlog_tail)).store(tail + 1, Ordering::Release);
        self.txlog.commits.insert(tx.get(), at);
        Ok(true)
    }

    /// A number of the sequence clock such that every commit numbered at or below it is visible.
    pub(crate) fn horizon(&self) -> u64 {
        let _order = self.txlog.order.lock();
        self.tick()
    }

    /// Forgets the commits numbered at or below `upto`: no log entry refers to them any more.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn trim_txlog(&self, upto: u64) -> Result<()> {
        let _order = self.txlog.order.lock();
        let (mut head, tail) = self.txlog_ends();
        while head < tail {
            let (tx, at) = self.txlog_at(head);
            if at > upto {
                break;
            }
            self.power.step()?;
            head += 1;
            self.image.word(control!(txlog_head)).store(head, Ordering::Release);
            self.txlog.commits.remove(tx, at);
        }
        Ok(())
    }

    /// Rebuilds the volatile table at power-up.
    ///
    /// # Errors
    /// The log's ends are impossible.
    pub(crate) fn load_txlog(&self) -> Result<()> {
        let (head, tail) = self.txlog_ends();
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
        Ok(())
    }
}
