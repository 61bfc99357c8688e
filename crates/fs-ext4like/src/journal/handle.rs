//! Handles: an operation's part in the running transaction.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_rt::time::now_ns;
use amphi_vfs::{Error, Failure, Result};

use crate::base::Base;
use crate::journal::InFlight;
use crate::journal::buffers::{Block, Buffer, Kind, SharedBlock};

/// An operation's part in the running transaction. It ends with [`finish`](Self::finish); one that is dropped
/// after it has changed something has failed half way, and turns the file system read-only.
pub struct Handle<'a, D: BlockPort> {
    /// The file system.
    pub base: &'a Base<D>,
    /// The transaction.
    pub tid: u32,
    credits: usize,
    changed: bool,
}

impl<D: BlockPort> Base<D> {
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
            return Ok(Ok(Handle { base: self, tid, credits, changed: false }));
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
        let buffer = self.base.buffers.get(&*self.base.device, lba, kind)?;
        self.modify_buffer(&buffer, kind, change)
    }

    /// Fills a block that was just allocated: it starts as zeros and is not read.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn fill<T>(&mut self, lba: u64, kind: Kind, change: impl FnOnce(&mut Block) -> T) -> Result<T> {
        let buffer = self.base.buffers.fresh(lba, kind);
        self.modify_buffer(&buffer, kind, change)
    }

    /// Puts a whole block into the transaction, sharing its contents.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn put(&mut self, lba: u64, kind: Kind, data: &SharedBlock) -> Result<()> {
        let buffer = match self.base.buffers.cached(lba) {
            Some(buffer) => buffer,
            None => self.base.buffers.fresh(lba, kind),
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
            let mut state = self.base.journal.state.lock();
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
        let mut state = self.base.journal.state.lock();
        state.running.freed.push((start, len));
        if revoke {
            let blocks = (start..start + len).map(u64::from);
            // As ext4_forget() has it: with full data journaling nothing is revoked, because what is written
            // to these blocks next is journaled as well.
            if self.base.journals_data() {
                state.running.forgotten.extend(blocks);
            } else {
                state.running.revoked.extend(blocks);
            }
        }
    }

    /// The transaction is to be committed even if no handle changes anything in it.
    pub fn want_commit(&mut self) {
        let mut state = self.base.journal.state.lock();
        if state.running.is_empty() {
            state.running.since_ns = now_ns();
        }
        state.running.wanted = true;
    }

    /// The transaction does not commit before these data are in place.
    pub fn order(&mut self, data: &Arc<InFlight>) {
        self.base.journal.state.lock().running.ordered.push(Arc::clone(data));
    }

    /// Passes on how a step has ended whose change is in memory already. After a failure the two differ, even
    /// if no block has changed yet.
    ///
    /// # Errors
    /// Its own.
    pub fn judge<T>(&mut self, outcome: Result<T>) -> Result<T> {
        self.changed |= matches!(outcome, Err(Error::Io(_) | Error::Corrupt(_)));
        outcome
    }

    /// The operation is complete.
    pub fn finish(mut self) {
        self.changed = false;
    }
}

impl<D: BlockPort> Drop for Handle<'_, D> {
    fn drop(&mut self) {
        if self.changed {
            self.base.fail(&Error::Io(Failure::Stuck(
                "an operation failed after it had begun to change something",
            )));
        }
        let mut state = self.base.journal.state.lock();
        state.running.credits -= self.credits;
        state.running.handles -= 1;
        let last = state.running.handles == 0;
        drop(state);
        if last {
            self.base.journal.changed.notify_all();
        }
    }
}
