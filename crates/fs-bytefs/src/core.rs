//! A mounted ByteFS: what it is below names, and its names.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use amphi_device::{BlockPort, WriteLog};
use amphi_names::Names;
use amphi_page_cache::{Background, DirtyFiles};
use amphi_vfs::{Ino, Result};

use crate::base::Base;
use crate::index::inode::{Inode, Part};

/// The heart of a mounted file system.
///
/// Lock order: what `amphi_names` locks → (bitmap groups and orphan lines, inside a commit).
pub struct Core<D: BlockPort + WriteLog> {
    base: Base<D>,
    /// What operations on names need: inodes, the clock, the state of health.
    pub names: Names<Part>,
    /// Files with writes to come.
    pub dirty: DirtyFiles,
    /// What their write-back in the background waits at.
    pub background: Background,
    /// Where the next round for clean pages starts.
    pub hand: AtomicUsize,
}

impl<D: BlockPort + WriteLog> Deref for Core<D> {
    type Target = Base<D>;

    #[inline]
    fn deref(&self) -> &Base<D> {
        &self.base
    }
}

impl<D: BlockPort + WriteLog> Core<D> {
    /// With names that nobody has looked up yet.
    pub fn new(base: Base<D>) -> Self {
        let of_names = amphi_names::Options {
            read_only: base.options.read_only,
            access_times: base.options.access_times,
            cached_inodes: base.options.inode_cache,
            tick_ns: 1,
        };
        let names = Names::with_health(of_names, Arc::clone(&base.health));
        let (dirty, background) = (DirtyFiles::default(), Background::default());
        Self { base, names, dirty, background, hand: AtomicUsize::new(0) }
    }

    /// The inode, from the cache or the device.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Stale`] if no inode has the number; [`amphi_vfs::Error::Corrupt`],
    /// [`amphi_vfs::Error::Io`].
    #[inline]
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        amphi_names::inode(self, ino)
    }
}
