//! Who gets which blocks and inodes, as on ext4: each change of a bitmap is part of a handle's transaction.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_rt::sync::MutexGuard;
use amphi_vfs::{Error, Result};

use crate::base::Base;
use crate::format::{GROUP_BLOCKS, GroupDescriptor, INODE_BYTES, INODES_PER_BLOCK};
use crate::journal::buffers::{Kind, SharedBlock};
use crate::journal::handle::Handle;
use crate::space::bits;
use crate::space::groups::{Group, Groups, Reserved};

impl Groups {
    fn group<D: BlockPort>(&self, base: &Base<D>, group: u32) -> Result<MutexGuard<'_, Group>> {
        let mut guard = self.list[group as usize].lock();
        if guard.busy.is_none() {
            let lba = u64::from(self.layout.block_bitmaps) + u64::from(group);
            let bitmap = base.block(lba, Kind::BlockBitmap)?;
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
        base: &Base<D>,
        group: u32,
    ) -> Result<(MutexGuard<'_, Group>, SharedBlock)> {
        let mut guard = self.list[group as usize].lock();
        let bitmap =
            base.block(u64::from(self.layout.inode_bitmaps) + u64::from(group), Kind::InodeBitmap)?;
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
        base: &Base<D>,
        group: u32,
    ) -> Result<(SharedBlock, SharedBlock)> {
        let busy = self.group(base, group)?.busy.clone();
        let blocks = busy.ok_or_else(|| Error::corrupt("group", u64::from(group), "it has no bitmap"))?;
        Ok((blocks, self.inode_group(base, group)?.1))
    }

    /// Whether an inode number is in use.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn inode_is_used<D: BlockPort>(&self, base: &Base<D>, ino: u32) -> Result<bool> {
        let per_group = self.layout.inodes_per_group;
        let (_, bitmap) = self.inode_group(base, ino / per_group)?;
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
                let mut group = self.group(handle.base, number)?;
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

    /// Calls `work` with each free run of blocks, as far as it is in one group. Nobody takes a block of it
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; those of `work`.
    pub fn each_free<D: BlockPort>(
        &self,
        base: &Base<D>,
        mut work: impl FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        for number in 0..self.layout.groups {
            let (first, end) = (u64::from(number * GROUP_BLOCKS), self.layout.group_blocks(number));
            let mut from = 0;
            loop {
                let group = self.group(base, number)?;
                let Some(busy) = &group.busy else { break };
                from = bits::next(busy, from, end, false);
                if from == end {
                    break;
                }
                let behind = bits::next(busy, from, end, true);
                work(first + u64::from(from)..first + u64::from(behind))?;
                from = behind;
            }
        }
        Ok(())
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
            let mut group = self.group(handle.base, number)?;
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
            let (mut group, bitmap) = self.inode_group(handle.base, number)?;
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
            if unused && handle.base.buffers.cached(lba).is_none() {
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
        let (mut group, bitmap) = self.inode_group(handle.base, number)?;
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
}

impl<D: BlockPort> Base<D> {
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
