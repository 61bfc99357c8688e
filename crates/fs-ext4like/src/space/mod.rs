//! Which blocks and inodes are taken, and which inodes are used without a name.

pub mod allocator;
pub mod bits;
pub mod groups;
pub mod list;
pub mod orphans;
