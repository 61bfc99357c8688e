//! The inode cache: radix trees keyed by inode number, one per shard.
//!
//! Inodes whose numbers are neighbours share a shard, since mostly one task made them and works with them:
//! what a processor locks and counts then stays in its own cache, as long as no other works with the same
//! files.
//!
//! An inode leaves the cache only under its shard's lock and only when nobody else holds it; each departure
//! counts up the shard's generation, so that a loader whose bytes may predate a departed inode's last update
//! notices and loads again.
//!
//! An inode that has a name may leave while callers refer to it by lookup: the shard keeps their count, and
//! whoever loads the inode again takes it along. As long as the count is there nobody else gets the number,
//! since whoever takes the last name away loads the inode first. So what a kernel remembers of files that it
//! does not use costs eight bytes each, and not an inode.

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use amphi_radix::Radix;
use amphi_rt::sync::{Padded, RwLock};
use amphi_vfs::Ino;

use crate::inode::{Inode, Part};

const SHARDS: usize = 64;
/// Consecutive inodes in one shard: as many as a leaf of its tree has.
const NEIGHBOURS: u64 = 64;

struct Shard<P: Part> {
    known: RwLock<Known<P>>,
    /// How many there are. Changes with the lock held for writing.
    len: AtomicUsize,
    departures: AtomicU64,
}

/// What a shard's lock protects. No number is in both.
struct Known<P: Part> {
    inodes: Radix<Arc<Inode<P>>>,
    /// References by lookup to inodes that are not in memory.
    away: Radix<NonZeroU64>,
}

impl<P: Part> Default for Known<P> {
    fn default() -> Self {
        Self { inodes: Radix::default(), away: Radix::default() }
    }
}

/// The cache.
pub struct InodeCache<P: Part> {
    shards: Box<[Padded<Shard<P>>]>,
}

impl<P: Part> Default for InodeCache<P> {
    fn default() -> Self {
        let shard = |_| {
            Padded(Shard {
                known: RwLock::default(),
                len: AtomicUsize::new(0),
                departures: AtomicU64::new(0),
            })
        };
        Self { shards: (0..SHARDS).map(shard).collect() }
    }
}

/// What a loader remembers from before it read the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Departures(u64);

/// The shard of an inode, and its key there. Runs of inodes as far apart as the processors' areas lie in
/// different shards, also while tasks go through theirs at one pace.
const fn shard_and_key(ino: Ino) -> (usize, u64) {
    let (run, within) = (ino.0 / NEIGHBOURS, ino.0 % NEIGHBOURS);
    let (round, turn) = (run / SHARDS as u64, run % SHARDS as u64);
    let shift = (round as u32).wrapping_mul(0x9E37_79B1) >> (u32::BITS - SHARDS.ilog2());
    ((turn ^ shift as u64) as usize, round * NEIGHBOURS + within)
}

/// Keeps the references by lookup of an inode that leaves.
fn note_lookups<P: Part>(away: &mut Radix<NonZeroU64>, key: u64, inode: &Inode<P>) {
    if let Some(lookups) = NonZeroU64::new(inode.lookups.load(Ordering::Acquire)) {
        away.insert(key, lookups);
    }
}

impl<P: Part> InodeCache<P> {
    fn place(&self, ino: Ino) -> (&Shard<P>, u64) {
        let (number, key) = shard_and_key(ino);
        (&self.shards[number], key)
    }

    /// The cached inode.
    pub fn get(&self, ino: Ino) -> Option<Arc<Inode<P>>> {
        let (shard, key) = self.place(ino);
        let known = shard.known.read();
        known.inodes.get(key).map(|inode| {
            inode.note_use();
            Arc::clone(inode)
        })
    }

    /// None unless `wanted`; then the cached inode, if it is. The inode's first line is on its way from
    /// memory while `wanted` finds out, and what that looks at too: a locked instruction in between, such as
    /// the one that counts a reference, would wait for either.
    pub fn get_if(&self, ino: Ino, wanted: impl FnOnce() -> bool) -> Option<Option<Arc<Inode<P>>>> {
        let (shard, key) = self.place(ino);
        let known = shard.known.read();
        let inode = known.inodes.get(key);
        if let Some(inode) = inode {
            inode.note_use();
        }
        wanted().then(|| inode.map(Arc::clone))
    }

    /// To be called before reading an inode from the device.
    pub fn departures(&self, ino: Ino) -> Departures {
        Departures(self.place(ino).0.departures.load(Ordering::Acquire))
    }

    /// Caches a loaded inode, unless somebody was faster: then theirs is returned. `None` asks to load again.
    pub fn insert_loaded(&self, inode: Inode<P>, before: Departures) -> Option<Arc<Inode<P>>> {
        let (shard, key) = self.place(inode.ino);
        let mut known = shard.known.write();
        if let Some(theirs) = known.inodes.get(key) {
            return Some(Arc::clone(theirs));
        }
        if shard.departures.load(Ordering::Acquire) != before.0 {
            return None;
        }
        let lookups = known.away.remove(key).map_or(0, NonZeroU64::get);
        inode.lookups.store(lookups, Ordering::Relaxed);
        let inode = Arc::new(inode);
        known.inodes.insert(key, Arc::clone(&inode));
        shard.len.store(known.inodes.len(), Ordering::Relaxed);
        Some(inode)
    }

    /// Caches an inode that was just made, in place of whatever had the number before.
    pub fn insert_new(&self, inode: Inode<P>) -> Arc<Inode<P>> {
        let (shard, key) = self.place(inode.ino);
        let inode = Arc::new(inode);
        let mut known = shard.known.write();
        debug_assert!(known.away.get(key).is_none(), "a number that is referred to is not given again");
        known.inodes.insert(key, Arc::clone(&inode));
        shard.len.store(known.inodes.len(), Ordering::Relaxed);
        inode
    }

    /// Forgets an inode that was deleted, unless its number has another already.
    pub fn remove(&self, inode: &Inode<P>) {
        let (shard, key) = self.place(inode.ino);
        let mut known = shard.known.write();
        if !known.inodes.get(key).is_some_and(|cached| std::ptr::eq(&**cached, inode)) {
            return;
        }
        known.inodes.remove(key);
        shard.len.store(known.inodes.len(), Ordering::Relaxed);
        shard.departures.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes `count` references by lookup off an inode that is not in memory; returns it if it is.
    pub(crate) fn forget_away(&self, ino: Ino, count: u64) -> Option<Arc<Inode<P>>> {
        let (shard, key) = self.place(ino);
        let mut known = shard.known.write();
        if let Some(inode) = known.inodes.get(key) {
            return Some(Arc::clone(inode));
        }
        let lookups = known.away.remove(key).map_or(0, NonZeroU64::get);
        if let Some(left) = NonZeroU64::new(lookups.saturating_sub(count)) {
            known.away.insert(key, left);
        }
        None
    }

    /// Inodes cached. Looks at every shard.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len.load(Ordering::Relaxed)).sum()
    }

    /// Whether none is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `visit` with the cached inodes, those of shard `start` first, once round or until it breaks;
    /// without holding a lock of the cache meanwhile. Returns the shard to go on with.
    pub fn visit(&self, start: usize, mut visit: impl FnMut(&Arc<Inode<P>>) -> ControlFlow<()>) -> usize {
        for offset in 0..SHARDS {
            let number = (start + offset) % SHARDS;
            let shard = &self.shards[number];
            let mut from = 0;
            loop {
                let next = shard.known.read().inodes.next(from).map(|(key, inode)| (key, Arc::clone(inode)));
                let Some((key, inode)) = next else { break };
                if visit(&inode).is_break() {
                    return number;
                }
                from = key + 1;
            }
        }
        start
    }

    /// Drops one inode that nobody has open and for which `clean` holds, also if it was used just now. It
    /// must have a name if it is referred to by lookup.
    pub fn leave(&self, ino: Ino, clean: impl FnOnce(&Inode<P>) -> bool) {
        let (shard, key) = self.place(ino);
        let mut known = shard.known.write();
        let Known { inodes, away } = &mut *known;
        let Some(inode) = inodes.get(key) else { return };
        if Arc::strong_count(inode) > 1 || inode.is_open() || !clean(inode) {
            return;
        }
        note_lookups(away, key, inode);
        inodes.remove(key);
        shard.departures.fetch_add(1, Ordering::AcqRel);
        shard.len.store(inodes.len(), Ordering::Relaxed);
    }

    /// Drops inodes that nobody has open or has used since the last time, and for which `clean` holds, in up
    /// to `shards` shards starting at `start`. Inodes that are referred to by lookup must have names.
    pub fn evict(&self, start: usize, shards: usize, mut clean: impl FnMut(&Inode<P>) -> bool) {
        for shard in self.shards.iter().cycle().skip(start % SHARDS).take(shards.min(SHARDS)) {
            let mut known = shard.known.write();
            let Known { inodes, away } = &mut *known;
            let before = inodes.len();
            inodes.retain(|key, inode| {
                if Arc::strong_count(inode) > 1 || inode.is_open() || inode.take_use() || !clean(inode) {
                    return true;
                }
                note_lookups(away, key, inode);
                false
            });
            if inodes.len() < before {
                shard.departures.fetch_add(1, Ordering::AcqRel);
                shard.len.store(inodes.len(), Ordering::Relaxed);
            }
        }
    }
}
