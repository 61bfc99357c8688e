//! Blocks of tables in host memory, read and taken apart: a name or an inode is one search in one of them.
//!
//! The cache is a crate's (S3-FIFO); its parts and their hash are fixed, so that what is dropped is the same
//! in each run of one seed. Tables never change, and a number is never given to another, so nothing here is
//! stale.

use std::sync::Arc;

use amphi_rt::hash::State;
use amphi_rt::sync::Mutex;
use quick_cache::{Weighter, unsync};

use crate::entry::Entry;

/// Parts with a lock of their own.
const PARTS: usize = 16;
/// Bytes that a block takes, about: how many blocks a part is made for.
const BLOCK_BYTES: u64 = 8192;

/// A block: its table's number, and its own.
type Key = (u64, usize);
/// The entries of a block, in order.
pub type Block = Arc<[Entry]>;

/// How much a block weighs, in bytes.
#[derive(Clone, Debug)]
struct Bytes;

impl Weighter<Key, Block> for Bytes {
    fn weight(&self, _: &Key, block: &Block) -> u64 {
        let bytes =
            |entry: &Entry| size_of::<Entry>() + entry.key.len() + entry.value.as_ref().map_or(0, Vec::len);
        64 + block.iter().map(bytes).sum::<usize>() as u64
    }
}

type Part = unsync::Cache<Key, Block, Bytes, State>;

/// The cache.
pub struct BlockCache {
    parts: Box<[Mutex<Part>]>,
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").finish_non_exhaustive()
    }
}

impl BlockCache {
    /// Of so many bytes in all.
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes / PARTS as u64;
        let part = || {
            let blocks = (bytes / BLOCK_BYTES).max(1) as usize;
            Mutex::new(Part::with(blocks, bytes, Bytes, State::default(), Default::default()))
        };
        Self { parts: (0..PARTS).map(|_| part()).collect() }
    }

    fn part(&self, (table, block): Key) -> &Mutex<Part> {
        &self.parts[(table as usize).wrapping_mul(31).wrapping_add(block) % PARTS]
    }

    /// A block, if it is here.
    pub fn get(&self, key: Key) -> Option<Block> {
        self.part(key).lock().get(&key).map(Arc::clone)
    }

    /// Keeps a block.
    pub fn put(&self, key: Key, block: &Block) {
        self.part(key).lock().insert(key, Arc::clone(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        let entry = |number: u64| Entry {
            key: format!("{text}{number}").into_bytes(),
            seq: number,
            value: Some(vec![0; 100]),
        };
        (0..20).map(entry).collect()
    }

    #[test]
    fn a_block_is_found_under_its_table_and_number_alone() {
        let cache = BlockCache::new(1 << 20);
        cache.put((1, 2), &block("a"));
        assert_eq!(cache.get((1, 2)).unwrap()[3].key, b"a3");
        assert!(cache.get((2, 1)).is_none() && cache.get((1, 3)).is_none());
    }

    #[test]
    fn it_takes_no_more_than_it_may() {
        let cache = BlockCache::new(256 << 10);
        (0..1000).for_each(|number| cache.put((number, 0), &block("b")));
        let weight: u64 = cache.parts.iter().map(|part| part.lock().weight()).sum();
        assert!((64 << 10..=256 << 10).contains(&weight), "{weight}");
        // A cache of nothing keeps nothing.
        let none = BlockCache::new(0);
        none.put((1, 1), &block("c"));
        assert!(none.get((1, 1)).is_none());
    }
}
