//! The page cache within its limits: which files have writes to come, who writes them back and when, and which clean pages make room.
//!
//! Half of the dirty limit wakes the background write-back; at the limit a writer writes its own file back, and others' if that is not enough. When
//! the cache is full, clean pages go, those not used since the last round first (the clock algorithm, file by file); then dirty ones are written back and
//! go. An operation may exceed the limits by what it is about, and no file is kept from being used meanwhile: one in use is passed over.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use amphi_device::{BlockPort, WriteLog};
use amphi_rt::sync::{Condvar, Mutex, Padded};
use amphi_rt::time;
use amphi_vfs::{Ino, Result};

use crate::core::Core;
use crate::data::writeback::write_back;
use crate::index::inode::{Body, Inode, State};

const SHARDS: usize = 16;

/// A file with writes to come, and since when, ns: a file that is gone stays on the list, and its number may be another's by then.
type Listed = (Ino, u64);

/// The files with writes to come, and the bell of who writes them back in the background.
#[derive(Default)]
pub struct DirtyFiles {
    listed: [Padded<Mutex<Vec<Listed>>>; SHARDS],
    /// Where the next round for clean pages starts.
    hand: AtomicUsize,
    /// The bell has been rung and not yet been heard.
    rung: AtomicBool,
    stop: Mutex<bool>,
    bell: Condvar,
}

impl DirtyFiles {
    /// Waits for the bell, at most `interval_ns`. Whether it rang; none once it is time to stop.
    pub fn wait(&self, interval_ns: u64) -> Option<bool> {
        let mut stop = self.stop.lock();
        if !*stop && !self.rung.load(Ordering::Acquire) {
            self.bell.wait_for(&mut stop, Duration::from_nanos(interval_ns));
        }
        let rung = self.rung.swap(false, Ordering::AcqRel);
        (!*stop).then_some(rung)
    }

    /// Tells whoever waits to stop.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.bell.notify_all();
    }

    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            drop(self.stop.lock());
            self.bell.notify_all();
        }
    }
}

impl<D: BlockPort + WriteLog> Core<D> {
    /// Puts an inode on the list of those with writes to come.
    pub fn note_dirty(&self, inode: &Inode<D>) {
        if inode.beside.listed_ns.load(Ordering::Acquire) != 0 {
            return;
        }
        let since_ns = time::now_ns().max(1);
        if inode.beside.listed_ns.compare_exchange(0, since_ns, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.dirty.listed[inode.ino.0 as usize % SHARDS].lock().push((inode.ino, since_ns));
        }
    }

    /// Writes back every inode on the list.
    ///
    /// # Errors
    /// The first failure; the rest is tried all the same.
    pub fn write_back_all(&self) -> Result<()> {
        self.write_back_since(u64::MAX)
    }

    /// Writes back every inode that has been on the list since `before_ns` or longer.
    ///
    /// # Errors
    /// As [`write_back_all`](Self::write_back_all).
    pub fn write_back_since(&self, before_ns: u64) -> Result<()> {
        // Without writes, nobody else tells the clock that time has passed, by which reading judges access times.
        self.names.clock.now();
        let mut outcome = Ok(());
        for shard in &self.dirty.listed {
            let (due, young): (Vec<Listed>, Vec<Listed>) = std::mem::take(&mut *shard.lock())
                .into_iter()
                .partition(|(_, since_ns)| *since_ns <= before_ns);
            shard.lock().extend(young);
            for listed in due {
                outcome = outcome.and(self.write_back_listed(listed));
            }
        }
        outcome
    }

    /// Writes back an inode that was on the list.
    fn write_back_listed(&self, (ino, since_ns): Listed) -> Result<()> {
        let Some(inode) = self.names.cache.get(ino) else { return Ok(()) };
        // Taken off the list first: a write from now on lists it again. A later file of this number stands on the list for itself.
        if inode.beside.listed_ns.compare_exchange(since_ns, 0, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return Ok(());
        }
        let mut state = inode.state.write();
        if state.gone || !matches!(state.body, Body::File(_)) {
            return Ok(());
        }
        let written = write_back(self, &inode, &mut state, false);
        if written.is_err() {
            self.note_dirty(&inode);
        }
        written
    }

    /// Makes a writer write its own file back where too much is dirty or cached.
    ///
    /// # Errors
    /// As [`write_back`].
    pub fn throttle(&self, inode: &Inode<D>, state: &mut State<D>) -> Result<()> {
        let full = self.pages.exceeded();
        if !full && !self.pages.too_dirty() {
            return Ok(());
        }
        if state.file().is_ok_and(|file| !file.dirty.is_empty()) {
            write_back(self, inode, state, false)?;
        }
        if full && let Ok(file) = state.file_mut() {
            file.drop_clean(&self.pages, self.pages.excess(), false);
        }
        Ok(())
    }

    /// After a write, with no lock held: has what is dirty written back, and brings the cache under its limit.
    ///
    /// # Errors
    /// As [`write_back`], of another file; the file system has then turned read-only.
    pub fn relieve(&self) -> Result<()> {
        if self.pages.rather_dirty() {
            self.dirty.ring();
            let mut shards = self.dirty.listed.iter();
            while self.pages.too_dirty() {
                let Some(shard) = shards.next() else { break };
                loop {
                    let next = shard.lock().pop();
                    let Some(listed) = next.filter(|_| self.pages.too_dirty()) else {
                        shard.lock().extend(next);
                        break;
                    };
                    self.write_back_listed(listed)?;
                }
            }
        }
        self.shrink_caches();
        Ok(())
    }

    /// Brings the page cache back under its limit: drops clean pages, then writes back dirty ones and drops them. Skips inodes in use.
    pub fn shrink_caches(&self) {
        for (also_used, write_dirty) in [(false, false), (true, false), (true, true)] {
            if !self.pages.exceeded() {
                return;
            }
            let hand = self.dirty.hand.load(Ordering::Relaxed);
            let hand = self.names.cache.visit(hand, |inode| {
                if self.pages.excess() == 0 {
                    return ControlFlow::Break(());
                }
                let Some(mut state) = inode.state.try_write() else { return ControlFlow::Continue(()) };
                // A failed write-back keeps its pages and has already turned the file system read-only.
                if write_dirty && state.file().is_ok() && write_back(self, inode, &mut state, false).is_err()
                {
                    return ControlFlow::Continue(());
                }
                if let Ok(file) = state.file_mut() {
                    file.drop_clean(&self.pages, self.pages.excess(), also_used);
                }
                ControlFlow::Continue(())
            });
            self.dirty.hand.store(hand, Ordering::Relaxed);
        }
    }
}
