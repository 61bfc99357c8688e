//! What AugeFS puts on the device: `docs/format/augefs.md` says the same in words.
//!
//! Everything is little-endian, but for numbers in keys of the metadata store, which are big-endian so that
//! they sort.

mod keys;
mod records;
mod superblock;

pub use amphi_segments::format::{
    ADDRESSES, Address, LABEL_BYTES, LogRecord, NAT_ENTRIES, NatBlock, NodeBlock, NodeHead, PAGE,
    SEGMENT_BLOCKS_MAX, Summary,
};
pub use keys::{Key, key, name_hash, prefix_end};
pub use records::{
    CheckpointRecord, EntryRecord, INLINE_NODES, InodeRecord, Intent, NODES_PER_CHUNK, SitRecord,
    SuperRecord, TYPES, decode_attributes, decode_entry, decode_intents, decode_nodes, encode_attributes,
    encode_entry, encode_inode, encode_intents, encode_locator, encode_nodes,
};
pub use superblock::{Layout, SuperState, Superblock};

/// First bytes of the superblock.
pub const MAGIC: [u8; 8] = *b"AMPHIAUG";
/// What it is called in sentences.
pub const TITLE: &str = "AugeFS";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Longest file in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 42;
/// Most domains.
pub const DOMAINS_MAX: u32 = 64;
/// Write versions that the end of the memory area has room for, one for each processor.
pub const WRITE_VERSIONS: usize = 63;
/// Bytes that a write version takes: a line. Behind them is a line with [`SuperState`].
pub const WRITE_VERSION_BYTES: u64 = 64;
