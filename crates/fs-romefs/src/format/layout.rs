//! Where everything is in the memory area.

use amphi_volume::{Error, Result};

use super::{HEADS_AT, INODE_BYTES, JOURNAL_ALIGN, LANES_MAX, LEAF_BYTES, LINE, PAGE, Superblock, TITLE};

/// A bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Map {
    /// Data blocks in use.
    Blocks = 0,
    /// Metadata pages in use.
    Pages = 1,
    /// Leaves in use.
    Leaves = 2,
    /// Log pages in use.
    Logs = 3,
    /// Inodes in use.
    Inodes = 4,
    /// Inodes that the next mount deletes, or cuts to their size.
    Orphans = 5,
}

impl Map {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Blocks, Self::Pages, Self::Leaves, Self::Logs, Self::Inodes, Self::Orphans];
}

/// A part of the memory area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Area {
    /// First byte behind it.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.at + self.bytes
    }
}

/// How many there are of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of a data block.
    pub block_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Data blocks that the bitmap has room for.
    pub blocks_max: u64,
    /// Inodes, number 0 included.
    pub inodes: u64,
    /// Metadata pages.
    pub pages: u64,
    /// Leaves.
    pub leaves: u64,
    /// Log pages.
    pub logs: u64,
    /// Lanes of the journal.
    pub lanes: u64,
    /// Bytes of a lane.
    pub lane_bytes: u64,
}

/// Where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many there are.
    pub plan: Plan,
    /// The bitmaps, by [`Map`].
    pub maps: [Area; Map::ALL.len()],
    /// Inodes.
    pub inodes: Area,
    /// Leaves.
    pub leaves: Area,
    /// Metadata pages: mapping, directories, attributes, long targets.
    pub pages: Area,
    /// The journal's lanes, one behind the other.
    pub journal: Area,
    /// Log pages.
    pub logs: Area,
}

impl Layout {
    /// Puts everything in its place, page by page.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut next = PAGE as u64;
        let mut area = |bytes: u64| {
            let at = next;
            next += bytes.next_multiple_of(PAGE as u64);
            Area { at, bytes }
        };
        let bits = [plan.blocks_max, plan.pages, plan.leaves, plan.logs, plan.inodes, plan.inodes];
        Self {
            plan,
            maps: bits.map(|bits| area(bits.div_ceil(64) * 8)),
            inodes: area(plan.inodes * INODE_BYTES),
            leaves: area(plan.leaves * LEAF_BYTES),
            pages: area(plan.pages * PAGE as u64),
            journal: area(plan.lanes * plan.lane_bytes),
            logs: area(plan.logs * PAGE as u64),
        }
    }

    /// What a superblock says, if it fits a memory area of `memory_bytes` and a block side of
    /// `device_bytes`.
    ///
    /// # Errors
    /// [`Error::Superblock`].
    pub fn of(sb: &Superblock, memory_bytes: u64, device_bytes: u64) -> Result<Self> {
        let wrong = |why| Err(Error::Superblock { title: TITLE, why });
        let plan = Plan {
            block_bytes: sb.block_bytes.get().into(),
            blocks: sb.blocks.get().into(),
            blocks_max: sb.blocks_max.get().max(sb.blocks.get()).into(),
            inodes: sb.inodes.get().into(),
            pages: sb.meta_pages.get().into(),
            leaves: sb.leaves.get().into(),
            logs: sb.log_pages.get().into(),
            lanes: sb.lanes.get().into(),
            lane_bytes: sb.lane_bytes.get().into(),
        };
        if plan.inodes < 2 || plan.pages == 0 || plan.blocks == 0 {
            return wrong("it has room for nothing");
        }
        if plan.lanes == 0 || plan.lanes > u64::from(LANES_MAX) {
            return wrong("its journal has an impossible number of lanes");
        }
        if plan.lane_bytes < PAGE as u64 || !plan.lane_bytes.is_multiple_of(JOURNAL_ALIGN) {
            return wrong("a lane of its journal has an impossible size");
        }
        let layout = Self::new(plan);
        if layout.logs.end() > memory_bytes || sb.memory_bytes.get() > memory_bytes {
            return wrong("its memory zone is larger than the device's memory area");
        }
        if plan.blocks * plan.block_bytes > device_bytes {
            return wrong("its block zone is larger than the device");
        }
        Ok(layout)
    }

    /// Bytes of the memory area in all.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.logs.at + self.plan.logs * PAGE as u64
    }

    /// The area of a bitmap.
    #[must_use]
    pub const fn map(&self, map: Map) -> Area {
        self.maps[map as usize]
    }

    /// Number of bits of a bitmap.
    #[must_use]
    pub const fn bits(&self, map: Map) -> u64 {
        let plan = &self.plan;
        match map {
            Map::Blocks => plan.blocks,
            Map::Pages => plan.pages,
            Map::Leaves => plan.leaves,
            Map::Logs => plan.logs,
            Map::Inodes | Map::Orphans => plan.inodes,
        }
    }

    /// Address of an inode.
    #[must_use]
    pub const fn inode(&self, ino: u64) -> u64 {
        self.inodes.at + ino * INODE_BYTES
    }

    /// Address of a leaf.
    #[must_use]
    pub const fn leaf(&self, leaf: u32) -> u64 {
        self.leaves.at + leaf as u64 * LEAF_BYTES
    }

    /// Address of a metadata page.
    #[must_use]
    pub const fn page(&self, page: u32) -> u64 {
        self.pages.at + page as u64 * PAGE as u64
    }

    /// Address of a log page.
    #[must_use]
    pub const fn log(&self, page: u32) -> u64 {
        self.logs.at + page as u64 * PAGE as u64
    }

    /// Address of a lane of the journal.
    #[must_use]
    pub const fn lane(&self, lane: u64) -> u64 {
        self.journal.at + lane * self.plan.lane_bytes
    }

    /// Address of the head of a lane.
    #[must_use]
    pub const fn head(lane: u64) -> u64 {
        HEADS_AT + lane * LINE as u64
    }

    /// Whether a transaction may change these bytes: bitmaps, inodes, leaves, metadata pages.
    #[must_use]
    pub const fn is_metadata(&self, at: u64, bytes: u64) -> bool {
        let (from, to) = (self.maps[0].at, self.pages.at + self.pages.bytes);
        at >= from && bytes <= to - from && at <= to - bytes
    }

    /// Bytes that a file can have at most.
    #[must_use]
    pub const fn file_bytes_max(&self) -> u64 {
        super::PAGE_SLOTS * super::PAGE_POINTERS.pow(super::DEPTH_MAX as u32 - 1) * self.plan.block_bytes
    }
}
