//! Making, mounting and unmounting.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_vfs::{Error, Failure, Ino};
pub use amphi_volume::Error as MountError;
use amphi_volume::{About, Identity, Needs, io_error, label_bytes, random_uuid};
use serde_json::Map;
use zerocopy::{FromBytes, FromZeros};

use crate::core::Core;
use crate::data::truncate::finish_orphan;
use crate::format::{
    BLOCK, BLOCKS_MIN, DESCRIPTORS_PER_BLOCK, DiskInode, FIRST_INO, GROUP_BLOCKS, GroupDescriptor,
    INODE_BYTES, INODES_PER_BLOCK, Layout, MAGIC, ROOT_EXTENTS, ROOT_INO, Superblock, TITLE, VERSION, mode,
    seal_block,
};
use crate::index::extent::{Run, write_node};
use crate::journal::Journal;
use crate::journal::buffers::Kind;
use crate::journal::replay;
use crate::options::MountOptions;
use crate::space::bits;
use crate::space::groups::Groups;

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "ext4like",
    title: TITLE,
    summary: "A block-only journaling file system of ext4's kind: the baseline",
    words: MountOptions::WORDS,
    needs: Needs::Blocks,
};

/// Bytes of device per inode unless told otherwise, as mke2fs has it.
const BYTES_PER_INODE: u64 = 16_384;

/// How to make a file system.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Label, at most 32 bytes.
    pub label: String,
    /// Number of inodes, about; `None`: one per 16 KB.
    pub inodes: Option<u32>,
    /// Blocks of the file system; `None`: all that the device has.
    pub blocks: Option<u64>,
    /// Blocks of the journal; `None`: as mke2fs chooses.
    pub journal_blocks: Option<u32>,
}

impl FormatOptions {
    fn layout(&self, device_blocks: u64) -> Layout {
        let blocks = self.blocks.unwrap_or(u64::MAX).min(device_blocks).min(u64::from(u32::MAX) / 2);
        let groups = blocks.div_ceil(u64::from(GROUP_BLOCKS)).max(1);
        let wanted = self.inodes.map_or(blocks * BLOCK as u64 / BYTES_PER_INODE, u64::from).max(64);
        let per_group = wanted
            .div_ceil(groups)
            .next_multiple_of(u64::from(INODES_PER_BLOCK))
            .min(u64::from(GROUP_BLOCKS));
        Layout::plan(blocks, per_group as u32, self.journal_blocks.unwrap_or_else(|| usual_journal(blocks)))
    }
}

/// The size of the journal that mke2fs chooses; below 128 MB, an eighth where that is less than its 4 MB.
const fn usual_journal(blocks: u64) -> u32 {
    match blocks {
        0..8_192 => {
            let eighth = (blocks / 8) as u32;
            if eighth < Layout::JOURNAL_MIN { Layout::JOURNAL_MIN } else { eighth }
        }
        8_192..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16_384,
        4_194_304..8_388_608 => 32_768,
        8_388_608..16_777_216 => 65_536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    }
}

/// What a superblock says, for people.
pub fn about(sb: &Superblock) -> About {
    let bytes = sb.blocks.get() * BLOCK as u64;
    About {
        name: IDENTITY.name,
        label: sb.label_text(),
        uuid: sb.uuid,
        size_bytes: bytes,
        size_max_bytes: bytes,
        journal_bytes: u64::from(sb.journal_blocks.get()) * BLOCK as u64,
        mount_options: String::new(),
        inodes: Layout::of(sb).inodes().into(),
        mounts: sb.mounts.get(),
        clean: sb.clean.get() == 1,
        own: Map::new(),
    }
}

/// Reads the superblock, changing nothing.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn probe<D: BlockPort>(device: &D) -> Result<About, MountError> {
    Ok(about(&read_super(device)?))
}

/// Reads the superblock.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn read_super<D: BlockPort>(device: &D) -> Result<Superblock, MountError> {
    let mut block = Box::new([0; BLOCK]);
    device.read(Lpa(0), &mut block[..], Structure::Superblock)?;
    Superblock::decode(&block, device.capacity_pages())
}

/// Makes an empty file system on `device`, over whatever was there.
///
/// The superblock is cleared first and written last: an interrupted format leaves no file system.
///
/// # Errors
/// [`MountError::Unsuitable`] if the device is too small or the label too long; [`MountError::Device`].
pub fn format<D: BlockPort>(device: &D, options: &FormatOptions) -> Result<(), MountError> {
    let unsuitable = |why: String| Err(MountError::unsuitable("the ext4-like file system", &why));
    let layout = options.layout(device.capacity_pages());
    let blocks = u64::from(layout.blocks);
    if options.blocks.is_some_and(|wanted| wanted > blocks) || blocks < BLOCKS_MIN {
        return unsuitable(format!("it would have {blocks} blocks, too few"));
    }
    let label = label_bytes(&options.label)?;
    if layout.journal_blocks < Layout::JOURNAL_MIN {
        return unsuitable(format!("the journal needs at least {} blocks", Layout::JOURNAL_MIN));
    }
    if u64::from(layout.data) + 16 > blocks {
        return unsuitable("inodes and journal leave no room for data; ask for fewer".to_owned());
    }
    device.write(Lpa(0), &[0; BLOCK], Structure::Superblock)?;
    device.trim(Lpa(1), device.capacity_pages() - 1)?;
    device.flush()?;
    let now = amphi_rt::time::wall_ns();
    // The root directory's block is the first one for data.
    write_groups(device, &layout, layout.data + 1)?;
    write_root(device, &layout, now)?;
    let mut sb = Superblock::new_zeroed();
    sb.magic = MAGIC;
    sb.version = VERSION.into();
    sb.block_bytes = (BLOCK as u32).into();
    sb.blocks = blocks.into();
    sb.inodes_per_group = layout.inodes_per_group.into();
    sb.journal_blocks = layout.journal_blocks.into();
    sb.hash_seed = amphi_rt::random::u64().into();
    sb.created_ns = now.into();
    (sb.uuid, sb.label) = (random_uuid(), label);
    sb.blocks_free = (blocks - u64::from(layout.data) - 1).into();
    sb.inodes_free = u64::from(layout.inodes() - FIRST_INO).into();
    sb.clean = 1.into();
    replay::clear(device, &layout, sb.journal_seed(), 1)?;
    device.write(Lpa(0), &sb.encode(), Structure::Superblock)?;
    device.flush()?;
    Ok(())
}

/// Writes descriptors and bitmaps of a file system whose first `used` blocks are in use. Bitmaps without a
/// bit set are left: they were trimmed.
fn write_groups<D: BlockPort>(device: &D, layout: &Layout, used: u32) -> Result<(), MountError> {
    let mut descriptors = vec![[0; BLOCK]; layout.groups.div_ceil(DESCRIPTORS_PER_BLOCK) as usize];
    for group in 0..layout.groups {
        let here = layout.group_blocks(group);
        let first = group * GROUP_BLOCKS;
        let mut blocks = [0; BLOCK];
        let taken = used.saturating_sub(first).min(here);
        bits::change(&mut blocks, 0, taken, true);
        // What is behind the end of the device is in use for ever.
        bits::change(&mut blocks, here, GROUP_BLOCKS - here, true);
        let mut inodes = [0; BLOCK];
        let reserved = FIRST_INO.saturating_sub(group * layout.inodes_per_group).min(layout.inodes_per_group);
        bits::change(&mut inodes, 0, reserved, true);
        bits::change(&mut inodes, layout.inodes_per_group, GROUP_BLOCKS - layout.inodes_per_group, true);
        let mut descriptor = GroupDescriptor::new_zeroed();
        descriptor.block_bitmap_crc = crc32c::crc32c(&blocks).into();
        descriptor.inode_bitmap_crc = crc32c::crc32c(&inodes).into();
        descriptor.blocks_free = (here - taken).into();
        descriptor.inodes_free = (layout.inodes_per_group - reserved).into();
        descriptor.directories = u32::from(group == 0).into();
        let (lba, at) = layout.descriptor_place(group);
        descriptors[(lba - u64::from(layout.descriptors)) as usize][at..at + 64]
            .copy_from_slice(&descriptor.encode(group));
        for (first, bitmap) in [(layout.block_bitmaps, &blocks), (layout.inode_bitmaps, &inodes)] {
            if bitmap.iter().any(|byte| *byte != 0) {
                device.write(Lpa(u64::from(first + group)), &bitmap[..], Structure::Bitmap)?;
            }
        }
    }
    for (i, block) in descriptors.iter().enumerate() {
        device.write(Lpa(u64::from(layout.descriptors) + i as u64), &block[..], Structure::Bitmap)?;
    }
    Ok(())
}

fn write_root<D: BlockPort>(device: &D, layout: &Layout, now: i64) -> Result<(), MountError> {
    let mut inode = DiskInode::new_zeroed();
    inode.mode = (mode::DIRECTORY | 0o755).into();
    inode.nlink = 2.into();
    inode.size = (BLOCK as u64).into();
    (inode.atime, inode.mtime, inode.ctime) = (now.into(), now.into(), now.into());
    inode.blocks = 1.into();
    let run = Run { file_block: 0, start: layout.data, len: 1, unwritten: false };
    write_node(&mut inode.root, ROOT_EXTENTS, 0, &[crate::index::extent::disk(&run)]);
    let (lba, at) = layout.inode_place(ROOT_INO);
    let mut block = [0; BLOCK];
    block[at..at + INODE_BYTES].copy_from_slice(&inode.encode(ROOT_INO));
    device.write(Lpa(lba), &block, Structure::Inode)?;
    let mut block = crate::index::dir::first_block(ROOT_INO, ROOT_INO);
    seal_block(u64::from(layout.data), &mut block);
    device.write(Lpa(u64::from(layout.data)), &block, Structure::Dentry)?;
    Ok(())
}

/// Reads and checks all group descriptors.
///
/// # Errors
/// [`MountError::Damaged`], [`MountError::Device`].
pub fn read_descriptors<D: BlockPort>(
    device: &D,
    layout: &Layout,
) -> Result<Vec<GroupDescriptor>, MountError> {
    let damaged =
        |group: u32, what: String| MountError::Damaged(Error::corrupt("group", u64::from(group), what));
    let mut bytes = vec![0; layout.groups.div_ceil(DESCRIPTORS_PER_BLOCK) as usize * BLOCK];
    device.read(Lpa(u64::from(layout.descriptors)), &mut bytes, Structure::Bitmap)?;
    let mut descriptors = Vec::new();
    for (group, bytes) in (0..layout.groups).zip(bytes.as_chunks::<64>().0) {
        let descriptor =
            GroupDescriptor::decode(bytes, group).map_err(|error| damaged(group, error.to_string()))?;
        let possible = descriptor.blocks_free.get() <= layout.group_blocks(group)
            && descriptor.inodes_free.get() <= layout.inodes_per_group;
        if !possible {
            return Err(damaged(group, "more is free than there is".to_owned()));
        }
        descriptors.push(descriptor);
    }
    Ok(descriptors)
}

/// Replays the journal, reads the descriptors, deletes orphans, and notes that the file system is in use.
/// Returns how many transactions were replayed.
///
/// # Errors
/// As [`MountError`] says.
pub fn open<D: BlockPort>(device: Arc<D>, options: MountOptions) -> Result<(Core<D>, u32), MountError> {
    if options.page_cache_pages == 0 {
        return Err(MountError::Unsuitable("a cache of zero is not possible".to_owned()));
    }
    let sb = read_super(&*device)?;
    let (layout, seed) = (Layout::of(&sb), sb.journal_seed());
    let log = replay::read(&*device, &layout, seed)?;
    if log.transactions > 0 && options.read_only {
        // Reading what the journal holds from there would need a second way to every block.
        return Err(MountError::Unsuitable(
            "its journal must be replayed first; mount it writable once".to_owned(),
        ));
    }
    if !options.read_only {
        replay::apply(&*device, &layout, &log)?;
        replay::clear(&*device, &layout, seed, log.next)?;
    }
    let mut sb = read_super(&*device)?;
    if Layout::of(&sb) != layout {
        return Err(MountError::Damaged(Error::corrupt(
            "journal",
            None,
            "it holds another file system's superblock",
        )));
    }
    let first_orphan = sb.last_orphan.get();
    if !options.read_only {
        sb.mounts = sb.mounts.get().saturating_add(1).into();
        sb.mounted_ns = amphi_rt::time::wall_ns().into();
        sb.clean = 0.into();
        device.write(Lpa(0), &sb.encode(), Structure::Superblock)?;
    }
    let groups = Groups::new(layout, read_descriptors(&*device, &layout)?);
    let journal = Journal::new(&layout, seed, log.next);
    let core = Core::new(device, sb, options, groups, journal);
    let root = core.inode(Ino::ROOT)?;
    root.state
        .read()
        .body
        .dir()
        .map_err(|_| Error::corrupt("inode", Ino::ROOT.0, "the root is no directory"))?;
    if !core.options.read_only {
        finish_orphans(&core, first_orphan)?;
    }
    Ok((core, log.transactions))
}

/// Deletes what the list of orphans names.
fn finish_orphans<D: BlockPort>(core: &Core<D>, first: u32) -> Result<(), MountError> {
    let damaged =
        || MountError::Damaged(Error::corrupt("list of orphans", u64::from(first), "it makes no sense"));
    let mut list: Vec<u32> = Vec::new();
    let mut next = first;
    while next != 0 {
        if next < FIRST_INO || next >= core.layout.inodes() || list.contains(&next) {
            return Err(damaged());
        }
        let (lba, at) = core.layout.inode_place(next);
        let block = core.block(lba, Kind::Inodes)?;
        list.push(next);
        next =
            DiskInode::decode(&block[at..at + INODE_BYTES], next).map_err(|_| damaged())?.next_orphan.get();
    }
    core.orphans.load(&list);
    for ino in list {
        let inode = core.inode(Ino(u64::from(ino))).map_err(|error| match error {
            Error::Stale(_) => damaged(),
            other => other.into(),
        })?;
        finish_orphan(core, &inode)?;
    }
    Ok(())
}

/// Writes everything in place and marks the file system clean.
///
/// # Errors
/// [`Error::Io`].
pub fn close<D: BlockPort>(core: &Core<D>) -> amphi_vfs::Result<()> {
    let io = io_error;
    core.write_back_files(u64::MAX)?;
    for ino in core.orphans.all() {
        let inode = core.inode(Ino(u64::from(ino)))?;
        amphi_names::delete_orphan(core, &inode)?;
    }
    core.commit_running()?;
    core.move_tail()?;
    core.device.flush().map_err(io)?;
    let next = core.journal.last_committed() + 1;
    let failed = |error| match error {
        MountError::Device(error) => io(error),
        other => Error::Io(Failure::Earlier(other.to_string())),
    };
    replay::clear(&*core.device, &core.layout, core.journal.seed, next).map_err(failed)?;
    let block = core.block(0, Kind::Superblock)?;
    let (mut sb, _) = Superblock::read_from_prefix(&block[..])
        .map_err(|_| Error::corrupt("superblock", None, "there is none"))?;
    let (blocks_free, _, inodes_free) = core.groups.free();
    sb.blocks_free = blocks_free.into();
    sb.inodes_free = inodes_free.into();
    sb.unmounted_ns = core.names.clock.now().into();
    sb.clean = 1.into();
    core.device.write(Lpa(0), &sb.encode(), Structure::Superblock).map_err(io)?;
    core.device.flush().map_err(io)
}
