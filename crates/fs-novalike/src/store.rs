//! The file system as a [`Store`] of names.

use std::sync::Arc;

use amphi_device::PageView;
use amphi_direct_access::{DirectAccess as _, FILE_BLOCKS_MAX, PAGE};
use amphi_names::{Change, Found, Names, Need, Store};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirEntry, DirSink, Error, FileType, Ino, Name, Result};
use amphi_volume::attributes_bytes;

use crate::fs::NovaLike;
use crate::log::{Inode, Part, State};
use crate::tx::{LOG_PAGES, Tx};

/// Pages that only what frees or changes something may take: the logs of as many inodes as one change has.
const LEFT: u64 = 40;

impl<D: PageView + 'static> NovaLike<D> {
    /// Begins a change that takes `pages` pages beside those for logs. What needs none may take the last
    /// ones.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`].
    pub fn change(&self, pages: u64, grows: bool) -> Result<Tx<'_, D>> {
        self.names.health.writable()?;
        if grows {
            return Tx::new(self, pages + LOG_PAGES, LEFT);
        }
        Tx::new(self, pages + LEFT, 0).or_else(|_| Tx::new(self, pages + LOG_PAGES, 0))
    }
}

impl<D: PageView + 'static> Store for NovaLike<D> {
    type Part = Part;
    type Slot = ();
    type Place = ();
    type Change<'a> = Tx<'a, D>;

    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        self.layout.inodes
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        Self::read_inode(&self.medium, &self.layout, &self.table, ino)
    }

    fn find(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Option<Found<()>>> {
        let named = state.part.names.by_name.get(name.bytes());
        Ok(named.map(|named| Found { slot: (), child: named.child }))
    }

    fn place(&self, _: &Inode, _: &State, _: Name<'_>) -> Result<()> {
        Ok(())
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(state.part.names.by_name.is_empty())
    }

    fn list(&self, _: &Inode, state: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let names = &state.part.names;
        for (at, name) in names.by_cookie.range(cookie..) {
            let Some(named) = names.by_name.get(name) else { continue };
            let (ino, file_type) = (named.child.ino, named.child.file_type);
            if !sink(DirEntry { ino, file_type, name, next_cookie: at + 1 }) {
                break;
            }
        }
        Ok(())
    }

    fn target(link: &State) -> &[u8] {
        &link.part.target
    }

    fn attributes(&self, ino: Ino, state: &mut State) -> Result<Attributes> {
        amphi_direct_access::attributes(self, ino, &state.part)
    }

    fn resize(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Tx<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        if size > FILE_BLOCKS_MAX * PAGE {
            return Err(Error::TooLarge);
        }
        let mut tx = self.change(1, false)?;
        tx.touch(inode.ino, &mut state.part)?;
        apply(&mut tx, state)?;
        let cuts = size < state.size;
        if size > state.size {
            self.clear_tail(state)?;
        }
        state.size = size;
        state.atime_dirty = false;
        tx.write_attr(inode, state, cuts)?;
        tx.commit()
    }

    fn deletes_at_once(&self, _: &State) -> bool {
        // Free pages are noted in host memory alone.
        true
    }

    fn begin(&self, need: &Need<'_, Self>) -> Result<Tx<'_, D>> {
        if need.attributes.is_some_and(|(list, _)| attributes_bytes(list) > PAGE as usize) {
            return Err(Error::NoSpace);
        }
        let target = need.new.is_some_and(|new| new.file_type == FileType::Symlink);
        let pages = u64::from(need.attributes.is_some()) + u64::from(target);
        self.change(pages, need.new.is_some() || need.place.is_some() || pages > 0)
    }
}
