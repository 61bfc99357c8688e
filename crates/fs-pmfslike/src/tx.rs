//! A change of the file system, as names ask for it.

use std::ops::{Deref, DerefMut};

use amphi_device::{PageView, Structure};
use amphi_direct_access::{PAGE, Taken};
use amphi_names::{Change, Changed, Child, NewInode};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use amphi_volume::encode_attributes;
use zerocopy::IntoBytes;

use crate::dir::{self, Dir};
use crate::format::root_word;
use crate::fs::PmfsLike;
use crate::inode::{Inode, Part, State, record_of};
use crate::stores::Stores;

/// A change.
pub struct Tx<'a, D: PageView + 'static> {
    pub fs: &'a PmfsLike<D>,
    stores: Stores<'a, D>,
}

impl<'a, D: PageView + 'static> Deref for Tx<'a, D> {
    type Target = Stores<'a, D>;

    fn deref(&self) -> &Stores<'a, D> {
        &self.stores
    }
}

impl<D: PageView + 'static> DerefMut for Tx<'_, D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.stores
    }
}

impl<'a, D: PageView + 'static> Tx<'a, D> {
    /// A change that takes at most `pages` pages, and leaves `left`.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn new(fs: &'a PmfsLike<D>, pages: u64, left: u64) -> Result<Self> {
        Ok(Self::with(fs, Taken::new(fs, pages, left)?))
    }

    /// A change that takes at most `pages` pages, which were promised.
    pub fn promised(fs: &'a PmfsLike<D>, pages: u64) -> Self {
        Self::with(fs, Taken::promised(fs, pages))
    }

    fn with(fs: &'a PmfsLike<D>, taken: Taken<'a>) -> Self {
        Self { fs, stores: Stores::new(&fs.medium, &fs.space, taken) }
    }

    /// Before anything of an inode changes: what the last change has freed in a directory may be used now.
    pub fn touch(&mut self, part: &mut Part) {
        if part.touched != self.taken.number {
            part.touched = self.taken.number;
            part.dir.settle();
        }
    }

    /// Has an inode's record be what host memory says.
    pub fn note(&mut self, inode: &Inode, state: &mut State) {
        state.atime_dirty = false;
        let record = record_of(inode, state);
        let old = std::mem::replace(&mut state.part.record, record);
        self.set_record(state.part.at, old, record);
    }

    /// Stores a new inode, all but the word that makes it one.
    fn store_new(&mut self, inode: &Inode, state: &mut State) -> Result<()> {
        if inode.is_dir() {
            let (page, _) = self.taken.take(1);
            *self.fresh(page, Structure::Dentry) = *dir::first_block(inode.ino, inode.parent());
            state.part.tree.root = root_word(page, 0);
            state.part.tree.blocks.insert(0, page);
            (state.part.dir, state.part.parent) = (Dir::empty(), inode.parent());
            state.size = PAGE;
        }
        state.atime_dirty = false;
        let record = record_of(inode, state);
        let at = state.part.at;
        self.store(at + 8, &record.as_bytes()[8..], Structure::Inode)?;
        self.set_word(at, 0, record.valid.get(), Structure::Inode);
        state.part.record = record;
        Ok(())
    }
}

impl<D: PageView + 'static> Change<PmfsLike<D>> for Tx<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let ino = self.taken.made().ok_or(Error::NoInodes)?;
        let mut part = Part::new(self.fs.table.address(ino)?);
        part.touched = self.taken.number;
        if new.file_type == FileType::Symlink {
            let (page, _) = self.taken.take(1);
            self.store(page * PAGE, new.target, Structure::Data)?;
            part.tree.root = root_word(page, 0);
            part.tree.blocks.insert(0, page);
            part.target = new.target.to_vec();
        }
        Ok((ino, part))
    }

    fn insert(&mut self, _: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        self.touch(&mut state.part);
        let part = &mut state.part;
        state.size += part.dir.insert(self, &mut part.tree, name.bytes(), child)?;
        Ok(())
    }

    fn remove(&mut self, _: &Inode, state: &mut State, (): (), name: Name<'_>) -> Result<()> {
        self.touch(&mut state.part);
        let part = &mut state.part;
        part.dir.change(self, &part.tree, name.bytes(), None)
    }

    fn replace(&mut self, _: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        self.touch(&mut state.part);
        let part = &mut state.part;
        part.dir.change(self, &part.tree, name.bytes(), Some(child))
    }

    fn reparent(&mut self, child: &Inode, state: &mut State) -> Result<()> {
        let part = &mut state.part;
        let old = std::mem::replace(&mut part.parent, child.parent());
        dir::reparent(self, &part.tree, old, child.parent())
    }

    fn set_attributes(&mut self, _: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        self.touch(&mut state.part);
        if !attributes.is_empty() {
            // A change that frees something may have found no page at all.
            self.taken.promise_one()?;
        }
        let (old, _) = state.part.attributes_at();
        if old != 0 {
            self.free(old, 1);
        }
        state.part.attributes = 0;
        if !attributes.is_empty() {
            let bytes = encode_attributes(attributes);
            let (page, _) = self.taken.take(1);
            self.store(page * PAGE, &bytes, Structure::Inode)?;
            state.part.attributes = page | (bytes.len() as u64) << 48;
        }
        Ok(())
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        if changed == Changed::New {
            return self.store_new(inode, state);
        }
        self.note(inode, state);
        Ok(())
    }

    fn set_orphan(&mut self, _: &Inode, _: &mut State, _: bool) -> Result<()> {
        // It is one if it has no links; the next mount reads all inodes.
        Ok(())
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        let part = &mut state.part;
        // Nothing else of it has to be stored.
        self.leave_record(part.at);
        self.set_word(part.at, part.record.valid.get(), 0, Structure::Inode);
        for (page, count) in part.pages() {
            self.free(page, count);
        }
        self.taken.delete(inode.ino);
        Ok(true)
    }

    fn commit(mut self) -> Result<()> {
        let reached = self.taken.sound().and_then(|()| self.stores.finish(&self.fs.log, &self.fs.layout));
        self.stores.taken.settle(reached)
    }
}
