//! Committing a transaction: what jbd2's thread does, done here by whoever needs it first; the others wait
//! and find it done (group commit).
//!
//! The order of writes is jbd2's: data of ordered mode; revocations, descriptors and copies; a flush; the
//! commit record; a flush (on the wire the record is written with PREFLUSH and FUA, and a device without FUA
//! sees two flushes).

use std::collections::BTreeSet;
use std::sync::Arc;

use amphi_device::{BlockPort, Completion, Lpa, Structure};
use amphi_rt::time::{now_ns, wall_ns};
use amphi_vfs::{Error, Failure, Result};
use amphi_volume::io_error;
use zerocopy::IntoBytes;

use crate::base::Base;
use crate::format::{
    BLOCK, COMMIT, CommitRecord, DESCRIPTOR, DESCRIPTOR_TAGS, GroupDescriptor, JOURNAL_MAGIC, JournalHeader,
    JournalSuper, JournalTag, REVOKE, REVOKE_BLOCKS, SUPER, TAG_ESCAPED, journal_block_crc,
};
use crate::journal::buffers::{Buffer, Committed, Kind, SharedBlock};
use crate::journal::{Journal, Logged, Transaction};

/// Most blocks written by one command: 1 MB.
pub const COMMAND_BLOCKS: usize = 256;

/// A block of a transaction as it was when the transaction was closed.
struct Copied {
    buffer: Arc<Buffer>,
    data: SharedBlock,
}

/// Where a commit's blocks go in the log.
struct Place {
    start: u32,
    blocks: u32,
}

impl<D: BlockPort> Base<D> {
    /// Commits the running transaction, if there is anything in it. Returns whether the device was flushed on
    /// the way.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn commit_running(&self) -> Result<bool> {
        let tid = {
            let state = self.journal.state.lock();
            match (state.running.is_empty(), state.committing) {
                (true, 0) => return Ok(false),
                (true, committing) => committing,
                (false, _) => state.running.tid,
            }
        };
        self.commit_to(tid)?;
        Ok(self.options.barrier)
    }

    /// Returns when transaction `tid` is committed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn commit_to(&self, tid: u32) -> Result<()> {
        let journal = &self.journal;
        let mut state = journal.state.lock();
        loop {
            if state.committed >= tid {
                return Ok(());
            }
            self.sound()?;
            if state.closing || state.committing != 0 {
                journal.changed.wait(&mut state);
                continue;
            }
            if state.running.is_empty() && state.running.handles == 0 {
                return Ok(());
            }
            state.closing = true;
            while state.running.handles > 0 {
                journal.changed.wait(&mut state);
            }
            // A handle that failed has left the transaction with half an operation.
            if let Err(error) = self.sound() {
                state.closing = false;
                drop(state);
                journal.changed.notify_all();
                return Err(error);
            }
            let transaction = Journal::close(&mut state);
            drop(state);
            let copies = self.copy_blocks(&transaction);
            journal.state.lock().closing = false;
            journal.changed.notify_all();
            let outcome = copies.and_then(|copies| self.write_transaction(&transaction, copies));
            if let Err(error) = &outcome {
                self.fail(error);
            }
            state = journal.state.lock();
            state.committing = 0;
            if outcome.is_ok() {
                state.committed = transaction.tid;
            }
            drop(state);
            journal.changed.notify_all();
            outcome?;
            state = journal.state.lock();
        }
    }

    /// Takes the contents of a closed transaction's blocks, with their checksums. No handle is open.
    fn copy_blocks(&self, transaction: &Transaction) -> Result<Vec<Copied>> {
        self.seal_bitmaps(transaction)?;
        let mut copies = Vec::with_capacity(transaction.blocks.len());
        let gone: BTreeSet<u64> = transaction.gone().collect();
        for buffer in &transaction.blocks {
            // Freed again before anybody else could see it: not worth a copy.
            if gone.contains(&buffer.lba) {
                continue;
            }
            let mut state = buffer.state.lock();
            let kind = state.kind;
            kind.seal(buffer.lba, Arc::make_mut(&mut state.data).as_mut());
            copies.push(Copied { buffer: Arc::clone(buffer), data: Arc::clone(&state.data) });
        }
        Ok(copies)
    }

    /// Puts the checksums of changed bitmaps into their descriptors, which are part of the same transaction.
    fn seal_bitmaps(&self, transaction: &Transaction) -> Result<()> {
        for buffer in &transaction.blocks {
            let state = buffer.state.lock();
            let first = match state.kind {
                Kind::BlockBitmap => self.layout.block_bitmaps,
                Kind::InodeBitmap => self.layout.inode_bitmaps,
                _ => continue,
            };
            let is_block_bitmap = state.kind == Kind::BlockBitmap;
            let crc = crc32c::crc32c(&state.data[..]);
            drop(state);
            let group = (buffer.lba - u64::from(first)) as u32;
            let (lba, at) = self.layout.descriptor_place(group);
            let descriptors = self.buffers.get(&*self.device, lba, Kind::Descriptors)?;
            let mut state = descriptors.lock(Kind::Descriptors)?;
            let bytes = &mut Arc::make_mut(&mut state.data)[at..at + 64];
            let mut descriptor = GroupDescriptor::decode(bytes, group)
                .map_err(|error| Error::corrupt("group", u64::from(group), error.to_string()))?;
            if is_block_bitmap {
                descriptor.block_bitmap_crc = crc.into();
            } else {
                descriptor.inode_bitmap_crc = crc.into();
            }
            bytes.copy_from_slice(&descriptor.encode(group));
        }
        Ok(())
    }

    fn write_transaction(&self, transaction: &Transaction, copies: Vec<Copied>) -> Result<()> {
        for data in &transaction.ordered {
            data.wait()?;
        }
        let tid = transaction.tid;
        let place = self.log_place(transaction, copies.len())?;
        let blocks = self.log_contents(transaction, &copies, &place);
        self.write_log(place.start, &blocks)?;
        let tail = self.tail_worth_moving();
        self.journal.state.lock().flushing = tid;
        self.barrier()?;
        let record = CommitRecord { time_ns: wall_ns().into() };
        let record = JournalHeader::block(COMMIT, tid, place.blocks, record.as_bytes(), self.journal.seed);
        let last = self.log_block(place.start, place.blocks - 1);
        self.device.write(Lpa(last), &record, Structure::Journal).map_err(io_error)?;
        self.barrier()?;
        if let Some((start, sequence)) = tail {
            self.write_tail(start, sequence)?;
        }
        self.complete(transaction, copies, &place);
        Ok(())
    }

    /// Where a transaction goes in the log, which is made room in if need be.
    fn log_place(&self, transaction: &Transaction, copies: usize) -> Result<Place> {
        let descriptors = copies.div_ceil(DESCRIPTOR_TAGS);
        let revocations = transaction.revoked.len().div_ceil(REVOKE_BLOCKS);
        let blocks = (copies + descriptors + revocations + 1) as u32;
        if self.journal.state.lock().free < blocks {
            self.move_tail()?;
        }
        let mut state = self.journal.state.lock();
        if state.free < blocks {
            return Err(Error::Io(Failure::Stuck("a transaction does not fit the journal")));
        }
        let start = state.head;
        state.free -= blocks;
        state.head = (start - 1 + blocks) % (self.journal.blocks - 1) + 1;
        let marked_empty = std::mem::take(&mut state.marked_empty);
        drop(state);
        if marked_empty {
            self.write_tail(start, transaction.tid)?;
        }
        Ok(Place { start, blocks })
    }

    /// The device's block for the `index`th block of a transaction that starts at block `start` of the
    /// journal: the log is a ring, without the journal's superblock.
    fn log_block(&self, start: u32, index: u32) -> u64 {
        let ring = self.journal.blocks - 1;
        u64::from(self.journal.first) + 1 + u64::from((start - 1 + index) % ring)
    }

    /// All blocks of a transaction in the log but the commit record.
    fn log_contents(&self, transaction: &Transaction, copies: &[Copied], place: &Place) -> Vec<SharedBlock> {
        let (tid, seed) = (transaction.tid, self.journal.seed);
        let mut blocks = Vec::with_capacity(place.blocks as usize);
        for revoked in transaction.revoked.chunks(REVOKE_BLOCKS) {
            let body: Vec<u8> = revoked.iter().flat_map(|lba| lba.to_le_bytes()).collect();
            blocks.push(Arc::new(Box::new(JournalHeader::block(
                REVOKE,
                tid,
                revoked.len() as u32,
                &body,
                seed,
            ))));
        }
        for part in copies.chunks(DESCRIPTOR_TAGS) {
            let at = blocks.len();
            let mut tags = Vec::with_capacity(part.len() * size_of::<JournalTag>());
            for copy in part {
                let mut data = Arc::clone(&copy.data);
                let escaped = data[..4] == JOURNAL_MAGIC.to_le_bytes();
                if escaped {
                    Arc::make_mut(&mut data)[..4].fill(0);
                }
                let tag = JournalTag {
                    lba: copy.buffer.lba.into(),
                    flags: if escaped { TAG_ESCAPED } else { 0 }.into(),
                    crc: journal_block_crc(seed, tid, &data).into(),
                };
                tags.extend_from_slice(tag.as_bytes());
                blocks.push(data);
            }
            let descriptor = JournalHeader::block(DESCRIPTOR, tid, part.len() as u32, &tags, seed);
            blocks.insert(at, Arc::new(Box::new(descriptor)));
        }
        blocks
    }

    fn write_log(&self, start: u32, blocks: &[SharedBlock]) -> Result<()> {
        let mut runs: Vec<(u64, Vec<&[u8]>)> = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            let lba = self.log_block(start, index as u32);
            match runs.last_mut() {
                Some((first, run)) if *first + run.len() as u64 == lba && run.len() < COMMAND_BLOCKS => {
                    run.push(&block[..]);
                }
                _ => runs.push((lba, vec![&block[..]])),
            }
        }
        self.write_runs(&runs, |_| Structure::Journal)
    }

    /// Writes runs of blocks, all of them in flight together.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_runs(
        &self,
        runs: &[(u64, Vec<&[u8]>)],
        structure: impl Fn(usize) -> Structure,
    ) -> Result<()> {
        let tickets = self.submit_runs(runs, structure)?;
        tickets.into_iter().try_for_each(Completion::wait).map_err(io_error)
    }

    /// Sends runs of blocks; each is written when its ticket has been waited for.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn submit_runs<'a>(
        &'a self,
        runs: &'a [(u64, Vec<&'a [u8]>)],
        structure: impl Fn(usize) -> Structure,
    ) -> Result<Vec<D::Ticket<'a>>> {
        let mut tickets = Vec::with_capacity(runs.len());
        for (index, (lba, run)) in runs.iter().enumerate() {
            tickets.push(self.device.submit_write(Lpa(*lba), run, structure(index)).map_err(io_error)?);
        }
        Ok(tickets)
    }

    /// Makes completed writes durable, unless the mount does without.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn barrier(&self) -> Result<()> {
        if self.options.barrier { self.device.flush().map_err(io_error) } else { Ok(()) }
    }

    /// Writes the journal's superblock: the log starts at block `start` of the journal with transaction
    /// `sequence`. Durable on return. A commit and whoever makes room in the log may both move the tail: what
    /// one has freed may be in use again when the other comes with an older tail, which is not written.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_tail(&self, start: u32, sequence: u32) -> Result<()> {
        let mut tail = self.journal.tail.lock();
        if sequence < *tail {
            return Ok(());
        }
        let body = JournalSuper { start: start.into() };
        let block = JournalHeader::block(SUPER, sequence, 0, body.as_bytes(), self.journal.seed);
        let at = Lpa(u64::from(self.journal.first));
        self.device.write(at, &block, Structure::Journal).map_err(io_error)?;
        self.barrier()?;
        // Not before: where it failed, an older tail has to be written.
        *tail = sequence;
        Ok(())
    }

    /// The transaction is durable: its blocks wait to be written in place, and what it freed can be used.
    fn complete(&self, transaction: &Transaction, copies: Vec<Copied>, place: &Place) {
        let tid = transaction.tid;
        let now = now_ns();
        // Not while one of the blocks that go is on its way to its place, where another file's data may be
        // next.
        let quiet = transaction.gone().next().is_some().then(|| self.journal.in_place.lock());
        let mut superseded = Vec::new();
        // Before any of its blocks can be written in place, which counts them.
        let left = copies.len();
        let logged = Logged { tid, start: place.start, blocks: place.blocks, left };
        self.journal.state.lock().logged.push_back(logged);
        let mut dirty = self.journal.dirty.lock();
        for Copied { buffer, data } in copies {
            let mut state = buffer.state.lock();
            if state.tid == tid {
                state.tid = 0;
            }
            let since_ns = state.committed.as_ref().map_or(now, |before| before.since_ns);
            let before = state.committed.replace(Committed { data, tid, since_ns });
            superseded.extend(before.map(|before| before.tid));
            drop(state);
            dirty.insert(buffer.lba, buffer);
        }
        for lba in transaction.gone() {
            if let Some(buffer) = dirty.remove(&lba) {
                superseded.extend(buffer.state.lock().committed.take().map(|before| before.tid));
            }
            self.buffers.forget(lba);
        }
        drop(dirty);
        drop(quiet);
        let mut state = self.journal.state.lock();
        for tid in superseded {
            if let Some(logged) = state.logged.iter_mut().find(|logged| logged.tid == tid) {
                logged.left -= 1;
            }
        }
        drop(state);
        self.groups.release(&transaction.freed);
    }
}

const _: () = assert!(BLOCK == amphi_device::PAGE_BYTES, "a block is a page of the device");
