//! Free blocks and inodes: bitmaps and descriptors by group, as on ext4, and who gets what.
//!
//! A block that is freed stays busy in memory until the transaction that freed it has committed: until then a
//! crash may bring back the file that had it. Space is reserved before it is allocated, so that what has
//! begun does not run out of it; a fiftieth part is held back for extent blocks.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_rt::sync::{Mutex, MutexGuard};
use amphi_vfs::{Error, Result};

use crate::core::Core;
use crate::format::{GROUP_BLOCKS, GroupDescriptor, INODE_BYTES, INODES_PER_BLOCK, Layout};
use crate::journal::Handle;
use crate::journal::buffers::{Kind, SharedBlock};
use crate::space::bits;

/// Most blocks held back for extent blocks, as ext4 has it.
const HELD_BACK_MAX: u64 = 4096;

/// What is known of one group.
struct Group {
    descriptor: GroupDescriptor,
    /// Blocks in use or freed by a transaction that has not committed, once the bitmap was read.
    busy: Option<SharedBlock>,
    /// Blocks that can be allocated: not busy.
    available: u32,
    /// Whether the inode bitmap was read and is sound.
    inodes_read: bool,
    /// Where the last allocation ended.
    next: u32,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Blocks that can be allocated and are not reserved.
    free: u64,
    /// Blocks freed by transactions that have not committed.
    pending: u64,
    inodes_free: u64,
}

/// The allocators.
pub struct Groups {
    list: Vec<Mutex<Group>>,
    counts: Mutex<Counts>,
    layout: Layout,
    held_back: u64,
}

/// Blocks set aside for an operation; what is left of them when it is dropped is free again.
pub struct Reserved<'a> {
    groups: &'a Groups,
    left: u64,
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
    fn awaits_commit(&self) -> bool {
        self.counts.lock().pending > 0
    }

    fn reserve(&self, blocks: u64, held_back: u64) -> bool {
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

    fn group<D: BlockPort>(&self, core: &Core<D>, group: u32) -> Result<MutexGuard<'_, Group>> {
        let mut guard = self.list[group as usize].lock();
        if guard.busy.is_none() {
            let lba = u64::from(self.layout.block_bitmaps) + u64::from(group);
            let bitmap = core.block(lba, Kind::BlockBitmap)?;
            if crc32c::crc32c(&bitmap[..]) != guard.descriptor.block_bitmap_crc.get() {
                return Err(Error::corrupt(
                    "group",
                    u64::from(group),
                    "the checksum of its block bitmap is wrong",
                ));
            }
            let used = bits::count(&bitmap, self.layout.group_blocks(group));
            if used + guard.available != self.layout.group_blocks(group) {
                return Err(Error::corrupt(
                    "group",
                    u64::from(group),
                    "it has another number of free blocks than it says",
                ));
            }
            guard.busy = Some(bitmap);
        }
        Ok(guard)
    }

    fn inode_group<D: BlockPort>(
        &self,
        core: &Core<D>,
        group: u32,
    ) -> Result<(MutexGuard<'_, Group>, SharedBlock)> {
        let mut guard = self.list[group as usize].lock();
        let bitmap =
            core.block(u64::from(self.layout.inode_bitmaps) + u64::from(group), Kind::InodeBitmap)?;
        if !guard.inodes_read {
            if crc32c::crc32c(&bitmap[..]) != guard.descriptor.inode_bitmap_crc.get() {
                return Err(Error::corrupt(
                    "group",
                    u64::from(group),
                    "the checksum of its inode bitmap is wrong",
                ));
            }
            guard.inodes_read = true;
        }
        Ok((guard, bitmap))
    }

    /// Both bitmaps of a group as read from the device, if their checksums and the number of free blocks are
    /// right; for the check.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn check_bitmaps<D: BlockPort>(
        &self,
        core: &Core<D>,
        group: u32,
    ) -> Result<(SharedBlock, SharedBlock)> {
        let busy = self.group(core, group)?.busy.clone();
        let blocks = busy.ok_or_else(|| Error::corrupt("group", u64::from(group), "it has no bitmap"))?;
        Ok((blocks, self.inode_group(core, group)?.1))
    }

    /// Free inodes and directories that a group's descriptor says.
    pub fn inode_counts(&self, group: u32) -> (u32, u32) {
        let descriptor = self.list[group as usize].lock().descriptor;
        (descriptor.inodes_free.get(), descriptor.directories.get())
    }

    /// Whether an inode number is in use.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn inode_is_used<D: BlockPort>(&self, core: &Core<D>, ino: u32) -> Result<bool> {
        let per_group = self.layout.inodes_per_group;
        let (_, bitmap) = self.inode_group(core, ino / per_group)?;
        Ok(bits::is_set(&bitmap, ino % per_group))
    }

    /// Allocates up to `want` blocks in one run, near `goal` if it can be. They have been reserved. Returns
    /// the first and their number.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; [`Error::NoSpace`] never, if they have been reserved.
    pub fn allocate<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        goal: u32,
        want: u32,
    ) -> Result<(u32, u32)> {
        let groups = self.layout.groups;
        let first = goal.min(self.layout.blocks - 1) / GROUP_BLOCKS;
        // As ext4's allocator: first whatever holds the whole, then the longest there is.
        for any in [false, true] {
            for offset in 0..groups {
                let number = (first + offset) % groups;
                let needed = if any { 1 } else { want };
                if self.list[number as usize].lock().available < needed {
                    continue;
                }
                let mut group = self.group(handle.core, number)?;
                let exact = offset == 0 && !goal.is_multiple_of(GROUP_BLOCKS);
                let from = if exact { goal % GROUP_BLOCKS } else { group.next };
                let end = self.layout.group_blocks(number);
                let Some(busy) = &mut group.busy else { continue };
                if let Some((at, len)) = bits::clear_run(busy, from, end, want, any) {
                    bits::change(Arc::make_mut(busy).as_mut(), at, len, true);
                    group.next = at + len;
                    group.available -= len;
                    self.write_blocks(handle, &mut group, number, at, len, true)?;
                    return Ok((number * GROUP_BLOCKS + at, len));
                }
            }
        }
        Err(Error::NoSpace)
    }

    /// Changes bitmap and descriptor of a locked group.
    fn write_blocks<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        group: &mut Group,
        number: u32,
        at: u32,
        len: u32,
        used: bool,
    ) -> Result<()> {
        let lba = u64::from(self.layout.block_bitmaps) + u64::from(number);
        if !handle.modify(lba, Kind::BlockBitmap, |bitmap| bits::change(bitmap, at, len, used))? {
            let what = if used { "allocated" } else { "freed" };
            return Err(Error::corrupt("group", u64::from(number), format!("a block was {what} twice")));
        }
        let free = group.descriptor.blocks_free.get();
        let free = if used { free.wrapping_sub(len) } else { free.wrapping_add(len) };
        group.descriptor.blocks_free = free.into();
        self.write_descriptor(handle, group, number)
    }

    /// Checksums of bitmaps are those in the block: they are filled in when a transaction is closed.
    fn write_descriptor<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        group: &mut Group,
        number: u32,
    ) -> Result<()> {
        let (lba, at) = self.layout.descriptor_place(number);
        handle.modify(lba, Kind::Descriptors, |block| {
            if let Ok(before) = GroupDescriptor::decode(&block[at..at + 64], number) {
                group.descriptor.block_bitmap_crc = before.block_bitmap_crc;
                group.descriptor.inode_bitmap_crc = before.inode_bitmap_crc;
            }
            block[at..at + 64].copy_from_slice(&group.descriptor.encode(number));
        })
    }

    /// Frees a run of blocks when the handle's transaction commits. `revoke`: the journal may hold copies of
    /// them.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn free_blocks<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        start: u32,
        len: u32,
        revoke: bool,
    ) -> Result<()> {
        let (mut start, mut left) = (start, len);
        while left > 0 {
            let number = start / GROUP_BLOCKS;
            let here = left.min(GROUP_BLOCKS - start % GROUP_BLOCKS);
            let mut group = self.group(handle.core, number)?;
            self.write_blocks(handle, &mut group, number, start % GROUP_BLOCKS, here, false)?;
            drop(group);
            self.counts.lock().pending += u64::from(here);
            handle.note_freed(start, here, revoke);
            start += here;
            left -= here;
        }
        Ok(())
    }

    /// Takes one block for an extent node, from what is held back if need be.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn allocate_node<D: BlockPort>(&self, handle: &mut Handle<'_, D>, goal: u32) -> Result<u32> {
        if !self.reserve(1, 0) {
            return Err(Error::NoSpace);
        }
        Ok(self.allocate(handle, goal, 1)?.0)
    }

    /// Allocates an inode number, near its parent directory's, and clears its place in the table.
    ///
    /// # Errors
    /// [`Error::NoInodes`], [`Error::Corrupt`], [`Error::Io`].
    pub fn allocate_inode<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        parent: u32,
        directory: bool,
    ) -> Result<u32> {
        let first =
            if directory { self.directory_group(parent) } else { parent / self.layout.inodes_per_group };
        for offset in 0..self.layout.groups {
            let number = (first + offset) % self.layout.groups;
            if self.list[number as usize].lock().descriptor.inodes_free.get() == 0 {
                continue;
            }
            let (mut group, bitmap) = self.inode_group(handle.core, number)?;
            let per_group = self.layout.inodes_per_group;
            let bit = bits::next(&bitmap, 0, per_group, false);
            if bit == per_group {
                continue;
            }
            let ino = number * per_group + bit;
            // As ext4: a block of the table in which no other inode is used need not be read.
            let first_bit = bit / INODES_PER_BLOCK * INODES_PER_BLOCK;
            let unused = bits::next(&bitmap, first_bit, first_bit + INODES_PER_BLOCK, true)
                == first_bit + INODES_PER_BLOCK;
            drop(bitmap);
            let lba = u64::from(self.layout.inode_bitmaps) + u64::from(number);
            handle.modify(lba, Kind::InodeBitmap, |bitmap| bits::change(bitmap, bit, 1, true))?;
            group.descriptor.inodes_free = group.descriptor.inodes_free.get().wrapping_sub(1).into();
            if directory {
                group.descriptor.directories = group.descriptor.directories.get().wrapping_add(1).into();
            }
            self.write_descriptor(handle, &mut group, number)?;
            let (lba, at) = self.layout.inode_place(ino);
            if unused && handle.core.buffers.cached(lba).is_none() {
                handle.fill(lba, Kind::Inodes, |_| ())?;
            }
            handle.modify(lba, Kind::Inodes, |block| block[at..at + INODE_BYTES].fill(0))?;
            drop(group);
            let mut counts = self.counts.lock();
            counts.inodes_free = counts.inodes_free.saturating_sub(1);
            return Ok(ino);
        }
        Err(Error::NoInodes)
    }

    /// The group for a new directory, after Orlov: those in the root are spread over the groups with fewest
    /// directories, others stay near their parent while there is room.
    fn directory_group(&self, parent: u32) -> u32 {
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

    /// Frees an inode number.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn free_inode<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        ino: u32,
        directory: bool,
    ) -> Result<()> {
        let per_group = self.layout.inodes_per_group;
        let number = ino / per_group;
        let (mut group, bitmap) = self.inode_group(handle.core, number)?;
        drop(bitmap);
        let (table, at) = self.layout.inode_place(ino);
        handle.modify(table, Kind::Inodes, |block| block[at..at + INODE_BYTES].fill(0))?;
        let lba = u64::from(self.layout.inode_bitmaps) + u64::from(number);
        if !handle.modify(lba, Kind::InodeBitmap, |bitmap| bits::change(bitmap, ino % per_group, 1, false))? {
            return Err(Error::corrupt("inode", u64::from(ino), "it was freed twice"));
        }
        group.descriptor.inodes_free = group.descriptor.inodes_free.get().wrapping_add(1).into();
        if directory {
            group.descriptor.directories = group.descriptor.directories.get().wrapping_sub(1).into();
        }
        self.write_descriptor(handle, &mut group, number)?;
        drop(group);
        self.counts.lock().inodes_free += 1;
        Ok(())
    }

    /// A goal for the first block of an inode: its own group.
    pub fn goal(&self, ino: u32) -> u32 {
        let group = ino / self.layout.inodes_per_group;
        (group * GROUP_BLOCKS).min(self.layout.blocks - 1)
    }
}

impl<D: BlockPort> Core<D> {
    /// Sets blocks aside. If there are too few, what a transaction not committed yet has freed is waited for:
    /// the caller has no handle open.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub fn reserve(&self, blocks: u64) -> Result<Reserved<'_>> {
        let groups = &self.groups;
        if !groups.reserve(blocks, groups.held_back) {
            if !groups.awaits_commit() {
                return Err(Error::NoSpace);
            }
            self.commit_running()?;
            if !groups.reserve(blocks, groups.held_back) {
                return Err(Error::NoSpace);
            }
        }
        Ok(Reserved { groups, left: blocks })
    }
}
