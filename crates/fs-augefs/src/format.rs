//! What AugeFS puts on the device: `docs/format/augefs.md` says the same in words.
//!
//! Everything is little-endian, but for numbers in keys of the metadata store, which are big-endian so that
//! they sort.

mod keys;
mod records;
mod superblock;

pub use amphi_segments::format::{
    ADDRESSES, Address, NAT_ENTRIES, NatBlock, NodeBlock, NodeHead, PAGE, SEGMENT_BLOCKS_MAX, Summary,
};
pub use keys::{Key, key, name_hash, prefix_end};
pub use records::{
    CheckpointRecord, EntryRecord, INLINE_NODES, InodeRecord, Intent, LogRecord, NODES_PER_CHUNK, SitRecord,
    SuperRecord, decode_attributes, decode_entry, decode_intents, decode_nodes, encode_attributes,
    encode_entry, encode_intents, encode_nodes, type_code,
};
pub use superblock::{LABEL_BYTES, Layout, SuperState, Superblock};

/// First bytes of the superblock.
pub const MAGIC: [u8; 8] = *b"AMPHIAUG";
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

/// Why something is no AugeFS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Nothing of the kind.
    #[error("there is no AugeFS on this device")]
    NotAugeFs,
    /// Another version.
    #[error("this AugeFS has format version {0}; this program knows version {VERSION}")]
    Version(u32),
    /// A checksum does not match.
    #[error("the superblock is damaged: its checksum does not match")]
    Checksum,
    /// Fields contradict each other or the device.
    #[error("the superblock is damaged: {0}")]
    Contradiction(&'static str),
}
