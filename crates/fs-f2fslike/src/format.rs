//! What the file system of F2FS's kind puts on the device beside what `amphi-segments` says of nodes, NAT,
//! SIT and summaries: `docs/format/f2fslike.md` says the same in words.
//!
//! Everything is little-endian.

mod dentry;
mod inode;
mod pack;
mod superblock;

pub use amphi_segments::format::{
    ADDRESSES, Address, COUNTER_MAX, NAT_ENTRIES, NatBlock, NodeBlock, NodeHead, PAGE, SEGMENT_BLOCKS_MAX,
    SIT_ENTRIES, SIT_FREE, SitBlock, SitEntry, Summary,
};
pub use dentry::{DentryBlock, Found, blocks_of, bucket, name_hash, places};
pub use inode::{
    FILE_PAGES_MAX, INODE, INODE_PAGES, InodeRecord, LINK, LINK_BYTES, LINK_BYTES_MAX, LINK_WORD, Route,
    TYPES, XATTR, address_words, encode_attributes, index_of, record_of, set_record, span,
};
pub use pack::{Counts, NAT_JOURNAL, ORPHANS_MAX, PACK_PAGES, Pack, SIT_JOURNAL};
pub use superblock::{Layout, Superblock};

/// First bytes of the superblock.
pub const MAGIC: [u8; 8] = *b"AMPHIF2L";
/// What it is called in sentences.
pub const TITLE: &str = "F2FS-like";
/// Version of the format.
pub const VERSION: u32 = 2;
