//! Making, mounting and unmounting a ByteFS.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, RecoverReport, Structure, WriteLog};
use amphi_vfs::{AccessTimes, Ino};
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use crate::bitmap::Bitmap;
use crate::core::Core;
use crate::format::{
    FormatError, GROUP_BITS, INODE_BYTES, InodeLower, InodeUpper, LABEL_BYTES, LINE, Layout, MAGIC,
    MIN_PAGES, PAGE, ROOT_INO, SUPER_STATE_OFFSET, SuperState, Superblock, VERSION, mode,
};
use crate::orphans::Orphans;
use crate::truncate::finish_orphan;
use crate::tx::Tx;

/// Bytes of device per inode unless told otherwise, as ext4 has it.
const BYTES_PER_INODE: u64 = 16_384;

/// How to make a file system.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Label, at most 32 bytes.
    pub label: String,
    /// Number of inodes; `None`: one per 16 KB.
    pub inodes: Option<u32>,
}

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// A page goes by bytes if fewer than one in so many of its lines were modified (BY-14: 8).
    pub byte_threshold: u32,
    /// Pages of file data to cache in host DRAM; duplicates of modified ones come on top.
    pub page_cache_pages: usize,
    /// Inodes to cache in host DRAM.
    pub inode_cache: usize,
    /// How often dirty files are written back in the background, ns; 0: never.
    pub write_back_interval_ns: u64,
    /// When reading moves access times.
    pub access_times: AccessTimes,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            byte_threshold: 8,
            page_cache_pages: 65_536,
            inode_cache: 262_144,
            write_back_interval_ns: 5_000_000_000,
            access_times: AccessTimes::default(),
        }
    }
}

/// Why a file system could not be made or mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// What is on the device is not a ByteFS of this version, or its superblock is damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] amphi_device::Error),
    /// The device cannot carry a ByteFS.
    #[error("ByteFS cannot use this device: {0}")]
    Unsuitable(String),
    /// Something beyond the superblock is damaged.
    #[error(transparent)]
    Damaged(#[from] amphi_vfs::Error),
}

/// What a superblock says, for people.
#[derive(Clone, Debug)]
pub struct Info {
    /// Label.
    pub label: String,
    /// Unique name.
    pub uuid: [u8; 16],
    /// Creation time, ns since 1970.
    pub created_ns: i64,
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u32,
    /// How often it was mounted.
    pub mounts: u64,
    /// Last mount, ns since 1970; 0: never.
    pub mounted_ns: i64,
    /// Whether the last mount ended cleanly.
    pub clean: bool,
}

/// Reads the superblock, changing nothing.
///
/// # Errors
/// [`MountError::Format`], [`MountError::Device`].
pub fn probe<D: BlockPort>(device: &D) -> Result<Info, MountError> {
    let (sb, state) = read_super(device)?;
    Ok(Info::of(&sb, &state))
}

impl Info {
    /// What the two parts of the superblock say.
    pub(crate) fn of(sb: &Superblock, state: &SuperState) -> Self {
        Self {
            label: sb.label_text(),
            uuid: sb.uuid,
            created_ns: sb.created_ns.get(),
            bytes: sb.pages.get() * PAGE as u64,
            inodes: sb.inodes.get(),
            mounts: state.mounts.get(),
            mounted_ns: state.mounted_ns.get(),
            clean: state.clean.get() == 1,
        }
    }
}

fn read_super<D: BlockPort>(device: &D) -> Result<(Superblock, SuperState), MountError> {
    let mut page = Box::new([0; PAGE]);
    device.read(Lpa(0), &mut page[..], Structure::Superblock)?;
    let sb = Superblock::decode(&page, device.capacity_pages())?;
    Ok((sb, SuperState::decode(&page)))
}

/// Makes an empty file system on `device`, over whatever was there.
///
/// The superblock is cleared first and written last: an interrupted format leaves no file system.
///
/// # Errors
/// [`MountError::Unsuitable`] if the device is too small or the label too long; [`MountError::Device`].
pub fn format<D: BlockPort + WriteLog>(device: &D, options: &FormatOptions) -> Result<(), MountError> {
    let unsuitable = |why: String| Err(MountError::Unsuitable(why));
    let pages = device.capacity_pages().min(u64::from(u32::MAX));
    if !device.contract().transactions {
        return unsuitable("its firmware has no transactions (COMMIT, RECOVER)".into());
    }
    if pages < MIN_PAGES {
        return unsuitable(format!("it has {pages} pages, fewer than {MIN_PAGES}"));
    }
    if options.label.len() > LABEL_BYTES {
        return unsuitable(format!("the label is longer than {LABEL_BYTES} bytes"));
    }
    let wanted = options.inodes.map_or(pages * PAGE as u64 / BYTES_PER_INODE, u64::from);
    let inodes =
        wanted.max(64).next_multiple_of(GROUP_BITS).min(u64::from(u32::MAX) / GROUP_BITS * GROUP_BITS) as u32;
    let layout = Layout::plan(pages, inodes);
    if u64::from(layout.data) + 16 > pages {
        return unsuitable(format!("{inodes} inodes leave no room for data; ask for fewer"));
    }
    device.recover()?;
    device.write(Lpa(0), &[0; PAGE], Structure::Superblock)?;
    device.trim(Lpa(1), pages - 1)?;
    device.flush()?;
    write_bitmap(device, layout.inode_bitmap, u64::from(ROOT_INO) + 1)?;
    write_bitmap(device, layout.block_bitmap, u64::from(layout.data))?;
    let now = amphi_rt::time::wall_ns();
    write_root(device, &layout, now)?;
    device.flush()?;

    let mut sb = Superblock::new_zeroed();
    sb.magic = MAGIC;
    sb.version = VERSION.into();
    sb.page_bytes = (PAGE as u32).into();
    sb.pages = pages.into();
    sb.inodes = inodes.into();
    sb.inode_bitmap = layout.inode_bitmap.into();
    sb.block_bitmap = layout.block_bitmap.into();
    sb.orphans = layout.orphans.into();
    sb.inode_table = layout.inode_table.into();
    sb.data = layout.data.into();
    sb.created_ns = now.into();
    for half in sb.uuid.as_chunks_mut::<8>().0 {
        *half = amphi_rt::random::u64().to_le_bytes();
    }
    sb.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    sb.crc = sb.checksum().into();
    let mut state = SuperState::new_zeroed();
    state.clean = U32::new(1);
    let mut page = [0; PAGE];
    page[..SUPER_STATE_OFFSET].copy_from_slice(sb.as_bytes());
    page[SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE].copy_from_slice(&state.encode());
    device.write(Lpa(0), &page, Structure::Superblock)?;
    device.flush()?;
    Ok(())
}

/// Writes the pages of a bitmap whose first `set` bits are set; the rest was trimmed and reads as zeros.
fn write_bitmap<D: BlockPort>(device: &D, first_page: u32, set: u64) -> Result<(), MountError> {
    let bits_per_page = (PAGE * 8) as u64;
    for page_index in 0..set.div_ceil(bits_per_page) {
        let mut page = [0_u8; PAGE];
        let here = (set - page_index * bits_per_page).min(bits_per_page) as usize;
        page[..here / 8].fill(0xFF);
        if !here.is_multiple_of(8) {
            page[here / 8] = (1 << (here % 8)) - 1;
        }
        device.write(Lpa(u64::from(first_page) + page_index), &page, Structure::Bitmap)?;
    }
    Ok(())
}

fn write_root<D: BlockPort>(device: &D, layout: &Layout, now: i64) -> Result<(), MountError> {
    let mut lower = InodeLower::new_zeroed();
    lower.mode = (mode::DIRECTORY | 0o755).into();
    lower.nlink = 2.into();
    (lower.atime, lower.mtime, lower.ctime) = (now.into(), now.into(), now.into());
    let mut upper = InodeUpper::new_zeroed();
    upper.parent_or_rdev = ROOT_INO.into();
    let (page_index, offset) = layout.inode_page(ROOT_INO);
    let mut page = [0; PAGE];
    page[offset..offset + LINE].copy_from_slice(&lower.encode(ROOT_INO));
    page[offset + LINE..offset + INODE_BYTES].copy_from_slice(&upper.encode(ROOT_INO));
    device.write(Lpa(page_index), &page, Structure::Inode)?;
    Ok(())
}

fn read_pages<D: BlockPort>(
    device: &D,
    first: u32,
    pages: u64,
    tag: Structure,
) -> Result<Vec<u8>, MountError> {
    const COMMAND_PAGES: usize = 256;
    let mut bytes = vec![0; pages as usize * PAGE];
    for (i, chunk) in bytes.chunks_mut(COMMAND_PAGES * PAGE).enumerate() {
        device.read(Lpa(u64::from(first)).plus((i * COMMAND_PAGES) as u64), chunk, tag)?;
    }
    Ok(bytes)
}

/// Recovers the device, reads the bitmaps, deletes orphans, and notes that the file system is in use.
///
/// # Errors
/// As [`MountError`] says.
pub fn open<D: BlockPort + WriteLog>(
    device: Arc<D>,
    options: MountOptions,
) -> Result<(Core<D>, RecoverReport), MountError> {
    if !device.contract().transactions {
        return Err(MountError::Unsuitable("its firmware has no transactions (COMMIT, RECOVER)".into()));
    }
    if options.byte_threshold == 0 || options.page_cache_pages == 0 {
        return Err(MountError::Unsuitable("a threshold and a cache of zero are not possible".into()));
    }
    // Looked at before RECOVER, so that a device that holds something else is left alone.
    read_super(&*device)?;
    let report = device.recover()?;
    let (sb, mut state) = read_super(&*device)?;
    let layout = Layout::of(&sb);
    let bitmap_pages = |bits: u64| bits.div_ceil((PAGE * 8) as u64);
    let inode_bytes =
        read_pages(&*device, layout.inode_bitmap, bitmap_pages(u64::from(layout.inodes)), Structure::Bitmap)?;
    let block_bytes =
        read_pages(&*device, layout.block_bitmap, bitmap_pages(layout.pages), Structure::Bitmap)?;
    let orphan_bytes =
        read_pages(&*device, layout.orphans, u64::from(crate::format::ORPHAN_PAGES), Structure::Inode)?;
    let inodes = Bitmap::load(u64::from(layout.inodes), u64::from(layout.inode_bitmap), &inode_bytes);
    let blocks = Bitmap::load(layout.pages, u64::from(layout.block_bitmap), &block_bytes);
    let damaged = |what: &str| MountError::Damaged(amphi_vfs::Error::Corrupt(what.into()));
    if !(0..=u64::from(ROOT_INO)).all(|ino| inodes.is_used(ino)) {
        return Err(damaged("the inode bitmap marks the root directory as free"));
    }
    if !(0..u64::from(layout.data)).all(|page| blocks.is_used(page)) {
        return Err(damaged("the block bitmap marks metadata as free"));
    }
    let orphans = Orphans::load(u64::from(layout.orphans), &orphan_bytes);
    state.mounts = state.mounts.get().saturating_add(1).into();
    state.mounted_ns = amphi_rt::time::wall_ns().into();
    state.clean = 0.into();
    let read_only = options.read_only;
    let core = Core::new(device, sb, state, layout, options, blocks, inodes, orphans);
    core.inode(Ino::ROOT)?.state.read().dir()?;
    if !read_only {
        for (slot, ino) in core.orphans.filled() {
            let inode = core.inode(Ino(u64::from(ino))).map_err(|error| {
                damaged(&format!("the orphan table names inode {ino}, which cannot be read: {error}"))
            })?;
            finish_orphan(&core, &inode, slot)?;
        }
        write_state(&core, state)?;
    }
    Ok((core, report))
}

/// Writes the changing part of the superblock.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn write_state<D: BlockPort + WriteLog>(core: &Core<D>, state: SuperState) -> amphi_vfs::Result<()> {
    let mut tx = Tx::new(core, 0)?;
    tx.write(SUPER_STATE_OFFSET as u64, &state.encode(), Structure::Superblock);
    tx.commit()
}
