//! The superblock's two parts, and where everything is that it speaks of.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    FormatError, INODE_BYTES, INODES_PER_PAGE, LABEL_BYTES, LINE, MAGIC, MIN_PAGES, PAGE, SUPER_STATE_OFFSET,
    VERSION,
};

/// Longest text of mount options in the superblock.
pub const OPTION_BYTES: usize = 96;

/// The unchanging part of the superblock: page 0, offset 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`PAGE`].
    pub page_bytes: U32,
    /// Pages of the file system, all metadata included.
    pub pages: U64,
    /// Inodes, number 0 included.
    pub inodes: U32,
    /// First page of the inode bitmap.
    pub inode_bitmap: U32,
    /// First page of the block bitmap.
    pub block_bitmap: U32,
    /// First page of the orphan table.
    pub orphans: U32,
    /// First page of the inode table.
    pub inode_table: U32,
    /// First page that files may use.
    pub data: U32,
    /// Creation time, ns since 1970.
    pub created_ns: I64,
    /// Random name of this file system.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; LABEL_BYTES],
    /// Pages set aside for the block bitmap: what it can grow to (`amphi resize`).
    pub bitmap_pages: U32,
    /// First page of the data journal.
    pub journal: U32,
    /// Pages of the data journal, its page of slots included; 0: there is none.
    pub journal_pages: U32,
    /// Mount options that hold unless a mount says otherwise (`amphi tune -o`), as text, padded with NUL.
    pub options: [u8; OPTION_BYTES],
    /// Zero.
    pub reserved: [u8; 40],
    /// CRC-32C of all before.
    pub crc: U32,
}

/// The changing part of the superblock, one line: page 0, offset 256.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperState {
    /// How often it was mounted.
    pub mounts: U64,
    /// Time of the last mount, ns since 1970.
    pub mounted_ns: I64,
    /// Time of the last clean unmount, ns since 1970.
    pub unmounted_ns: I64,
    /// 1 after a clean unmount, 0 while mounted.
    pub clean: U32,
    /// Zero.
    pub reserved: [u8; 32],
    /// CRC-32C of all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == SUPER_STATE_OFFSET);
const _: () = assert!(size_of::<SuperState>() == LINE);

impl Superblock {
    /// Reads page 0 and checks every field against the others and against the device's size.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn decode(page: &[u8; PAGE], device_pages: u64) -> Result<Self, FormatError> {
        let (sb, _) = Self::read_from_prefix(page).map_err(|_| FormatError::NotByteFs)?;
        if sb.magic != MAGIC {
            return Err(FormatError::NotByteFs);
        }
        if sb.version.get() != VERSION {
            return Err(FormatError::Version(sb.version.get()));
        }
        if sb.crc.get() != sb.checksum() {
            return Err(FormatError::Checksum("the superblock"));
        }
        let what = "the superblock";
        let pages = sb.pages.get();
        if sb.page_bytes.get() as usize != PAGE {
            return Err(FormatError::Field(what, "page size"));
        }
        if pages < MIN_PAGES || pages > device_pages || pages > u64::from(u32::MAX) {
            return Err(FormatError::Field(what, "size"));
        }
        let layout = Layout::of(&sb);
        let due = Layout::plan(pages, sb.inodes.get(), sb.bitmap_pages.get(), sb.journal_pages.get());
        if layout != due || u64::from(layout.data) >= pages || pages > layout.pages_max() {
            return Err(FormatError::Field(what, "layout"));
        }
        Ok(sb)
    }

    /// The checksum that belongs into `crc`.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }

    /// Takes over a layout.
    pub fn set_layout(&mut self, layout: &Layout) {
        self.pages = layout.pages.into();
        self.inodes = layout.inodes.into();
        self.inode_bitmap = layout.inode_bitmap.into();
        self.block_bitmap = layout.block_bitmap.into();
        self.bitmap_pages = layout.bitmap_pages.into();
        self.orphans = layout.orphans.into();
        self.inode_table = layout.inode_table.into();
        self.journal = layout.journal.into();
        self.journal_pages = layout.journal_pages.into();
        self.data = layout.data.into();
    }

    /// The mount options without their padding.
    #[must_use]
    pub fn option_text(&self) -> String {
        let end = self.options.iter().position(|&b| b == 0).unwrap_or(OPTION_BYTES);
        String::from_utf8_lossy(&self.options[..end]).into_owned()
    }

    /// The label without its padding.
    #[must_use]
    pub fn label_text(&self) -> String {
        let end = self.label.iter().position(|&b| b == 0).unwrap_or(LABEL_BYTES);
        String::from_utf8_lossy(&self.label[..end]).into_owned()
    }
}

impl SuperState {
    /// Reads the line; a damaged one reads as "never mounted, not clean".
    #[must_use]
    pub fn decode(page: &[u8; PAGE]) -> Self {
        let line = &page[SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE];
        match Self::read_from_bytes(line) {
            Ok(state) if state.crc.get() == state.checksum() => state,
            _ => Self::new_zeroed_state(),
        }
    }

    fn new_zeroed_state() -> Self {
        Self {
            mounts: U64::ZERO,
            mounted_ns: I64::ZERO,
            unmounted_ns: I64::ZERO,
            clean: U32::ZERO,
            reserved: [0; 32],
            crc: U32::ZERO,
        }
    }

    /// The line with its checksum.
    #[must_use]
    pub fn encode(mut self) -> [u8; LINE] {
        self.crc = self.checksum().into();
        zerocopy::transmute!(self)
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..LINE - 4])
    }
}

/// Where everything is, in pages from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pages in all.
    pub pages: u64,
    /// Inodes, number 0 included.
    pub inodes: u32,
    /// First page of the inode bitmap, one bit per inode.
    pub inode_bitmap: u32,
    /// First page of the block bitmap, one bit per page of the device.
    pub block_bitmap: u32,
    /// Pages set aside for it, also for pages that the file system may grow by.
    pub bitmap_pages: u32,
    /// First page of the orphan table, 4 B per slot.
    pub orphans: u32,
    /// First page of the inode table.
    pub inode_table: u32,
    /// First page of the data journal.
    pub journal: u32,
    /// Pages of the data journal, 0 for none.
    pub journal_pages: u32,
    /// First page that files may use.
    pub data: u32,
}

/// Pages of the orphan table: room for 16,384 files that are open or cached but have no name.
pub const ORPHAN_PAGES: u32 = 16;

impl Layout {
    /// The layout of a file system of `pages` pages with room for `inodes` inodes, `bitmap_pages` pages for the block bitmap, and a data journal
    /// of `journal_pages` pages.
    #[must_use]
    pub fn plan(pages: u64, inodes: u32, bitmap_pages: u32, journal_pages: u32) -> Self {
        let bits_per_page = (PAGE * 8) as u64;
        let inode_bitmap = 1;
        let block_bitmap = inode_bitmap + u64::from(inodes).div_ceil(bits_per_page);
        let orphans = block_bitmap + u64::from(bitmap_pages);
        let inode_table = orphans + u64::from(ORPHAN_PAGES);
        let journal = inode_table + u64::from(inodes).div_ceil(INODES_PER_PAGE as u64);
        let data = journal + u64::from(journal_pages);
        let page = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            pages,
            inodes,
            inode_bitmap: page(inode_bitmap),
            block_bitmap: page(block_bitmap),
            bitmap_pages,
            orphans: page(orphans),
            inode_table: page(inode_table),
            journal: page(journal),
            journal_pages,
            data: page(data),
        }
    }

    /// What the superblock says.
    #[must_use]
    pub fn of(sb: &Superblock) -> Self {
        Self {
            pages: sb.pages.get(),
            inodes: sb.inodes.get(),
            inode_bitmap: sb.inode_bitmap.get(),
            block_bitmap: sb.block_bitmap.get(),
            bitmap_pages: sb.bitmap_pages.get(),
            orphans: sb.orphans.get(),
            inode_table: sb.inode_table.get(),
            journal: sb.journal.get(),
            journal_pages: sb.journal_pages.get(),
            data: sb.data.get(),
        }
    }

    /// Byte address of an inode's lower half; the upper half is the next line.
    #[must_use]
    pub fn inode_address(&self, ino: u32) -> u64 {
        u64::from(self.inode_table) * PAGE as u64 + u64::from(ino) * INODE_BYTES as u64
    }

    /// Page that holds an inode, and its byte offset in it.
    #[must_use]
    pub fn inode_page(&self, ino: u32) -> (u64, usize) {
        let at = self.inode_address(ino);
        (at / PAGE as u64, (at % PAGE as u64) as usize)
    }

    /// Whether a byte address lies in the inode table.
    #[must_use]
    pub fn in_inode_table(&self, at: u64) -> bool {
        (u64::from(self.inode_table)..u64::from(self.journal)).contains(&(at / PAGE as u64))
    }

    /// Most pages that the block bitmap has room for.
    #[must_use]
    pub fn pages_max(&self) -> u64 {
        (u64::from(self.bitmap_pages) * (PAGE * 8) as u64).min(u64::from(u32::MAX))
    }

    /// Slots in the orphan table.
    #[must_use]
    pub const fn orphan_slots() -> u32 {
        ORPHAN_PAGES * (PAGE / 4) as u32
    }
}
