//! What is kept for a store here: cached inodes, the lock of renames, the clock, the state of health; and
//! finding, keeping and dropping inodes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::{AccessTimes, Ino, Result};
use smallvec::SmallVec;

use crate::cache::InodeCache;
use crate::clock::Clock;
use crate::health::Health;
use crate::inode::{Inode, State};
use crate::store::{Change, Changed, Need, Store};

/// Access times written by one change.
const ATIMES_PER_CHANGE: usize = 32;
/// One in so many inodes that come into memory makes its bringer look at how many are cached.
const INODES_PER_LOOK: u64 = 16;
/// Shards of the cache that inodes leave at a time.
const SHARDS_PER_LOOK: usize = 4;

/// How names behave in one mount.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Nothing is changed.
    pub read_only: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
    /// Cached inodes beyond which those leave that nobody has open and that have not been used for a while.
    pub cached_inodes: usize,
    /// Time stamps are multiples of this, ns.
    pub tick_ns: i64,
}

/// What is kept for a store.
pub struct Names<S: Store> {
    /// Inodes in memory.
    pub cache: InodeCache<S>,
    /// Whether the store may be changed.
    pub health: Arc<Health>,
    /// What time stamps are taken from.
    pub clock: Clock,
    options: Options,
    /// Serialises renames between directories, so that ancestry stands still.
    pub(crate) rename: Padded<Mutex<()>>,
    /// Shard of the cache to look at next.
    sweep: Padded<AtomicUsize>,
}

impl<S: Store> Names<S> {
    /// For a store that is being mounted.
    pub fn new(options: Options) -> Self {
        Self::with_health(options, Arc::new(Health::new(options.read_only)))
    }

    /// As [`new`](Self::new), with the state of health that parts of the store below names look at too.
    pub fn with_health(options: Options, health: Arc<Health>) -> Self {
        Self {
            cache: InodeCache::default(),
            health,
            clock: Clock::new(options.tick_ns),
            options,
            rename: Padded(Mutex::new(())),
            sweep: Padded::default(),
        }
    }

    /// When reading moves access times.
    pub const fn access_times(&self) -> AccessTimes {
        self.options.access_times
    }
}

/// The inode, from the cache or the device.
///
/// # Errors
/// [`amphi_vfs::Error::Stale`] if no inode has the number; [`amphi_vfs::Error::Corrupt`],
/// [`amphi_vfs::Error::Io`].
#[inline]
pub fn inode<S: Store>(store: &S, ino: Ino) -> Result<Arc<Inode<S>>> {
    match store.names().cache.get(ino) {
        Some(inode) => Ok(inode),
        None => load(store, ino),
    }
}

fn load<S: Store>(store: &S, ino: Ino) -> Result<Arc<Inode<S>>> {
    let cache = &store.names().cache;
    loop {
        let before = cache.departures(ino);
        let loaded = store.load(ino);
        if let Ok(inode) = loaded {
            if let Some(inode) = cache.insert_loaded(inode, before) {
                shrink(store, ino);
                return Ok(inode);
            }
        } else if cache.get(ino).is_none() && cache.departures(ino) == before {
            return loaded.map(Arc::new);
        }
        // Somebody has had it meanwhile, and may have freed what was read.
        if let Some(inode) = cache.get(ino) {
            return Ok(inode);
        }
    }
}

/// Keeps the inode cache near its limit, now that inode `ino` has come. Who looks is decided by the number:
/// processors that make inodes would share a count.
pub(crate) fn shrink<S: Store>(store: &S, ino: Ino) {
    let Names { cache, sweep, options, .. } = store.names();
    let lot = ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    if !lot.is_multiple_of(INODES_PER_LOOK) || cache.len() <= options.cached_inodes {
        return;
    }
    let start = sweep.fetch_add(SHARDS_PER_LOOK, Ordering::Relaxed);
    let mut lately_read = Vec::new();
    cache.evict(start, SHARDS_PER_LOOK, |inode| {
        let Some(mut state) = inode.state.try_write() else { return false };
        if state.nlink == 0 || state.orphan || !store.may_leave(inode, &mut state) {
            return false;
        }
        if state.atime_dirty {
            lately_read.push(inode.ino);
        }
        !state.atime_dirty
    });
    // They leave the next time round; if the device fails, that is noticed by whoever changes something.
    let lately_read: Vec<_> = lately_read.into_iter().filter_map(|ino| cache.get(ino)).collect();
    let _reported_by_the_next_operation = write_atimes(store, &lately_read);
}

/// Whether reading what has this state moves its access time.
#[inline]
pub fn read_moves_atime<S: Store>(store: &S, state: &State<S>) -> bool {
    let names = store.names();
    let now = match names.options.access_times {
        AccessTimes::Strict => names.clock.now(),
        _ => names.clock.recent(),
    };
    names.options.access_times.moves(state.atime, state.mtime, state.ctime, now)
        && names.health.writable().is_ok()
}

/// Moves the access time: in memory, if the store has it travel with the inode's next change or when the
/// inode leaves the cache. Whoever reads does not fail by it.
pub fn move_atime<S: Store>(store: &S, inode: &Inode<S>, state: &mut State<S>) {
    state.atime = store.names().clock.now();
    state.atime_dirty = true;
    if !S::LAZY_TIMES
        && let Ok(mut change) = store.begin(&Need::NOTHING)
    {
        let written = change.write_inode(inode, state, Changed::Times).and_then(|()| change.commit());
        let _reported_by_the_next_operation = written;
    }
}

/// As [`move_atime`], of an inode that is not locked. One that others use just now has been read and is read
/// again.
pub fn note_read<S: Store>(store: &S, inode: &Inode<S>) {
    let mut state = inode.state.write();
    if !state.gone && read_moves_atime(store, &state) {
        move_atime(store, inode, &mut state);
    }
}

/// Brings access times that are in memory only to the device.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn write_atimes<S: Store>(store: &S, inodes: &[Arc<Inode<S>>]) -> Result<()> {
    for some in inodes.chunks(ATIMES_PER_CHANGE) {
        // Inodes in use keep theirs until the next time.
        let mut locked: SmallVec<[_; ATIMES_PER_CHANGE]> =
            some.iter().filter_map(|inode| Some((inode, inode.state.try_write()?))).collect();
        locked.retain(|(_, state)| state.atime_dirty && !state.gone);
        let mut change = store.begin(&Need::NOTHING)?;
        for (inode, state) in &mut locked {
            change.write_inode(inode, state, Changed::Times)?;
        }
        change.commit()?;
    }
    Ok(())
}

/// Brings all access times that are in memory only to the device.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn write_all_atimes<S: Store>(store: &S) -> Result<()> {
    let mut lately_read = Vec::new();
    store.names().cache.visit(0, |inode| {
        if inode.state.read().atime_dirty {
            lately_read.push(Arc::clone(inode));
        }
        ControlFlow::Continue(())
    });
    write_atimes(store, &lately_read)
}
