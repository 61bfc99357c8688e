//! A change of names or attributes under construction: a [`Change`] over the journal's handles.

use amphi_device::BlockPort;
use amphi_names::{Change, Changed, Child, NewInode};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{FileType, Ino, Name, Result};

use crate::core::Core;
use crate::data::body::FileBody;
use crate::data::free::delete_step;
use crate::format::INLINE_TARGET_MAX;
use crate::index::dir::{self, Place, Slot};
use crate::index::extent::Run;
use crate::index::inode::number;
use crate::index::part::{Body, Inode, Part, State};
use crate::index::xattr::{self, Xattrs};
use crate::journal::buffers::Kind;
use crate::journal::handle::Handle;
use crate::space::groups::Reserved;

/// Blocks that a new inode has from the start: a directory's first, a long target's.
pub fn first_blocks(new: &NewInode<'_>) -> u64 {
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
    fn new_inode(&mut self, dir: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
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
        dir: &Inode,
        state: &mut State,
        place: Place,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        let added = dir::insert(&mut self.handle, number(dir), &mut state.part, place, name, child)?;
        self.reserved.take(added);
        state.size = state.size_on_disk;
        Ok(())
    }

    fn remove(&mut self, _: &Inode, state: &mut State, slot: Slot, name: Name<'_>) -> Result<()> {
        dir::remove(&mut self.handle, state, slot, name)
    }

    fn replace(
        &mut self,
        _: &Inode,
        state: &mut State,
        slot: Slot,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        dir::replace(&mut self.handle, state, slot, name, child)
    }

    fn reparent(&mut self, child: &Inode, state: &mut State) -> Result<()> {
        dir::set_parent(&mut self.handle, state, child.parent().0 as u32)
    }

    fn set_attributes(&mut self, ino: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        self.reserved.take(Xattrs::needs(attributes, Some(&state.xattrs))?);
        let goal = self.handle.base.groups.goal(ino.0 as u32);
        let Part { xattrs, blocks, .. } = &mut state.part;
        xattr::store(&mut self.handle, (xattrs, blocks), attributes, goal)
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        let for_data = matches!(changed, Changed::New | Changed::Entries | Changed::Contents);
        state.atime_dirty = false;
        self.handle.write_inode(inode, state, for_data)
    }

    fn set_orphan(&mut self, inode: &Inode, state: &mut State, orphan: bool) -> Result<()> {
        let orphans = &self.handle.base.orphans;
        if orphan {
            orphans.add(&mut self.handle, number(inode))
        } else {
            // It has its first name, without which `fdatasync` would leave nothing to read.
            state.datasync_tid = self.handle.tid;
            orphans.remove(&mut self.handle, number(inode))
        }
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        let step = delete_step(&mut self.handle, inode, state);
        self.handle.judge(step)
    }

    fn commit(self) -> Result<()> {
        self.handle.finish();
        Ok(())
    }
}
