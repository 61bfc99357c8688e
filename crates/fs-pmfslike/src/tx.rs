//! A change of the file system: words that change in place, and pages that nothing leads to yet. One word —
//! or as many bytes as the device stores as a whole — changes by one store (PMFS §3.2, "atomic in-place
//! updates"); more than that goes through the log.

use std::collections::BTreeMap;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{PAGE, Taken};
use amphi_names::{Change, Changed, Child, NewInode};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use amphi_volume::encode_attributes;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::dir::{self, Dir};
use crate::format::{ENTRY_DATA, Record, root_word};
use crate::fs::PmfsLike;
use crate::inode::{Inode, Part, State, record_of};
use crate::log::Range;
use crate::planted::{self, Bug};

/// A word that changes: as it was, as it will be, and what it belongs to.
type Word = (u64, u64, Structure);
/// A page that nothing leads to yet.
type Fresh = (Box<[u8; PAGE as usize]>, Structure);

/// A change.
pub struct Tx<'a, D: PageView + 'static> {
    pub fs: &'a PmfsLike<D>,
    /// What it takes.
    pub taken: Taken<'a>,
    words: BTreeMap<u64, Word>,
    /// Records that change: where, as it was, as it will be.
    records: SmallVec<[(u64, Record, Record); 4]>,
    fresh: BTreeMap<u64, Fresh>,
    /// Something was stored that no word leads to.
    stored: bool,
}

impl<'a, D: PageView + 'static> Tx<'a, D> {
    /// A change that takes at most `pages` pages, and leaves `left`.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn new(fs: &'a PmfsLike<D>, pages: u64, left: u64) -> Result<Self> {
        Ok(Self::with(fs, Taken::new(fs, pages, left)?))
    }

    /// A change that takes at most `pages` pages, which were promised.
    pub fn promised(fs: &'a PmfsLike<D>, pages: u64) -> Self {
        Self::with(fs, Taken::promised(fs, pages))
    }

    fn with(fs: &'a PmfsLike<D>, taken: Taken<'a>) -> Self {
        Self {
            fs,
            taken,
            words: BTreeMap::new(),
            records: SmallVec::new(),
            fresh: BTreeMap::new(),
            stored: false,
        }
    }

    /// Frees pages once the change counts.
    pub fn free(&mut self, page: u64, count: u64) {
        if planted::has(Bug::PagesFreedEarly) {
            self.fs.space.give(page, count);
        } else {
            self.taken.free(page, count);
        }
    }

    /// The bytes of a page that nothing leads to before the change counts; zeros at first.
    pub fn fresh(&mut self, page: u64, tag: Structure) -> &mut [u8; PAGE as usize] {
        let fresh = self.fresh.entry(page).or_insert_with(|| (Box::new([0; PAGE as usize]), tag));
        &mut fresh.0
    }

    /// Before anything of an inode changes: what the last change has freed in a directory may be used now.
    pub fn touch(&mut self, part: &mut Part) {
        if part.touched != self.taken.number {
            part.touched = self.taken.number;
            part.dir.settle();
        }
    }

    /// Has a word change in place.
    pub fn set_word(&mut self, at: u64, old: u64, new: u64, tag: Structure) {
        if let Some((page, _)) = self.fresh.get_mut(&(at / PAGE)) {
            let from = (at % PAGE) as usize;
            page[from..from + 8].copy_from_slice(&new.to_le_bytes());
            return;
        }
        self.words.entry(at).or_insert((old, new, tag)).1 = new;
    }

    /// Stores bytes that nothing leads to before the change counts.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn store(&mut self, at: u64, bytes: &[u8], tag: Structure) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some((page, _)) = self.fresh.get_mut(&(at / PAGE)) {
            let from = (at % PAGE) as usize;
            page[from..from + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        self.stored = true;
        self.fs.medium.store(at, bytes, tag)
    }

    /// Has an inode's record be what host memory says.
    pub fn note(&mut self, inode: &Inode, state: &mut State) {
        state.atime_dirty = false;
        let record = record_of(inode, state);
        let part = &mut state.part;
        match self.records.iter_mut().find(|(at, ..)| *at == part.at) {
            Some((_, _, new)) => *new = record,
            None => self.records.push((part.at, part.record, record)),
        }
        part.record = record;
    }

    /// Stores a new inode, all but the word that makes it one.
    fn store_new(&mut self, inode: &Inode, state: &mut State) -> Result<()> {
        if inode.is_dir() {
            let (page, _) = self.taken.take(1);
            *self.fresh(page, Structure::Dentry) = *dir::first_block(inode.ino, inode.parent());
            state.part.tree.root = root_word(page, 0);
            state.part.tree.blocks.insert(0, page);
            (state.part.dir, state.part.parent) = (Dir::empty(), inode.parent());
            state.size = PAGE;
        }
        state.atime_dirty = false;
        let record = record_of(inode, state);
        let at = state.part.at;
        self.store(at + 8, &record.as_bytes()[8..], Structure::Inode)?;
        self.set_word(at, 0, record.valid.get(), Structure::Inode);
        state.part.record = record;
        Ok(())
    }

    /// What changes in place, behind each other where it lies so.
    fn ranges(&mut self) -> Vec<Range> {
        let mut ranges = Vec::new();
        for (at, old, new) in &self.records {
            let (old, new) = (old.as_bytes(), new.as_bytes());
            let differs = |from: &usize| old[*from..from + 8] != new[*from..from + 8];
            let mut from = 0;
            while let Some(first) = (from..old.len()).step_by(8).find(differs) {
                // As much as an entry of the log keeps, up to the last word that differs.
                let end = old.len().min(first + ENTRY_DATA);
                let last = (first..end).step_by(8).rev().find(differs).unwrap_or(first);
                let bytes = first..last + 8;
                let (old, new) = (old[bytes.clone()].into(), new[bytes.clone()].into());
                ranges.push(Range { at: at + first as u64, old, new, tag: Structure::Inode });
                from = end;
            }
        }
        for (at, (old, new, tag)) in std::mem::take(&mut self.words) {
            let (old, new) = (old.to_le_bytes(), new.to_le_bytes());
            let behind = |last: &&mut Range| last.at + last.old.len() as u64 == at && last.tag == tag;
            match ranges.last_mut().filter(behind) {
                Some(last) => {
                    last.old.extend_from_slice(&old);
                    last.new.extend_from_slice(&new);
                }
                None => ranges.push(Range { at, old: old[..].into(), new: new[..].into(), tag }),
            }
        }
        ranges
    }

    fn finish(&mut self) -> Result<()> {
        let (medium, layout) = (&self.fs.medium, &self.fs.layout);
        for (page, (bytes, tag)) in std::mem::take(&mut self.fresh) {
            if !planted::has(Bug::PagesNotStored) {
                medium.store(page * PAGE, &bytes[..], tag)?;
            }
            self.stored = true;
        }
        let ranges = self.ranges();
        let whole = u64::from(medium.atomic_bytes());
        match &ranges[..] {
            [] => medium.barrier(),
            [one] if one.old.len() as u64 <= whole && one.at.is_multiple_of(one.old.len() as u64) => {
                if self.stored {
                    medium.barrier()?;
                }
                medium.store(one.at, &one.new, one.tag)?;
                if planted::has(Bug::WordNotDurable) { Ok(()) } else { medium.barrier() }
            }
            ranges => self.fs.log.change(medium, layout, ranges),
        }
    }
}

impl<D: PageView + 'static> Change<PmfsLike<D>> for Tx<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let ino = self.taken.made().ok_or(Error::NoInodes)?;
        let mut part = Part::new(self.fs.table.address(ino)?);
        part.touched = self.taken.number;
        if new.file_type == FileType::Symlink {
            let (page, _) = self.taken.take(1);
            self.store(page * PAGE, new.target, Structure::Data)?;
            part.tree.root = root_word(page, 0);
            part.tree.blocks.insert(0, page);
            part.target = new.target.to_vec();
        }
        Ok((ino, part))
    }

    fn insert(&mut self, _: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        self.touch(&mut state.part);
        let part = &mut state.part;
        state.size += part.dir.insert(self, &mut part.tree, name.bytes(), child)?;
        Ok(())
    }

    fn remove(&mut self, _: &Inode, state: &mut State, (): (), name: Name<'_>) -> Result<()> {
        self.touch(&mut state.part);
        let part = &mut state.part;
        part.dir.change(self, &part.tree, name.bytes(), None)
    }

    fn replace(&mut self, _: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        self.touch(&mut state.part);
        let part = &mut state.part;
        part.dir.change(self, &part.tree, name.bytes(), Some(child))
    }

    fn reparent(&mut self, child: &Inode, state: &mut State) -> Result<()> {
        let part = &mut state.part;
        let old = std::mem::replace(&mut part.parent, child.parent());
        dir::reparent(self, &part.tree, old, child.parent())
    }

    fn set_attributes(&mut self, _: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        self.touch(&mut state.part);
        if !attributes.is_empty() {
            // A change that frees something may have found no page at all.
            self.taken.promise_one()?;
        }
        let (old, _) = state.part.attributes_at();
        if old != 0 {
            self.free(old, 1);
        }
        state.part.attributes = 0;
        if !attributes.is_empty() {
            let bytes = encode_attributes(attributes);
            let (page, _) = self.taken.take(1);
            self.store(page * PAGE, &bytes, Structure::Inode)?;
            state.part.attributes = page | (bytes.len() as u64) << 48;
        }
        Ok(())
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        if changed == Changed::New {
            return self.store_new(inode, state);
        }
        self.note(inode, state);
        Ok(())
    }

    fn set_orphan(&mut self, _: &Inode, _: &mut State, _: bool) -> Result<()> {
        // It is one if it has no links; the next mount reads all inodes.
        Ok(())
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        let part = &mut state.part;
        // Nothing else of it has to be stored.
        self.records.retain(|(at, ..)| *at != part.at);
        self.set_word(part.at, part.record.valid.get(), 0, Structure::Inode);
        for (page, count) in part.pages() {
            self.free(page, count);
        }
        self.taken.delete(inode.ino);
        Ok(true)
    }

    fn commit(mut self) -> Result<()> {
        let reached = self.taken.sound().and_then(|()| self.finish());
        self.taken.settle(reached)
    }
}
