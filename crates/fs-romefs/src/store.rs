//! RomeFS as a [`Store`] of names.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Found, Guard, Names, Need, Store, regular};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirSink, Error, Ino, Name, Result};

use crate::core::Core;
use crate::dir::Place;
use crate::entries;
use crate::format::{INLINE_SLOTS, INLINE_TARGET_BYTES, Map, PAGE};
use crate::inode;
use crate::map::GROWTH_PAGES_MAX;
use crate::part::{Body, Inode, Part, State};
use crate::truncate::{self, STEP_SLOTS};
use crate::tx::Tx;
use crate::{lazy, writeback, xattr};

impl<D: BlockPort + MemoryArea> Store for Core<D> {
    type Part = Part;
    type Slot = u32;
    type Place = Place;
    type Change<'a> = Tx<'a, D>;

    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        self.layout.plan.inodes
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        self.load_inode(ino)
    }

    fn is_open(state: &State) -> bool {
        matches!(state.part.body, Body::Dir(_))
    }

    fn open_dir(&self, dir: &Inode, state: &mut State) -> Result<()> {
        if Self::is_open(state) { Ok(()) } else { inode::open_dir(self, dir, state) }
    }

    fn find(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Option<Found<u32>>> {
        entries::find(self, inode::opened_dir(state)?, name.bytes())
    }

    fn place(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Place> {
        Ok(inode::opened_dir(state)?.place(name.bytes()))
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(state.part.entries == 0)
    }

    fn list(&self, dir: &Inode, state: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        entries::list(self, (dir.ino, inode::opened_dir(state)?), cookie, sink)
    }

    fn target(link: &State) -> &[u8] {
        match &link.part.body {
            Body::Target(target) => target,
            _ => &[],
        }
    }

    fn attributes(&self, _: Ino, state: &mut State) -> Result<Attributes> {
        xattr::load(self, state)
    }

    fn lock<'a>(&self, inode: &'a Arc<Inode>, size: Option<u64>) -> Result<Guard<'a, Part>> {
        loop {
            let state = inode.state.write();
            if size.is_some() {
                regular(inode.file_type)?;
                if state.part.buffer.is_some() {
                    drop(state);
                    lazy::flush(self, inode)?;
                    continue;
                }
            }
            // Who reads or writes a range has begun with the inode locked, and ends so.
            if (size.is_none() && state.nlink > 0) || inode.beside.ranges.is_idle() {
                return Ok(state);
            }
            drop(state);
            inode.beside.ranges.wait_for(&(0..u64::MAX), true);
        }
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

    fn deletes_at_once(&self, state: &State) -> bool {
        state.part.blocks + state.part.logs <= STEP_SLOTS as u64 && state.part.mapping.depth <= 1
    }

    fn may_leave(&self, _: &Inode, state: &mut State) -> bool {
        state.part.buffer.is_none()
    }

    fn make_room(&self) -> Result<bool> {
        writeback::make_room(self)
    }

    fn begin(&self, need: &Need<'_, Self>) -> Result<Tx<'_, D>> {
        self.names.health.writable()?;
        let mut pages = 0;
        if let Some(place) = need.place.filter(|place| place.grows) {
            pages += if u64::from(place.page) < INLINE_SLOTS { 1 } else { 1 + GROWTH_PAGES_MAX };
        }
        if need.new.is_some_and(|new| new.target.len() > INLINE_TARGET_BYTES) {
            pages += 1;
        }
        if let Some((attributes, there)) = need.attributes {
            if amphi_volume::attributes_bytes(attributes) > PAGE {
                return Err(Error::NoSpace);
            }
            pages +=
                usize::from(there.is_none_or(|part| part.attributes_page == 0) && !attributes.is_empty());
        }
        let mut tx = Tx::new(self);
        if need.new.is_some() && self.pool(Map::Inodes).free() == 0 {
            return Err(Error::NoInodes);
        }
        tx.reserve_pages(pages)?;
        Ok(tx)
    }
}
