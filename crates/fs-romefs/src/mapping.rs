//! What an inode has of its slots: the first ones, and the root of the tree that `map.rs` keeps.

use crate::format::{DEPTH_MAX, INLINE_SLOTS, Layout, Slot};

/// What the inode has of its slots.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mapping {
    /// The first slots.
    pub slots: [Slot; INLINE_SLOTS as usize],
    /// The highest page, one higher.
    pub root: u32,
    /// Levels of pages.
    pub depth: u8,
}

impl Mapping {
    /// Whether it can be.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self, layout: &Layout) -> Result<(), ()> {
        let rooted = (self.root == 0) == (self.depth == 0);
        let sound = rooted && self.depth <= DEPTH_MAX && u64::from(self.root) <= layout.plan.pages;
        if sound { Ok(()) } else { Err(()) }
    }
}
