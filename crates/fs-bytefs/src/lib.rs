//! ByteFS: a file system whose small updates travel by bytes and large ones by blocks.
#![forbid(unsafe_code)]

pub mod format;
pub mod fsck;
