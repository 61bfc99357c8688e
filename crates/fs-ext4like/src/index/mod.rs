//! Where things are: inodes, the extents and attributes below them, directories.

pub mod dir;
pub mod extent;
pub mod inode;
pub mod part;
pub mod xattr;
