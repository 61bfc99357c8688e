//! The transaction log: the order of commits (ByteFS §4.3).
//!
//! A circular array of 4 B transaction numbers in protected device memory, with beside each the commit's number on the sequence clock,
//! which orders it against stores without transaction. Moving the tail is the commit.

use std::sync::atomic::Ordering;

use amphi_device::{Error, Result, TxId};
use amphi_rt::sync::{Mutex, Padded, RwLock};
use hashbrown::HashMap;
use zerocopy::little_endian::U32;

use crate::core::Core;
use crate::dice::mix;
use crate::format::control;
use crate::planted::{self, Bug};

/// Hashes a transaction number so that consecutive ones lie side by side: the table's slot comes from the low bits, its tag from the high ones, and the
/// numbers in the log are a window of consecutive ones.
#[derive(Clone, Copy, Debug, Default)]
struct TxHasher(u64);

impl std::hash::Hasher for TxHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }
    fn write_u32(&mut self, number: u32) {
        let nth = u64::from(number) / SHARDS as u64;
        self.0 = nth | nth << 57;
    }
}

type Commits = HashMap<u32, u64, std::hash::BuildHasherDefault<TxHasher>>;
const SHARDS: usize = 16;

/// The commits that log entries may still refer to, by transaction.
#[derive(Debug, Default)]
pub(crate) struct TxLog {
    order: Padded<Mutex<()>>,
    shards: [Padded<RwLock<Commits>>; SHARDS],
}

impl TxLog {
    fn shard(&self, tx: u32) -> &RwLock<Commits> {
        &self.shards[tx as usize % SHARDS]
    }

    /// When a transaction was committed, on the sequence clock.
    pub(crate) fn committed_at(&self, tx: u32) -> Option<u64> {
        self.shard(tx).read().get(&tx).copied()
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
        self.txlog.shard(tx.get()).write().insert(tx.get(), at);
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
            let mut commits = self.txlog.shard(tx).write();
            if commits.get(&tx) == Some(&at) {
                commits.remove(&tx);
            }
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
            self.txlog.shard(tx).write().insert(tx, at);
        }
        Ok(())
    }
}
