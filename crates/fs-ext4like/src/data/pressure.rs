//! Keeping the page cache within its limits, and what runs in the background: the commit of old transactions,
//! the write-back of old pages.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use amphi_device::BlockPort;
use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::time::now_ns;
use amphi_vfs::{Ino, Result};

use crate::core::Core;
use crate::data::writeback::write_back;
use crate::index::inode::Inode;

/// Longest time between two looks at the age of the running transaction, ns.
const COMMIT_LOOK_NS: u64 = 1_000_000_000;

/// Since when a file has dirty pages, ns, and which.
type Since<D> = (u64, Arc<Inode<D>>);

/// Files with dirty pages, and since when.
pub struct DirtyFiles<D: BlockPort> {
    files: Mutex<BTreeMap<Ino, Since<D>>>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl<D: BlockPort> Default for DirtyFiles<D> {
    fn default() -> Self {
        Self { files: Mutex::default(), stopped: Mutex::default(), wake: Condvar::default() }
    }
}

impl<D: BlockPort> DirtyFiles<D> {
    /// A file has a dirty page.
    pub fn note(&self, inode: &Arc<Inode<D>>) {
        self.files.lock().entry(inode.ino).or_insert_with(|| (now_ns(), Arc::clone(inode)));
    }

    /// It has none any more.
    pub fn remove(&self, inode: &Inode<D>) {
        let mut files = self.files.lock();
        if files.get(&inode.ino).is_some_and(|(_, other)| std::ptr::eq(&**other, inode)) {
            files.remove(&inode.ino);
        }
    }

    /// The files dirty since before a moment, oldest first.
    pub fn since_before(&self, before_ns: u64) -> Vec<Arc<Inode<D>>> {
        let mut files: Vec<_> =
            self.files.lock().values().filter(|(since, _)| *since <= before_ns).cloned().collect();
        files.sort_by_key(|(since, inode)| (*since, inode.ino));
        files.into_iter().map(|(_, inode)| inode).collect()
    }

    /// Ends the background tasks.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.wake.notify_all();
    }

    /// Waits for `ns`, or less if there is much to write; false once stopped.
    pub fn wait(&self, ns: u64) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, Duration::from_nanos(ns));
        }
        !*stopped
    }

    /// Wakes the background tasks.
    pub fn hurry(&self) {
        self.wake.notify_all();
    }
}

impl<D: BlockPort> Core<D> {
    /// Commits transactions that have reached their age, until the mount ends.
    pub fn commit_in_background(&self) {
        let interval = self.options.commit_interval_ns;
        while self.dirty.wait(interval.min(COMMIT_LOOK_NS)) {
            if self.journal.running_age_ns().is_some_and(|age| age >= interval) {
                // A failure has turned the file system read-only, which the next operation reports.
                let _reported_by_the_next_operation = self.commit_running();
            }
        }
    }

    /// Writes back pages and metadata that have reached their age, until the mount ends.
    pub fn write_back_in_background(&self) {
        while self.dirty.wait(self.options.write_back_interval_ns) {
            let old = now_ns().saturating_sub(self.options.dirty_expire_ns);
            let before = if self.pages.rather_dirty() { u64::MAX } else { old };
            let _reported_by_the_next_operation =
                self.write_back_files(before).and_then(|()| self.write_expired_metadata(old));
        }
    }

    /// The block device's pages are one file to the kernel: once the oldest is due, all are written.
    fn write_expired_metadata(&self, old_ns: u64) -> Result<()> {
        let due = self.journal.dirty.lock().values().any(|buffer| {
            buffer.state.lock().committed.as_ref().is_some_and(|committed| committed.since_ns <= old_ns)
        });
        if due { self.write_in_place(u64::MAX, false) } else { Ok(()) }
    }

    /// After a write or read: writers wait while there are too many dirty pages, and clean ones make room.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn relieve(&self, inode: &Arc<Inode<D>>) -> Result<()> {
        if self.pages.too_dirty() {
            write_back(self, inode)?;
            for other in self.dirty.since_before(u64::MAX) {
                if !self.pages.too_dirty() {
                    break;
                }
                write_back(self, &other)?;
            }
        } else if self.pages.rather_dirty() {
            self.dirty.hurry();
        }
        if self.pages.excess() > 0 {
            self.drop_clean_pages();
        }
        Ok(())
    }

    fn drop_clean_pages(&self) {
        for also_used in [false, true] {
            let start = self.sweep.load(Ordering::Relaxed);
            let next = self.names.cache.visit(start, |inode| {
                // Some more than must go, so that not every page read from now on comes here.
                let excess = self.pages.excess();
                if excess == 0 {
                    return ControlFlow::Break(());
                }
                if let Some(mut state) = inode.state.try_write()
                    && let Ok(file) = state.file_mut()
                {
                    file.drop_clean(&self.pages, excess + self.options.page_cache_pages / 64, also_used);
                }
                ControlFlow::Continue(())
            });
            self.sweep.store(next, Ordering::Relaxed);
        }
    }
}
