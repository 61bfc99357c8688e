//! Free blocks and inodes: what is known of bitmaps and descriptors, by group, as on ext4, and what is
//! reserved. `allocator.rs` says who gets what.
//!
//! A block that is freed stays busy in memory until the transaction that freed it has committed: until then a
//! crash may bring back the file that had it. Space is reserved before it is allocated, so that what has
//! begun does not run out of it; a fiftieth part is held back for extent blocks.

use std::sync::Arc;

use amphi_rt::sync::Mutex;

use crate::format::{GROUP_BLOCKS, GroupDescriptor, Layout};
use crate::journal::buffers::SharedBlock;
use crate::space::bits;

/// Most blocks held back for extent blocks, as ext4 has it.
const HELD_BACK_MAX: u64 = 4096;

/// What is known of one group.
pub(super) struct Group {
    pub descriptor: GroupDescriptor,
    /// Blocks in use or freed by a transaction that has not committed, once the bitmap was read.
    pub busy: Option<SharedBlock>,
    /// Blocks that can be allocated: not busy.
    pub available: u32,
    /// Whether the inode bitmap was read and is sound.
    pub inodes_read: bool,
    /// Where the last allocation ended.
    pub next: u32,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Blocks that can be allocated and are not reserved.
    pub free: u64,
    /// Blocks freed by transactions that have not committed.
    pub pending: u64,
    pub inodes_free: u64,
}

/// The allocators.
pub struct Groups {
    pub(super) list: Vec<Mutex<Group>>,
    pub(super) counts: Mutex<Counts>,
    pub(super) layout: Layout,
    pub(super) held_back: u64,
}

/// Blocks set aside for an operation; what is left of them when it is dropped is free again.
pub struct Reserved<'a> {
    pub(super) groups: &'a Groups,
    pub(super) left: u64,
}

impl Reserved<'_> {
    /// Takes `blocks` out, for whoever accounts for them now.
    pub fn take(&mut self, blocks: u64) {
        debug_assert!(blocks <= self.left, "no more is taken than was reserved");
        self.left -= blocks.min(self.left);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.groups.unreserve(self.left);
    }
}

impl Groups {
    /// The allocators of a file system with these descriptors, one for each group.
    pub fn new(layout: Layout, descriptors: Vec<GroupDescriptor>) -> Self {
        let free = descriptors.iter().map(|d| u64::from(d.blocks_free.get())).sum();
        let inodes_free = descriptors.iter().map(|d| u64::from(d.inodes_free.get())).sum();
        let list = descriptors.into_iter().map(|descriptor| {
            let available = descriptor.blocks_free.get();
            Mutex::new(Group { descriptor, busy: None, available, inodes_read: false, next: 0 })
        });
        Self {
            list: list.collect(),
            counts: Mutex::new(Counts { free, pending: 0, inodes_free }),
            layout,
            held_back: (u64::from(layout.blocks) / 50).min(HELD_BACK_MAX),
        }
    }

    /// Blocks free (those of transactions not committed too), blocks for files among them, and inodes free.
    pub fn free(&self) -> (u64, u64, u64) {
        let counts = self.counts.lock();
        let free = counts.free + counts.pending;
        (free, free.saturating_sub(self.held_back), counts.inodes_free)
    }

    /// Whether blocks wait for a commit to be free.
    pub(super) fn awaits_commit(&self) -> bool {
        self.counts.lock().pending > 0
    }

    pub(super) fn reserve(&self, blocks: u64, held_back: u64) -> bool {
        let mut counts = self.counts.lock();
        let enough = blocks == 0 || counts.free >= blocks + held_back;
        if enough {
            counts.free -= blocks;
        }
        enough
    }

    /// Gives reserved blocks back.
    pub fn unreserve(&self, blocks: u64) {
        self.counts.lock().free += blocks;
    }

    /// A transaction that freed these blocks has committed.
    pub fn release(&self, freed: &[(u32, u32)]) {
        let mut blocks = 0;
        for &(start, len) in freed {
            let mut group = self.list[(start / GROUP_BLOCKS) as usize].lock();
            if let Some(busy) = &mut group.busy {
                bits::change(Arc::make_mut(busy).as_mut(), start % GROUP_BLOCKS, len, false);
            }
            group.available += len;
            blocks += u64::from(len);
        }
        let mut counts = self.counts.lock();
        counts.pending -= blocks;
        counts.free += blocks;
    }

    /// Free inodes and directories that a group's descriptor says.
    pub fn inode_counts(&self, group: u32) -> (u32, u32) {
        let descriptor = self.list[group as usize].lock().descriptor;
        (descriptor.inodes_free.get(), descriptor.directories.get())
    }

    /// The group for a new directory, after Orlov: those in the root are spread over the groups with fewest
    /// directories, others stay near their parent while there is room.
    pub(super) fn directory_group(&self, parent: u32) -> u32 {
        let groups = self.layout.groups;
        if groups == 1 {
            return 0;
        }
        let counts = *self.counts.lock();
        let (inodes, blocks) = (counts.inodes_free / u64::from(groups), counts.free / u64::from(groups));
        let roomy = |number: u32, inodes: u64, blocks: u64| {
            let group = self.list[number as usize].lock();
            let descriptor = &group.descriptor;
            let enough = u64::from(descriptor.inodes_free.get()) >= inodes.max(1)
                && u64::from(group.available) >= blocks;
            enough.then(|| descriptor.directories.get())
        };
        let near = parent / self.layout.inodes_per_group;
        if parent == crate::format::ROOT_INO {
            let start = (amphi_rt::random::u64() % u64::from(groups)) as u32;
            let all = (0..groups).map(|offset| (start + offset) % groups);
            let best = all.filter_map(|number| Some((roomy(number, inodes, blocks)?, number)));
            return best.min_by_key(|(directories, _)| *directories).map_or(near, |(_, number)| number);
        }
        let less = |average: u64, part: u64| average.saturating_sub(part);
        let (inodes, blocks) = (
            less(inodes, u64::from(self.layout.inodes_per_group) / 4),
            less(blocks, u64::from(GROUP_BLOCKS) / 4),
        );
        (0..groups)
            .map(|offset| (near + offset) % groups)
            .find(|number| roomy(*number, inodes, blocks).is_some())
            .unwrap_or(near)
    }

    /// A goal for the first block of an inode: its own group.
    pub fn goal(&self, ino: u32) -> u32 {
        let group = ino / self.layout.inodes_per_group;
        (group * GROUP_BLOCKS).min(self.layout.blocks - 1)
    }
}
