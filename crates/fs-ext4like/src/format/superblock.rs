//! The superblock, and the layout that follows from it.
//!
//! All groups form one flexible group: their bitmaps and inode tables stand together behind the descriptors,
//! as mke2fs lays them out with `flex_bg`, so that a descriptor need not say where they are.

use amphi_volume::{Error, Result, label_text, recognise};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    BLOCK, BLOCKS_MIN, DESCRIPTORS_PER_BLOCK, FIRST_INO, GROUP_BLOCKS, INODES_PER_BLOCK, LABEL_BYTES, MAGIC,
    TITLE, VERSION,
};

/// The first bytes of block 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Bytes per block, 4096.
    pub block_bytes: U32,
    /// Blocks of the file system.
    pub blocks: U64,
    /// Inodes per group, a multiple of 16.
    pub inodes_per_group: U32,
    /// Blocks of the journal.
    pub journal_blocks: U32,
    /// Seed of the hash of names.
    pub hash_seed: U64,
    /// Creation time, ns since 1970.
    pub created_ns: I64,
    /// Unique name.
    pub uuid: [u8; 16],
    /// Label, padded with zeros.
    pub label: [u8; LABEL_BYTES],
    /// How often it was mounted.
    pub mounts: U64,
    /// Last mount, ns since 1970; 0: never.
    pub mounted_ns: I64,
    /// End of the last mount, ns since 1970; 0: never.
    pub unmounted_ns: I64,
    /// Free blocks when it was last unmounted.
    pub blocks_free: U64,
    /// Free inodes when it was last unmounted.
    pub inodes_free: U64,
    /// 1: unmounted cleanly, the journal is empty.
    pub clean: U32,
    /// First inode in the list of orphans; 0: none.
    pub last_orphan: U32,
    /// Zero.
    pub reserved: [u8; 108],
    /// CRC-32C of all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == 256, "the superblock takes 256 bytes");

impl Superblock {
    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..252])
    }

    /// Block 0, with the checksum.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..256].copy_from_slice(self.as_bytes());
        Self::seal(&mut block);
        block
    }

    /// Puts the checksum into block 0.
    pub fn seal(block: &mut [u8; BLOCK]) {
        let crc = crc32c::crc32c(&block[..252]);
        block[252..256].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads block 0 of a device of `device_blocks` blocks and checks every field that others rely on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(block: &[u8; BLOCK], device_blocks: u64) -> Result<Self> {
        let (sb, _) = Self::read_from_prefix(block).map_err(|_| Error::NotThis { title: TITLE })?;
        recognise(TITLE, sb.magic == MAGIC, (sb.version.get(), VERSION), sb.crc.get() == sb.checksum())?;
        let wrong = |why| Err(Error::Superblock { title: TITLE, why });
        let blocks = sb.blocks.get();
        if blocks < BLOCKS_MIN || blocks > device_blocks || blocks > u64::from(u32::MAX) {
            return wrong("it has an impossible number of blocks");
        }
        if sb.block_bytes.get() as usize != BLOCK {
            return wrong("it has an impossible block size");
        }
        let per_group = sb.inodes_per_group.get();
        let groups = blocks.div_ceil(u64::from(GROUP_BLOCKS));
        let few = u64::from(per_group) * groups < u64::from(FIRST_INO) + 1;
        let many = u64::from(per_group) * groups > u64::from(u32::MAX);
        if per_group > GROUP_BLOCKS || !per_group.is_multiple_of(INODES_PER_BLOCK) || few || many {
            return wrong("it has an impossible number of inodes per group");
        }
        let journal = u64::from(sb.journal_blocks.get());
        if journal < u64::from(Layout::JOURNAL_MIN)
            || Layout::metadata_blocks(blocks, per_group) + journal >= blocks
        {
            return wrong("it has an impossible number of journal blocks");
        }
        Ok(sb)
    }

    /// The label as text.
    #[must_use]
    pub fn label_text(&self) -> String {
        label_text(&self.label)
    }

    /// Seed of all journal checksums: blocks of an older file system's journal do not pass for this one's.
    #[must_use]
    pub fn journal_seed(&self) -> u32 {
        crc32c::crc32c(&self.uuid)
    }
}

/// Where everything is, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Blocks of the file system.
    pub blocks: u32,
    /// Number of groups.
    pub groups: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// First block of the group descriptors.
    pub descriptors: u32,
    /// First group's block bitmap.
    pub block_bitmaps: u32,
    /// First group's inode bitmap.
    pub inode_bitmaps: u32,
    /// First group's inode table.
    pub inode_tables: u32,
    /// First block of the journal.
    pub journal: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// First block that files may use.
    pub data: u32,
}

impl Layout {
    /// Fewest blocks of a journal.
    pub const JOURNAL_MIN: u32 = 128;

    /// Blocks before the journal.
    fn metadata_blocks(blocks: u64, inodes_per_group: u32) -> u64 {
        let groups = blocks.div_ceil(u64::from(GROUP_BLOCKS));
        let descriptors = groups.div_ceil(u64::from(DESCRIPTORS_PER_BLOCK));
        1 + descriptors + groups * (2 + u64::from(inodes_per_group / INODES_PER_BLOCK))
    }

    /// The layout of a file system of `blocks` blocks, below 2³².
    #[must_use]
    pub fn plan(blocks: u64, inodes_per_group: u32, journal_blocks: u32) -> Self {
        let groups = blocks.div_ceil(u64::from(GROUP_BLOCKS)) as u32;
        let descriptors = 1;
        let block_bitmaps = descriptors + groups.div_ceil(DESCRIPTORS_PER_BLOCK);
        let inode_bitmaps = block_bitmaps + groups;
        let inode_tables = inode_bitmaps + groups;
        let journal = Self::metadata_blocks(blocks, inodes_per_group);
        let block = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            blocks: block(blocks),
            groups,
            inodes_per_group,
            descriptors,
            block_bitmaps,
            inode_bitmaps,
            inode_tables,
            journal: block(journal),
            journal_blocks,
            data: block(journal + u64::from(journal_blocks)),
        }
    }

    /// What the superblock, which has been checked, says.
    #[must_use]
    pub fn of(sb: &Superblock) -> Self {
        Self::plan(sb.blocks.get(), sb.inodes_per_group.get(), sb.journal_blocks.get())
    }

    /// Number of inodes, number 0 included, which is never used.
    #[must_use]
    pub const fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }

    /// An inode's block in the tables, and its byte offset there.
    #[must_use]
    pub const fn inode_place(&self, ino: u32) -> (u64, usize) {
        let block = self.inode_tables as u64 + (ino / INODES_PER_BLOCK) as u64;
        (block, (ino % INODES_PER_BLOCK) as usize * super::INODE_BYTES)
    }

    /// A group's descriptor: its block and its byte offset there.
    #[must_use]
    pub const fn descriptor_place(&self, group: u32) -> (u64, usize) {
        let block = self.descriptors as u64 + (group / DESCRIPTORS_PER_BLOCK) as u64;
        (block, (group % DESCRIPTORS_PER_BLOCK) as usize * 64)
    }

    /// Blocks of a group; the last one may be smaller.
    #[must_use]
    pub const fn group_blocks(&self, group: u32) -> u32 {
        let first = group as u64 * GROUP_BLOCKS as u64;
        let left = self.blocks as u64 - first;
        if left < GROUP_BLOCKS as u64 { left as u32 } else { GROUP_BLOCKS }
    }

    /// Whether a file may have the blocks `start .. start + len`.
    #[must_use]
    pub const fn is_data(&self, start: u32, len: u32) -> bool {
        start >= self.data && start as u64 + len as u64 <= self.blocks as u64
    }

    /// Whether the journal may hold a copy of this block.
    #[must_use]
    pub const fn is_journaled(&self, lba: u64) -> bool {
        lba < self.blocks as u64 && !(lba >= self.journal as u64 && lba < self.data as u64)
    }
}
