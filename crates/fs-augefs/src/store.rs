//! AugeFS as a [`Store`] of names: entries are records of the metadata store.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Child, FIRST_COOKIE, Found, Guard, Names, Need, Store};
use amphi_segments::{files, ranges};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirEntry, DirSink, Error, Ino, Name, Result};

use crate::change::{Batched, STEP_NODES};
use crate::core::Core;
use crate::format::{EntryRecord, Key, PAGE, decode_attributes, decode_entry};
use crate::inode::SHORT_TARGET_BYTES;
use crate::meta::damaged;
use crate::part::{Inode, Part, State};
use crate::planted::{self, Bug};

/// Most bytes of one inode's extended attributes, names included.
const ATTRIBUTE_BYTES_MAX: usize = PAGE;

/// What an entry's value names.
pub fn child_of(entry: &EntryRecord) -> Option<Child> {
    match entry {
        EntryRecord::Inode(record, _) => {
            Some(Child { ino: Ino(record.ino.get()), file_type: record.file_type()? })
        }
        EntryRecord::Reference(ino, file_type) => Some(Child { ino: *ino, file_type: *file_type }),
        EntryRecord::Locator(..) => None,
    }
}

impl<D: BlockPort + MemoryArea> Store for Core<D> {
    type Part = Part;
    type Slot = Ino;
    type Place = ();
    type Change<'a> = Batched<'a, D>;

    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        self.inodes_max
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        self.load_inode(ino)
    }

    fn find(&self, dir: &Inode, _: &State, name: Name<'_>) -> Result<Option<Found<Ino>>> {
        let found = |child: Child| Found { slot: child.ino, child };
        if let Some(child) = self.dentries.get(dir.ino, name.bytes()) {
            return Ok(Some(found(child)));
        }
        self.counters.names_looked_up.add(1);
        let Some(entry) = self.meta.entry(Key::Entry(dir.ino.0, name.bytes()))? else { return Ok(None) };
        let child = child_of(&entry).ok_or_else(|| damaged("an entry of directory", dir.ino.0))?;
        self.dentries.keep(dir.ino, name.bytes(), child);
        Ok(Some(found(child)))
    }

    fn place(&self, _: &Inode, _: &State, _: Name<'_>) -> Result<()> {
        Ok(())
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(state.part.entries == 0)
    }

    fn list(&self, dir: &Inode, _: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        // Keys are in order of the names' hashes. A cookie is a hash and how many names of it have been
        // listed.
        let prefix = [b"m:", &dir.ino.0.to_be_bytes()[..], b":"].concat();
        let (hash, mut skip) = if cookie <= FIRST_COOKIE { (0, 0) } else { (cookie & !0xFF, cookie & 0xFF) };
        let from = [&prefix[..], &hash.to_be_bytes()].concat();
        let (mut current, mut listed) = (hash, 0);
        self.meta.visit(&prefix, &from, |key, value| {
            let wrong = || damaged("an entry of directory", dir.ino.0);
            let (hash, name) = key[prefix.len()..].split_at_checked(8).ok_or_else(wrong)?;
            let hash = u64::from_be_bytes(hash.try_into().unwrap_or_default());
            if hash != current {
                (current, listed, skip) = (hash, 0, 0);
            }
            listed += 1;
            if listed <= skip {
                return Ok(true);
            }
            let child = decode_entry(value).as_ref().and_then(child_of).ok_or_else(wrong)?;
            let next_cookie = hash | listed.min(0xFF);
            Ok(sink(DirEntry { ino: child.ino, file_type: child.file_type, name, next_cookie }))
        })
    }

    fn target(link: &State) -> &[u8] {
        &link.part.target
    }

    fn attributes(&self, ino: Ino, _: &mut State) -> Result<Attributes> {
        let Some(value) = self.meta.get(Key::Attributes(ino.0))? else { return Ok(Attributes::default()) };
        decode_attributes(&value).ok_or_else(|| damaged("the attributes of inode", ino.0))
    }

    fn lock<'a>(&self, inode: &'a Arc<Inode>, size: Option<u64>) -> Result<Guard<'a, Part>> {
        files::lock(inode, size)
    }

    fn resize(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Batched<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        ranges::resize(self, inode, state, size, apply)
    }

    fn deletes_at_once(&self, state: &State) -> bool {
        state.part.nodes.len() <= STEP_NODES
    }

    fn may_leave(&self, inode: &Inode, state: &mut State) -> bool {
        files::may_leave(self, inode, state)
    }

    fn make_room(&self) -> Result<bool> {
        self.meta.make_room()
    }

    fn begin(&self, need: &Need<'_, Self>) -> Result<Batched<'_, D>> {
        self.names.health.writable()?;
        let bytes =
            |list: &Attributes| list.iter().map(|(name, value)| name.len() + value.len() + 6).sum::<usize>();
        if need.attributes.is_some_and(|(list, _)| bytes(list) > ATTRIBUTE_BYTES_MAX) {
            return Err(Error::NoSpace);
        }
        let has_attributes = need.attributes.is_some_and(|(list, _)| !list.is_empty());
        let has_long_target = need.new.is_some_and(|new| new.target.len() > SHORT_TARGET_BYTES);
        if (has_attributes || has_long_target)
            && self.meta.is_short()
            && !planted::has(Bug::AttributesUncounted)
        {
            return Err(Error::NoSpace);
        }
        Ok(Batched::new(self))
    }
}
