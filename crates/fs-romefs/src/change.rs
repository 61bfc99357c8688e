//! What operations on names ask of a transaction ([`Change`]).

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Change, Changed, Child, NewInode};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::dir::{self, Dir, Place};
use crate::format::{INLINE_TARGET_BYTES, INODE_HEAD_BYTES, Map, PAGE, Slot};
use crate::part::{Body, Inode, Part, State};
use crate::planted::{self, Bug};
use crate::tx::Tx;
use crate::{map, truncate, xattr};

/// A directory's entries, which are known wherever a change is made.
fn entries(state: &mut State) -> Result<&mut Dir> {
    match &mut state.part.body {
        Body::Dir(dir) => Ok(dir),
        _ => Err(Error::NotDirectory),
    }
}

impl<D: BlockPort + MemoryArea> Change<Core<D>> for Tx<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let ino = self.take(Map::Inodes, 1).map_err(|_| Error::NoInodes)?.first;
        let mut part = Part { block_sectors: self.core.block_sectors(), ..Part::default() };
        match new.file_type {
            FileType::Regular => part.body = Body::File(Box::default()),
            FileType::Directory => part.body = Body::Dir(Box::default()),
            FileType::Symlink => {
                if new.target.len() > INLINE_TARGET_BYTES {
                    let page = self.page(false)?;
                    self.ops.bytes(self.core.layout.page(page), new.target);
                    part.mapping.root = page + 1;
                }
                part.body = Body::Target(new.target.into());
            }
            _ => {}
        }
        Ok((Ino(ino), part))
    }

    fn insert(
        &mut self,
        dir: &Inode,
        state: &mut State,
        place: Place,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        if place.grows {
            let mut mapping = state.part.mapping;
            let slot_at = map::grow(self, &mut mapping, place.page.into())?;
            let page = self.page(true)?;
            let slot = Slot { block: (page + 1).into(), ..Slot::default() };
            match slot_at {
                Some(at) => self.ops.bytes(at, slot.as_bytes()),
                None => mapping.slots[place.page as usize] = slot,
            }
            state.part.mapping = mapping;
            state.part.blocks += 1;
            state.size += PAGE as u64;
            entries(state)?.add_page(page);
            self.put_inode(dir, state, true);
        }
        let at = entries(state)?.insert(&self.core.layout, place, name.bytes());
        dir::store_entry(&mut self.ops, at, name.bytes(), child);
        state.part.entries += 1;
        Ok(())
    }

    fn remove(&mut self, _: &Inode, state: &mut State, slot: u32, name: Name<'_>) -> Result<()> {
        let (at, bytes) = entries(state)?.remove(&self.core.layout, slot, name.bytes());
        if !planted::has(Bug::EntryNotRemoved) {
            self.ops.zeros(at, bytes);
        }
        state.part.entries = state.part.entries.saturating_sub(1);
        Ok(())
    }

    fn replace(
        &mut self,
        _: &Inode,
        state: &mut State,
        slot: u32,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        let at = entries(state)?.address(&self.core.layout, slot);
        dir::store_entry(&mut self.ops, at, name.bytes(), child);
        Ok(())
    }

    fn reparent(&mut self, child: &Inode, state: &mut State) -> Result<()> {
        self.put_inode(child, state, false);
        Ok(())
    }

    fn set_attributes(&mut self, _: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        xattr::store(self, state, attributes)
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        state.atime_dirty = false;
        self.put_inode(inode, state, matches!(changed, Changed::New | Changed::Contents));
        Ok(())
    }

    fn set_orphan(&mut self, inode: &Inode, _: &mut State, orphan: bool) -> Result<()> {
        if orphan {
            self.ops.set(Map::Orphans, inode.ino.0, 1);
        } else {
            self.ops.clear(Map::Orphans, inode.ino.0, 1);
        }
        Ok(())
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        if !truncate::free_some(self, inode, state, 0)? {
            return Ok(false);
        }
        map::free_pages(self, &mut state.part.mapping)?;
        if let Some(page) = state.part.attributes_page.checked_sub(1) {
            self.free(Map::Pages, page.into(), 1);
            state.part.attributes_page = 0;
        }
        self.ops.zeros(self.core.layout.inode(inode.ino.0), INODE_HEAD_BYTES as u64);
        self.ops.clear(Map::Orphans, inode.ino.0, 1);
        self.free(Map::Inodes, inode.ino.0, 1);
        self.core.victims.forget(inode.ino);
        Ok(true)
    }

    fn commit(self) -> Result<()> {
        Tx::commit(self)
    }
}
