//! Directories: blocks of entries, of which some are in memory, those that have changed among them. The only
//! one of a small directory is in its inode on the device.
//!
//! The caller has the gate, and the directory's lock.

use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, Structure};
use amphi_segments::{Referenced, damaged, make_room};
use amphi_vfs::{Error, Result};

use crate::core::Core;
use crate::format::{
    Address, DentryBlock, Found, INODE_PAGES, blocks_of, bucket, name_hash, places, record_of,
};
use crate::part::Dent;
use crate::planted::{self, Bug};

/// Most levels of a directory.
pub const LEVELS_MAX: u32 = 20;

/// Where an entry is: the directory's page, and the slot there.
pub type Spot = (u64, usize);

impl<D: BlockPort> Core<D> {
    /// Calls `body` with a block of a directory, and whether it changes it; none if there is no such block.
    fn with_dent<R>(
        &self,
        dir: u32,
        page: u64,
        changes: bool,
        body: impl FnOnce(&mut DentryBlock) -> R,
    ) -> Result<Option<R>> {
        loop {
            let mut dents = self.dents.lock();
            if let Some(dent) = dents.get_mut(&(dir, page)) {
                dent.used.note();
                if changes && !std::mem::replace(&mut dent.dirty, true) {
                    self.dirtied.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(Some(body(&mut dent.block)));
            }
            make_room(&mut *dents, self.options.page_cache_pages, |dent| (dent.dirty, &dent.used));
            drop(dents);
            let Some(block) = self.read_dent(dir, page)? else { return Ok(None) };
            self.dents.lock().entry((dir, page)).or_insert(Dent {
                block,
                dirty: false,
                used: Referenced::default(),
            });
        }
    }

    fn read_dent(&self, dir: u32, page: u64) -> Result<Option<Box<DentryBlock>>> {
        if page == 0 {
            let parts = self.parts(&[dir])?;
            let words = &parts.nodes[&dir].addresses;
            if record_of(words).levels == 0 {
                return Ok(Some(DentryBlock::of_inode(dir, words)));
            }
        }
        let address = self.addresses(dir, page, page + 1)?[0];
        let Some(at) = address.block() else {
            // A block that is held and not in memory has no entries on the device.
            return if address.is_hole() { Ok(None) } else { Err(damaged("directory", dir.into())) };
        };
        let bytes = self.ground.read_block(at, Structure::Dentry)?;
        let block = DentryBlock::decode(&bytes, self.ground.salt, dir);
        block.map(Some).ok_or_else(|| damaged("directory", dir.into()))
    }

    /// Puts a directory's first block into its inode, if it belongs there.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn put_in_inode(&self, dir: u32, block: &DentryBlock) -> Result<bool> {
        let mut parts = self.parts(&[dir])?;
        let node = parts.nodes.get_mut(&dir).filter(|node| record_of(&node.addresses).levels == 0);
        let Some(node) = node else { return Ok(false) };
        block.put_in_inode(&mut node.addresses);
        self.touch(&mut parts, dir);
        Ok(true)
    }

    /// The entries of a directory leave its inode, for a block that is held. Returns how many that is.
    fn leave_inode(&self, dir: u32) -> Result<u64> {
        self.with_dent(dir, 0, true, |_| ())?;
        if !planted::has(Bug::EntriesForAddresses) {
            let mut parts = self.parts(&[dir])?;
            if let Some(node) = parts.nodes.get_mut(&dir) {
                node.addresses[..INODE_PAGES].fill(Address::HOLE);
            }
            // What follows reads nodes, for which clean ones make room.
            self.touch(&mut parts, dir);
        }
        self.hold(dir, 0..1).map(|(pages, _)| pages)
    }

    /// Looks for a name. Returns where it is, the inode and its type's code.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn find_entry(&self, dir: u32, levels: u32, name: &[u8]) -> Result<Option<(Spot, u32, u8)>> {
        let hash = name_hash(name);
        for page in places(hash, levels) {
            let found = self.with_dent(dir, page, false, |block| {
                block.find(name).map(|found| (found.slot, found.ino, found.kind))
            })?;
            if let Some((slot, ino, kind)) = found.flatten() {
                return Ok(Some(((page, slot), ino, kind)));
            }
        }
        Ok(None)
    }

    /// Puts an entry into a block with room for it; whether there was some, if there is the block.
    fn put_in(
        &self,
        dir: u32,
        page: u64,
        in_inode: bool,
        (name, ino, kind): (&[u8], u32, u8),
    ) -> Result<Option<bool>> {
        let room = self.with_dent(dir, page, false, |block| block.room(name.len(), in_inode))?;
        if let Some(slot) = room.flatten() {
            self.with_dent(dir, page, true, |block| block.put(slot, name, ino, kind))?;
        }
        Ok(room.map(|room| room.is_some()))
    }

    /// Adds an entry, in the first level with room for it; a block for it has been promised, with its nodes.
    /// Returns the page, and how many pages and nodes were added.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; [`Error::NoSpace`] if there is no room in any level.
    pub fn add_entry(
        &self,
        dir: u32,
        levels: &mut u32,
        name: &[u8],
        (ino, kind): (u32, u8),
    ) -> Result<(u64, u64, u64)> {
        let entry = (name, ino, kind);
        let mut left = 0;
        if *levels == 0 {
            if self.put_in(dir, 0, true, entry)? == Some(true) {
                return Ok((0, 0, 0));
            }
            (left, *levels) = (self.leave_inode(dir)?, u32::from(!planted::has(Bug::BlockForgotten)));
        }
        for level in 0..LEVELS_MAX {
            for page in bucket(name_hash(name), level) {
                let there = level < (*levels).max(1);
                match if there { self.put_in(dir, page, false, entry)? } else { None } {
                    Some(true) => return Ok((page, left, 0)),
                    Some(false) => {}
                    None => {
                        *levels = (*levels).max(level + 1);
                        let (pages, nodes) = self.hold(dir, page..page + 1)?;
                        let mut block = DentryBlock::new(dir);
                        block.put(0, name, ino, kind);
                        self.dents
                            .lock()
                            .insert((dir, page), Dent { block, dirty: true, used: Referenced::default() });
                        self.dirtied.fetch_add(1, Ordering::Relaxed);
                        return Ok((page, pages + left, nodes));
                    }
                }
            }
        }
        Err(Error::NoSpace)
    }

    /// Takes an entry out. A block that is empty then goes, if it is one: returns how many did.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn take_entry(&self, dir: u32, levels: u32, (page, slot): Spot, name_len: usize) -> Result<u64> {
        let empty = self.with_dent(dir, page, true, |block| {
            block.remove(slot, name_len);
            block.is_empty()
        })?;
        if empty != Some(true) || levels == 0 {
            return Ok(0);
        }
        self.forget_dent(dir, page);
        self.punch(dir, page..page + 1)
    }

    fn forget_dent(&self, dir: u32, page: u64) {
        if self.dents.lock().remove(&(dir, page)).is_some_and(|dent| dent.dirty) {
            self.dirtied.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Has an entry name another inode.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn set_entry(&self, dir: u32, (page, slot): Spot, (ino, kind): (u32, u8)) -> Result<()> {
        self.with_dent(dir, page, true, |block| block.set(slot, ino, kind)).map(drop)
    }

    /// Calls `visit` with the directory's entries from a spot on, and the spot after each, until it says no.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn visit_entries(
        &self,
        dir: u32,
        levels: u32,
        (page, slot): Spot,
        mut visit: impl FnMut(Found<'_>, Spot) -> bool,
    ) -> Result<()> {
        let mut first = slot;
        for at in page..blocks_of(levels.min(LEVELS_MAX)) {
            let block = self.with_dent(dir, at, false, |block| Box::new(block.clone()))?;
            for found in block.iter().flat_map(|block| block.entries(first)) {
                if !visit(found, (at, found.slot + 1)) {
                    return Ok(());
                }
            }
            first = 0;
        }
        Ok(())
    }

    /// A directory is no more.
    pub fn forget_dents(&self, dir: u32, levels: u32) {
        let end = blocks_of(levels.min(LEVELS_MAX));
        if end < 64 {
            (0..end).for_each(|page| self.forget_dent(dir, page));
            return;
        }
        let mut dirty = 0;
        self.dents.lock().retain(|(of, _), dent| {
            dirty += usize::from(*of == dir && dent.dirty);
            *of != dir
        });
        self.dirtied.fetch_sub(dirty, Ordering::Relaxed);
    }
}
