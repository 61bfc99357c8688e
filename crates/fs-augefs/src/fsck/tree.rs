//! All names and inodes of a damaged file system: as they are, and as they should be.

use std::collections::{BTreeMap, BTreeSet};

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::Batch;
use amphi_segments::format::{COUNTER_MAX, InodeHead};
use amphi_vfs::{FileType, Ino, Name, Result};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::format::{
    EntryRecord, InodeRecord, Key, TYPES, decode_attributes, decode_entry, encode_entry, key,
};
use crate::inode::make_sound;
use crate::meta::{self, meta_error};

/// Where what has no name comes to.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Bytes after which a batch is written: with one more record it still fits into a small log.
const BATCH_BYTES: usize = 4096;

/// A directory and a name in it.
type Place = (Ino, Vec<u8>);

/// Names, inodes and orphans.
#[derive(Default)]
pub struct Tree {
    /// Whose each name is.
    names: BTreeMap<Place, Ino>,
    /// Inodes, with a symbolic link's target if it is in the record.
    pub records: BTreeMap<Ino, (Box<InodeRecord>, Vec<u8>)>,
    /// The name under which an inode stands; the others stand by their number.
    homes: BTreeMap<Ino, Place>,
    orphans: BTreeSet<Ino>,
    /// Bytes of targets that are not.
    targets: BTreeMap<Ino, Vec<u8>>,
    /// What the metadata store has of all this.
    stored: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What follows a key's prefix of some bytes, as a number.
fn number(key: &[u8]) -> Option<Ino> {
    Some(Ino(u64::from_be_bytes(key.get(2..10)?.try_into().ok()?)))
}

/// Whether an inode other than the root can have the number that a record says.
fn is_number(record: &InodeRecord) -> bool {
    (Ino::ROOT.0 + 1..=COUNTER_MAX).contains(&record.ino.get())
}

impl Tree {
    /// Reads what makes sense.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], where the metadata store cannot be read; [`amphi_vfs::Error::Io`].
    pub fn read<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<Self> {
        let mut tree = Self::default();
        for prefix in [b"m:", b"i:", b"o:", b"n:", b"x:", b"l:"] {
            core.meta.visit(prefix, prefix, |key, value| {
                tree.stored.insert(key.to_vec(), value.to_vec());
                Ok(true)
            })?;
        }
        let mut references = Vec::new();
        for (key, value) in &tree.stored {
            let (Some(of), Some(name), b"m:") = (number(key), key.get(19..), &key[..2]) else { continue };
            if Name::new(name).is_err() {
                continue;
            }
            match decode_entry(value) {
                Some(EntryRecord::Inode(record, target)) if is_number(&record) => {
                    let ino = Ino(record.ino.get());
                    // Of two names with the inode the first one has it.
                    if let std::collections::btree_map::Entry::Vacant(free) = tree.records.entry(ino) {
                        free.insert((record, target));
                        tree.homes.insert(ino, (of, name.to_vec()));
                    }
                    tree.names.insert((of, name.to_vec()), ino);
                }
                Some(EntryRecord::Reference(ino, _)) => references.push(((of, name.to_vec()), ino)),
                _ => {}
            }
        }
        for (key, value) in &tree.stored {
            let Some(ino) = number(key).filter(|_| key.len() == 10) else { continue };
            match &key[..2] {
                b"o:" => {
                    tree.orphans.insert(ino);
                }
                b"l:" => {
                    tree.targets.insert(ino, value.clone());
                }
                b"i:" => {
                    if let Some(EntryRecord::Inode(record, target)) = decode_entry(value)
                        && record.ino.get() == ino.0
                        && (ino == Ino::ROOT || is_number(&record))
                    {
                        tree.records.entry(ino).or_insert((record, target));
                    }
                }
                _ => {}
            }
        }
        tree.names.extend(references);
        Ok(tree)
    }

    /// The highest number of an inode.
    pub fn highest(&self) -> u64 {
        self.records.last_key_value().map_or(Ino::ROOT.0, |(ino, _)| ino.0)
    }

    fn has_target_apart(&self, ino: Ino) -> bool {
        let is_apart = |(record, target): &(Box<InodeRecord>, Vec<u8>)| {
            record.file_type() == Some(FileType::Symlink) && target.is_empty()
        };
        self.records.get(&ino).is_some_and(is_apart)
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.records.get(&ino).is_some_and(|(record, _)| record.file_type() == Some(FileType::Directory))
    }

    /// As it should be.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn mended<D: BlockPort + MemoryArea>(&self, core: &Core<D>) -> Result<Self> {
        let mut it = Self {
            names: self.names.clone(),
            records: self.records.clone(),
            homes: self.homes.clone(),
            orphans: self.orphans.clone(),
            targets: self.targets.clone(),
            stored: BTreeMap::new(),
        };
        if !it.is_directory(Ino::ROOT) {
            it.records.insert(Ino::ROOT, (Box::new(crate::mount::root()), Vec::new()));
        }
        it.homes.remove(&Ino::ROOT);
        it.drop_names();
        let mut lost = it.unnamed();
        // What hangs together and not with the root comes to it by one of its names.
        loop {
            let reached = it.reached(&lost);
            let mut rest = it.records.keys().filter(|ino| !reached.contains(ino) && !it.is_orphan(**ino));
            let Some(first) = rest.next().copied() else { break };
            it.names.retain(|_, ino| *ino != first);
            it.homes.remove(&first);
            lost.push(first);
        }
        if !lost.is_empty() {
            let home = it.lost_and_found(core)?;
            for ino in lost {
                it.homes.remove(&ino);
                it.names.insert((home, format!("#{}", ino.0).into_bytes()), ino);
            }
        }
        it.count();
        Ok(it)
    }

    /// Drops names that name nothing, lie in no directory, or are a directory's second ones.
    fn drop_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        let mut of_directories: BTreeMap<Ino, Place> = BTreeMap::new();
        for (place, ino) in &names {
            if self.is_directory(*ino) && self.is_directory(place.0) {
                let right = self.records[ino].0.parent.get() == place.0.0;
                let kept = of_directories.entry(*ino).or_insert_with(|| place.clone());
                if right && self.records[ino].0.parent.get() != kept.0.0 {
                    kept.clone_from(place);
                }
            }
        }
        for (place, ino) in names {
            let second = of_directories.get(&ino).is_some_and(|kept| *kept != place);
            let sound = ino != Ino::ROOT && self.records.contains_key(&ino) && self.is_directory(place.0);
            if sound && !second {
                self.names.insert(place, ino);
            }
        }
        let names = &self.names;
        self.homes.retain(|ino, place| names.get(place) == Some(ino));
    }

    fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.contains(&ino) && !self.names.values().any(|named| *named == ino)
    }

    /// What has no name, and is not among the orphans.
    fn unnamed(&self) -> Vec<Ino> {
        let named: BTreeSet<_> = self.names.values().copied().collect();
        let without = self.records.keys().filter(|ino| **ino != Ino::ROOT && !named.contains(ino));
        without.filter(|ino| !self.orphans.contains(ino)).copied().collect()
    }

    /// What the root, and what else is given, lead to.
    fn reached(&self, also: &[Ino]) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<_> = also.iter().copied().chain([Ino::ROOT]).collect();
        while let Some(ino) = next.pop() {
            if reached.insert(ino) && self.is_directory(ino) {
                let within = (ino, Vec::new())..(Ino(ino.0 + 1), Vec::new());
                next.extend(self.names.range(within).map(|(_, child)| *child));
            }
        }
        reached
    }

    /// The directory for what has no name, made if it is not there.
    fn lost_and_found<D: BlockPort + MemoryArea>(&mut self, core: &Core<D>) -> Result<Ino> {
        let place = (Ino::ROOT, LOST_AND_FOUND.to_vec());
        if let Some(there) = self.names.get(&place).copied() {
            if self.is_directory(there) {
                return Ok(there);
            }
            self.names.remove(&place);
            let other = (0..).map(|n| (Ino::ROOT, format!("lost+found.{n}").into_bytes()));
            if let Some(free) = other.into_iter().find(|place| !self.names.contains_key(place)) {
                self.names.insert(free, there);
            }
            self.homes.remove(&there);
        }
        let ino = Ino(core.take_number()?.0.max(self.highest() + 1));
        let mut record = InodeRecord::new_zeroed();
        record.ino = ino.0.into();
        record.head = InodeHead::directory(0o700, &TYPES);
        self.records.insert(ino, (Box::new(record), Vec::new()));
        self.homes.insert(ino, place.clone());
        self.names.insert(place, ino);
        Ok(ino)
    }

    /// Parents, entries and links, as they follow from names.
    fn count(&mut self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut parents: BTreeMap<Ino, Ino> = BTreeMap::new();
        let mut within: BTreeMap<Ino, (u64, u32)> = BTreeMap::new();
        for ((parent, _), ino) in &self.names {
            *names.entry(*ino).or_default() += 1;
            parents.insert(*ino, *parent);
            let (entries, directories) = within.entry(*parent).or_default();
            *entries += 1;
            *directories += u32::from(self.is_directory(*ino));
        }
        self.orphans.retain(|ino| !names.contains_key(ino) && self.records.contains_key(ino));
        for (ino, (record, target)) in &mut self.records {
            let apart = self.targets.get(ino).filter(|_| target.is_empty());
            make_sound(record, apart.unwrap_or(target));
            let named = names.get(ino).copied().unwrap_or(0);
            if record.file_type() != Some(FileType::Directory) {
                record.head.nlink = named.into();
                continue;
            }
            let (entries, directories) = within.get(ino).copied().unwrap_or_default();
            let parent = parents.get(ino).copied();
            record.entries = entries.into();
            record.head.nlink = if self.orphans.contains(ino) { 0.into() } else { (2 + directories).into() };
            if let Some(parent) = parent.or((*ino == Ino::ROOT).then_some(Ino::ROOT)) {
                record.parent = parent.0.into();
            }
        }
    }

    /// What the metadata store should have, if `stored` is in it.
    fn values(&self, stored: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut values = BTreeMap::new();
        for (place, ino) in &self.names {
            let (record, target) = &self.records[ino];
            let entry = match record.file_type() {
                Some(kind) if self.homes.get(ino) != Some(place) => EntryRecord::Reference(*ino, kind),
                _ => EntryRecord::Inode(record.clone(), target.clone()),
            };
            values.insert(key(Key::Entry(place.0.0, &place.1)).to_vec(), encode_entry(&entry));
        }
        for (ino, (record, target)) in &self.records {
            let entry = match self.homes.get(ino) {
                Some((parent, name)) => EntryRecord::Locator(*parent, name.clone()),
                None => EntryRecord::Inode(record.clone(), target.clone()),
            };
            values.insert(key(Key::Inode(ino.0)).to_vec(), encode_entry(&entry));
        }
        // Of what is there no more nothing else stays, nor what nobody can read.
        let of_inodes = stored.iter().filter(|(key, value)| match &key[..2] {
            b"n:" => true,
            b"x:" => decode_attributes(value).is_some(),
            b"l:" => number(key).is_some_and(|ino| self.has_target_apart(ino)),
            _ => false,
        });
        let kept =
            of_inodes.filter(|(key, _)| number(key).is_some_and(|ino| self.records.contains_key(&ino)));
        values.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
        for ino in &self.orphans {
            let orphan = key(Key::Orphan(ino.0)).to_vec();
            let value = stored.get(&orphan).cloned().unwrap_or_default();
            values.insert(orphan, value);
        }
        values
    }

    /// Writes what `mended` has and this has not, and deletes what it has not.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn write_difference<D: BlockPort + MemoryArea>(&self, core: &Core<D>, mended: &Self) -> Result<()> {
        let values = mended.values(&self.stored);
        let mut batch = Batch::new();
        // What is put first: a crash in between leaves something twice, and loses nothing.
        for (key, value) in values.iter().filter(|(key, value)| self.stored.get(*key) != Some(value)) {
            batch.put(key, value).map_err(meta_error)?;
            flush(core, &mut batch)?;
        }
        for key in self.stored.keys().filter(|key| !values.contains_key(*key)) {
            batch.delete(key).map_err(meta_error)?;
            flush(core, &mut batch)?;
        }
        core.meta.write(&batch)
    }
}

fn flush<D: BlockPort + MemoryArea>(core: &Core<D>, batch: &mut Batch) -> Result<()> {
    if batch.content_bytes() >= BATCH_BYTES { core.meta.write(&std::mem::take(batch)) } else { Ok(()) }
}

/// Puts an inode where it stands.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn put_record(batch: &mut Batch, tree: &Tree, record: &InodeRecord) -> Result<()> {
    let ino = Ino(record.ino.get());
    let target = tree.records.get(&ino).map(|(_, target)| target.clone()).unwrap_or_default();
    let value = encode_entry(&EntryRecord::Inode(Box::new(*record), target));
    match tree.homes.get(&ino) {
        Some((parent, name)) => meta::put(batch, Key::Entry(parent.0, name), &value),
        None => meta::put(batch, Key::Inode(ino.0), &value),
    }
}
