//! The file system as a store of names: an operation on names is one handle. After a crash it has happened or
//! not, with everything else of its transaction.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::{Found, Guard, Names, Need, Store};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirSink, Error, Ino, Name, Result};

use crate::core::{Core, LOADERS};
use crate::data::free::step_credits;
use crate::data::truncate::{lock_for_size, set_size};
use crate::data::writeback::settled;
use crate::format::BLOCK;
use crate::index::dir::{self, INSERT_BLOCKS, INSERT_CREDITS, Place, Slot};
use crate::index::inode;
use crate::index::part::{Body, Inode, Part, State};
use crate::index::xattr::Xattrs;
use crate::update::{Update, first_blocks};

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
    type Slot = Slot;
    type Place = Place;
    type Change<'a> = Update<'a, D>;

    const NEW_DIR_BYTES: u64 = BLOCK as u64;
    const LAZY_TIMES: bool = false;

    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        u64::from(self.layout.inodes())
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        let number = u32::try_from(ino.0).ok().filter(|n| *n != 0 && *n < self.layout.inodes());
        let number = number.ok_or(Error::Stale(ino))?;
        let _alone = self.loading[number as usize % LOADERS].lock();
        if !self.groups.inode_is_used(self, number)? {
            return Err(Error::Stale(ino));
        }
        inode::load(self, number)
    }

    fn find(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Option<Found<Slot>>> {
        dir::find(self, state, name)
    }

    fn place(&self, _: &Inode, state: &State, name: Name<'_>) -> Result<Place> {
        dir::place(self, state, name)
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        dir::is_empty(self, state)
    }

    fn list(&self, _: &Inode, state: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        dir::list(self, state, cookie, sink)
    }

    fn target(link: &State) -> &[u8] {
        if let Body::Symlink(target) = &link.body { target } else { &[] }
    }

    fn attributes(&self, _: Ino, state: &mut State) -> Result<Attributes> {
        state.xattrs.load(self)
    }

    fn lock<'a>(&self, inode: &'a Arc<Inode>, size: Option<u64>) -> Result<Guard<'a, Part>> {
        match size {
            Some(size) => lock_for_size(self, inode, size),
            None => Ok(settled(inode)),
        }
    }

    fn resize(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Update<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        set_size(self, inode, state, size, apply)
    }

    /// As on ext4, the handle that takes the last name only makes it an orphan.
    fn deletes_at_once(&self, _: &State) -> bool {
        false
    }

    fn may_leave(&self, inode: &Inode, state: &mut State) -> bool {
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
