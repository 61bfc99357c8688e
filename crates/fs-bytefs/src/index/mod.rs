//! Where things are: inodes and what hangs below them, extents, directories, attributes (BY-9, BY-10, BY-12).

pub mod dir;
pub mod dir_index;
pub mod extent;
pub mod inode;
pub mod inode_pages;
pub mod symlink;
pub mod xattr;
