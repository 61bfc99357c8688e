//! A directory's entries: units of 64 B in metadata pages. An entry takes as many as its name needs, within
//! one page, and never moves, so that a listing goes on where it was.
//!
//! In device memory a radix tree leads from the hash of a path's last name to the unit (§4.1). Keys have as
//! many bits as make its leaves dense. The path before the name is the directory, whose tree it is: so a
//! directory can be renamed without a new hash for each path below it.

use std::hash::BuildHasher;
use std::sync::Arc;

use amphi_names::Child;
use amphi_radix::Radix;
use amphi_vfs::{Ino, Name};
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{EntryHead, TYPES, UNIT, UNITS, entry_units};
use crate::memory::{DeviceMemory, Hold, Kind};
use crate::parts::Parts;

const _: () = assert!(UNITS == 63, "a word has a bit for each unit of a page, and one more");

/// Bits of a tree's keys, from few names to many: with one to two names a key its leaves are dense.
const KEY_BITS: std::ops::RangeInclusive<u32> = 6..=24;

/// Hash and unit of the names with one key.
type Bucket = SmallVec<[(u32, u32); 2]>;

fn heap_bytes(bucket: &Bucket) -> u64 {
    if bucket.spilled() { (bucket.capacity() * size_of::<(u32, u32)>()) as u64 } else { 0 }
}

#[derive(Clone, Copy, Debug)]
pub struct DirPage {
    pub number: u32,
    /// Units in use, and those where an entry begins.
    used: u64,
    pub starts: u64,
}

/// Where an entry will be.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub page: u32,
    pub unit: u8,
    /// The directory grows by a page for it.
    pub grows: bool,
}

/// The entries of a directory, as far as device memory has them.
pub struct Dir {
    pub pages: Vec<DirPage>,
    names: Radix<Bucket>,
    key_bits: u32,
    /// Bytes of buckets that have more names than fit them.
    spilled: u64,
    /// Its names would take too much memory, so that they are looked for in the pages.
    pub lean: bool,
    count: u64,
    /// No page before this one has a free unit.
    hand: usize,
    /// Keyed by the mount: nobody chooses names that share a key.
    hash: amphi_rt::hash::State,
    hold: Hold,
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dir")
            .field("pages", &self.pages.len())
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

const fn mask(first: u8, units: usize) -> u64 {
    (u64::MAX >> (64 - units)) << first
}

/// The first run of `units` free units.
fn run_of_free(used: u64, units: usize) -> Option<u8> {
    let mut free = !used & (u64::MAX >> (64 - UNITS));
    for _ in 1..units {
        free &= free >> 1;
    }
    (free != 0).then(|| free.trailing_zeros() as u8)
}

impl Dir {
    /// Without pages.
    pub fn new(memory: &Arc<DeviceMemory>, hash: &amphi_rt::hash::State) -> Self {
        let hold = Hold::new(memory, Kind::Dentries, 0, size_of::<Self>() as u64);
        Self {
            pages: Vec::new(),
            names: Radix::default(),
            key_bits: *KEY_BITS.start(),
            spilled: 0,
            lean: false,
            count: 0,
            hand: 0,
            hash: hash.clone(),
            hold,
        }
    }

    /// Where a name's entry may begin.
    pub fn units_of(&self, name: &[u8]) -> impl Iterator<Item = u32> {
        let hash = self.hash_of(name);
        let bucket = self.names.get(self.key(hash)).into_iter().flatten();
        bucket.filter(move |(other, _)| *other == hash).map(|(_, unit)| *unit)
    }

    fn hash_of(&self, name: &[u8]) -> u32 {
        self.hash.hash_one(name) as u32
    }

    /// Entries.
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// Counts the memory that it takes, and gives up the names where that is too much.
    fn weigh(&mut self) {
        let pages = (size_of::<Self>() + self.pages.capacity() * size_of::<DirPage>()) as u64;
        let names = self.names_bytes();
        let more = (pages + names).saturating_sub(self.hold.bytes());
        if self.hold.memory().has_no_room_for_names(names, more) {
            (self.names, self.spilled, self.lean) = (Radix::default(), 0, true);
        }
        let kept = if self.lean { 0 } else { self.count as u32 };
        self.hold.resize(kept, pages + self.names_bytes());
    }

    /// At most so many bytes are in the tree: its keys are scattered, so no leaf may be full.
    fn names_bytes(&self) -> u64 {
        if self.lean {
            return 0;
        }
        let leaves = self.count.min((1_u64 << self.key_bits).div_ceil(64));
        leaves * 64 * size_of::<Option<Bucket>>() as u64 + self.spilled
    }

    /// Adds a page without entries.
    pub fn add_page(&mut self, number: u32) {
        self.pages.push(DirPage { number, used: 0, starts: 0 });
        self.weigh();
    }

    const fn key(&self, hash: u32) -> u64 {
        (hash >> (32 - self.key_bits)) as u64
    }

    fn add_name(&mut self, hash: u32, unit: u32) {
        self.count += 1;
        if !self.lean {
            let wanted = self.count.ilog2().clamp(*KEY_BITS.start(), *KEY_BITS.end());
            if wanted > self.key_bits {
                let old = std::mem::take(&mut self.names);
                (self.key_bits, self.spilled) = (wanted, 0);
                let mut from = 0;
                while let Some((key, bucket)) = old.next(from) {
                    bucket.iter().for_each(|(hash, unit)| self.put_name(*hash, *unit));
                    from = key + 1;
                }
            }
            self.put_name(hash, unit);
        }
        self.weigh();
    }

    fn put_name(&mut self, hash: u32, unit: u32) {
        let key = self.key(hash);
        match self.names.get_mut(key) {
            Some(bucket) => {
                let before = heap_bytes(bucket);
                bucket.push((hash, unit));
                self.spilled += heap_bytes(bucket) - before;
            }
            None => drop(self.names.insert(key, std::iter::once((hash, unit)).collect())),
        }
    }

    fn remove_name(&mut self, hash: u32, unit: u32) {
        let key = self.key(hash);
        self.count -= 1;
        if let Some(bucket) = self.names.get_mut(key) {
            bucket.retain(|(_, other)| *other != unit);
            if bucket.is_empty() {
                self.spilled -= heap_bytes(bucket);
                self.names.remove(key);
            }
        }
        self.weigh();
    }

    /// The metadata page of a unit, and where the unit is there.
    pub fn address(&self, unit: u32) -> (u64, usize) {
        let page = &self.pages[unit as usize / UNITS];
        (page.number.into(), unit as usize % UNITS * UNIT)
    }

    /// Where a new name goes.
    pub fn place(&self, name: &[u8]) -> Place {
        let units = entry_units(name.len());
        let pages = self.pages.iter().enumerate().skip(self.hand);
        let found = pages.filter_map(|(page, of)| Some((page, run_of_free(of.used, units)?))).next();
        let (page, unit) = found.unwrap_or((self.pages.len(), 0));
        Place { page: page as u32, unit, grows: found.is_none() }
    }

    /// Notes an entry that is in its page.
    pub fn note(&mut self, place: Place, name: &[u8]) -> u32 {
        let unit = place.page * UNITS as u32 + u32::from(place.unit);
        let page = &mut self.pages[place.page as usize];
        page.used |= mask(place.unit, entry_units(name.len()));
        page.starts |= 1 << place.unit;
        while self.pages.get(self.hand).is_some_and(|page| run_of_free(page.used, 1).is_none()) {
            self.hand += 1;
        }
        self.add_name(self.hash_of(name), unit);
        unit
    }

    /// Adds an entry.
    pub fn insert(&mut self, parts: &mut Parts, place: Place, name: &[u8], child: Child) {
        let unit = self.note(place, name);
        self.write_entry(parts, unit, name, child);
    }

    /// Writes an entry, over the one of this name or where none is.
    pub fn write_entry(&self, parts: &mut Parts, unit: u32, name: &[u8], child: Child) {
        let head = EntryHead {
            ino: child.ino.0.into(),
            kind: TYPES.code(child.file_type),
            name_bytes: name.len() as u8,
            reserved: [0; 6],
        };
        let mut bytes: SmallVec<[u8; 2 * UNIT]> = SmallVec::from_slice(head.as_bytes());
        bytes.extend_from_slice(name);
        let (page, at) = self.address(unit);
        parts.bytes(page, at, &bytes);
    }

    /// Takes an entry away.
    pub fn remove(&mut self, parts: &mut Parts, unit: u32, name: &[u8]) {
        let (page, at) = self.address(unit);
        let units = entry_units(name.len());
        parts.zeros(page, at, units * UNIT);
        let (number, within) = (unit as usize / UNITS, (unit as usize % UNITS) as u8);
        let page = &mut self.pages[number];
        page.used &= !mask(within, units);
        page.starts &= !(1 << within);
        self.hand = self.hand.min(number);
        self.remove_name(self.hash_of(name), unit);
    }

    /// As host memory keeps it: pages, then hashes and units of the names. `None`: there are too many.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if self.lean {
            return None;
        }
        let pages: Vec<_> = self.pages.iter().map(|page| (page.number, page.used, page.starts)).collect();
        let mut names = Vec::with_capacity(self.count as usize);
        let mut from = 0;
        while let Some((key, bucket)) = self.names.next(from) {
            names.extend_from_slice(bucket);
            from = key + 1;
        }
        postcard::to_stdvec(&(pages, names)).ok()
    }

    /// Back from host memory. `None`: those are no entries.
    pub fn of_bytes(memory: &Arc<DeviceMemory>, hash: &amphi_rt::hash::State, bytes: &[u8]) -> Option<Self> {
        type Kept = (Vec<(u32, u64, u64)>, Vec<(u32, u32)>);
        let (pages, names): Kept = postcard::from_bytes(bytes).ok()?;
        let mut dir = Self::new(memory, hash);
        dir.pages =
            pages.into_iter().map(|(number, used, starts)| DirPage { number, used, starts }).collect();
        names.into_iter().for_each(|(hash, unit)| dir.add_name(hash, unit));
        Some(dir)
    }
}

/// Child, name and units of the entry that begins with these bytes.
pub fn entry_in(bytes: &[u8]) -> Option<(Child, &[u8], usize)> {
    let (head, rest) = EntryHead::read_from_prefix(bytes).ok()?;
    let name = rest.get(..usize::from(head.name_bytes))?;
    Name::new(name).ok()?;
    let child = Child { ino: Ino(head.ino.get()), file_type: TYPES.file_type(head.kind)? };
    Some((child, name, entry_units(name.len())))
}
