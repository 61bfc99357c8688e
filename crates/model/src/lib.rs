//! The oracle: a file system in memory, small enough to be seen to be right.
//!
//! One lock over ordered maps, no cache, no device, no cleverness. Tests apply the same operations to a
//! [`Model`] and to a real file system and compare every answer; the FUSE front end is developed on it.
//! Nothing survives the process.
#![forbid(unsafe_code)]

mod bytes;
mod changes;
mod inode;
mod limits;
mod names;
mod ops;
mod tree;

use amphi_rt::sync::Mutex;
use amphi_vfs::AccessTimes;
pub use limits::Limits;
use tree::Tree;

/// The in-memory reference file system.
#[derive(Debug)]
pub struct Model {
    tree: Mutex<Tree>,
}

impl Model {
    /// An empty file system whose root belongs to the superuser, with mode `0755`.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// An empty file system that runs full at `limits`.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { tree: Mutex::new(Tree::new(limits)) }
    }

    /// Refuses every change from now on (or no more), as a mount that turned read-only does.
    pub fn set_read_only(&self, read_only: bool) {
        self.tree.lock().read_only = read_only;
    }

    /// Says when reading moves access times from now on.
    pub fn set_access_times(&self, policy: AccessTimes) {
        self.tree.lock().access_times = policy;
    }

    /// Forgets all references and frees the inodes that only they kept: what an unmount leaves.
    pub fn drop_references(&self) {
        self.tree.lock().drop_references();
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Model {
    /// A copy that shares nothing with the original: the tree as it is at this moment.
    fn clone(&self) -> Self {
        Self { tree: Mutex::new(self.tree.lock().clone()) }
    }
}
