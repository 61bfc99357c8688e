//! A change of names: entries and nodes change in memory, while no checkpoint is made. The next one brings
//! all of it to the device.

use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_names::{Change, Changed, Child, NewInode};
use amphi_rt::sync::RwLockReadGuard;
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, Ino, Name, Result};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::dir::Spot;
use crate::format::{INODE, LINK, PAGE, TYPES, XATTR, encode_attributes, record_of};
use crate::inode::split_target;
use crate::part::{Inode, Part, State};
use crate::planted::{self, Bug};

/// A name: its directory, and how it is called there.
type Spelled = (u32, Box<[u8]>);

/// A change under construction.
pub struct Changing<'a, D: BlockPort + 'static> {
    core: &'a Core<D>,
    _gate: RwLockReadGuard<'a, ()>,
    /// Blocks that were promised and have not been used.
    promised: u64,
    /// Last names that inodes have got.
    named: SmallVec<[(Ino, Spelled); 2]>,
    /// Names that are no more, and whether what they named is no more, either, and was no directory.
    lost: SmallVec<[Spelled; 2]>,
    freed: bool,
    /// What an entry names now that named something else.
    replaces: Option<Ino>,
}

impl<'a, D: BlockPort> Changing<'a, D> {
    /// An empty one, for which so many blocks are promised.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn new(core: &'a Core<D>, blocks: u64) -> Result<Self> {
        core.space.promise(blocks)?;
        Ok(Self {
            core,
            _gate: core.domain.gate.read(),
            promised: blocks,
            named: SmallVec::new(),
            lost: SmallVec::new(),
            freed: false,
            replaces: None,
        })
    }

    fn used(&mut self, blocks: u64) {
        debug_assert!(self.promised >= blocks, "what a change takes has been promised");
        self.promised = self.promised.saturating_sub(blocks);
    }

    fn failed<T>(&self, outcome: Result<T>) -> Result<T> {
        self.core.names.health.judge(outcome)
    }
}

impl<D: BlockPort> Drop for Changing<'_, D> {
    fn drop(&mut self) {
        self.core.space.give_back(self.promised);
    }
}

impl<D: BlockPort> Change<Core<D>> for Changing<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let nid = self.core.add_node(&mut self.core.domain.parts.lock(), 0, INODE);
        let nid = nid.map_err(|_| Error::NoInodes)?;
        self.used(1);
        self.core.inodes.fetch_add(1, Ordering::AcqRel);
        {
            let mut fresh = self.core.fresh.lock();
            fresh.made.insert(nid);
            fresh.unsaved.insert(nid);
        }
        let (_, end) = split_target(new.target);
        let mut rest = 0;
        if !end.is_empty() {
            let mut parts = self.core.domain.parts.lock();
            rest = self.core.add_node(&mut parts, nid, LINK)?;
            if let Some(node) = parts.nodes.get_mut(&rest) {
                node.addresses.as_mut_bytes()[..end.len()].copy_from_slice(end);
            }
            self.used(1);
        }
        Ok((Ino(nid.into()), Part { target: new.target.into(), rest, ..Part::default() }))
    }

    fn insert(&mut self, dir: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        let entry = (child.ino.0 as u32, TYPES.code(child.file_type));
        let part = &mut state.part;
        let added = self.core.add_entry(dir.ino.0 as u32, &mut part.levels, name.bytes(), entry);
        let (page, pages, nodes) = self.failed(added)?;
        self.used(pages + nodes);
        part.blocks += pages;
        part.entries += 1;
        state.size = state.size.max((page + 1) * PAGE as u64);
        self.named.push((child.ino, (dir.ino.0 as u32, name.bytes().into())));
        Ok(())
    }

    fn remove(&mut self, dir: &Inode, state: &mut State, slot: Spot, name: Name<'_>) -> Result<()> {
        let levels = state.part.levels;
        let gone = self.core.take_entry(dir.ino.0 as u32, levels, slot, name.bytes().len());
        state.part.blocks = state.part.blocks.saturating_sub(self.failed(gone)?);
        state.part.entries = state.part.entries.saturating_sub(1);
        self.lost.push((dir.ino.0 as u32, name.bytes().into()));
        Ok(())
    }

    fn replace(
        &mut self,
        dir: &Inode,
        _: &mut State,
        slot: Spot,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        let entry = (child.ino.0 as u32, TYPES.code(child.file_type));
        let set = self.core.set_entry(dir.ino.0 as u32, slot, entry);
        self.failed(set)?;
        self.replaces = Some(child.ino);
        self.named.push((child.ino, (dir.ino.0 as u32, name.bytes().into())));
        Ok(())
    }

    fn reparent(&mut self, _: &Inode, _: &mut State) -> Result<()> {
        // It is in the inode, which is written.
        Ok(())
    }

    fn set_attributes(&mut self, ino: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        let core = self.core;
        core.fresh.lock().changed.insert(ino.0 as u32);
        let words = encode_attributes(attributes).ok_or(Error::NoSpace)?;
        let nid = state.part.xattr;
        if attributes.is_empty() {
            if nid != 0 {
                let dropped = core.parts(&[nid]).and_then(|mut parts| core.drop_node(&mut parts, nid));
                self.failed(dropped)?;
                state.part.xattr = 0;
            }
            return Ok(());
        }
        if nid == 0 {
            let made = core.add_node(&mut core.domain.parts.lock(), ino.0 as u32, XATTR);
            state.part.xattr = self.failed(made)?;
            self.used(1);
        }
        let nid = state.part.xattr;
        let mut parts = self.failed(core.parts(&[nid]))?;
        if let Some(node) = parts.nodes.get_mut(&nid) {
            node.addresses = words;
        }
        core.touch(&mut parts, nid);
        Ok(())
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        let nid = inode.ino.0 as u32;
        match changed {
            Changed::Links => {
                self.core.fresh.lock().changed.insert(nid);
            }
            Changed::Attributes | Changed::Contents if !planted::has(Bug::AttributesForgotten) => {
                self.core.fresh.lock().unsaved.insert(nid);
            }
            _ => {}
        }
        let last = self.named.iter().rposition(|(child, ..)| *child == inode.ino);
        if let Some(last) = last {
            (_, (state.part.parent, state.part.name)) = self.named.remove(last);
        }
        let put = self.core.put_inode(inode, state);
        self.failed(put)
    }

    fn set_orphan(&mut self, inode: &Inode, _: &mut State, orphan: bool) -> Result<()> {
        let mut orphans = self.core.orphans.lock();
        if orphan {
            orphans.insert(inode.ino.0 as u32);
        } else {
            orphans.remove(&(inode.ino.0 as u32));
        }
        Ok(())
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        let (core, nid) = (self.core, inode.ino.0 as u32);
        let record = self.failed(core.parts(&[nid]).map(|parts| record_of(&parts.nodes[&nid].addresses)))?;
        let freed = core.free_inode(nid, &record);
        self.failed(freed)?;
        if inode.is_dir() {
            core.forget_dents(nid, state.part.levels);
        }
        core.forget_pages(&mut state.part);
        core.cache.note_clean(inode);
        core.orphans.lock().remove(&nid);
        self.freed = !inode.is_dir();
        core.inodes.fetch_sub(1, Ordering::AcqRel);
        Ok(true)
    }

    fn commit(mut self) -> Result<()> {
        // A name of what is no more can be given anew, and recovery finds that out by itself; but for a
        // rename over something.
        if !self.freed || self.replaces.is_some() {
            self.core.fresh.lock().moved.extend(self.lost.drain(..));
        }
        Ok(())
    }
}
