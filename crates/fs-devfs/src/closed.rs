//! What leaves device memory as soon as a file is closed (§4.4): its map, then the entries of its directory,
//! then its inode, as far as the mount says. The paper's prototype moves them at once, as here; a mount that
//! says nothing waits until memory is short.

use std::sync::Arc;

use amphi_device::{BlockPort, CommandPort, MemoryArea};
use amphi_names::Store;

use crate::controller::Controller;
use crate::filemap::Filemap;
use crate::options::OnClose;
use crate::part::Inode;
use crate::planted::{self, Bug};

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// A file has been opened.
    pub fn file_opened(&self, inode: &Inode) {
        if self.on_close >= OnClose::Entries && !inode.is_dir() {
            self.open_files.add(inode.parent(), &inode.beside.counted_in);
        }
    }

    /// Nobody has a file open any more. It may be deleted by now.
    pub fn file_closed(&self, inode: Arc<Inode>) {
        if self.on_close == OnClose::Nothing || inode.is_dir() {
            return;
        }
        if let Some(mut map) = inode.beside.filemap.try_lock() {
            *map = Filemap::default();
        }
        if self.on_close >= OnClose::Entries
            && let Some(dir) = self.open_files.remove(&inode.beside.counted_in)
            && let Some(dir) = self.names.cache.get(dir).filter(|dir| dir.is_dir())
            && let Some(mut state) = dir.state.try_write()
        {
            self.give_entries(dir.ino, &mut state);
        }
        if self.on_close < OnClose::Inodes || planted::has(Bug::StaysWhenClosed) {
            return;
        }
        if inode.state.try_read().is_some_and(|state| state.atime_dirty)
            && self.names.health.writable().is_ok()
        {
            // One that fails stays in device memory; whoever changes something next hears of it.
            let _reported_by_the_next_operation = amphi_names::write_atimes(self, &[Arc::clone(&inode)]);
        }
        let ino = inode.ino;
        drop(inode);
        self.names.cache.leave(ino, |inode| {
            inode.state.try_write().is_some_and(|mut state| {
                state.nlink > 0 && !state.orphan && !state.atime_dirty && self.may_leave(inode, &mut state)
            })
        });
    }
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static> Controller<D> {
    /// At the end of a command, on its processor and without a lock: takes the time of what has moved between
    /// device and host memory meanwhile.
    pub fn pay_for_moves(&self) {
        let (count, bytes) = self.away.take_moved();
        if count > 0 {
            self.media.device.exchange(count, bytes);
        }
    }
}
