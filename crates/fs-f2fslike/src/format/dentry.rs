//! Blocks of directory entries, and in which of a directory's blocks a name may stand.
//!
//! As on F2FS, level `n` of a directory has `2^n` buckets of two blocks, and a name stands in the bucket of
//! its hash in one of the levels. An entry takes a slot for each 8 bytes of its name. Before the first level
//! the slots of block 0 are in the inode, as many as its addresses leave room for.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ADDRESSES, Address, INODE_PAGES, PAGE};

const DENTRY_MAGIC: u32 = u32::from_le_bytes(*b"F2DE");
/// Slots of a block.
const SLOTS: usize = 213;
/// Bytes of a name in a slot.
const SLOT_BYTES: usize = 8;
/// Slots that an inode has room for.
const INLINE_SLOTS: usize = 180;
/// Blocks of a bucket.
const BUCKET_BLOCKS: u64 = 2;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Dentry {
    hash: U32,
    ino: U32,
    name_len: U16,
    kind: u8,
}

/// A block of entries.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DentryBlock {
    magic: U32,
    crc: U32,
    salt: U64,
    /// The directory.
    dir: U32,
    /// Slots that are taken.
    bitmap: [u8; SLOTS.div_ceil(8)],
    zero: [u8; 2],
    entries: [Dentry; SLOTS],
    names: [[u8; SLOT_BYTES]; SLOTS],
}

/// Entries in place of an inode's addresses of pages.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Inline {
    bitmap: [u8; INLINE_SLOTS.div_ceil(8)],
    zero: [u8; 13],
    entries: [Dentry; INLINE_SLOTS],
    names: [[u8; SLOT_BYTES]; INLINE_SLOTS],
}

const _: () = assert!(size_of::<Dentry>() == 11 && size_of::<DentryBlock>() == PAGE);
const _: () = assert!(size_of::<Inline>() == INODE_PAGES * 4);

/// An entry of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its first slot.
    pub slot: usize,
    /// The inode.
    pub ino: u32,
    /// Its type's code.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

/// A name's hash.
#[must_use]
pub fn name_hash(name: &[u8]) -> u32 {
    crc32c::crc32c(name)
}

/// The directory's blocks where a name with this hash may stand in a level.
#[must_use]
pub const fn bucket(hash: u32, level: u32) -> std::ops::Range<u64> {
    let buckets = 1 << level;
    let first = BUCKET_BLOCKS * (buckets - 1) + BUCKET_BLOCKS * (hash as u64 % buckets);
    first..first + BUCKET_BLOCKS
}

/// A directory's blocks where a name with this hash may stand, if it has so many levels: the first is in its
/// inode while it has none.
pub fn places(hash: u32, levels: u32) -> impl Iterator<Item = u64> {
    let most = if levels == 0 { 1 } else { usize::MAX };
    (0..levels.max(1)).flat_map(move |level| bucket(hash, level)).take(most)
}

/// Blocks that a directory with so many levels can have.
#[must_use]
pub const fn blocks_of(levels: u32) -> u64 {
    if levels == 0 { 1 } else { bucket(u32::MAX, levels - 1).end }
}

impl DentryBlock {
    /// Slots of a block.
    pub const SLOTS: usize = SLOTS;

    /// The block whose entries are in the inode with these words.
    #[must_use]
    pub fn of_inode(dir: u32, words: &[Address; ADDRESSES]) -> Box<Self> {
        let mut block = Self::new(dir);
        if let Ok((inline, _)) = Inline::ref_from_prefix(words.as_bytes()) {
            block.bitmap[..inline.bitmap.len()].copy_from_slice(&inline.bitmap);
            block.entries[..INLINE_SLOTS].copy_from_slice(&inline.entries);
            block.names[..INLINE_SLOTS].copy_from_slice(&inline.names);
        }
        block
    }

    /// Puts the entries into the inode with these words.
    pub fn put_in_inode(&self, words: &mut [Address; ADDRESSES]) {
        if let Ok((inline, _)) = Inline::mut_from_prefix(words.as_mut_bytes()) {
            inline.bitmap.copy_from_slice(&self.bitmap[..INLINE_SLOTS.div_ceil(8)]);
            inline.entries.copy_from_slice(&self.entries[..INLINE_SLOTS]);
            inline.names.copy_from_slice(&self.names[..INLINE_SLOTS]);
        }
    }

    /// One without entries.
    #[must_use]
    pub fn new(dir: u32) -> Box<Self> {
        let mut block = Box::new(Self::new_zeroed());
        (block.magic, block.dir) = (DENTRY_MAGIC.into(), dir.into());
        block
    }

    /// Puts the file system's mark and the checksum in.
    pub fn seal(&mut self, salt: u64) {
        self.salt = salt.into();
        self.crc = crc32c::crc32c(&self.as_bytes()[8..]).into();
    }

    /// The block that a page holds, if it is one of this directory.
    #[must_use]
    pub fn decode(page: &[u8], salt: u64, dir: u32) -> Option<Box<Self>> {
        let block = Self::read_from_bytes(page).ok()?;
        let sound = block.magic.get() == DENTRY_MAGIC
            && block.salt.get() == salt
            && block.dir.get() == dir
            && block.crc.get() == crc32c::crc32c(&page[8..]);
        sound.then(|| Box::new(block))
    }

    fn is_taken(&self, slot: usize) -> bool {
        self.bitmap[slot / 8] >> (slot % 8) & 1 == 1
    }

    fn mark(&mut self, slot: usize, len: usize, on: bool) {
        for slot in slot..slot + len.div_ceil(SLOT_BYTES) {
            let bit = 1 << (slot % 8);
            let byte = &mut self.bitmap[slot / 8];
            *byte = if on { *byte | bit } else { *byte & !bit };
        }
    }

    /// Its entries from a slot on. One that contradicts itself ends them.
    pub fn entries(&self, from: usize) -> impl Iterator<Item = Found<'_>> {
        let mut at = 0;
        let all = std::iter::from_fn(move || {
            while at < SLOTS && !self.is_taken(at) {
                at += 1;
            }
            let entry = self.entries.get(at)?;
            let (slot, len) = (at, usize::from(entry.name_len.get()));
            at += len.div_ceil(SLOT_BYTES).max(1);
            let name = self.names.as_bytes().get(slot * SLOT_BYTES..slot * SLOT_BYTES + len)?;
            Some(Found { slot, ino: entry.ino.get(), kind: entry.kind, name })
        });
        all.filter(move |found| found.slot >= from)
    }

    /// The entry of a name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Found<'_>> {
        self.entries(0).find(|found| found.name == name)
    }

    /// Slots in a row that are free for a name of so many bytes, of those `in_inode` or outside.
    #[must_use]
    pub fn room(&self, name_len: usize, in_inode: bool) -> Option<usize> {
        let wanted = name_len.div_ceil(SLOT_BYTES);
        let mut free = 0;
        for slot in 0..if in_inode { INLINE_SLOTS } else { SLOTS } {
            free = if self.is_taken(slot) { 0 } else { free + 1 };
            if free == wanted {
                return Some(slot + 1 - wanted);
            }
        }
        None
    }

    /// Puts an entry where there is [`room`](Self::room).
    pub fn put(&mut self, slot: usize, name: &[u8], ino: u32, kind: u8) {
        self.mark(slot, name.len(), true);
        let hash = name_hash(name).into();
        self.entries[slot] = Dentry { hash, ino: ino.into(), name_len: (name.len() as u16).into(), kind };
        let names = self.names.as_mut_bytes();
        names[slot * SLOT_BYTES..slot * SLOT_BYTES + name.len()].copy_from_slice(name);
    }

    /// Has an entry name another inode.
    pub fn set(&mut self, slot: usize, ino: u32, kind: u8) {
        (self.entries[slot].ino, self.entries[slot].kind) = (ino.into(), kind);
    }

    /// Takes an entry out.
    pub fn remove(&mut self, slot: usize, name_len: usize) {
        self.mark(slot, name_len, false);
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bitmap.iter().all(|byte| *byte == 0)
    }
}
