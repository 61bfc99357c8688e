//! A change of names as one batch of the metadata store (AU-3): `create` puts, `unlink` deletes, `rename`
//! does both.
//!
//! An inode with one name stands under that name's key, and its number's key says where (a locator). When it
//! gets a second name, or loses its last one, it moves under its number's key, and its names refer to it. A
//! directory's entries are keyed by its number, so renaming it moves one record, however many entries it has.

use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::Batch;
use amphi_names::{Change, Changed, Child, NewInode};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, Ino, Name, Result};
use smallvec::SmallVec;

use crate::core::Core;
use crate::drops::{self, Drops};
use crate::format::{EntryRecord, Key, encode_attributes, encode_entry, encode_locator};
use crate::inode;
use crate::meta;
use crate::part::{Home, Inode, Part, State};
use crate::planted::{self, Bug};

/// Nodes that one change frees.
pub const STEP_NODES: usize = 16;

/// A directory's name.
type Spot = (Ino, SmallVec<[u8; 24]>);

/// A change under construction.
pub struct Batched<'a, D: BlockPort + MemoryArea + 'static> {
    core: &'a Core<D>,
    batch: Batch,
    /// Names that something gets, and loses.
    gained: SmallVec<[(Spot, Child); 2]>,
    lost: SmallVec<[(Spot, Ino); 2]>,
    /// What the cache of names is told once the change counts.
    kept: SmallVec<[(Spot, Option<Child>); 2]>,
    /// Blocks and nodes that go.
    drops: Option<Drops<'a>>,
    made: bool,
    freed: bool,
}

impl<'a, D: BlockPort + MemoryArea> Batched<'a, D> {
    /// An empty one.
    pub fn new(core: &'a Core<D>) -> Self {
        Self {
            core,
            batch: Batch::new(),
            gained: SmallVec::new(),
            lost: SmallVec::new(),
            kept: SmallVec::new(),
            drops: None,
            made: false,
            freed: false,
        }
    }

    /// Has blocks and nodes of a file go with the change.
    pub fn drop_blocks(&mut self, drops: Drops<'a>) {
        self.drops = Some(drops);
    }

    /// Where an inode stands after what the change does to its names, if that is elsewhere, and records for
    /// those that refer to it.
    fn settle_home(&mut self, ino: Ino, home: &Home) -> Result<Option<Home>> {
        let mut gained: SmallVec<[(Spot, Child); 2]> = SmallVec::new();
        self.gained.retain(|name| {
            let its = name.1.ino == ino;
            if its {
                gained.push(name.clone());
            }
            !its
        });
        let new = match home {
            Home::New => Home::Own,
            Home::Named(dir, name) => {
                let loses =
                    self.lost.iter().any(|(lost, of)| *of == ino && lost.0 == *dir && *lost.1 == **name);
                if !loses && gained.is_empty() {
                    return Ok(None);
                }
                if !loses {
                    // It has two names from now on.
                    let child = gained[0].1;
                    gained.push(((*dir, SmallVec::from_slice(name)), child));
                }
                Home::Own
            }
            Home::Own => Home::Own,
        };
        if gained.len() == 1 && *home != Home::Own {
            let ((dir, name), _) = gained.remove(0);
            if *home == Home::New || !planted::has(Bug::LocatorStays) {
                meta::put(&mut self.batch, Key::Inode(ino.0), &encode_locator(dir, &name))?;
            }
            return Ok(Some(Home::Named(dir, name.into_vec().into())));
        }
        for ((dir, name), child) in gained {
            let reference = encode_entry(&EntryRecord::Reference(child.ino, child.file_type));
            meta::put(&mut self.batch, Key::Entry(dir.0, &name), &reference)?;
        }
        Ok(Some(new))
    }

    /// Makes the change count.
    ///
    /// # Errors
    /// [`Error::Io`]; the file system is read-only then.
    pub fn commit(mut self) -> Result<()> {
        let core = self.core;
        let done = match self.drops.take() {
            None => core.meta.write(&self.batch),
            Some(drops) => drops.commit(core, &mut self.batch),
        };
        core.names.health.judge(done)?;
        self.made = false;
        for ((dir, name), child) in std::mem::take(&mut self.kept) {
            match child {
                Some(child) => core.dentries.keep(dir, &name, child),
                None => core.dentries.forget(dir, &name),
            }
        }
        if self.freed {
            core.inodes.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl<D: BlockPort + MemoryArea> Drop for Batched<'_, D> {
    fn drop(&mut self) {
        if self.made {
            self.core.inodes.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl<D: BlockPort + MemoryArea> Change<Core<D>> for Batched<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let core = self.core;
        let take = |inodes: u64| Some(inodes + 1).filter(|inodes| *inodes <= core.inodes_max);
        core.inodes.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).map_err(|_| Error::NoInodes)?;
        self.made = true;
        let ino = core.take_number()?;
        Ok((ino, Part { target: new.target.into(), ..Part::default() }))
    }

    fn insert(&mut self, dir: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        state.part.entries += 1;
        let spot: Spot = (dir.ino, SmallVec::from_slice(name.bytes()));
        self.gained.push((spot.clone(), child));
        self.kept.push((spot, Some(child)));
        Ok(())
    }

    fn remove(&mut self, dir: &Inode, state: &mut State, ino: Ino, name: Name<'_>) -> Result<()> {
        state.part.entries = state.part.entries.saturating_sub(1);
        let spot: Spot = (dir.ino, SmallVec::from_slice(name.bytes()));
        self.lost.push((spot.clone(), ino));
        self.kept.push((spot, None));
        meta::delete(&mut self.batch, Key::Entry(dir.ino.0, name.bytes()))
    }

    fn replace(&mut self, dir: &Inode, _: &mut State, ino: Ino, name: Name<'_>, child: Child) -> Result<()> {
        let spot: Spot = (dir.ino, SmallVec::from_slice(name.bytes()));
        self.lost.push((spot.clone(), ino));
        self.gained.push((spot.clone(), child));
        self.kept.push((spot, Some(child)));
        Ok(())
    }

    fn reparent(&mut self, _: &Inode, _: &mut State) -> Result<()> {
        // It is in the inode, which is written.
        Ok(())
    }

    fn set_attributes(&mut self, ino: Ino, _: &mut State, attributes: &Attributes) -> Result<()> {
        self.core.meta.note_garbage();
        if attributes.is_empty() {
            return meta::delete(&mut self.batch, Key::Attributes(ino.0));
        }
        meta::put(&mut self.batch, Key::Attributes(ino.0), &encode_attributes(attributes))
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, _: Changed) -> Result<()> {
        state.atime_dirty = false;
        if let Some(home) = self.settle_home(inode.ino, &state.part.home)? {
            state.part.home = home;
        }
        inode::put(&mut self.batch, inode, state)
    }

    fn set_orphan(&mut self, inode: &Inode, _: &mut State, orphan: bool) -> Result<()> {
        if orphan {
            meta::put(&mut self.batch, Key::Orphan(inode.ino.0), &[])
        } else {
            meta::delete(&mut self.batch, Key::Orphan(inode.ino.0))
        }
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        self.core.forget_pages(state);
        self.core.cache.note_clean(inode);
        let nodes: Vec<_> =
            state.part.nodes.iter().rev().take(STEP_NODES).map(|(index, nid)| (*index, *nid)).collect();
        if !nodes.is_empty() {
            // The pages are gone, and the directory has changed in memory.
            let drops = drops::free_nodes(self.core, inode.ino, state, &nodes);
            self.drops = Some(self.core.names.health.judge(drops)?);
        }
        if !state.part.nodes.is_empty() {
            return Ok(false);
        }
        self.core.meta.note_garbage();
        // What it stood under as its only name is gone with the name.
        meta::delete(&mut self.batch, Key::Inode(inode.ino.0))?;
        // What was never stored needs no deletion. Attributes that were not read may be there.
        if state.attributes.as_ref().is_none_or(|attributes| !attributes.is_empty()) {
            meta::delete(&mut self.batch, Key::Attributes(inode.ino.0))?;
        }
        if state.orphan {
            meta::delete(&mut self.batch, Key::Orphan(inode.ino.0))?;
        }
        if state.part.target_apart {
            meta::delete(&mut self.batch, Key::Target(inode.ino.0))?;
        }
        for chunk in std::mem::take(&mut state.part.chunks) {
            meta::delete(&mut self.batch, Key::Nodes(inode.ino.0, chunk.into()))?;
        }
        self.freed = true;
        Ok(true)
    }

    fn commit(self) -> Result<()> {
        Batched::commit(self)
    }
}
