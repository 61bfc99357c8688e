//! The inode cache: radix trees keyed by inode number, one per shard (BY-9).
//!
//! Inodes whose numbers are neighbours share a shard, since mostly one task made them and works with them: what a processor locks and counts then stays in its
//! own cache, as long as no other works with the same files.
//!
//! An inode leaves the cache only under its shard's lock and only when nobody else holds it; each departure counts up the shard's
//! generation, so that a loader whose bytes may predate a departed inode's last update notices and loads again.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use amphi_radix::Radix;
use amphi_rt::sync::{Padded, RwLock};

use crate::inode::Inode;

const SHARDS: usize = 64;
/// Consecutive inodes in one shard: as many as a leaf of its tree has.
const NEIGHBOURS: u32 = 64;

#[derive(Default)]
struct Shard {
    inodes: RwLock<Radix<Arc<Inode>>>,
    /// How many there are. Changes with the lock held for writing.
    len: AtomicUsize,
    departures: AtomicU64,
}

/// The cache.
pub struct InodeCache {
    shards: Box<[Padded<Shard>]>,
}

impl Default for InodeCache {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Padded::default()).collect() }
    }
}

/// What a loader remembers from before it read the device.
#[derive(Clone, Copy)]
pub struct Departures(u64);

/// The shard of an inode, and its key there. Runs of inodes as far apart as the processors' areas lie in different shards, also while tasks go through
/// theirs at one pace.
const fn shard_and_key(ino: u32) -> (usize, u64) {
    let (run, within) = (ino / NEIGHBOURS, ino % NEIGHBOURS);
    let (round, turn) = (run / SHARDS as u32, run % SHARDS as u32);
    let shift = round.wrapping_mul(0x9E37_79B1) >> (u32::BITS - SHARDS.ilog2());
    ((turn ^ shift) as usize, (round * NEIGHBOURS + within) as u64)
}

impl InodeCache {
    fn place(&self, ino: u32) -> (&Shard, u64) {
        let (number, key) = shard_and_key(ino);
        (&self.shards[number], key)
    }

    /// The cached inode.
    pub fn get(&self, ino: u32) -> Option<Arc<Inode>> {
        let (shard, key) = self.place(ino);
        shard.inodes.read().get(key).map(Arc::clone)
    }

    /// None unless `wanted`; then the cached inode, if it is. The inode's first line is on its way from memory while `wanted` finds out, and what that looks at
    /// too: a locked instruction in between, such as the one that counts a reference, would wait for either.
    pub fn get_if(&self, ino: u32, wanted: impl FnOnce() -> bool) -> Option<Option<Arc<Inode>>> {
        let (shard, key) = self.place(ino);
        let inodes = shard.inodes.read();
        let inode = inodes.get(key);
        if let Some(inode) = inode {
            std::hint::black_box(inode.lookups.load(Ordering::Relaxed));
        }
        wanted().then(|| inode.map(Arc::clone))
    }

    /// To be called before reading an inode from the device.
    pub fn departures(&self, ino: u32) -> Departures {
        Departures(self.place(ino).0.departures.load(Ordering::Acquire))
    }

    /// Caches a loaded inode, unless somebody was faster: then theirs is returned. `None` asks to load again.
    pub fn insert_loaded(&self, inode: Inode, before: Departures) -> Option<Arc<Inode>> {
        let (shard, key) = self.place(inode.ino);
        let mut inodes = shard.inodes.write();
        if let Some(theirs) = inodes.get(key) {
            return Some(Arc::clone(theirs));
        }
        if shard.departures.load(Ordering::Acquire) != before.0 {
            return None;
        }
        let inode = Arc::new(inode);
        inodes.insert(key, Arc::clone(&inode));
        shard.len.store(inodes.len(), Ordering::Relaxed);
        Some(inode)
    }

    /// Caches an inode that was just made, in place of whatever had the number before.
    pub fn insert_new(&self, inode: Inode) -> Arc<Inode> {
        let (shard, key) = self.place(inode.ino);
        let inode = Arc::new(inode);
        let mut inodes = shard.inodes.write();
        inodes.insert(key, Arc::clone(&inode));
        shard.len.store(inodes.len(), Ordering::Relaxed);
        inode
    }

    /// Forgets an inode that was deleted.
    pub fn remove(&self, ino: u32) {
        let (shard, key) = self.place(ino);
        let mut inodes = shard.inodes.write();
        inodes.remove(key);
        shard.len.store(inodes.len(), Ordering::Relaxed);
        shard.departures.fetch_add(1, Ordering::AcqRel);
    }

    /// Inodes cached. Looks at every shard.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len.load(Ordering::Relaxed)).sum()
    }

    /// Calls `visit` with the cached inodes, those of shard `start` first, once round or until it breaks; without holding a lock of the cache meanwhile. Returns the shard to
    /// go on with.
    pub fn visit(&self, start: usize, mut visit: impl FnMut(&Arc<Inode>) -> ControlFlow<()>) -> usize {
        for offset in 0..SHARDS {
            let number = (start + offset) % SHARDS;
            let shard = &self.shards[number];
            let mut from = 0;
            loop {
                let next = shard.inodes.read().next(from).map(|(key, inode)| (key, Arc::clone(inode)));
                let Some((key, inode)) = next else { break };
                if visit(&inode).is_break() {
                    return number;
                }
                from = key + 1;
            }
        }
        start
    }

    /// Drops inodes that nobody refers to and for which `clean` holds, in up to `shards` shards starting at `start`. Returns the number dropped.
    pub fn evict(&self, start: usize, shards: usize, mut clean: impl FnMut(&Inode) -> bool) -> usize {
        let mut dropped = 0;
        for shard in self.shards.iter().cycle().skip(start % SHARDS).take(shards.min(SHARDS)) {
            let mut inodes = shard.inodes.write();
            let before = inodes.len();
            inodes.retain(|_, inode| Arc::strong_count(inode) > 1 || inode.referenced() || !clean(inode));
            let gone = before - inodes.len();
            if gone > 0 {
                shard.departures.fetch_add(1, Ordering::AcqRel);
                shard.len.store(inodes.len(), Ordering::Relaxed);
                dropped += gone;
            }
        }
        dropped
    }
}
