//! The page cache within its limits: who writes files back and when, and which clean pages make room.
//!
//! Half of the dirty limit calls the background write-back; at the limit a writer writes its own file back,
//! and others' if that is not enough. When the cache is full, clean pages go, those not used since the last
//! round first; then dirty ones are written back and go. An operation may exceed the limits by what it is
//! about, and no file is kept from being used meanwhile: one in use is passed over.

use std::ops::ControlFlow;
use std::sync::Arc;

use amphi_device::{BlockPort, WriteLog};
use amphi_page_cache::{Cached, Listed, Round, shrink};
use amphi_vfs::Result;

use crate::core::Core;
use crate::data::writeback::write_back;
use crate::index::inode::{Body, Inode, State};

impl<D: BlockPort + WriteLog> Cached for Core<D> {
    type File = Inode;

    fn visit(&self, start: usize, each: impl FnMut(&Arc<Inode>) -> ControlFlow<()>) -> usize {
        self.names.cache.visit(start, each)
    }

    fn drop_pages(&self, inode: &Arc<Inode>, round: Round) {
        let Some(mut state) = inode.state.try_write() else { return };
        let writes = round == Round::All && state.body.file().is_ok();
        // A failed write-back keeps its pages and has already turned the file system read-only.
        if writes && write_back(self, inode, &mut state, false).is_err() {
            return;
        }
        if let Ok(file) = state.body.file_mut() {
            file.pages.drop_clean(&self.pages, self.pages.excess(), round.also_used());
        }
    }
}

impl<D: BlockPort + WriteLog> Core<D> {
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
        // Without writes, nobody else tells the clock that time has passed, by which reading judges access
        // times.
        self.names.clock.now();
        let mut outcome = Ok(());
        self.dirty.take(before_ns, |listed| {
            let written = self.write_back_listed(listed);
            if outcome.is_ok() {
                outcome = written;
            }
        });
        outcome
    }

    /// Writes back an inode that was on the list.
    fn write_back_listed(&self, listed: Listed) -> Result<()> {
        let Some(inode) = self.names.cache.get(listed.0) else { return Ok(()) };
        if !inode.beside.dirty.take(listed) {
            return Ok(());
        }
        let mut state = inode.state.write();
        if state.gone || !matches!(state.body, Body::File(_)) {
            return Ok(());
        }
        let written = write_back(self, &inode, &mut state, false);
        if written.is_err() {
            self.dirty.note(inode.ino, &inode.beside.dirty);
        }
        written
    }

    /// Makes a writer write its own file back where too much is dirty or cached.
    ///
    /// # Errors
    /// As [`write_back`].
    pub fn throttle(&self, inode: &Inode, state: &mut State) -> Result<()> {
        let full = self.pages.exceeded();
        if !full && !self.pages.too_dirty() {
            return Ok(());
        }
        if state.body.file().is_ok_and(|file| !file.pages.is_clean()) {
            write_back(self, inode, state, false)?;
        }
        if full && let Ok(file) = state.body.file_mut() {
            file.pages.drop_clean(&self.pages, self.pages.excess(), false);
        }
        Ok(())
    }

    /// After a write, with no lock held: has what is dirty written back, and brings the cache under its
    /// limit.
    ///
    /// # Errors
    /// As [`write_back`], of another file; the file system has then turned read-only.
    pub fn relieve(&self) -> Result<()> {
        if self.pages.rather_dirty() {
            self.background.call();
            self.dirty.take_while(|| self.pages.too_dirty(), |listed| self.write_back_listed(listed))?;
        }
        self.shrink_caches();
        Ok(())
    }

    /// Brings the page cache back under its limit: drops clean pages, then writes back dirty ones and drops
    /// them.
    pub fn shrink_caches(&self) {
        shrink(self, &self.pages, &self.hand, &[Round::Unused, Round::Clean, Round::All]);
    }
}
