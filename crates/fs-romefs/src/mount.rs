//! Making, recognising, mounting and unmounting a RomeFS.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePortExt, MemoryArea, PAGE_BYTES, Structure};
use amphi_names::{Names, Store};
use amphi_page_cache::Background;
use amphi_vfs::{Ino, Result as VfsResult};
use zerocopy::{FromZeros, IntoBytes};

use crate::buffer::Lazy;
use crate::cache::BlockCache;
use crate::core::Core;
use crate::format::{
    INODE_HEAD_BYTES, InodeHead, JOURNAL_ALIGN, LANES_MAX, LEAF_BYTES, LINE, Layout, MAGIC, Map, PAGE,
    PAGE_SLOTS, Plan, SUPER_COPY_AT, SUPER_STATE_AT, SuperState, Superblock, TITLE, TYPES, VERSION,
};
use crate::io_threads::IoThreads;
use crate::journal::{Journal, Recovered, recover};
use crate::lazy;
use crate::logs;
use crate::memory::Memory;
use crate::meta::Meta;
use crate::options::{FormatOptions, MountOptions};
use crate::planted::{self, Bug};
use crate::pool::Pool;
use crate::stats::Counters;
use crate::truncate::finish_cut;
use crate::victims::Victims;

/// Bytes of memory area per inode unless told otherwise.
const BYTES_PER_INODE: u64 = 4096;
/// The largest part of the memory area for metadata pages: each directory takes one, each list of attributes,
/// and every 256 data blocks of a file.
const META_SHARE: u64 = 4;
/// Metadata pages beside one for each inode and those that map the block zone.
const META_PAGES_SPARE: u64 = 64;
/// The journal's part unless told otherwise, and its limits.
const JOURNAL_SHARE: u64 = 16;
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
const JOURNAL_BYTES_MIN: u64 = 64 << 10;
/// A lane has at least so many bytes, so that a large write's record fits.
const LANE_BYTES_MIN: u64 = 64 << 10;
/// Fewest log pages that are of use.
const LOG_PAGES_MIN: u64 = 16;

pub use amphi_volume::Error as MountError;
use amphi_volume::{label_bytes, random_uuid};

type Result<T> = std::result::Result<T, MountError>;

/// What a superblock says, for people.
#[derive(Clone, Debug)]
pub struct Info {
    /// Label.
    pub label: String,
    /// Unique name.
    pub uuid: [u8; 16],
    /// Creation time, ns since 1970.
    pub created_ns: i64,
    /// Bytes of the block zone.
    pub block_zone_bytes: u64,
    /// Bytes that the block zone can grow to, where the device has them.
    pub block_zone_bytes_max: u64,
    /// Bytes of the memory zone.
    pub memory_zone_bytes: u64,
    /// Bytes of the memory zone for data logs.
    pub log_bytes: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Bytes of a data block: the least that goes by blocks.
    pub threshold: u64,
    /// Inodes.
    pub inodes: u32,
    /// How often it was mounted.
    pub mounts: u64,
    /// Last mount, ns since 1970; 0: never.
    pub mounted_ns: i64,
    /// Whether the last mount ended cleanly.
    pub clean: bool,
    /// Mount options that hold unless a mount says otherwise.
    pub options: String,
}

impl Info {
    /// What the superblock's parts say.
    pub(crate) fn of(sb: &Superblock, state: &SuperState, layout: &Layout) -> Self {
        Self {
            label: sb.label(),
            uuid: sb.uuid,
            created_ns: sb.created_ns.get(),
            block_zone_bytes: layout.plan.blocks * layout.plan.block_bytes,
            block_zone_bytes_max: layout.plan.blocks_max * layout.plan.block_bytes,
            memory_zone_bytes: layout.bytes(),
            log_bytes: layout.logs.bytes,
            journal_bytes: layout.journal.bytes,
            threshold: layout.plan.block_bytes,
            inodes: sb.inodes.get(),
            mounts: state.mounts.get(),
            mounted_ns: state.mounted_ns.get(),
            clean: state.clean.get() == 1,
            options: sb.options(),
        }
    }
}

/// Plans a file system for a memory area of `memory` bytes beside `device` bytes of blocks.
fn plan(options: &FormatOptions, memory: u64, device: u64) -> std::result::Result<Plan, String> {
    options.check()?;
    let journal =
        options.journal_bytes.unwrap_or(memory / JOURNAL_SHARE).clamp(JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX);
    let lanes = (journal / LANE_BYTES_MIN).clamp(1, u64::from(LANES_MAX).min(8));
    let inodes = options.inodes.map_or(memory / BYTES_PER_INODE, u64::from).clamp(16, u64::from(u32::MAX));
    let blocks_max = (device / options.block_bytes).min(u64::from(u32::MAX) - 1);
    let blocks = options.bytes.map_or(blocks_max, |bytes| bytes / options.block_bytes);
    if blocks > blocks_max {
        return Err(format!("the device has {device} bytes, fewer than asked for"));
    }
    let pages = inodes + blocks_max / PAGE_SLOTS + META_PAGES_SPARE;
    let mut plan = Plan {
        block_bytes: options.block_bytes,
        blocks,
        blocks_max,
        inodes,
        pages: pages.min(memory / META_SHARE / PAGE as u64).max(8),
        leaves: 0,
        logs: 0,
        lanes,
        lane_bytes: (journal / lanes).next_multiple_of(JOURNAL_ALIGN.max(PAGE as u64)),
    };
    // What is left is for logs. With fewer leaves than logs or data blocks, logs that lie far apart would run
    // out of leaves while pages are free. Bitmaps round up to pages.
    let left = memory.saturating_sub(Layout::new(plan).bytes());
    let for_blocks = left.saturating_sub(blocks_max * LEAF_BYTES) / (PAGE as u64 + 1);
    plan.logs = for_blocks.max(left / (PAGE as u64 + LEAF_BYTES + 1));
    loop {
        plan.leaves = plan.logs.min(blocks_max);
        if plan.logs < LOG_PAGES_MIN || plan.blocks < 4 {
            let need = "it has room for too few data logs or data blocks";
            return Err(format!(
                "{need}: {memory} bytes of memory area beside {device} bytes of blocks, {inodes} inodes, a journal \
                 of {journal} bytes; ask for fewer inodes, or make the SSD with a larger --memory"
            ));
        }
        if Layout::new(plan).bytes() <= memory {
            return Ok(plan);
        }
        plan.logs -= 1;
    }
}

/// Makes an empty file system.
///
/// # Errors
/// [`MountError::Unsuitable`], [`MountError::Device`].
pub fn format<D: BlockPort + MemoryArea>(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
    let memory = Memory::new(device)?;
    let bytes = device.memory()?.bytes;
    let plan = plan(options, bytes, device.capacity_pages() * PAGE_BYTES as u64)
        .map_err(|why| MountError::unsuitable(TITLE, &why))?;
    let layout = Layout::new(plan);
    // Page 0 is written last: until then there is no file system.
    let zeros = vec![0; 1 << 20];
    let zero = |mut at: u64, end: u64| {
        while at < end {
            let len = (end - at).min(zeros.len() as u64);
            memory.store(at, &zeros[..len as usize], Structure::Other)?;
            at += len;
        }
        Ok::<_, MountError>(())
    };
    zero(0, layout.inodes.at)?;
    zero(layout.inodes.at, layout.inodes.end())?;
    zero(layout.journal.at, layout.journal.end())?;
    memory.store(layout.map(Map::Inodes).at, &[0b11], Structure::Bitmap)?;
    let root = root_inode();
    memory.store(layout.inode(Ino::ROOT.0), root.as_bytes(), Structure::Inode)?;
    memory.barrier()?;
    let mut sb = Superblock::new_zeroed();
    sb.magic = MAGIC;
    sb.version = VERSION.into();
    sb.block_bytes = (plan.block_bytes as u32).into();
    sb.memory_bytes = layout.bytes().into();
    sb.blocks = (plan.blocks as u32).into();
    sb.blocks_max = (plan.blocks_max as u32).into();
    sb.inodes = (plan.inodes as u32).into();
    sb.meta_pages = (plan.pages as u32).into();
    sb.leaves = (plan.leaves as u32).into();
    sb.log_pages = (plan.logs as u32).into();
    sb.lanes = (plan.lanes as u32).into();
    sb.lane_bytes = (plan.lane_bytes as u32).into();
    sb.created_ns = amphi_rt::time::wall_ns().into();
    sb.uuid = random_uuid();
    sb.label = label_bytes(&options.label)?;
    sb.crc = sb.checksum().into();
    let mut state = SuperState::new_zeroed();
    state.clean = 1.into();
    memory.store(SUPER_STATE_AT, state.as_bytes(), Structure::Superblock)?;
    write_superblock(&**device, &sb)?;
    Ok(())
}

/// Stores a superblock: its copy first, so that a torn store leaves one of them.
///
/// # Errors
/// The device fails.
pub fn write_superblock<D: MemoryArea>(device: &D, sb: &Superblock) -> amphi_device::Result<()> {
    [SUPER_COPY_AT, 0]
        .iter()
        .try_for_each(|at| device.persist(*at, sb.as_bytes(), None, Structure::Superblock))
}

/// The root of a new file system.
pub fn root_inode() -> InodeHead {
    let now = amphi_rt::time::wall_ns();
    let mut root = InodeHead::new_zeroed();
    root.mode = 0o755.into();
    root.kind = TYPES.code(amphi_vfs::FileType::Directory);
    root.nlink = 2.into();
    root.parent = Ino::ROOT.0.into();
    (root.atime, root.mtime, root.ctime) = (now.into(), now.into(), now.into());
    root
}

const _: () =
    assert!(size_of::<InodeHead>() == INODE_HEAD_BYTES && (SUPER_STATE_AT as usize).is_multiple_of(LINE));

/// The superblock at an address, and what it says.
fn read_super_at<D: BlockPort + MemoryArea>(device: &D, at: u64) -> Result<(Superblock, Layout)> {
    let memory_bytes = device.memory()?.bytes;
    let mut sb = Superblock::new_zeroed();
    if memory_bytes < PAGE as u64 {
        return Err(MountError::NotThis { title: TITLE });
    }
    device.load(at, sb.as_mut_bytes(), Structure::Superblock)?;
    sb.check()?;
    let layout = Layout::of(&sb, memory_bytes, device.capacity_pages() * PAGE_BYTES as u64)?;
    Ok((sb, layout))
}

/// What is at the start of the memory area. A copy counts where there is a superblock, and damage.
pub fn read_super<D: BlockPort + MemoryArea>(device: &D) -> Result<(Superblock, SuperState, Layout)> {
    let (sb, layout) = match read_super_at(device, 0) {
        Err(damage @ MountError::Superblock { .. }) => {
            read_super_at(device, SUPER_COPY_AT).map_err(|_| damage)?
        }
        found => found?,
    };
    let mut state = SuperState::new_zeroed();
    device.load(SUPER_STATE_AT, state.as_mut_bytes(), Structure::Superblock)?;
    Ok((sb, state, layout))
}

/// Whether the superblock is damaged, and there is a copy.
///
/// # Errors
/// As [`probe`].
pub fn needs_superblock<D: BlockPort + MemoryArea>(device: &D) -> Result<bool> {
    read_super(device)?;
    Ok(read_super_at(device, 0).is_err())
}

/// Puts what was read as `sb`, from the copy, in the place of a damaged superblock.
///
/// # Errors
/// The device fails.
pub fn restore_superblock<D: BlockPort + MemoryArea>(device: &D, sb: &Superblock) -> Result<()> {
    if read_super_at(device, 0).is_err() {
        write_superblock(device, sb)?;
    }
    Ok(())
}

/// Reads the superblock, changing nothing.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn probe<D: BlockPort + MemoryArea>(device: &D) -> Result<Info> {
    let (sb, state, layout) = read_super(device)?;
    Ok(Info::of(&sb, &state, &layout))
}

/// Opens the file system on a device and recovers it (RO-10).
///
/// # Errors
/// As [`MountError`] says.
pub fn open<D: BlockPort + MemoryArea>(
    device: &Arc<D>,
    options: MountOptions,
) -> Result<(Arc<Core<D>>, Recovered)> {
    let (core, recovered) = assemble(device, options)?;
    note_victims(&core)?;
    if !core.options.read_only {
        // A power loss while it was tuned can have torn it.
        restore_superblock(&**device, &core.superblock)?;
        core.journal.checkpoint(&core.meta)?;
        write_state(&core, &core.state)?;
        if !planted::has(Bug::OrphansNotFinished) {
            finish_orphans(&core)?;
        }
    }
    Ok((Arc::new(core), recovered))
}

/// Puts everything together, with the journal applied in host memory. The device is not changed.
///
/// # Errors
/// As [`MountError`] says.
pub fn assemble<D: BlockPort + MemoryArea>(
    device: &Arc<D>,
    options: MountOptions,
) -> Result<(Core<D>, Recovered)> {
    let (superblock, mut state, layout) = read_super(&**device)?;
    let memory = Arc::new(Memory::new(device)?);
    if options.threshold != 0 && options.threshold < layout.plan.block_bytes {
        return Err(MountError::Unsuitable(format!(
            "a threshold of {} bytes is below the data blocks of {} bytes that this file system was made with",
            options.threshold, layout.plan.block_bytes
        )));
    }
    let meta = Meta::new(Arc::clone(&memory), layout);
    let recovered = recover(&memory, &layout, &meta)?;
    let journal = Journal::new(Arc::clone(&memory), layout, &recovered);
    let pool = |map: Map| {
        let mut words = Vec::with_capacity(layout.bits(map).div_ceil(64) as usize);
        meta.words(map, |_, word| words.push(word))?;
        let pool = if map == Map::Blocks { Pool::from_the_front } else { Pool::new };
        Ok::<_, MountError>(pool(layout.bits(map), words))
    };
    let pools =
        [pool(Map::Blocks)?, pool(Map::Pages)?, pool(Map::Leaves)?, pool(Map::Logs)?, pool(Map::Inodes)?];
    let of_names = amphi_names::Options {
        read_only: options.read_only,
        access_times: options.access_times,
        cached_inodes: options.inode_cache,
        tick_ns: 1,
    };
    let was_clean = state.clean.get() == 1;
    state.mounts = state.mounts.get().saturating_add(1).into();
    state.mounted_ns = amphi_rt::time::wall_ns().into();
    state.clean = 0.into();
    let core = Core {
        contract: device.contract(),
        device: Arc::clone(device),
        memory,
        layout,
        superblock,
        state,
        meta,
        journal,
        pools,
        names: Names::new(of_names),
        cache: BlockCache::new(options.page_cache_pages),
        lazy: Lazy::default(),
        victims: Victims::default(),
        io_threads: IoThreads::start(device, options.io_threads),
        background: Background::default(),
        counters: Counters::default(),
        was_clean,
        options,
    };
    Ok((core, recovered))
}

/// Which blocks have logs.
fn note_victims<D: BlockPort + MemoryArea>(core: &Core<D>) -> VfsResult<()> {
    for number in set_bits(core, Map::Leaves)? {
        let (head, logs) = logs::read_leaf(core, number as u32)?;
        core.victims.note(Ino(head.ino.get()), head.block.get(), logs.len());
    }
    Ok(())
}

fn set_bits<D: BlockPort + MemoryArea>(core: &Core<D>, map: Map) -> VfsResult<Vec<u64>> {
    let mut bits = Vec::new();
    core.meta.words(map, |number, mut word| {
        while word != 0 {
            bits.push(number * 64 + u64::from(word.trailing_zeros()));
            word &= word - 1;
        }
    })?;
    bits.retain(|bit| *bit < core.layout.bits(map));
    Ok(bits)
}

/// Deletes the files that have no name, and goes on with cuts that a crash has stopped.
fn finish_orphans<D: BlockPort + MemoryArea>(core: &Core<D>) -> VfsResult<()> {
    for ino in set_bits(core, Map::Orphans)? {
        let inode = core.inode(Ino(ino))?;
        if inode.state.read().nlink == 0 {
            amphi_names::delete_orphan(core, &inode)?;
        } else if inode.file_type == amphi_vfs::FileType::Regular {
            let mut state = core.lock(&inode, Some(0))?;
            finish_cut(core, &inode, &mut state)?;
        }
    }
    Ok(())
}

/// Stores the superblock's changing part.
fn write_state<D: BlockPort + MemoryArea>(core: &Core<D>, state: &SuperState) -> VfsResult<()> {
    core.memory.store(SUPER_STATE_AT, state.as_bytes(), Structure::Superblock)?;
    core.memory.barrier()
}

/// Deletes files without names, checkpoints, and marks the file system clean. Nobody uses it any more.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn close<D: BlockPort + MemoryArea>(core: &Core<D>) -> VfsResult<()> {
    if core.options.read_only {
        return Ok(());
    }
    core.names.health.writable()?;
    lazy::flush_all(core)?;
    amphi_names::write_all_atimes(core)?;
    finish_orphans(core)?;
    crate::checkpoint::checkpoint(core)?;
    let mut state = core.state;
    state.unmounted_ns = amphi_rt::time::wall_ns().into();
    state.clean = 1.into();
    write_state(core, &state)
}
