//! What is on flash and in protected memory. docs/format/devfs.md describes the bits.
//!
//! Flash holds a superblock, then metadata pages, then blocks of files. A metadata page ends with a
//! [`Footer`], which says how new it is. Protected memory is cut into slots of one page; a slot holds the
//! journal or the queue of a file.

use amphi_device::PAGE_BYTES;
use amphi_vfs::FileType;
use amphi_volume::{Error, Result, TypeCodes, label_text, recognise};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a page, and of a slot.
pub const PAGE: usize = PAGE_BYTES;
/// What a superblock starts with.
pub const MAGIC: [u8; 8] = *b"AMPHIDEV";
/// What it is called in sentences.
pub const TITLE: &str = "DevFS";
/// The only version.
pub const VERSION: u32 = 1;
/// Most bytes of a label.
pub const LABEL_BYTES: usize = 32;
/// Fewest pages of a device.
pub const PAGES_MIN: u64 = 64;
/// Most pages of a device: a pointer has 31 bits.
pub const PAGES_MAX: u64 = 1 << 31;
/// Fewest slots: an operation holds two at most, and others go on meanwhile.
pub const SLOTS_MIN: u64 = 8;

/// Bytes of a metadata page before its footer.
pub const BODY: usize = PAGE - size_of::<Footer>();
/// Pointers of a pointer page.
pub const POINTERS: u64 = (BODY / 4) as u64;
/// Bits of a bitmap page.
pub const BITS: u64 = BODY as u64 * 8;
/// Inodes of a page of the inode table.
pub const INODES: u64 = (BODY / size_of::<Inode>()) as u64;
/// Bytes of a unit of a directory page.
pub const UNIT: usize = 64;
/// Units of a directory page.
pub const UNITS: usize = BODY / UNIT;
/// Levels of pointer pages that a file can have.
pub const LEVELS_MAX: u8 = 4;
/// Blocks that a file can have.
pub const FILE_BLOCKS_MAX: u64 = 1 << 32;
/// Longest file in bytes.
pub const FILE_BYTES_MAX: u64 = FILE_BLOCKS_MAX * PAGE as u64;

/// The bit of a pointer whose block has not been written: it reads as zeros.
pub const UNWRITTEN: u32 = 1 << 31;

/// Page 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    pub magic: [u8; 8],
    pub version: U32,
    /// CRC-32C of the superblock with this field 0.
    pub crc: U32,
    /// Pages of the file system.
    pub pages: U64,
    /// Inodes, the root among them; numbers begin with 1.
    pub inodes: U64,
    /// Slots of protected memory.
    pub slots: U64,
    pub mounts: U64,
    /// 1 if the last mount ended with an unmount.
    pub clean: U32,
    /// [`Crash`](crate::Crash) as a number.
    pub crash: U32,
    /// All time stamps of the last mount are greater, and fewer than 2^40 greater. The first is drawn by lot,
    /// so that what an older file system left in a slot is void.
    pub first_stamp: U64,
    pub uuid: [u8; 16],
    pub label: [u8; LABEL_BYTES],
}
const _: () = assert!(size_of::<Superblock>() == 112);

/// The end of a metadata page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Footer {
    /// Time stamp of the newest record in the page. A record that is older is in the page already.
    pub stamp: U64,
    /// The page's number.
    pub page: U32,
    /// CRC-32C of the page with this field 0.
    pub crc: U32,
}
const _: () = assert!(size_of::<Footer>() == 16);

/// An inode of the inode table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Inode {
    /// As [`type_code`]; 0 if nobody has the number.
    pub kind: u8,
    /// Levels of pointer pages.
    pub levels: u8,
    pub mode: U16,
    pub uid: U32,
    pub gid: U32,
    pub nlink: U32,
    pub size: U64,
    pub atime: U64,
    pub mtime: U64,
    pub ctime: U64,
    pub parent: U64,
    /// Blocks of all kinds that it holds.
    pub blocks: U64,
    pub generation: U32,
    pub rdev: U32,
    /// The pointer page of the highest level; 0: none.
    pub root: U32,
    /// The block with its extended attributes; 0: none.
    pub attributes: U32,
    /// The block with a symbolic link's target; 0: none.
    pub target: U32,
    /// CRC-32C of what that block holds up to the link's size, or 0.
    pub target_crc: U32,
    /// CRC-32C of the block of attributes, or 0.
    pub attributes_crc: U32,
    pub reserved: [u8; 36],
}
const _: () = assert!(size_of::<Inode>() == 128);

/// The start of a directory entry. The name follows, and takes as many units as it needs.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryHead {
    /// 0: no entry begins here.
    pub ino: U64,
    pub kind: u8,
    pub name_bytes: u8,
    pub reserved: [u8; 6],
}
const _: () = assert!(size_of::<EntryHead>() == 16);

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Use {
    /// Metadata records of a file.
    Journal = 1,
    /// Parts of blocks that were written and are not in place yet.
    Queue = 2,
}

/// The start of a slot.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SlotHead {
    /// Whose it is.
    pub ino: U64,
    /// Time stamp of when it was emptied. What is behind it and has another one is void.
    pub epoch: U64,
    pub generation: U32,
    /// As [`Use`]; 0: nobody's.
    pub purpose: u8,
    pub reserved: [u8; 7],
    /// CRC-32C of the head with this field 0.
    pub crc: U32,
}
const _: () = assert!(size_of::<SlotHead>() == 32);

/// The start of an entry of a slot: a metadata record, or a part of a block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryMark {
    /// The slot's.
    pub epoch: U64,
    /// Time stamp.
    pub stamp: U64,
    /// Where in the file the bytes go. 0 for a metadata record.
    pub offset: U64,
    /// Bytes that follow. The next entry begins at a multiple of 8.
    pub bytes: U16,
    /// 1: the block held nothing before.
    pub fresh: U16,
    /// CRC-32C of the mark with this field 0, and of what follows.
    pub crc: U32,
}
const _: () = assert!(size_of::<EntryMark>() == 32);

/// Bytes that the entries of a slot have.
pub const SLOT_ROOM: usize = PAGE - size_of::<SlotHead>();
/// Most bytes of one metadata record.
pub const RECORD_MAX: usize = SLOT_ROOM - size_of::<EntryMark>();

impl Superblock {
    fn checksum(&self) -> u32 {
        crc32c::crc32c(Self { crc: 0.into(), ..*self }.as_bytes())
    }

    /// As page 0 holds it.
    pub fn encode(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let sealed = Self { crc: self.checksum().into(), ..*self };
        page[..size_of::<Self>()].copy_from_slice(sealed.as_bytes());
        page
    }

    /// Reads page 0 of a device of `device_pages` pages and `device_slots` slots.
    ///
    /// # Errors
    /// [`Error::NotThis`], [`Error::Version`], [`Error::Superblock`].
    pub fn decode(page: &[u8; PAGE], device_pages: u64, device_slots: u64) -> Result<Self> {
        let (sb, _) = Self::read_from_prefix(page).map_err(|_| Error::NotThis { title: TITLE })?;
        recognise(TITLE, sb.magic == MAGIC, (sb.version.get(), VERSION), sb.crc.get() == sb.checksum())?;
        let fits = (PAGES_MIN..=device_pages.min(PAGES_MAX)).contains(&sb.pages.get())
            && (SLOTS_MIN..=device_slots).contains(&sb.slots.get())
            && (2..=sb.pages.get()).contains(&sb.inodes.get())
            && crate::Crash::of_number(sb.crash.get()).is_some()
            && Layout::of(&sb).first_block < sb.pages.get();
        let why = if !fits {
            "one of its sizes is wrong"
        } else if sb.first_stamp.get() >= u64::MAX / 2 {
            "its first time stamp leaves no room for later ones"
        } else {
            return Ok(sb);
        };
        Err(Error::Superblock { title: TITLE, why })
    }

    /// The label.
    pub fn label(&self) -> String {
        label_text(&self.label)
    }
}

/// A bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Pages in use.
    Blocks,
    /// Inode numbers in use.
    Inodes,
    /// Inodes that the next mount finishes: without names, or cut to their size.
    Orphans,
}

/// Where everything is on flash, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub pages: u64,
    pub inodes: u64,
    pub blocks_map: u64,
    pub inodes_map: u64,
    pub orphans_map: u64,
    pub inode_table: u64,
    /// Copies of slots, one page each, for the variant that does not rely on capacitors.
    pub log: u64,
    pub first_block: u64,
}

impl Layout {
    /// What a superblock's numbers make.
    pub const fn of(superblock: &Superblock) -> Self {
        let (pages, inodes) = (superblock.pages.get(), superblock.inodes.get());
        let blocks_map = 1;
        let inodes_map = blocks_map + pages.div_ceil(BITS);
        let orphans_map = inodes_map + (inodes + 1).div_ceil(BITS);
        let inode_table = orphans_map + (inodes + 1).div_ceil(BITS);
        let log = inode_table + inodes.div_ceil(INODES);
        Self {
            pages,
            inodes,
            blocks_map,
            inodes_map,
            orphans_map,
            inode_table,
            log,
            first_block: log + superblock.slots.get(),
        }
    }

    /// The first page of a bitmap.
    pub const fn map(&self, map: Map) -> u64 {
        match map {
            Map::Blocks => self.blocks_map,
            Map::Inodes => self.inodes_map,
            Map::Orphans => self.orphans_map,
        }
    }

    /// Bits of a bitmap.
    pub const fn bits(&self, map: Map) -> u64 {
        match map {
            Map::Blocks => self.pages,
            Map::Inodes | Map::Orphans => self.inodes + 1,
        }
    }

    /// The page of an inode and where it begins there.
    pub const fn inode(&self, ino: u64) -> (u64, usize) {
        let index = ino - 1;
        (self.inode_table + index / INODES, (index % INODES) as usize * size_of::<Inode>())
    }

    /// Whether a page can be a block of a file or of a directory.
    pub const fn is_block(&self, page: u64) -> bool {
        page >= self.first_block && page < self.pages
    }
}

impl Footer {
    /// Gives a page its footer.
    pub fn seal(page: &mut [u8; PAGE], number: u64, stamp: u64) {
        let footer = Self { stamp: stamp.into(), page: (number as u32).into(), crc: 0.into() };
        page[BODY..].copy_from_slice(footer.as_bytes());
        let crc = U32::from(crc32c::crc32c(page));
        page[PAGE - 4..].copy_from_slice(crc.as_bytes());
    }

    /// The time stamp of a page; one that was never written has 0. `None`: the page is damaged.
    pub fn open(page: &mut [u8; PAGE], number: u64) -> Option<u64> {
        let footer = Self::read_from_bytes(&page[BODY..]).ok()?;
        if footer.crc.get() == 0 && page.iter().all(|byte| *byte == 0) {
            return Some(0);
        }
        page[PAGE - 4..].fill(0);
        let sound = crc32c::crc32c(page) == footer.crc.get() && u64::from(footer.page.get()) == number;
        sound.then(|| footer.stamp.get())
    }
}

impl SlotHead {
    /// The head of a slot that has just been emptied.
    pub fn new(ino: u64, generation: u32, purpose: Use, epoch: u64) -> Self {
        let head = Self {
            ino: ino.into(),
            epoch: epoch.into(),
            generation: generation.into(),
            purpose: purpose as u8,
            ..Self::new_zeroed()
        };
        Self { crc: head.checksum().into(), ..head }
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(Self { crc: 0.into(), ..*self }.as_bytes())
    }

    /// The head of a slot that is nobody's.
    pub fn nobodys(epoch: u64) -> Self {
        let head = Self { epoch: epoch.into(), ..Self::new_zeroed() };
        Self { crc: head.checksum().into(), ..head }
    }

    /// The head of a slot. `None`: there is none.
    pub fn read(slot: &[u8; PAGE]) -> Option<Self> {
        let (head, _) = Self::read_from_prefix(slot).ok()?;
        (head.crc.get() == head.checksum()).then_some(head)
    }

    /// What the slot is for. `None`: it is nobody's.
    pub const fn purpose(&self) -> Option<Use> {
        match self.purpose {
            1 => Some(Use::Journal),
            2 => Some(Use::Queue),
            _ => None,
        }
    }
}

impl EntryMark {
    /// The checksum of an entry.
    pub fn checksum(&self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(Self { crc: 0.into(), ..*self }.as_bytes()), body)
    }
}

/// Bytes that an entry of a slot takes.
pub const fn entry_bytes(body: usize) -> usize {
    (size_of::<EntryMark>() + body).next_multiple_of(8)
}

/// The entries of a slot, up to the first that is not whole.
pub fn entries(slot: &[u8; PAGE], epoch: U64) -> impl Iterator<Item = (EntryMark, &[u8])> {
    let mut rest = &slot[size_of::<SlotHead>()..];
    std::iter::from_fn(move || {
        let (mark, behind) = EntryMark::read_from_prefix(rest).ok()?;
        let body = behind.get(..usize::from(mark.bytes.get()))?;
        if mark.epoch != epoch || mark.crc.get() != mark.checksum(body) {
            return None;
        }
        rest = rest.get(entry_bytes(body.len())..).unwrap_or_default();
        Some((mark, body))
    })
}

/// Units that an entry with a name of so many bytes takes.
pub const fn entry_units(name_bytes: usize) -> usize {
    (size_of::<EntryHead>() + name_bytes).div_ceil(UNIT)
}

/// Types as they are stored; 0 is none.
pub const TYPES: TypeCodes = TypeCodes([
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::CharDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
]);
