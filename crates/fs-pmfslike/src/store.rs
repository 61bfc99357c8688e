//! The file system as a [`Store`] of names.

use std::sync::Arc;

use amphi_device::PageView;
use amphi_direct_access::{DirectAccess as _, FILE_BLOCKS_MAX, PAGE};
use amphi_names::{Change, Changed, FIRST_COOKIE, Found, Names, Need, Store};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirEntry, DirSink, Error, Ino, Name, Result};
use amphi_volume::attributes_bytes;

use crate::fs::PmfsLike;
use crate::inode::{Inode, Part, State};
use crate::tree::NODES_MAX;
use crate::tx::Tx;

/// Pages that only what frees or changes something may take.
const LEFT: u64 = 8;

impl<D: PageView + 'static> PmfsLike<D> {
    /// Begins a change that takes `pages` pages. What grows nothing may take the last ones.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`].
    pub fn change(&self, pages: u64, grows: bool) -> Result<Tx<'_, D>> {
        self.names.health.writable()?;
        Tx::new(self, pages, if grows { LEFT } else { 0 })
    }

    /// Begins a change that may take a page for what is left of extended attributes, if there is one.
    fn change_little(&self) -> Result<Tx<'_, D>> {
        self.change(1, false).or_else(|_| self.change(0, false))
    }
}

impl<D: PageView + 'static> Store for PmfsLike<D> {
    type Part = Part;
    type Slot = ();
    type Place = ();
    type Change<'a> = Tx<'a, D>;

    const NEW_DIR_BYTES: u64 = PAGE;

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
        Ok(state.part.dir.find(name.bytes()).map(|child| Found { slot: (), child }))
    }

    fn place(&self, _: &Inode, _: &State, _: Name<'_>) -> Result<()> {
        Ok(())
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(state.part.dir.is_empty())
    }

    fn list(&self, _: &Inode, state: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        // Where an entry is is its cookie, and the first is behind `.` and `..`.
        for (child, name, next) in state.part.dir.from(cookie.max(FIRST_COOKIE)) {
            if !sink(DirEntry { ino: child.ino, file_type: child.file_type, name, next_cookie: next }) {
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
        let mut tx = self.change_little()?;
        tx.touch(&mut state.part);
        apply(&mut tx, state)?;
        if size > state.size {
            self.clear_behind(state, size)?;
        } else {
            state.part.tree.unmap(&mut tx, size.div_ceil(PAGE)..u64::MAX);
        }
        state.size = size;
        tx.write_inode(inode, state, Changed::Contents)?;
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
        // A new inode's first block, its attributes; a block more of a directory.
        let mut pages = u64::from(need.attributes.is_some()) + u64::from(need.new.is_some());
        pages += if need.place.is_some() { 1 + NODES_MAX } else { 0 };
        let mut tx = if pages == 0 { self.change_little()? } else { self.change(pages, true)? };
        if need.new.is_some()
            && let Some(ino) = self.take_number()?
        {
            tx.taken.make(ino);
        }
        Ok(tx)
    }
}
