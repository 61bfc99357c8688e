//! Making, mounting and unmounting a ByteFS.

use std::sync::Arc;

use amphi_device::{BlockPort, Completion, Lpa, RecoverReport, Structure, WriteLog};
use amphi_names::Health;
use amphi_page_cache::{Budget, Limits};
use amphi_rt::sync::Padded;
use amphi_vfs::{Error, Ino};
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use crate::base::Base;
use crate::commit::journal::Journal;
use crate::commit::pending::Groups;
use crate::commit::replay::replay;
use crate::commit::tx::Tx;
use crate::commit::txtable::TxTable;
use crate::core::Core;
use crate::data::truncate::finish_orphan;
use crate::format::{
    AG_PAGES, FormatError, GROUP_BITS, INODE_BYTES, InodeLower, InodeUpper, LABEL_BYTES, LINE, Layout, MAGIC,
    MIN_PAGES, ORPHAN_PAGES, PAGE, ROOT_INO, SUPER_STATE_OFFSET, SuperState, Superblock, VERSION, mode,
};
use crate::index::inode_pages::InodePages;
use crate::options::{DataMode, MetadataMode, MountOptions, Variant};
use crate::planted::{self, Bug};
use crate::space::bitmap::{Bitmap, GroupPlace};
use crate::space::orphans::Orphans;

/// Bytes of device per inode unless told otherwise, as ext4 has it.
const BYTES_PER_INODE: u64 = 16_384;
/// The data journal's part of the device unless told otherwise, and its limit, 64 MB.
const JOURNAL_SHARE: u64 = 32;
const JOURNAL_PAGES_MAX: u64 = 16_384;
/// Fewest pages of a data journal: slots, a descriptor, and some pages.
const JOURNAL_PAGES_MIN: u32 = 8;

/// Most blocks held back for extent nodes: 16 MB.
const HELD_BACK_MAX: u64 = 4096;

/// How to make a file system.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Label, at most 32 bytes.
    pub label: String,
    /// Number of inodes, which is rounded up so that every allocation group has as many; `None`: one per 16
    /// KB.
    pub inodes: Option<u32>,
    /// Pages of the file system; `None`: all that the device has. The rest can be had later, with
    /// [`crate::tune::grow`]. What is too short for an allocation group at the end is left.
    pub pages: Option<u64>,
    /// Pages of the data journal; 0: none; `None`: a thirty-second part, 64 MB at the most.
    pub journal_pages: Option<u32>,
}

impl FormatOptions {
    /// Where everything goes on a device of `device_pages` pages.
    fn layout(&self, device_pages: u64) -> Layout {
        let pages = self.pages.unwrap_or(u64::MAX).min(device_pages).min(u64::from(u32::MAX));
        let wanted = self.inodes.map_or(pages * PAGE as u64 / BYTES_PER_INODE, u64::from);
        let most = u64::from(u32::MAX) / GROUP_BITS * GROUP_BITS;
        let each = wanted.div_ceil(pages.div_ceil(AG_PAGES).max(1));
        let ag_inodes = each.max(1).next_multiple_of(GROUP_BITS).min(most) as u32;
        let journal = self.journal_pages.unwrap_or((pages / JOURNAL_SHARE).min(JOURNAL_PAGES_MAX) as u32);
        Layout::plan(pages, ag_inodes, journal)
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
    /// A mount option is unknown or impossible.
    #[error("{0}")]
    Options(String),
    /// Something beyond the superblock is damaged.
    #[error(transparent)]
    Damaged(#[from] Error),
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
    /// Bytes that it can grow to.
    pub bytes_max: u64,
    /// Bytes of the data journal, 0 for none.
    pub journal_bytes: u64,
    /// Mount options that hold unless a mount says otherwise.
    pub options: String,
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
            bytes_max: sb.layout().grown(u64::from(u32::MAX)).pages * PAGE as u64,
            journal_bytes: u64::from(sb.journal_pages.get()) * PAGE as u64,
            options: sb.option_text(),
        }
    }
}

/// Reads both parts of the superblock.
///
/// # Errors
/// [`MountError::Format`], [`MountError::Device`].
pub fn read_super<D: BlockPort>(device: &D) -> Result<(Superblock, SuperState), MountError> {
    let mut page = Box::new([0; PAGE]);
    device.read(Lpa(0), &mut page[..], Structure::Superblock)?;
    let sb = Superblock::decode(&page, device.capacity_pages())?;
    Ok((sb, SuperState::decode(&page)))
}

/// Looks at the superblock before `RECOVER`, so that a device that holds something else is left alone. More
/// than the first bytes cannot be trusted yet: they may be those of a change that was never committed.
///
/// # Errors
/// [`MountError::Format`], [`MountError::Device`].
pub fn recognise<D: BlockPort>(device: &D) -> Result<(), MountError> {
    match read_super(device) {
        Ok(_) | Err(MountError::Format(FormatError::Checksum(_) | FormatError::Field(..))) => Ok(()),
        Err(error) => Err(error),
    }
}

/// `RECOVER`, where the firmware has a log; without one there is nothing to recover.
///
/// # Errors
/// The device's.
pub fn recover_log<D: WriteLog>(device: &D) -> amphi_device::Result<RecoverReport> {
    if device.contract().transactions { device.recover() } else { Ok(RecoverReport::default()) }
}

/// Makes an empty file system on `device`, over whatever was there.
///
/// The superblock is cleared first and written last: an interrupted format leaves no file system.
///
/// # Errors
/// [`MountError::Unsuitable`] if the device is too small or the label too long; [`MountError::Device`].
pub fn format<D: BlockPort + WriteLog>(device: &D, options: &FormatOptions) -> Result<(), MountError> {
    let unsuitable = |why: String| Err(MountError::Unsuitable(why));
    device.check_page_view()?;
    let capacity = device.capacity_pages();
    let layout = options.layout(capacity);
    let pages = layout.pages;
    if options.pages.is_some_and(|wanted| wanted > capacity) {
        return unsuitable(format!("it has {capacity} pages, fewer than asked for"));
    }
    if pages < MIN_PAGES {
        return unsuitable(format!("it has {pages} pages, fewer than {MIN_PAGES}"));
    }
    if options.label.len() > LABEL_BYTES {
        return unsuitable(format!("the label is longer than {LABEL_BYTES} bytes"));
    }
    if (1..JOURNAL_PAGES_MIN).contains(&layout.journal_pages) {
        return unsuitable(format!("a data journal needs at least {JOURNAL_PAGES_MIN} pages"));
    }
    if layout.ag_data(0) + 16 > layout.ag_end(0) || layout.check().is_err() {
        let Layout { inodes, journal_pages, .. } = layout;
        return unsuitable(format!(
            "{inodes} inodes and a data journal of {journal_pages} pages leave no room for data; ask for fewer"
        ));
    }
    recover_log(device)?;
    device.write(Lpa(0), &[0; PAGE], Structure::Superblock)?;
    device.trim(Lpa(1), capacity - 1)?;
    device.flush()?;
    for ag in 0..layout.ags() {
        write_block_bitmap(device, &layout, ag)?;
    }
    let mut first_inodes = [0; PAGE];
    set_first(&mut first_inodes, ROOT_INO as usize + 1);
    device.write(Lpa(layout.inode_bitmap(0)), &first_inodes, Structure::Bitmap)?;
    let now = amphi_rt::time::wall_ns();
    write_root(device, &layout, now)?;
    device.flush()?;

    let mut sb = Superblock::new_zeroed();
    sb.magic = MAGIC;
    sb.version = VERSION.into();
    sb.page_bytes = (PAGE as u32).into();
    sb.set_layout(&layout);
    sb.created_ns = now.into();
    sb.uuid = amphi_volume::random_uuid();
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

/// Sets the first `count` bits of a page.
fn set_first(page: &mut [u8; PAGE], count: usize) {
    page[..count / 8].fill(0xFF);
    if !count.is_multiple_of(8) {
        page[count / 8] = (1 << (count % 8)) - 1;
    }
}

/// Writes the block bitmap of an allocation group of which nothing is in use but its metadata.
///
/// # Errors
/// The device's.
pub fn write_block_bitmap<D: BlockPort>(device: &D, layout: &Layout, ag: u64) -> amphi_device::Result<()> {
    let mut page = [0; PAGE];
    set_first(&mut page, (layout.ag_data(ag) % AG_PAGES) as usize);
    device.write(Lpa(layout.block_bitmap(ag)), &page, Structure::Bitmap)
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

/// Commands in flight while the bitmaps are read.
const READS: usize = 64;

/// Both bitmaps, of pages and of inodes, as the device has them. A group's pages of either lie beside each
/// other.
fn read_bitmaps<D: BlockPort>(device: &D, layout: &Layout) -> amphi_device::Result<(Bitmap, Bitmap)> {
    let ag_bytes = (1 + layout.inode_bitmap_pages()) as usize * PAGE;
    let mut bytes = vec![0; layout.ags() as usize * ag_bytes];
    let numbered: Vec<u64> = (0..layout.ags()).collect();
    for (ags, window) in numbered.chunks(READS).zip(bytes.chunks_mut(READS * ag_bytes)) {
        let submit = |(ag, into)| device.submit_read(Lpa(layout.block_bitmap(ag)), into, Structure::Bitmap);
        let tickets: Vec<_> = ags.iter().copied().zip(window.chunks_mut(ag_bytes)).map(submit).collect();
        tickets.into_iter().try_for_each(|ticket| ticket.and_then(Completion::wait))?;
    }
    let ag_inode_lines = (u64::from(layout.ag_inodes) / GROUP_BITS) as usize;
    let lines = |from: usize, count: usize| {
        let parts = bytes.chunks(ag_bytes).map(move |ag| &ag[from..from + count * LINE]);
        parts.flat_map(|part| part.as_chunks::<LINE>().0).copied()
    };
    let blocks = (0..)
        .map(|line| GroupPlace { at: layout.block_line(line), fixed: layout.fixed_in_line(line) as u32 });
    let inodes = (0..).map(|line| GroupPlace { at: layout.inode_line(line), fixed: 0 });
    Ok((
        Bitmap::load(layout.pages, blocks.zip(lines(0, PAGE / LINE))),
        Bitmap::load(u64::from(layout.inodes), inodes.zip(lines(PAGE, ag_inode_lines))),
    ))
}

/// The orphan table as the device has it.
fn read_orphans<D: BlockPort>(device: &D, layout: &Layout) -> amphi_device::Result<Orphans> {
    let mut bytes = vec![0; ORPHAN_PAGES as usize * PAGE];
    device.read(Lpa(u64::from(layout.orphans)), &mut bytes, Structure::Inode)?;
    Ok(Orphans::load(u64::from(layout.orphans), &bytes))
}

/// Recovers the device, reads the bitmaps, deletes orphans, and notes that the file system is in use.
///
/// # Errors
/// As [`MountError`] says.
pub fn open<D: BlockPort + WriteLog>(
    device: Arc<D>,
    options: MountOptions,
) -> Result<(Core<D>, RecoverReport), MountError> {
    let mut options = options;
    match (device.contract().transactions, options.variant) {
        (true, Variant::Dual) => {
            return Err(MountError::Unsuitable(
                "variant=dual is for firmware without a write log (amphi mkfs --firmware page-cache)".into(),
            ));
        }
        (true, _) => {}
        (false, _) if options.data == DataMode::Journal => {
            return Err(MountError::Unsuitable(
                "data=journal needs firmware with a write log; mount it with data=ordered".into(),
            ));
        }
        (false, _) => options.variant = Variant::Dual,
    }
    let grouped = options.metadata == MetadataMode::Grouped;
    if grouped && (options.data == DataMode::Journal || options.variant == Variant::Dual) {
        return Err(MountError::Unsuitable(
            "metadata=grouped goes with data=ordered, on firmware with a write log".into(),
        ));
    }
    if options.byte_threshold == 0 || options.page_cache_pages == 0 {
        return Err(MountError::Unsuitable("a threshold and a cache of zero are not possible".into()));
    }
    recognise(&*device)?;
    device.check_page_view()?;
    let report =
        if planted::has(Bug::RecoverSkipped) { RecoverReport::default() } else { recover_log(&*device)? };
    let (sb, mut state) = read_super(&*device)?;
    let layout = sb.layout();
    if options.data == DataMode::Journal && layout.journal_pages == 0 {
        return Err(MountError::Unsuitable(
            "it was made without a data journal, which data=journal needs; mount it with data=ordered".into(),
        ));
    }
    if options.variant == Variant::Dual && layout.journal_pages == 0 {
        return Err(MountError::Unsuitable(
            "it was made without a journal, which firmware without a write log needs; make it anew".into(),
        ));
    }
    let replayed = replay(&*device, &layout)?;
    if let Some((slot, reason)) = replayed.bad.first() {
        let what = format!("it cannot be replayed ({reason}); run amphi fsck --repair");
        return Err(MountError::Damaged(Error::corrupt("data journal's slot", u64::from(*slot), what)));
    }
    let (blocks, inodes) = read_bitmaps(&*device, &layout)?;
    // As ext4 has it: what splits reserved extents, or cuts a hole, finds a block however full the rest is.
    let held_back = (layout.pages / 50).min(HELD_BACK_MAX);
    let blocks = blocks.hold_back(held_back);
    let orphans = read_orphans(&*device, &layout)?;
    let damaged = |place, what: &str| MountError::Damaged(Error::corrupt(place, None, what.to_owned()));
    if !(0..=u64::from(ROOT_INO)).all(|ino| inodes.is_used(ino)) {
        return Err(damaged("inode bitmap", "it marks the root directory as free"));
    }
    if !blocks.fixed_are_set() {
        return Err(damaged("block bitmap", "it marks metadata as free"));
    }
    state.mounts = state.mounts.get().saturating_add(1).into();
    state.mounted_ns = amphi_rt::time::wall_ns().into();
    state.clean = 0.into();
    let read_only = options.read_only;
    let journal = Journal::new(&layout, state.mounts.get());
    let limit = options.page_cache_pages;
    let low = limit - limit / 16;
    let limits = Limits { frames: limit, drop_to: low, enough: low, dirty: options.dirty_limit() };
    let core = Core::new(Base {
        contract: device.contract(),
        device,
        superblock: sb,
        state,
        layout,
        options,
        blocks,
        inodes,
        orphans,
        journal,
        txs: TxTable::default(),
        groups: Groups::default(),
        inode_pages: InodePages::default(),
        pages: Padded(Budget::new(limits)),
        health: Arc::new(Health::new(read_only)),
    });
    core.inode(Ino::ROOT)?.state.read().body.dir()?;
    if !read_only {
        for &(slot, ino) in core.orphans.found().iter().filter(|_| !planted::has(Bug::OrphansNotFinished)) {
            let inode = core.inode(Ino(u64::from(ino))).map_err(|error| {
                damaged("orphan table", &format!("it names inode {ino}, which cannot be read: {error}"))
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
pub fn write_state<D: BlockPort + WriteLog>(base: &Base<D>, state: SuperState) -> amphi_vfs::Result<()> {
    let mut tx = Tx::new(base, 0)?;
    tx.write(SUPER_STATE_OFFSET as u64, &state.encode(), Structure::Superblock);
    tx.commit()?;
    base.commit_groups()
}
