//! What is kept for a store here: cached inodes, the lock of renames, the clock, the state of health; and
//! finding, keeping and dropping inodes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::AccessTimes;

use crate::cache::InodeCache;
use crate::clock::Clock;
use crate::health::Health;
use crate::inode::Part;

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
pub struct Names<P: Part> {
    /// Inodes in memory.
    pub cache: InodeCache<P>,
    /// Whether the store may be changed.
    pub health: Arc<Health>,
    /// What time stamps are taken from.
    pub clock: Clock,
    pub(crate) options: Options,
    /// Serialises renames between directories, so that ancestry stands still.
    pub(crate) rename: Padded<Mutex<()>>,
    /// Shard of the cache to look at next.
    pub(crate) sweep: Padded<AtomicUsize>,
}

impl<P: Part> Names<P> {
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
