//! A mounted file system: what it is below names, and its names.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use amphi_device::BlockPort;
use amphi_names::{Health, Names, Options};
use amphi_page_cache::{Background, Budget, DirtyFiles, Limits};
use amphi_rt::sync::Mutex;
use amphi_vfs::{Ino, Result};

use crate::base::Base;
use crate::format::{Layout, Superblock};
use crate::index::part::{Inode, Part};
use crate::journal::Journal;
use crate::journal::buffers::Buffers;
use crate::options::MountOptions;
use crate::space::groups::Groups;
use crate::space::list::Orphans;

/// Inodes that are read at a time, at the most.
pub const LOADERS: usize = 16;

/// The heart of a mounted file system.
///
/// Lock order: that of names → a handle → (group, orphans, buffers). Whoever has a handle waits for no inode:
/// a commit waits for handles, and those who wait for a handle hold inodes.
pub struct Core<D: BlockPort> {
    base: Base<D>,
    /// Inodes in memory, the clock, and the state of health.
    pub names: Names<Part>,
    /// Who reads an inode, by its number: others that want it wait, as iget_locked() has it, and find its
    /// blocks cached.
    pub loading: [Mutex<()>; LOADERS],
    /// What the tasks in the background wait at.
    pub background: Background,
    /// Where the next search for clean pages begins.
    pub hand: AtomicUsize,
}

impl<D: BlockPort> Deref for Core<D> {
    type Target = Base<D>;

    #[inline]
    fn deref(&self) -> &Base<D> {
        &self.base
    }
}

impl<D: BlockPort> Core<D> {
    /// Puts the parts together.
    pub fn new(
        device: Arc<D>,
        superblock: Superblock,
        options: MountOptions,
        groups: Groups,
        journal: Journal,
    ) -> Self {
        let of_names = Options {
            read_only: options.read_only,
            access_times: options.access_times,
            cached_inodes: options.inode_cache,
            tick_ns: options.tick_ns,
        };
        let health = Arc::new(Health::new(options.read_only));
        let names = Names::with_health(of_names, Arc::clone(&health));
        let limit = options.page_cache_pages;
        let limits = Limits {
            frames: limit,
            drop_to: limit - limit / 64,
            enough: limit,
            dirty: options.dirty_limit(),
        };
        let base = Base {
            device,
            superblock,
            layout: Layout::of(&superblock),
            buffers: Buffers::new(options.buffer_blocks),
            journal,
            groups,
            orphans: Orphans::default(),
            pages: Budget::new(limits),
            dirty: DirtyFiles::default(),
            options,
            health,
        };
        Self {
            base,
            names,
            loading: Default::default(),
            background: Background::default(),
            hand: AtomicUsize::new(0),
        }
    }

    /// The inode, from the cache or the device.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Stale`] if no inode has the number; [`amphi_vfs::Error::Corrupt`],
    /// [`amphi_vfs::Error::Io`].
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        amphi_names::inode(self, ino)
    }
}
