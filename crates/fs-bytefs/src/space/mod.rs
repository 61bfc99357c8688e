//! Which blocks, inodes and orphan slots are taken (BY-11).

pub mod areas;
pub mod bitmap;
pub mod discard;
pub mod group_bits;
pub mod orphans;
