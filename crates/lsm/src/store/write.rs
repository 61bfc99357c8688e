//! Writing: prepare, log, insert, return (AugeFS §V-A). No task waits for another's log entry.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use amphi_device::{BlockPort, MemoryArea};
use amphi_rt::sync::MutexGuard;
use zerocopy::IntoBytes;

use super::{Shared, Store, Use, Work, Writing};
use crate::batch::Batch;
use crate::log::Half;
use crate::memtable::Memtable;
use crate::planted::{self, Bug};
use crate::{Error, Result, format};

/// Where a prepared write goes.
struct Prepared {
    first: u64,
    half: Half,
    memtable: Arc<Memtable>,
}

impl<D: BlockPort + MemoryArea + 'static> Store<D> {
    /// Puts a value under a key. Durable when it returns.
    ///
    /// # Errors
    /// As for [`write`](Store::write); [`Error::TooLarge`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value)?;
        self.write(&batch)
    }

    /// Deletes a key, whether it is there or not. Durable when it returns.
    ///
    /// # Errors
    /// As for [`put`](Store::put).
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(key)?;
        self.write(&batch)
    }

    /// Makes a batch durable, all or nothing. A [`Snapshot`](super::Snapshot) sees all of it or nothing; a
    /// get beside it may see some. Of two writes of one key at the same time either may be the later one.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a batch that half of the log does not hold; the device's, and what met the
    /// tasks behind: then it may or may not be there after the next opening, and nothing more is written
    /// until then.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let (bytes, limit) = (batch.content_bytes(), self.shared.log.content_max());
        if bytes > limit {
            return Err(Error::TooLarge { what: "a batch", bytes, limit });
        }
        if self.shared.options.grouped { self.write_with_others(batch) } else { self.write_alone(batch) }
    }

    pub(super) fn write_alone(&self, batch: &Batch) -> Result<()> {
        let Prepared { first, half, memtable } = self.shared.prepare(batch)?;
        let header = batch.header(first);
        let parts = [header.as_bytes(), batch.records()];
        let mut outcome = self.shared.log.append_parts(half, &parts).map(drop);
        if outcome.is_ok() {
            outcome = batch.visit(first, |seq, key, value| memtable.insert(seq, key, value));
        }
        if let Err(error) = &outcome {
            // Its half cannot be sealed any more. Said before anyone who waits for this write goes on.
            self.shared.fail(error.clone());
        }
        memtable.in_flight().end(batch.len() as u64);
        outcome
    }

    /// Brings all that was written into tables.
    ///
    /// # Errors
    /// As for [`write`](Store::write).
    pub fn flush(&self) -> Result<()> {
        let mut writing = self.shared.writing.lock();
        if writing.claimed > 0 || writing.memtable_bytes > 0 {
            self.shared.switch(&mut writing, true)?;
        }
        drop(writing);
        let mut work = self.shared.work.lock();
        while work.full.is_some() && work.failed.is_none() {
            self.shared.changed.wait(&mut work);
        }
        Shared::<D>::check(&work)
    }
}

impl<D: BlockPort + MemoryArea + 'static> Shared<D> {
    /// Gives a batch its sequence numbers, its memtable and room in the log. The only mutex on a write's
    /// path.
    fn prepare(&self, batch: &Batch) -> Result<Prepared> {
        let content = batch.content_bytes();
        let bytes = format::entry_bytes(content) as u64;
        let mut writing = self.writing.lock();
        if self.broken.load(Acquire) {
            Self::check(&self.work.lock())?;
        }
        let memtable_full = writing.memtable_bytes >= self.options.memtable_bytes;
        if memtable_full || writing.claimed + bytes > self.log.half_bytes() {
            self.switch(&mut writing, memtable_full)?;
        }
        let first = writing.next_seq;
        writing.next_seq += batch.len() as u64;
        writing.claimed += bytes;
        writing.memtable_bytes += content;
        let memtable = Arc::clone(&writing.memtable);
        memtable.in_flight().begin(batch.len() as u64);
        Ok(Prepared { first, half: writing.half, memtable })
    }

    /// Ends the active half of the log and goes on in the other. A full memtable, or one whose log cannot
    /// move elsewhere, is given to the tasks behind. Waits for all writes that are on their way, and for the
    /// other half to be free.
    pub(super) fn switch(&self, writing: &mut Writing, memtable_full: bool) -> Result<()> {
        if !planted::has(Bug::BarrierMissing) {
            writing.memtable.in_flight().wait();
        }
        Self::check(&self.work.lock())?;
        let (old, last) = (writing.half, writing.next_seq - 1);
        self.log.seal(old)?;
        let mut work = self.work.lock();
        let room = work.backing.iter().position(Option::is_none);
        match room {
            Some(file) if !memtable_full => {
                work.backing[file] = Some(last);
                work.halves[old as usize] = Use::Moving { file, last };
                self.changed.notify_all();
            }
            _ => {
                work = self.wait_until(work, |work| work.full.is_none())?;
                work.halves[old as usize] = Use::Kept;
                let new = Arc::new(Memtable::default());
                let full = std::mem::replace(&mut writing.memtable, new);
                writing.memtable_bytes = 0;
                let mut view = self.view.write();
                view.active = Arc::clone(&writing.memtable);
                view.sealed = Some(Arc::clone(&full));
                drop(view);
                work.full = Some((full, last));
                self.changed.notify_all();
            }
        }
        let new = old.other();
        let mut work = self.wait_until(work, |work| work.halves[new as usize] == Use::Free)?;
        work.halves[new as usize] = Use::Active;
        drop(work);
        self.log.activate(new)?;
        (writing.half, writing.claimed) = (new, 0);
        Ok(())
    }

    /// Waits for something of the tasks behind.
    pub(super) fn wait_until<'a>(
        &'a self,
        mut work: MutexGuard<'a, Work>,
        condition: impl Fn(&Work) -> bool,
    ) -> Result<MutexGuard<'a, Work>> {
        while !condition(&work) {
            Self::check(&work)?;
            self.changed.wait(&mut work);
        }
        Self::check(&work)?;
        Ok(work)
    }
}
