//! The file system of F2FS's kind as a [`Store`] of names.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::{Child, FIRST_COOKIE, Found, Guard, Names, Need, Store};
use amphi_segments::{damaged, files, ranges};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirEntry, DirSink, Error, Ino, Name, Result};
use amphi_volume::decode_attributes;
use zerocopy::IntoBytes;

use crate::change::Changing;
use crate::core::Core;
use crate::dir::Spot;
use crate::format::{DentryBlock, LINK_BYTES_MAX, ORPHANS_MAX, TYPES, XATTR, encode_attributes};
use crate::part::{Inode, Part, State};

/// What an entry names.
pub fn child_of(ino: u32, kind: u8) -> Option<Child> {
    Some(Child { ino: Ino(ino.into()), file_type: TYPES.file_type(kind)? })
}

impl<D: BlockPort> Store for Core<D> {
    type Part = Part;
    type Slot = Spot;
    type Place = ();
    type Change<'a> = Changing<'a, D>;

    const TARGET_BYTES_MAX: usize = LINK_BYTES_MAX;

    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        self.layout.nids().into()
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        let _gate = self.domain.gate.read();
        self.load_inode(ino)
    }

    fn find(&self, dir: &Inode, state: &State, name: Name<'_>) -> Result<Option<Found<Spot>>> {
        let _gate = self.domain.gate.read();
        let found = self.find_entry(dir.ino.0 as u32, state.part.levels, name.bytes())?;
        let Some((slot, ino, kind)) = found else { return Ok(None) };
        let child = child_of(ino, kind).ok_or_else(|| damaged("an entry of directory", dir.ino.0))?;
        Ok(Some(Found { slot, child }))
    }

    fn place(&self, _: &Inode, _: &State, _: Name<'_>) -> Result<()> {
        Ok(())
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(state.part.entries == 0)
    }

    fn list(&self, dir: &Inode, state: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let slots = DentryBlock::SLOTS as u64 + 1;
        let at = cookie.saturating_sub(FIRST_COOKIE);
        let from = (at / slots, (at % slots) as usize);
        let mut wrong = None;
        let _gate = self.domain.gate.read();
        self.visit_entries(dir.ino.0 as u32, state.part.levels, from, |found, (page, slot)| {
            let Some(child) = child_of(found.ino, found.kind) else {
                wrong = Some(damaged("an entry of directory", dir.ino.0));
                return false;
            };
            let next_cookie = FIRST_COOKIE + page * slots + slot as u64;
            sink(DirEntry { ino: child.ino, file_type: child.file_type, name: found.name, next_cookie })
        })?;
        wrong.map_or(Ok(()), Err)
    }

    fn target(link: &State) -> &[u8] {
        &link.part.target
    }

    fn attributes(&self, ino: Ino, state: &mut State) -> Result<Attributes> {
        let nid = state.part.xattr;
        if nid == 0 {
            return Ok(Attributes::default());
        }
        let wrong = || damaged("the attributes of inode", ino.0);
        if nid >= self.layout.nids() {
            return Err(wrong());
        }
        let _gate = self.domain.gate.read();
        let parts = self.parts(&[nid])?;
        let node = &parts.nodes[&nid];
        let its = node.ino == ino && node.index == XATTR;
        decode_attributes(node.addresses.as_bytes()).filter(|_| its).ok_or_else(wrong)
    }

    fn lock<'a>(&self, inode: &'a Arc<Inode>, size: Option<u64>) -> Result<Guard<'a, Part>> {
        files::lock(inode, size)
    }

    fn resize(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Changing<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        ranges::resize(self, inode, state, size, apply)
    }

    fn deletes_at_once(&self, _: &State) -> bool {
        true
    }

    fn may_leave(&self, inode: &Inode, state: &mut State) -> bool {
        files::may_leave(self, inode, state)
    }

    fn begin(&self, need: &Need<'_, Self>) -> Result<Changing<'_, D>> {
        self.names.health.writable()?;
        if need.attributes.is_some_and(|(list, _)| encode_attributes(list).is_none()) {
            return Err(Error::NoSpace);
        }
        if need.orphan && self.orphans.lock().len() >= ORPHANS_MAX - 64 {
            return Err(Error::NoSpace);
        }
        // A name may take a block of entries with a node of pages and two of nodes; a link may take a second
        // node.
        let blocks = 4 * u64::from(need.place.is_some())
            + 2 * u64::from(need.new.is_some())
            + u64::from(need.attributes.is_some());
        self.balance(0)?;
        Changing::new(self, blocks)
    }
}
