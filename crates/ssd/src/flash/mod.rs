//! NAND flash and the translation layer above it: erase blocks, page mapping, garbage collection.

mod blocks;
mod collect;
mod mapping;
mod volatile;

pub(crate) use blocks::{Blocks, Stream};
pub(crate) use volatile::VolatileCache;
