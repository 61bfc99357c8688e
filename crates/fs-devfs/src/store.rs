//! The controller as a store of names.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Change, Changed, Child, Found, Names, Need, NewInode, Store};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirSink, Error, FileType, Ino, Name, Result};
use zerocopy::IntoBytes;

use crate::away::Away;
use crate::blocks::pages_needed;
use crate::controller::Controller;
use crate::dir::{Dir, Place};
use crate::format::{Map, PAGE};
use crate::inode::{block_of, encode};
use crate::part::{Inode, Part, State};
use crate::planted::{self, Bug};
use crate::tx::Tx;

/// A file of at most so many blocks is deleted by the change that takes its last name.
const BLOCKS_AT_ONCE: u64 = 64;
/// Bytes of a record that a step of deleting a file leaves to the rest of the change.
const STEP_REST: usize = 900;

impl<D: BlockPort + MemoryArea + 'static> Store for Controller<D> {
    type Part = Part;
    type Slot = u32;
    type Place = Place;
    type Change<'a> = Tx<'a, D>;

    const TARGET_BYTES_MAX: usize = PAGE - 1;

    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        self.layout.inodes + 1
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        self.load_inode(ino)
    }

    fn is_open(state: &State) -> bool {
        state.part.dir.is_some()
    }

    fn open_dir(&self, dir: &Inode, state: &mut State) -> Result<()> {
        self.open_directory(dir, state)
    }

    fn find(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Option<Found<u32>>> {
        self.find_name(opened(state)?, name.bytes())
    }

    fn place(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Place> {
        Ok(opened(state)?.place(name.bytes()))
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(opened(state)?.len() == 0)
    }

    fn list(&self, dir: &Inode, state: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.list_names(dir.ino, opened(state)?, cookie, sink)
    }

    fn target(link: &State) -> &[u8] {
        &link.part.target
    }

    fn attributes(&self, _: Ino, state: &mut State) -> Result<Attributes> {
        self.load_attributes(state)
    }

    fn resize(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Tx<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        self.resize_file(inode, state, size, apply)
    }

    fn deletes_at_once(&self, state: &State) -> bool {
        state.part.blocks <= BLOCKS_AT_ONCE && state.part.levels <= 1
    }

    fn may_leave(&self, inode: &Inode, state: &mut State) -> bool {
        if self.has_to_stay(state) {
            return false;
        }
        // An access time that is not written yet keeps the inode here; it is written first.
        if !state.atime_dirty {
            self.give_entries(inode.ino, state);
            let bytes = encode(inode.parent(), state).as_bytes().to_vec();
            self.away.give(Away::Inode, inode.ino, bytes, &self.counters);
        }
        true
    }

    fn opened(&self, inode: &Inode) {
        self.file_opened(inode);
    }

    fn closed(&self, inode: Arc<Inode>) {
        self.file_closed(inode);
    }

    fn make_room(&self) -> Result<bool> {
        Ok(self.empty_journals()? > 0)
    }

    fn begin(&self, need: &Need<'_, Self>) -> Result<Tx<'_, D>> {
        self.names.health.writable()?;
        let mut blocks = 0;
        if let Some(place) = need.place.filter(|place| place.grows) {
            blocks += 1 + pages_needed(place.page.into(), 1);
        }
        if let Some(new) = need.new {
            blocks += u64::from(!new.target.is_empty());
        }
        if let Some((attributes, _)) = need.attributes {
            let bytes = postcard::experimental::serialized_size(attributes).unwrap_or(usize::MAX);
            if bytes > PAGE {
                return Err(Error::NoSpace);
            }
            blocks += u64::from(!attributes.is_empty());
        }
        if need.new.is_some() && !self.inodes.reserve(1) {
            return Err(Error::NoInodes);
        }
        let mut tx =
            Tx::new(self, blocks).inspect_err(|_| self.inodes.unreserve(need.new.is_some().into()))?;
        tx.ino_reserved = need.new.is_some();
        Ok(tx)
    }
}

/// A directory's entries, which are in device memory.
pub fn opened(state: &State) -> Result<&Dir> {
    state.part.dir.as_deref().ok_or(Error::NotDirectory)
}

impl<D: BlockPort + MemoryArea + 'static> Tx<'_, D> {
    /// Gives a directory its page `at`. When it fails, the inode may have a part of it.
    fn grow(&mut self, part: &mut Part, at: u32) -> Result<u32> {
        let page = self.take_page()? as u32;
        self.set_pointers(part, at.into(), &[page])?;
        part.blocks += 1;
        Ok(page)
    }
}

impl<D: BlockPort + MemoryArea + 'static> Change<Controller<D>> for Tx<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let ino = self.take_ino();
        let mut part = self.fs.new_part();
        if !new.target.is_empty() {
            let (block, crc) = block_of(new.target);
            part.target_block = self.write_block(&block)? as u32;
            part.target_crc = crc;
            part.target = new.target.to_vec();
            part.weigh();
            part.blocks = 1;
        }
        if new.file_type == FileType::Directory {
            part.dir = Some(Box::new(Dir::new(&self.fs.memory, &self.fs.hash)));
        }
        Ok((ino, part))
    }

    fn insert(
        &mut self,
        dir: &Inode,
        state: &mut State,
        place: Place,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        self.belongs_to(dir.ino, state.generation);
        state.part.has_changed = true;
        let mut grown = None;
        if place.grows {
            let page = self.grow(&mut state.part, place.page);
            let page = self.fs.names.health.judge(page)?;
            state.size += if planted::has(Bug::DirectoryNotGrown) { 0 } else { PAGE as u64 };
            grown = Some(page);
        }
        let open = state.part.dir.as_deref_mut().ok_or(Error::NotDirectory)?;
        grown.into_iter().for_each(|page| open.add_page(page));
        open.insert(&mut self.parts, place, name.bytes(), child);
        Ok(())
    }

    fn remove(&mut self, dir: &Inode, state: &mut State, slot: u32, name: Name<'_>) -> Result<()> {
        self.belongs_to(dir.ino, state.generation);
        state.part.has_changed = true;
        let open = state.part.dir.as_deref_mut().ok_or(Error::NotDirectory)?;
        if planted::has(Bug::EntryStays) {
            open.remove(&mut crate::parts::Parts::default(), slot, name.bytes());
        } else {
            open.remove(&mut self.parts, slot, name.bytes());
        }
        Ok(())
    }

    fn replace(
        &mut self,
        dir: &Inode,
        state: &mut State,
        slot: u32,
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        self.belongs_to(dir.ino, state.generation);
        state.part.has_changed = true;
        if !planted::has(Bug::NameNotReplaced) {
            opened(state)?.write_entry(&mut self.parts, slot, name.bytes(), child);
        }
        Ok(())
    }

    fn reparent(&mut self, _: &Inode, _: &mut State) -> Result<()> {
        // It is in the inode, which is written.
        Ok(())
    }

    fn set_attributes(&mut self, _: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        // A change of the mode does not know beforehand that it changes a list too. Nothing has changed yet.
        let mut new = None;
        if !attributes.is_empty() {
            self.ensure_reserved()?;
            let bytes = postcard::to_stdvec(attributes).map_err(|_| Error::XattrTooLarge)?;
            let (block, crc) = block_of(&bytes);
            new = Some((self.write_block(&block)? as u32, crc));
        }
        if state.part.attributes != 0 {
            self.free_blocks(state.part.attributes.into(), 1);
            state.part.give_up(1)?;
        }
        state.part.blocks += u64::from(new.is_some());
        (state.part.attributes, state.part.attributes_crc) = new.unwrap_or_default();
        Ok(())
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        state.atime_dirty = false;
        if changed == Changed::Times {
            self.write_atime(inode.ino, state);
        } else {
            Tx::write_inode(self, inode.ino, inode.parent(), state);
        }
        Ok(())
    }

    fn set_orphan(&mut self, inode: &Inode, state: &mut State, orphan: bool) -> Result<()> {
        self.belongs_to(inode.ino, state.generation);
        self.set_bits(Map::Orphans, inode.ino.0, 1, orphan);
        Ok(())
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        self.belongs_to(inode.ino, state.generation);
        self.void_queue(inode.ino, state.generation);
        let is_dir = inode.is_dir();
        let cut = self.cut(&mut state.part, 0, is_dir);
        if !self.fs.names.health.judge(cut)? || !self.has_room(STEP_REST) {
            return Ok(false);
        }
        for block in [state.part.attributes, state.part.target_block] {
            if block != 0 {
                self.free_blocks(block.into(), 1);
            }
        }
        self.free_ino(inode.ino);
        Ok(true)
    }

    fn commit(self) -> Result<()> {
        Tx::commit(self)
    }
}
