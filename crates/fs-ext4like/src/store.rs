//! The file system as a store of names: an operation on names is one handle. After a crash it has happened or
//! not, with everything else of its transaction.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::{Change, Changed, Child, Found, Guard, Inode, Names, Need, NewInode, State, Store};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirSink, Error, FileType, Ino, Name, Result};

use crate::core::{Core, LOADERS};
use crate::data::body::FileBody;
use crate::data::truncate::{delete_step, lock_for_size, set_size, step_credits};
use crate::data::writeback::settled;
use crate::format::{BLOCK, INLINE_TARGET_MAX};
use crate::index::dir::{self, INSERT_BLOCKS, INSERT_CREDITS, Place, Slot};
use crate::index::extent::Run;
use crate::index::inode::{self, number};
use crate::index::part::{Beside, Body, Part};
use crate::index::xattr::{self, Xattrs};
use crate::journal::buffers::Kind;
use crate::journal::handle::Handle;
use crate::space::groups::Reserved;

/// Blocks that a change may write beside what it asks for: two blocks of directories, two with dots, four
/// inodes.
const CREDITS: usize = 8;
/// Blocks that a new inode may change: bitmap, descriptor and table, its first block with bitmap and
/// descriptor, attributes with theirs.
const NEW_CREDITS: usize = 8;
/// Blocks of extended attributes: theirs, bitmap and descriptor.
const ATTRIBUTE_CREDITS: usize = 3;
/// Blocks of the list of orphans: the superblock, a neighbour.
const ORPHAN_CREDITS: usize = 2;

impl<D: BlockPort> Store for Core<D> {
    type Part = Part;
    type Beside = Beside;
    type Slot = Slot;
    type Place = Place;
    type Change<'a> = Update<'a, D>;

    const NEW_DIR_BYTES: u64 = BLOCK as u64;
    const LAZY_TIMES: bool = false;

    fn names(&self) -> &Names<Self> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        u64::from(self.layout.inodes())
    }

    fn load(&self, ino: Ino) -> Result<Inode<Self>> {
        let number = u32::try_from(ino.0).ok().filter(|n| *n != 0 && *n < self.layout.inodes());
        let number = number.ok_or(Error::Stale(ino))?;
        let _alone = self.loading[number as usize % LOADERS].lock();
        if !self.groups.inode_is_used(self, number)? {
            return Err(Error::Stale(ino));
        }
        inode::load(self, number)
    }

    fn find(&self, _: &Inode<Self>, state: &State<Self>, name: Name<'_>) -> Result<Option<Found<Slot>>> {
        dir::find(self, state, name)
    }

    fn place(&self, _: &Inode<Self>, state: &State<Self>, name: Name<'_>) -> Result<Place> {
        dir::place(self, state, name)
    }

    fn is_empty(&self, _: &Inode<Self>, state: &State<Self>) -> Result<bool> {
        dir::is_empty(self, state)
    }

    fn list(&self, _: &Inode<Self>, state: &State<Self>, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        dir::list(self, state, cookie, sink)
    }

    fn target(link: &State<Self>) -> &[u8] {
        if let Body::Symlink(target) = &link.body { target } else { &[] }
    }

    fn sectors(state: &State<Self>) -> u64 {
        let reserved = if let Body::File(file) = &state.body { file.unmapped } else { 0 };
        (u64::from(state.blocks) + reserved) * (BLOCK / 512) as u64
    }

    fn attributes(&self, _: Ino, state: &mut State<Self>) -> Result<Attributes> {
        state.xattrs.load(self)
    }

    fn lock<'a>(&self, inode: &'a Arc<Inode<Self>>, size: Option<u64>) -> Result<Guard<'a, Self>> {
        match size {
            Some(size) => lock_for_size(self, inode, size),
            None => Ok(settled(inode)),
        }
    }

    fn resize(
        &self,
        inode: &Arc<Inode<Self>>,
        state: &mut State<Self>,
        size: u64,
        apply: impl FnOnce(&mut Update<'_, D>, &mut State<Self>) -> Result<()>,
    ) -> Result<()> {
        set_size(self, inode, state, size, apply)
    }

    /// As on ext4, the handle that takes the last name only makes it an orphan.
    fn deletes_at_once(&self, _: &State<Self>) -> bool {
        false
    }

    fn may_leave(&self, inode: &Inode<Self>, state: &mut State<Self>) -> bool {
        if inode.beside.dirty.is_listed() {
            return false;
        }
        let Ok(file) = state.body.file_mut() else { return true };
        if file.is_clean() {
            file.drop_clean(&self.pages, usize::MAX, true);
        }
        file.is_clean()
    }

    fn begin(&self, need: &Need<'_, Self>) -> Result<Update<'_, D>> {
        let (mut blocks, mut credits) = (0, CREDITS);
        if need.place.is_some() {
            blocks += INSERT_BLOCKS;
            credits += INSERT_CREDITS;
        }
        if let Some(new) = need.new {
            blocks += first_blocks(new);
            credits += NEW_CREDITS;
        }
        if let Some((attributes, part)) = need.attributes {
            blocks += Xattrs::needs(attributes, part.map(|part| &part.xattrs))?;
            credits += ATTRIBUTE_CREDITS;
        }
        if need.orphan {
            credits += ORPHAN_CREDITS;
        }
        if need.frees {
            credits += step_credits(self);
        }
        Update::begin(self, blocks, credits)
    }
}

/// Blocks that a new inode has from the start: a directory's first, a long target's.
fn first_blocks(new: &NewInode<'_>) -> u64 {
    u64::from(new.file_type == FileType::Directory || new.target.len() > INLINE_TARGET_MAX)
}

/// A change under construction: a handle, and the blocks reserved for it.
pub struct Update<'a, D: BlockPort> {
    handle: Handle<'a, D>,
    reserved: Reserved<'a>,
}

impl<'a, D: BlockPort> Update<'a, D> {
    /// Reserves blocks and opens a handle that will change at most about `credits`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Io`].
    pub fn begin(core: &'a Core<D>, blocks: u64, credits: usize) -> Result<Self> {
        core.writable()?;
        let reserved = core.reserve(blocks)?;
        Ok(Self { handle: core.handle(credits)?, reserved })
    }

    /// The handle, to go on with; what is still reserved is given back.
    pub fn into_handle(self) -> Handle<'a, D> {
        self.handle
    }
}

impl<D: BlockPort> Change<Core<D>> for Update<'_, D> {
    fn new_inode(&mut self, dir: &Inode<Core<D>>, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let is_dir = new.file_type == FileType::Directory;
        let core = self.handle.base;
        let ino = core.groups.allocate_inode(&mut self.handle, number(dir), is_dir)?;
        self.reserved.take(first_blocks(new));
        let body = match new.file_type {
            FileType::Regular => Body::File(FileBody::default()),
            FileType::Directory => Body::Dir(false),
            FileType::Symlink => Body::Symlink(new.target.to_vec()),
            _ => Body::Special,
        };
        let mut part = Part::new(body, new.target.len() as u64);
        if is_dir {
            dir::begin(&mut self.handle, ino, number(dir), &mut part)?;
        } else if new.target.len() > INLINE_TARGET_MAX {
            let (start, _) = core.groups.allocate(&mut self.handle, core.groups.goal(ino), 1)?;
            self.handle.fill(u64::from(start), Kind::Data, |block| {
                block[..new.target.len()].copy_from_slice(new.target);
            })?;
            part.extents.insert(Run { file_block: 0, start, len: 1, unwritten: false });
            part.blocks += 1;
        }
        Ok((Ino(u64::from(ino)), part))
    }

    fn insert(
        &mut self,
        dir: &Inode<Core<D>>,
        state: &mut State<Core<D>>,
        place: Place,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        let added = dir::insert(&mut self.handle, number(dir), &mut state.part, place, name, child)?;
        self.reserved.take(added);
        state.size = state.size_on_disk;
        Ok(())
    }

    fn remove(
        &mut self,
        _: &Inode<Core<D>>,
        state: &mut State<Core<D>>,
        slot: Slot,
        name: Name<'_>,
    ) -> Result<()> {
        dir::remove(&mut self.handle, state, slot, name)
    }

    fn replace(
        &mut self,
        _: &Inode<Core<D>>,
        state: &mut State<Core<D>>,
        slot: Slot,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        dir::replace(&mut self.handle, state, slot, name, child)
    }

    fn reparent(&mut self, child: &Inode<Core<D>>, state: &mut State<Core<D>>) -> Result<()> {
        dir::set_parent(&mut self.handle, state, child.parent().0 as u32)
    }

    fn set_attributes(
        &mut self,
        ino: Ino,
        state: &mut State<Core<D>>,
        attributes: &Attributes,
    ) -> Result<()> {
        self.reserved.take(Xattrs::needs(attributes, Some(&state.xattrs))?);
        let goal = self.handle.base.groups.goal(ino.0 as u32);
        let Part { xattrs, blocks, .. } = &mut state.part;
        xattr::store(&mut self.handle, (xattrs, blocks), attributes, goal)
    }

    fn write_inode(
        &mut self,
        inode: &Inode<Core<D>>,
        state: &mut State<Core<D>>,
        changed: Changed,
    ) -> Result<()> {
        let for_data = matches!(changed, Changed::New | Changed::Entries | Changed::Contents);
        state.atime_dirty = false;
        self.handle.write_inode(inode, state, for_data)
    }

    fn set_orphan(&mut self, inode: &Inode<Core<D>>, _: &mut State<Core<D>>, orphan: bool) -> Result<()> {
        let orphans = &self.handle.base.orphans;
        if orphan {
            orphans.add(&mut self.handle, number(inode))
        } else {
            orphans.remove(&mut self.handle, number(inode))
        }
    }

    fn free_step(&mut self, inode: &Inode<Core<D>>, state: &mut State<Core<D>>) -> Result<bool> {
        delete_step(&mut self.handle, inode, state)
    }

    fn commit(self) -> Result<()> {
        self.handle.finish();
        Ok(())
    }
}
