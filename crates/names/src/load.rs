//! How inodes come into memory, and leave it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_vfs::{Ino, Result};

use crate::atime::write_atimes;
use crate::inode::Inode;
use crate::names::Names;
use crate::store::Store;

/// One in so many inodes that come into memory makes its bringer look at how many are cached.
const INODES_PER_LOOK: u64 = 16;
/// Shards of the cache that inodes leave at a time.
const SHARDS_PER_LOOK: usize = 4;

/// The inode, from the cache or the device.
///
/// # Errors
/// [`amphi_vfs::Error::Stale`] if no inode has the number; [`amphi_vfs::Error::Corrupt`],
/// [`amphi_vfs::Error::Io`].
#[inline]
pub fn inode<S: Store>(store: &S, ino: Ino) -> Result<Arc<Inode<S::Part>>> {
    match store.names().cache.get(ino) {
        Some(inode) => Ok(inode),
        None => load(store, ino),
    }
}

fn load<S: Store>(store: &S, ino: Ino) -> Result<Arc<Inode<S::Part>>> {
    let Names { cache, health, .. } = store.names();
    health.known(ino)?;
    loop {
        let before = cache.departures(ino);
        let loaded = store.load(ino);
        if let Ok(inode) = loaded {
            if let Some(inode) = cache.insert_loaded(inode, before) {
                shrink(store, ino);
                return Ok(inode);
            }
        } else if cache.get(ino).is_none() && cache.departures(ino) == before {
            return health.explain(loaded.map(Arc::new));
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
