//! What the file system of F2FS's kind puts on the device beside what `amphi-segments` says of nodes, NAT,
//! SIT and summaries: `docs/format/f2fslike.md` says the same in words.
//!
//! Everything is little-endian.

mod dentry;
mod inode;
mod pack;
mod superblock;

pub use amphi_segments::format::{
    ADDRESSES, Address, NAT_ENTRIES, NatBlock, NodeBlock, NodeHead, PAGE, SEGMENT_BLOCKS_MAX, SIT_ENTRIES,
    SIT_FREE, SitBlock, SitEntry, Summary,
};
pub use dentry::{DentryBlock, Found, bucket, name_hash};
pub use inode::{
    FILE_PAGES_MAX, INODE, INODE_PAGES, InodeRecord, LINK, LINK_BYTES, LINK_BYTES_MAX, LINK_WORD, Route,
    XATTR, address_words, decode_attributes, encode_attributes, index_of, record_of, set_record, span,
    type_code, type_of,
};
pub use pack::{LogRecord, ORPHANS_MAX, PACK_PAGES, Pack};
pub use superblock::{LABEL_BYTES, Layout, Superblock};

/// First bytes of the superblock.
pub const MAGIC: [u8; 8] = *b"AMPHIF2L";
/// Version of the format.
pub const VERSION: u32 = 1;

/// Why something is no file system of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Nothing of the kind.
    #[error("there is no file system of F2FS's kind on this device")]
    NotThis,
    /// Another version.
    #[error("this file system of F2FS's kind has format version {0}; this program knows version {VERSION}")]
    Version(u32),
    /// A checksum does not match.
    #[error("the superblock is damaged: its checksum does not match")]
    Checksum,
    /// Fields contradict each other or the device.
    #[error("the superblock is damaged: {0}")]
    Contradiction(&'static str),
}
