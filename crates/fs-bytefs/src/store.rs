//! ByteFS as a store of names: an operation on names is one transaction (BY-17), durable on
//! return unless transactions are grouped.

use std::sync::Arc;

use amphi_device::{BlockPort, Structure, WriteLog};
use amphi_names::{Change, Changed, Child, Found, FoundInode, Names, Need, NewInode, Store};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirSink, Error, FileType, Ino, Name, Result};
use amphi_volume::io_error;

use crate::commit::tx::Tx;
use crate::core::Core;
use crate::data::body::FileBody;
use crate::data::truncate::{self, deletes_in_steps};
use crate::format::INLINE_TARGET_MAX;
use crate::index::dir::Dir;
use crate::index::extent::ExtentTree;
use crate::index::inode::{self, Body, Inode, Part, State, number};
use crate::index::symlink::{self, TARGET_BYTES_MAX};
use crate::index::xattr::Xattrs;
use crate::planted::{self, Bug};

/// Blocks of a symbolic link whose target is not in the inode: the target's, an extent node's.
const LONG_TARGET_NEEDS: u64 = 2;

impl<D: BlockPort + WriteLog> Store for Core<D> {
    type Part = Part;
    type Slot = u32;
    /// Blocks that the insertion may need.
    type Place = u64;
    type Change<'a> = Tx<'a, D>;

    const TARGET_BYTES_MAX: usize = TARGET_BYTES_MAX;

    #[inline]
    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        u64::from(self.layout.inodes)
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        let number = u32::try_from(ino.0).ok().filter(|number| *number != 0 && *number < self.layout.inodes);
        let number = number.ok_or(Error::Stale(ino))?;
        if !self.inodes.is_used(u64::from(number)) {
            return Err(Error::Stale(ino));
        }
        let bytes = self.inode_pages.read(self.layout.inode_page(number), |page, into| {
            self.read_metadata(page, into, Structure::Inode).map_err(io_error)
        })?;
        inode::decode(self, number, &bytes)
    }

    #[inline]
    fn is_open(state: &State) -> bool {
        state.body.dir().is_ok_and(|dir| dir.loaded())
    }

    #[inline]
    fn open_dir(&self, dir: &Inode, state: &mut State) -> Result<()> {
        state.body.dir_mut()?.load(self, number(dir))
    }

    #[inline]
    fn find(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Option<Found<u32>>> {
        Ok(state.body.dir()?.find(name))
    }

    #[inline]
    fn find_inode(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Option<FoundInode<Self>>> {
        Ok(state.body.dir()?.find_inode(name, &self.names.cache))
    }

    #[inline]
    fn place(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<u64> {
        Ok(state.body.dir()?.insert_needs(name))
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(state.body.dir()?.is_empty())
    }

    fn list(&self, _: &Inode, state: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        state.body.dir()?.list(cookie, sink);
        Ok(())
    }

    fn target(link: &State) -> &[u8] {
        match &link.body {
            Body::Symlink((target, _)) => target,
            _ => &[],
        }
    }

    fn attributes(&self, ino: Ino, state: &mut State) -> Result<Attributes> {
        state.xattrs.load(self, ino.0 as u32)
    }

    fn resize(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Tx<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        truncate::resize(self, inode, state, size, apply)
    }

    #[inline]
    fn deletes_at_once(&self, state: &State) -> bool {
        !deletes_in_steps(state)
    }

    fn may_leave(&self, inode: &Inode, state: &mut State) -> bool {
        if inode.beside.dirty.is_listed() || state.attributes_dirty {
            return false;
        }
        if let Ok(file) = state.body.file_mut() {
            if !file.pages.is_clean() {
                return false;
            }
            file.pages.drop_clean(&self.pages, usize::MAX, true);
        }
        true
    }

    /// Files with writes to come hold more than they will take, extent nodes above all, and writing them back
    /// sets that free.
    fn make_room(&self) -> Result<bool> {
        self.write_back_all()?;
        // What is free once the group counts is free then.
        self.commit_groups()?;
        Ok(true)
    }

    #[inline]
    fn begin(&self, need: &Need<'_, Self>) -> Result<Tx<'_, D>> {
        let entry = need.place.copied().unwrap_or(0);
        let long_target = need.new.is_some_and(|new| new.target.len() > INLINE_TARGET_MAX);
        let target = if long_target { LONG_TARGET_NEEDS } else { 0 };
        let attributes = match need.attributes {
            Some((attributes, part)) => Xattrs::needs(attributes, part.map(|part| &part.xattrs))?,
            None => 0,
        };
        Tx::with_slot(self, entry + target + attributes, need.orphan)
    }
}

impl<D: BlockPort + WriteLog> Change<Core<D>> for Tx<'_, D> {
    #[inline]
    fn new_inode(&mut self, dir: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        // As ext4's, top-level directories are kept apart, so that tasks that work in two of them seldom meet
        // in one partition of the log, one bitmap group, one page.
        let apart = new.file_type == FileType::Directory && dir.ino == Ino::ROOT;
        let ino = self.allocate_inode(apart)?;
        let body = match new.file_type {
            FileType::Regular => Body::File(FileBody::new(ExtentTree::default())),
            FileType::Directory => {
                let empty = Dir::new(ExtentTree::default(), 0);
                Body::Dir(Box::new(empty.map_err(|what| Error::corrupt("inode", u64::from(ino), what))?))
            }
            FileType::Symlink => Body::Symlink((new.target.to_vec(), ExtentTree::default())),
            _ => Body::Special,
        };
        let mut part = Part::new(body, new.target.len() as u64);
        if let Body::Symlink((target, tree)) = &mut part.body
            && target.len() > INLINE_TARGET_MAX
        {
            symlink::write_target(self.base, target, tree, self)?;
            part.data_pages = 1;
        }
        Ok((Ino(u64::from(ino)), part))
    }

    #[inline]
    fn insert(&mut self, _: &Inode, state: &mut State, _: u64, name: Name<'_>, child: Child) -> Result<()> {
        let body = state.body.dir_mut()?;
        let added = body.insert(name, child, self);
        let size = body.size();
        state.data_pages += added;
        state.size = size;
        state.size_on_device = size;
        Ok(())
    }

    #[inline]
    fn remove(&mut self, _: &Inode, state: &mut State, slot: u32, _: Name<'_>) -> Result<()> {
        state.body.dir_mut()?.remove(slot, self);
        Ok(())
    }

    #[inline]
    fn replace(&mut self, _: &Inode, state: &mut State, slot: u32, _: Name<'_>, child: Child) -> Result<()> {
        state.body.dir_mut()?.replace(slot, child, self);
        Ok(())
    }

    fn reparent(&mut self, child: &Inode, state: &mut State) -> Result<()> {
        if !planted::has(Bug::ParentNotMoved) {
            self.write_upper(child, state);
        }
        Ok(())
    }

    fn set_attributes(&mut self, ino: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        state.xattrs.store(ino.0 as u32, attributes, self)
    }

    #[inline]
    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        if changed == Changed::New {
            self.write_lower(inode, state);
            self.write_upper(inode, state);
        } else {
            self.write_changed(inode, state);
        }
        if changed == Changed::Attributes {
            state.attributes_dirty = false;
        }
        Ok(())
    }

    fn set_orphan(&mut self, inode: &Inode, state: &mut State, orphan: bool) -> Result<()> {
        if orphan {
            let slot = self.take_slot();
            state.orphan_slot = Some(slot);
            if !planted::has(Bug::OrphanNotRecorded) {
                self.set_slot(slot, number(inode));
            }
        } else if let Some(slot) = state.orphan_slot.take() {
            self.set_slot(slot, 0);
        }
        Ok(())
    }

    #[inline]
    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        Ok(truncate::delete_step(inode, state, self))
    }

    #[inline]
    fn commit(self) -> Result<()> {
        Tx::commit(self)
    }
}
