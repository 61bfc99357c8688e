//! Keeping the page cache within its limits, and what runs in the background: the commit of old transactions,
//! the write-back of old pages.

use std::ops::ControlFlow;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_page_cache::{Cached, Listed, Round, shrink};
use amphi_rt::time::now_ns;
use amphi_vfs::Result;

use crate::core::Core;
use crate::data::writeback::{write_back, write_back_many};
use crate::index::part::Inode;

/// Longest time between two looks at the age of the running transaction, ns.
const COMMIT_LOOK_NS: u64 = 1_000_000_000;

impl<D: BlockPort> Cached for Core<D> {
    type File = Inode;

    fn visit(&self, start: usize, each: impl FnMut(&Arc<Inode>) -> ControlFlow<()>) -> usize {
        self.names.cache.visit(start, each)
    }

    fn drop_pages(&self, inode: &Arc<Inode>, round: Round) {
        if let Some(mut state) = inode.state.try_write()
            && let Ok(file) = state.body.file_mut()
        {
            file.drop_clean(&self.pages, self.pages.excess(), round.also_used());
        }
    }
}

impl<D: BlockPort> Core<D> {
    /// The files dirty since before a moment, oldest first.
    pub fn dirty_since(&self, before_ns: u64) -> Vec<Arc<Inode>> {
        let listed = self.dirty.since_before(before_ns).into_iter();
        let file =
            |listed: Listed| self.names.cache.get(listed.0).filter(|inode| inode.beside.dirty.is(listed));
        listed.filter_map(file).collect()
    }

    /// Writes every file that has been dirty since before `before_ns`.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn write_back_files(&self, before_ns: u64) -> Result<()> {
        write_back_many(self, &self.dirty_since(before_ns))
    }

    /// Commits transactions that have reached their age, until the mount ends.
    pub fn commit_in_background(&self) {
        let interval = self.options.commit_interval_ns;
        while self.background.wait(interval.min(COMMIT_LOOK_NS)).is_some() {
            if self.journal.running_age_ns().is_some_and(|age| age >= interval) {
                // A failure has turned the file system read-only, which the next operation reports.
                let _reported_by_the_next_operation = self.commit_running();
            }
        }
    }

    /// Writes back pages and metadata that have reached their age, until the mount ends.
    pub fn write_back_in_background(&self) {
        while self.background.wait(self.options.write_back_interval_ns).is_some() {
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
    pub fn relieve(&self, inode: &Arc<Inode>) -> Result<()> {
        if self.pages.too_dirty() {
            write_back(self, inode)?;
            for other in self.dirty_since(u64::MAX) {
                if !self.pages.too_dirty() {
                    break;
                }
                write_back(self, &other)?;
            }
        } else if self.pages.rather_dirty() {
            self.background.hurry();
        }
        shrink(self, &self.pages, &self.hand, &[Round::Unused, Round::Clean]);
        Ok(())
    }
}
