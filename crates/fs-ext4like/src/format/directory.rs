//! Directory blocks: entries, and the index of hashes over them.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::BLOCK;

/// What precedes the name in a directory entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirentHeader {
    /// Inode number; 0: the entry is free.
    pub ino: U32,
    /// Bytes to the next entry, a multiple of four.
    pub bytes: U16,
    /// Bytes of the name.
    pub name_bytes: u8,
    /// The type, as `st_mode` has it, shifted right by 12.
    pub file_type: u8,
}

/// Bytes of an entry before its name.
pub const DIRENT_HEADER: usize = size_of::<DirentHeader>();
const _: () = assert!(DIRENT_HEADER == 8, "as ext4 has it");

/// Bytes at the end of a directory block that are no entries: eight of zeros and the checksum.
pub const DIR_TAIL: usize = 12;

/// Bytes that an entry with a name of `name_bytes` bytes needs.
#[must_use]
pub const fn dirent_bytes(name_bytes: usize) -> usize {
    (DIRENT_HEADER + name_bytes).next_multiple_of(4)
}

/// In block 0 of an indexed directory, behind `.` and `..` (12 bytes each, of which the second claims the
/// rest of the block).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DxRootInfo {
    /// Zero.
    pub reserved: U32,
    /// 1: [`name_hash`].
    pub hash_version: u8,
    /// 8.
    pub info_bytes: u8,
    /// Levels of index blocks below this one, 0 or 1.
    pub levels: u8,
    /// Zero.
    pub flags: u8,
}

/// How many entries an index has, before them.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DxCount {
    /// Entries that there is room for.
    pub limit: U16,
    /// Entries in use, at least 1.
    pub count: U16,
}

/// An entry of an index: the block that holds the names whose hash is at least this and below the next
/// entry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DxEntry {
    /// Least hash (its upper 32 bits); 0 in the first entry.
    pub hash: U32,
    /// Block of the directory.
    pub block: U32,
}

/// Where the count stands in block 0 of an indexed directory; the entries follow.
pub const DX_ENTRIES_AT: usize = 24 + size_of::<DxRootInfo>();
/// Where the count stands in other index blocks, behind a free entry that claims the whole block.
pub const DX_NODE_ENTRIES_AT: usize = DIRENT_HEADER;
/// Most entries in block 0.
pub const DX_ROOT_ENTRIES_MAX: usize =
    (BLOCK - DIR_TAIL - DX_ENTRIES_AT - size_of::<DxCount>()) / size_of::<DxEntry>();
/// Most entries in other index blocks.
pub const DX_NODE_ENTRIES_MAX: usize =
    (BLOCK - DIR_TAIL - DX_NODE_ENTRIES_AT - size_of::<DxCount>()) / size_of::<DxEntry>();

/// The hash that orders a directory's names: its upper 32 bits order the leaf blocks, all of it a listing.
///
/// FNV-1a over the seed and the name, finished so that every bit depends on every byte. The top and bottom
/// values are not used: a cookie needs room at both ends.
#[must_use]
pub fn name_hash(seed: u64, name: &[u8]) -> u64 {
    let mut hash = seed ^ 0xCBF2_9CE4_8422_2325;
    for &byte in name {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^= hash >> 33;
    (hash >> 1).clamp(1, (u64::MAX >> 1) - 8)
}
