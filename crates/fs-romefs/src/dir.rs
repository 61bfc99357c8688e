//! A directory's entries: units of 32 B in metadata pages. An entry takes as many as its name needs, within
//! one page, and never moves, so that a listing goes on where it was.
//!
//! In host memory there is a table from names to units; the names themselves are in the metadata.

use std::hash::{BuildHasher, Hasher};

use amphi_names::Child;
use amphi_vfs::{Error, Ino, Name};
use hashbrown::HashTable;
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{EntryHead, Layout, PAGE_UNITS, TYPES, UNIT, entry_units};
use crate::ops::Ops;

const _: () = assert!(PAGE_UNITS == u128::BITS as usize, "a word has a bit for each unit of a page");

/// A page of a directory.
pub(crate) struct DirPage {
    /// Metadata page.
    pub number: u32,
    /// Units in use.
    used: u128,
    /// Units in which an entry begins.
    pub starts: u128,
}

/// Where an entry will be.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Page of the directory; one behind the last, if the directory has to grow.
    pub page: u32,
    /// First unit.
    pub unit: u8,
    /// The directory has to grow by a page.
    pub grows: bool,
}

/// A directory in host memory.
#[derive(Default)]
pub struct Dir {
    pub(crate) pages: Vec<DirPage>,
    /// Hash of a name, and the first unit of its entry.
    pub(crate) names: HashTable<(u32, u32)>,
    hash: amphi_rt::hash::State,
    /// No page before this one has a free unit.
    hand: usize,
}

/// Bits of the `units` from `first` on.
const fn mask(first: u8, units: usize) -> u128 {
    (u128::MAX >> (PAGE_UNITS - units)) << first
}

/// First of `units` free ones in a row.
fn run_of_free(used: u128, units: usize) -> Option<u8> {
    let mut free = !used;
    for _ in 1..units {
        free &= free >> 1;
    }
    (free != 0).then(|| free.trailing_zeros() as u8)
}

impl Dir {
    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.names.len() as u64
    }

    /// A page has come, with nothing in it.
    pub fn add_page(&mut self, number: u32) {
        self.pages.push(DirPage { number, used: 0, starts: 0 });
    }

    pub fn hash_of(&self, name: &[u8]) -> u32 {
        let mut hasher = self.hash.build_hasher();
        hasher.write(name);
        hasher.finish() as u32
    }

    /// Address of a unit.
    pub fn address(&self, layout: &Layout, unit: u32) -> u64 {
        let page = &self.pages[unit as usize / PAGE_UNITS];
        layout.page(page.number) + (unit as usize % PAGE_UNITS * UNIT) as u64
    }

    /// Where an entry with such a name has room.
    pub fn place(&self, name: &[u8]) -> Place {
        let units = entry_units(name.len());
        let found = self.pages.iter().enumerate().skip(self.hand);
        let found = found.filter_map(|(page, of)| Some((page, run_of_free(of.used, units)?))).next();
        let grows = found.is_none();
        let (page, unit) = found.unwrap_or((self.pages.len(), 0));
        Place { page: page as u32, unit, grows }
    }

    /// Adds an entry. Returns its address.
    pub fn insert(&mut self, layout: &Layout, place: Place, name: &[u8]) -> u64 {
        let unit = place.page * PAGE_UNITS as u32 + u32::from(place.unit);
        let hash = self.hash_of(name);
        let page = &mut self.pages[place.page as usize];
        page.used |= mask(place.unit, entry_units(name.len()));
        page.starts |= 1 << place.unit;
        self.names.insert_unique(hash.into(), (hash, unit), |(hash, _)| u64::from(*hash));
        while self.pages.get(self.hand).is_some_and(|page| page.used == u128::MAX) {
            self.hand += 1;
        }
        self.address(layout, unit)
    }

    /// Takes an entry away. Returns its address and its bytes.
    pub fn remove(&mut self, layout: &Layout, unit: u32, name: &[u8]) -> (u64, u64) {
        let hash = self.hash_of(name);
        if let Ok(entry) = self.names.find_entry(hash.into(), |(_, other)| *other == unit) {
            entry.remove();
        }
        let (number, within) = (unit as usize / PAGE_UNITS, (unit as usize % PAGE_UNITS) as u8);
        let units = entry_units(name.len());
        let page = &mut self.pages[number];
        page.used &= !mask(within, units);
        page.starts &= !(1 << within);
        self.hand = self.hand.min(number);
        (self.address(layout, unit), (units * UNIT) as u64)
    }
}

/// Stores an entry at an address.
pub fn store_entry(ops: &mut Ops, at: u64, name: &[u8], child: Child) {
    let units = entry_units(name.len());
    let mut bytes = [0; 9 * UNIT];
    let head = EntryHead {
        ino: (child.ino.0 as u32).into(),
        name_bytes: name.len() as u8,
        kind: TYPES.code(child.file_type),
        units: units as u8,
        reserved: 0,
    };
    bytes[..size_of::<EntryHead>()].copy_from_slice(head.as_bytes());
    bytes[size_of::<EntryHead>()..][..name.len()].copy_from_slice(name);
    ops.bytes(at, &bytes[..units * UNIT]);
}

/// An entry and its name, as `bytes`, from its first unit to the end of its page, have them.
pub fn entry_in(bytes: &[u8]) -> Option<(Child, &[u8], usize)> {
    let (head, rest) = EntryHead::read_from_prefix(bytes).ok()?;
    let name = rest.get(..usize::from(head.name_bytes))?;
    let units = usize::from(head.units);
    if units != entry_units(name.len()) || units * UNIT > bytes.len() || Name::new(name).is_err() {
        return None;
    }
    let child = Child { ino: Ino(u64::from(head.ino.get())), file_type: TYPES.file_type(head.kind)? };
    Some((child, name, units))
}

/// Units that what begins here takes, up to the end of the page: of an entry, or one that is free. None if it
/// makes no sense.
pub fn units_of(bytes: &[u8]) -> Option<usize> {
    if bytes[..4] == [0; 4] { Some(1) } else { entry_in(bytes).map(|(_, _, units)| units) }
}

/// A directory has something that is no entry.
pub fn damaged(dir: Ino) -> Error {
    Error::corrupt("directory", dir.0, "an entry makes no sense")
}
