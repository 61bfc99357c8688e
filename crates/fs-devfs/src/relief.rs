//! What becomes of commands when device memory is full (§4.4). Nothing but inodes that somebody has open and
//! commands under way needs it: metadata pages, maps, entries and unused inodes can be had again, so they go
//! first. What is open has a bound, and an open beyond it is refused.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::Store;
use amphi_vfs::{Error, Result};

use crate::controller::Controller;
use crate::filemap::Filemap;
use crate::planted::{self, Bug};

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// Before a command, which holds no lock yet: makes room in device memory if it is short, the cheapest
    /// first. What fails on its way to flash stays in memory. Those who read do not hear of it; those who
    /// write find the file system read-only.
    pub fn relieve(&self) {
        let memory = &self.memory;
        if !memory.is_short() && !memory.has_too_many_inodes() {
            return;
        }
        self.counters.reliefs.fetch_add(1, Ordering::Relaxed);
        if memory.has_too_many_inodes() {
            self.let_inodes_leave();
        }
        self.meta.evict();
        if memory.is_short() {
            self.let_inodes_leave();
            self.drop_maps_and_entries();
        }
        if memory.is_short() && self.names.health.writable().is_ok() {
            // Pages that a journal has records for go only after them.
            let _noted_by_health = self.empty_journals();
            self.meta.evict();
        }
        if memory.is_short() {
            self.away.forget_all();
        }
    }

    /// Before a command that opens a file, whose inode stays in device memory from then on.
    ///
    /// # Errors
    /// [`Error::Busy`] if what is open takes all the memory that inodes may have.
    pub fn may_open(&self) -> Result<()> {
        if !self.memory.may_open() {
            self.let_inodes_leave();
        }
        if self.memory.may_open() || planted::has(Bug::OpenedWithoutEnd) {
            return Ok(());
        }
        self.counters.refused_opens.fetch_add(1, Ordering::Relaxed);
        Err(Error::Busy("the device's memory is full of open files"))
    }

    /// Has all inodes leave that nobody has open.
    fn let_inodes_leave(&self) {
        let mut lately_read = Vec::new();
        // The first time round those stay that were used lately, the second time none; then those whose
        // access time had to be written.
        for _ in 0..3 {
            self.names.cache.evict(0, usize::MAX, |inode| {
                let Some(mut state) = inode.state.try_write() else { return false };
                if state.nlink == 0 || state.orphan || !self.may_leave(inode, &mut state) {
                    return false;
                }
                if state.atime_dirty {
                    lately_read.push(inode.ino);
                }
                !state.atime_dirty
            });
            let cache = &self.names.cache;
            let inodes: Vec<_> =
                std::mem::take(&mut lately_read).into_iter().filter_map(|ino| cache.get(ino)).collect();
            if self.names.health.writable().is_ok() {
                let _noted_by_health = amphi_names::write_atimes(self, &inodes);
            }
        }
    }

    /// Drops what inodes that are open have beside themselves: it is read again when it is used.
    fn drop_maps_and_entries(&self) {
        self.names.cache.visit(0, |inode| {
            if let Some(mut map) = inode.beside.filemap.try_lock() {
                *map = Filemap::default();
            }
            if let Some(mut state) = inode.state.try_write() {
                self.give_entries(inode.ino, &mut state);
                state.attributes = None;
            }
            ControlFlow::Continue(())
        });
    }
}
