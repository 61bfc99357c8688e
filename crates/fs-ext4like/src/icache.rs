//! The inode cache.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_device::BlockPort;
use amphi_rt::hash::HashMap;
use amphi_rt::sync::Mutex;
use amphi_vfs::Result;

use crate::core::Core;
use crate::inode::{Body, Inode};

const SHARDS: usize = 16;

/// The inodes in use, by number. A shard is locked while one of its inodes is read.
#[derive(Default)]
pub struct InodeCache {
    shards: [Mutex<HashMap<u32, Arc<Inode>>>; SHARDS],
    /// Inodes in all shards: every operation asks, and must wait for no shard to be told.
    len: AtomicUsize,
}

impl InodeCache {
    fn shard(&self, ino: u32) -> &Mutex<HashMap<u32, Arc<Inode>>> {
        &self.shards[ino as usize % SHARDS]
    }

    /// The inode, from the cache or from `load`.
    ///
    /// # Errors
    /// What `load` says.
    pub fn get_or_load(&self, ino: u32, load: impl FnOnce() -> Result<Arc<Inode>>) -> Result<Arc<Inode>> {
        let mut shard = self.shard(ino).lock();
        if let Some(inode) = shard.get(&ino) {
            return Ok(Arc::clone(inode));
        }
        let inode = load()?;
        shard.insert(ino, Arc::clone(&inode));
        self.len.fetch_add(1, Ordering::Relaxed);
        Ok(inode)
    }

    /// Adds an inode that was just made.
    pub fn insert(&self, inode: &Arc<Inode>) {
        if self.shard(inode.ino).lock().insert(inode.ino, Arc::clone(inode)).is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops an inode that was deleted, unless its number has a new one already.
    pub fn remove(&self, inode: &Inode) {
        let mut shard = self.shard(inode.ino).lock();
        if shard.get(&inode.ino).is_some_and(|cached| std::ptr::eq(&**cached, inode)) {
            shard.remove(&inode.ino);
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Inodes cached.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Calls `visit` with the inodes, shard by shard from `start` on, until it breaks.
    pub fn visit(&self, start: usize, mut visit: impl FnMut(&Arc<Inode>) -> ControlFlow<()>) {
        for offset in 0..SHARDS {
            let all: Vec<_> = self.shards[(start + offset) % SHARDS].lock().values().cloned().collect();
            if all.iter().try_for_each(&mut visit).is_break() {
                return;
            }
        }
    }

    /// Drops inodes of one shard that `dispensable` accepts. Nobody else holds those that it is asked about, or gets hold of them meanwhile.
    fn evict(&self, shard: usize, mut dispensable: impl FnMut(&Inode) -> bool) {
        let mut inodes = self.shards[shard % SHARDS].lock();
        let before = inodes.len();
        inodes.retain(|_, inode| Arc::strong_count(inode) > 1 || inode.referenced() || !dispensable(inode));
        self.len.fetch_sub(before - inodes.len(), Ordering::Relaxed);
    }
}

impl<D: BlockPort> Core<D> {
    /// Keeps the inode cache near its limit.
    pub fn shrink_inodes(&self) {
        if self.icache.len() <= self.options.inode_cache {
            return;
        }
        let shard = self.sweep.fetch_add(1, Ordering::Relaxed);
        self.icache.evict(shard, |inode| {
            let Some(mut state) = inode.state.try_write() else { return false };
            if state.orphan || state.unnamed {
                return false;
            }
            if let Body::File(file) = &mut state.body {
                if !file.is_clean() {
                    return false;
                }
                file.drop_clean(&self.pages, usize::MAX, true);
            }
            true
        });
    }
}
