//! Transactions, as jbd2 has them: operations join the running transaction through handles; a commit writes
//! whole copies of all blocks that any of them changed to the journal. `commit.rs` does that, `checkpoint.rs`
//! brings the blocks to their places later, `replay.rs` after a crash.
//!
//! At any time one transaction is running and at most one is being committed. A commit first waits for the
//! handles that are open (`handle.rs`), while new ones wait for it; that takes no I/O. From then on
//! operations go into the next transaction.

pub mod buffers;
pub mod checkpoint;
pub mod commit;
pub mod handle;
pub mod replay;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::time::now_ns;
use amphi_vfs::Result;

use crate::format::{DESCRIPTOR_TAGS, Layout, REVOKE_BLOCKS};
use crate::journal::buffers::Buffer;

/// Blocks of the log kept for revocations that a handle has not foreseen.
const REVOKE_SLACK: usize = 4;

/// Data on their way to the device that a commit must wait for (ordered mode).
#[derive(Default)]
pub struct InFlight {
    outcome: Mutex<Option<Result<()>>>,
    arrived: Condvar,
}

impl InFlight {
    /// The writes have ended.
    pub fn complete(&self, outcome: Result<()>) {
        *self.outcome.lock() = Some(outcome);
        self.arrived.notify_all();
    }

    /// Whether they have ended, and not well.
    pub fn has_failed(&self) -> bool {
        matches!(*self.outcome.lock(), Some(Err(_)))
    }

    /// Waits until they have.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn wait(&self) -> Result<()> {
        let mut outcome = self.outcome.lock();
        self.arrived.wait_while(&mut outcome, |outcome| outcome.is_none());
        outcome.clone().unwrap_or(Ok(()))
    }
}

/// A transaction that has not been committed yet.
#[derive(Default)]
pub struct Transaction {
    /// Its number.
    pub tid: u32,
    /// Open handles.
    pub handles: usize,
    /// Blocks that open handles may still add.
    pub credits: usize,
    /// Blocks changed.
    pub blocks: Vec<Arc<Buffer>>,
    /// Blocks freed of which the journal may hold older copies, which a replay must not bring back.
    pub revoked: Vec<u64>,
    /// As `revoked`, where a replay may bring them back: whatever uses them again goes through the journal
    /// too.
    pub forgotten: Vec<u64>,
    /// It is committed even if nothing is in it.
    pub wanted: bool,
    /// All blocks freed: runs of start and length.
    pub freed: Vec<(u32, u32)>,
    /// Data that must be in place first.
    pub ordered: Vec<Arc<InFlight>>,
    /// When it got its first block, ns.
    pub since_ns: u64,
}

impl Transaction {
    fn numbered(tid: u32) -> Self {
        Self { tid, ..Self::default() }
    }

    /// Whether there is anything to commit.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revoked.is_empty() && self.freed.is_empty() && !self.wanted
    }

    /// Blocks freed of which the journal may hold older copies.
    pub fn gone(&self) -> impl Iterator<Item = u64> + '_ {
        self.revoked.iter().chain(&self.forgotten).copied()
    }

    /// Blocks of the log that it takes, once its handles have added what they may.
    pub fn log_blocks(&self, more: usize) -> u32 {
        let blocks = self.blocks.len() + self.credits + more;
        let revocations = self.revoked.len().div_ceil(REVOKE_BLOCKS) + REVOKE_SLACK;
        (blocks + blocks.div_ceil(DESCRIPTOR_TAGS) + revocations + 1) as u32
    }
}

/// A committed transaction whose blocks are not all in their places.
pub struct Logged {
    /// Its number.
    pub tid: u32,
    /// Block of the journal where it starts.
    pub start: u32,
    /// Blocks of the journal that it takes.
    pub blocks: u32,
    /// Blocks of it that are not in their places, and not part of a later transaction.
    pub left: usize,
}

/// What changes.
pub struct JournalState {
    /// The transaction that operations join.
    pub running: Transaction,
    /// It is being closed: new handles wait.
    pub closing: bool,
    /// The transaction being committed; 0: none.
    pub committing: u32,
    /// The last one whose commit has begun to flush the device: data written later are not covered by it.
    pub flushing: u32,
    /// The last one committed.
    pub committed: u32,
    /// Block of the journal where the next transaction goes.
    pub head: u32,
    /// Blocks of the journal that are free.
    pub free: u32,
    /// Committed transactions, oldest first.
    pub logged: VecDeque<Logged>,
    /// Whether the journal's superblock says that the journal is empty.
    pub marked_empty: bool,
}

/// The journal of a mounted file system.
pub struct Journal {
    /// First block on the device.
    pub first: u32,
    /// Blocks, the journal's superblock included.
    pub blocks: u32,
    /// Seed of checksums.
    pub seed: u32,
    /// Most blocks of one transaction.
    pub transaction_max: usize,
    /// What changes.
    pub state: Mutex<JournalState>,
    /// A handle or a commit has ended.
    pub changed: Condvar,
    /// Held while blocks are written in place.
    pub in_place: Mutex<()>,
    /// The transaction at the tail that the journal's superblock says. Held while that is written.
    pub tail: Mutex<u32>,
    /// Blocks whose committed contents are not in place. Locked before any of them.
    pub dirty: Mutex<BTreeMap<u64, Arc<Buffer>>>,
}

impl Journal {
    /// The journal of a file system whose log is empty and whose next transaction is number `tid`.
    pub fn new(layout: &Layout, seed: u32, tid: u32) -> Self {
        let blocks = layout.journal_blocks;
        // jbd2 takes a third (jbd2_journal_get_max_txn_bufs(), a quarter before Linux 6.11); a journal of a
        // megabyte or two would then hold too little for a long directory operation.
        let transaction_max = if blocks < 1024 { blocks / 2 } else { blocks / 3 };
        let state = JournalState {
            running: Transaction::numbered(tid),
            closing: false,
            committing: 0,
            flushing: tid - 1,
            committed: tid - 1,
            head: 1,
            free: blocks - 1,
            logged: VecDeque::new(),
            marked_empty: true,
        };
        Self {
            first: layout.journal,
            blocks,
            seed,
            transaction_max: transaction_max as usize,
            state: Mutex::new(state),
            changed: Condvar::named("journal"),
            in_place: Mutex::new(()),
            tail: Mutex::new(0),
            dirty: Mutex::default(),
        }
    }

    /// Wakes everybody who waits, to see that the file system has failed.
    pub fn wake_all(&self) {
        self.changed.notify_all();
    }

    /// Takes the running transaction, of which no handle is open, and starts the next.
    pub fn close(state: &mut JournalState) -> Transaction {
        let next = Transaction::numbered(state.running.tid + 1);
        state.committing = state.running.tid;
        std::mem::replace(&mut state.running, next)
    }

    /// Age of the running transaction in ns, if there is anything in it.
    pub fn running_age_ns(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.running.is_empty()).then(|| now_ns().saturating_sub(state.running.since_ns))
    }

    /// The newest transaction that can have changed anything, for what is read: as ext4_iget() has it.
    pub fn newest(&self) -> u32 {
        let state = self.state.lock();
        match (state.running.is_empty() && state.running.handles == 0, state.committing) {
            (true, 0) => state.committed,
            (true, committing) => committing,
            (false, _) => state.running.tid,
        }
    }

    /// Transactions committed, by the number of the last.
    pub fn last_committed(&self) -> u32 {
        self.state.lock().committed
    }
}
