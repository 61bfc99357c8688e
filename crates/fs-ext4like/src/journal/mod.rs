//! Transactions, as jbd2 has them: operations join the running transaction through handles; a commit writes
//! whole copies of all blocks that any of them changed to the journal. `commit.rs` does that, `checkpoint.rs`
//! brings the blocks to their places later, `replay.rs` after a crash.
//!
//! At any time one transaction is running and at most one is being committed. A commit first waits for the
//! handles that are open, while new ones wait for it; that takes no I/O. From then on operations go into the
//! next transaction.

pub mod buffers;
pub mod checkpoint;
pub mod commit;
pub mod replay;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::time::now_ns;
use amphi_vfs::{Error, Failure, Result};

use crate::core::Core;
use crate::format::{DESCRIPTOR_TAGS, Layout, REVOKE_BLOCKS};
use crate::journal::buffers::{Block, Buffer, Kind, SharedBlock};

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

    /// Waits until they have.
    ///
    /// # Errors
    /// [`Error::Io`].
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

/// An operation's part in the running transaction. It ends with [`finish`](Self::finish); one that is dropped
/// after it has changed something has failed half way, and turns the file system read-only.
pub struct Handle<'a, D: BlockPort> {
    /// The file system.
    pub core: &'a Core<D>,
    /// The transaction.
    pub tid: u32,
    credits: usize,
    changed: bool,
}

impl<D: BlockPort> Core<D> {
    /// Opens a handle that will change at most about `credits` blocks. The caller has none open.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`].
    pub fn handle(&self, credits: usize) -> Result<Handle<'_, D>> {
        loop {
            match self.handle_now(credits)? {
                Ok(handle) => return Ok(handle),
                Err(Full::Transaction(tid)) => self.commit_to(tid)?,
                Err(Full::Log) => self.make_room_in_log()?,
            }
        }
    }

    /// As [`handle`](Self::handle), if that takes no commit: for those on whose data a commit would wait.
    ///
    /// # Errors
    /// As there.
    pub fn handle_now(&self, credits: usize) -> Result<std::result::Result<Handle<'_, D>, Full>> {
        let journal = &self.journal;
        loop {
            self.writable()?;
            let mut state = journal.state.lock();
            if state.closing {
                journal.changed.wait(&mut state);
                continue;
            }
            let others = state.running.blocks.len() + state.running.credits;
            let tid = state.running.tid;
            if others > 0 && others + credits > journal.transaction_max {
                return Ok(Err(Full::Transaction(tid)));
            }
            if state.free < state.running.log_blocks(credits) {
                return Ok(Err(Full::Log));
            }
            state.running.handles += 1;
            state.running.credits += credits;
            return Ok(Ok(Handle { core: self, tid, credits, changed: false }));
        }
    }
}

/// Why there is no handle now.
#[derive(Clone, Copy, Debug)]
pub enum Full {
    /// The running transaction, with its number, has as many blocks as one may have.
    Transaction(u32),
    /// The log has no room for more.
    Log,
}

impl<D: BlockPort> Handle<'_, D> {
    /// Changes a metadata block, which is read first if it is not cached.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn modify<T>(&mut self, lba: u64, kind: Kind, change: impl FnOnce(&mut Block) -> T) -> Result<T> {
        let buffer = self.core.buffers.get(&*self.core.device, lba, kind)?;
        self.modify_buffer(&buffer, kind, change)
    }

    /// Fills a block that was just allocated: it starts as zeros and is not read.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn fill<T>(&mut self, lba: u64, kind: Kind, change: impl FnOnce(&mut Block) -> T) -> Result<T> {
        let buffer = self.core.buffers.fresh(lba, kind);
        self.modify_buffer(&buffer, kind, change)
    }

    /// Puts a whole block into the transaction, sharing its contents.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn put(&mut self, lba: u64, kind: Kind, data: &SharedBlock) -> Result<()> {
        let buffer = match self.core.buffers.cached(lba) {
            Some(buffer) => buffer,
            None => self.core.buffers.fresh(lba, kind),
        };
        buffer.lock(kind)?.data = Arc::clone(data);
        self.modify_buffer(&buffer, kind, |_| ())
    }

    fn modify_buffer<T>(
        &mut self,
        buffer: &Arc<Buffer>,
        kind: Kind,
        change: impl FnOnce(&mut Block) -> T,
    ) -> Result<T> {
        let mut block = buffer.lock(kind)?;
        self.changed = true;
        if block.tid != self.tid {
            block.tid = self.tid;
            let mut state = self.core.journal.state.lock();
            if state.running.blocks.is_empty() && !state.running.wanted {
                state.running.since_ns = now_ns();
            }
            state.running.blocks.push(Arc::clone(buffer));
            if self.credits > 0 {
                self.credits -= 1;
                state.running.credits -= 1;
            }
        }
        Ok(change(Arc::make_mut(&mut block.data).as_mut()))
    }

    /// Records that blocks are free when the transaction commits. `revoke`: the journal may hold copies of
    /// them.
    pub fn note_freed(&mut self, start: u32, len: u32, revoke: bool) {
        self.changed = true;
        let mut state = self.core.journal.state.lock();
        state.running.freed.push((start, len));
        if revoke {
            let blocks = (start..start + len).map(u64::from);
            // As ext4_forget() has it: with full data journaling nothing is revoked, because what is written
            // to these blocks next is journaled as well.
            if self.core.journals_data() {
                state.running.forgotten.extend(blocks);
            } else {
                state.running.revoked.extend(blocks);
            }
        }
    }

    /// The transaction is to be committed even if no handle changes anything in it.
    pub fn want_commit(&mut self) {
        let mut state = self.core.journal.state.lock();
        if state.running.is_empty() {
            state.running.since_ns = now_ns();
        }
        state.running.wanted = true;
    }

    /// The transaction does not commit before these data are in place.
    pub fn order(&mut self, data: &Arc<InFlight>) {
        self.core.journal.state.lock().running.ordered.push(Arc::clone(data));
    }

    /// The operation is complete.
    pub fn finish(mut self) {
        self.changed = false;
    }
}

impl<D: BlockPort> Drop for Handle<'_, D> {
    fn drop(&mut self) {
        if self.changed {
            self.core.fail(&Error::Io(Failure::Stuck(
                "an operation failed after it had begun to change something",
            )));
        }
        let mut state = self.core.journal.state.lock();
        state.running.credits -= self.credits;
        state.running.handles -= 1;
        let last = state.running.handles == 0;
        drop(state);
        if last {
            self.core.journal.changed.notify_all();
        }
    }
}
