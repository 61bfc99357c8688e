//! Making, recognising, mounting and unmounting an AugeFS.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use amphi_device::{BlockPort, BytePortExt, Lpa, MemoryArea, Structure};
use amphi_lsm::{Batch, Place, Store};
use amphi_names::Names;
use amphi_rt::sync::{Mutex, Padded, RwLock};
use amphi_segments::files::{FileCache, write_back_all};
use amphi_segments::format::{Areas, COUNTER_MAX, InodeHead, Origin};
use amphi_segments::{Domain, Ground, Segments, Space, read_superblock, segments_held, write_superblock};
use amphi_vfs::Ino;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::core::Core;
use crate::dentries::Dentries;
use crate::format::{
    CheckpointRecord, EntryRecord, InodeRecord, Key, Layout, LogRecord, MAGIC, NAT_ENTRIES, PAGE,
    SuperRecord, SuperState, Superblock, TITLE, TYPES, VERSION, WRITE_VERSION_BYTES, WRITE_VERSIONS,
    encode_entry,
};
use crate::meta::{self, Meta, damaged, meta_error};
use crate::options::{BYTES_PER_INODE, FormatOptions, MountOptions};
use crate::planted::{self, Bug};
use crate::recover::{self, Recovered};
use crate::stats::Counters;
use crate::{checkpoint, collect, load};

/// The metadata store's part of the device unless told otherwise, and its limits in pages.
const META_SHARE: u64 = 16;
const META_PAGES_MIN: u64 = 1024;
const META_PAGES_MAX: u64 = 1 << 22;
/// Bytes of the memory area unless told otherwise (AU-6).
const MEMORY_MAX: u64 = 256 << 20;
/// Nodes of a domain in memory, at the least.
const NODES_KEPT_MIN: usize = 64;
/// A memtable is at most so small a part of the store, and a table too: several of them are there before they
/// are merged, and values of a page take two pages of a table.
const MEMTABLE_SHARE: usize = 32;
/// Fewest segments beyond those that are held for each domain's logs.
const SEGMENTS_MIN: u64 = 8;

pub use amphi_volume::Error as MountError;
use amphi_volume::{Changes, label_bytes};

type Result<T> = std::result::Result<T, MountError>;

/// Plans a file system for a device.
fn plan(options: &FormatOptions, pages: u64, memory: u64) -> std::result::Result<Layout, String> {
    let memory_bytes = options.memory_bytes.unwrap_or(memory.min(MEMORY_MAX)).min(memory);
    let memory_bytes = memory_bytes / PAGE as u64 * PAGE as u64;
    let least = (WRITE_VERSIONS as u64 + 1) * WRITE_VERSION_BYTES + (64 << 10);
    if memory_bytes < least {
        return Err(format!("a memory area of {memory} bytes is smaller than {least} bytes"));
    }
    let share = (pages / META_SHARE).clamp(META_PAGES_MIN, META_PAGES_MAX);
    let meta_pages = options.meta_pages.map_or(share, u64::from);
    let rest = pages.saturating_sub(Layout::META_FIRST + meta_pages);
    // A node has at least one page of data, so half of the main area are nodes at the most; each domain may
    // have a block of the NAT that is nearly empty.
    let nat = |segments: u64| {
        segments * u64::from(options.segment_blocks) / 2 / NAT_ENTRIES as u64 + 2 * u64::from(options.domains)
    };
    let mut segments = (rest / (u64::from(options.segment_blocks) + 1)).min(u64::from(u32::MAX) / 1024);
    while segments > 0 && segments * (u64::from(options.segment_blocks) + 1) + 2 * nat(segments) > rest {
        segments -= 1;
    }
    let areas = Areas {
        nat_first: Layout::META_FIRST + meta_pages,
        nat_blocks: nat(segments) as u32,
        segments: segments as u32,
        segment_blocks: options.segment_blocks,
    };
    let layout = Layout { domains: options.domains, meta_pages: meta_pages as u32, memory_bytes, areas };
    if segments < held_segments(&layout) + SEGMENTS_MIN {
        return Err(format!(
            "{} domains of {} KB segments need {} of them and it has room for {segments}; ask for fewer domains",
            options.domains,
            options.segment_blocks * 4,
            held_segments(&layout) + SEGMENTS_MIN
        ));
    }
    Ok(layout)
}

/// Segments that cannot be filled: both ends of each domain's logs, and those held for collection.
const fn held_segments(layout: &Layout) -> u64 {
    2 * layout.domains as u64 + segments_held(layout.domains) as u64 + 2
}

/// Where the metadata store is.
fn place(layout: &Layout) -> Place {
    let half = layout.log_bytes() / 2;
    // A log that is smaller than a memtable moves full halves aside (AU-6).
    let backing = if half < amphi_lsm::Options::default().memtable_bytes as u64 { 8 } else { u32::MAX };
    Place {
        log_at: 0,
        log_bytes: layout.log_bytes(),
        first: Lpa(Layout::META_FIRST),
        pages: layout.meta_pages.into(),
        backing_pages: u64::from(layout.meta_pages / backing),
    }
}

/// Makes an empty file system.
///
/// # Errors
/// [`MountError::Unsuitable`], [`MountError::Device`], [`MountError::Damaged`].
pub fn format<D: BlockPort + MemoryArea>(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
    options.check().map_err(MountError::Unsuitable)?;
    let layout = plan(options, device.capacity_pages(), device.memory()?.bytes)
        .map_err(|why| MountError::unsuitable(TITLE, &why))?;
    // Page 0 is written last: until then there is no file system.
    device.write(Lpa(0), &[0; PAGE], Structure::Superblock)?;
    device.flush()?;
    for processor in 0..WRITE_VERSIONS {
        let at = layout.write_version(processor);
        device.persist(at, &1_u64.to_le_bytes(), None, Structure::Journal)?;
    }
    let mut state = SuperState::new_zeroed();
    state.clean = 1.into();
    write_state(&**device, &layout, &state)?;
    Store::format(device, &place(&layout)).map_err(meta_error)?;
    {
        let meta = Meta::open(device, Layout::META_FIRST, fitting(&layout, amphi_lsm::Options::default()))?;
        let mut batch = Batch::new();
        let root = encode_entry(&EntryRecord::Inode(Box::new(root()), Vec::new()));
        meta::put(&mut batch, Key::Inode(Ino::ROOT.0), &root)?;
        let mut record = SuperRecord::new_zeroed();
        (record.next_ino, record.inodes) = ((Ino::ROOT.0 + 1).into(), 1.into());
        record.clean = 1.into();
        meta::put(&mut batch, Key::Super, record.as_bytes())?;
        let log = LogRecord::new(None);
        let first =
            CheckpointRecord { version: 1.into(), sequence: 1.into(), held: 0.into(), logs: [log; 2] };
        for domain in 0..layout.domains as u16 {
            meta::put(&mut batch, Key::Checkpoint(domain), &first.encode([&[], &[]]))?;
        }
        meta.write(&batch)?;
    }
    let zero = [0; PAGE];
    for page in layout.nat_first..layout.ssa_first() {
        device.write(Lpa(page), &zero, Structure::Pointer)?;
    }
    let mut sb = Superblock::new_zeroed();
    (sb.magic, sb.version) = (MAGIC, VERSION.into());
    (sb.domains, sb.segment_blocks) = (layout.domains.into(), layout.segment_blocks.into());
    (sb.segments, sb.nat_blocks) = (layout.segments.into(), layout.nat_blocks.into());
    (sb.meta_pages, sb.memory_bytes) = (layout.meta_pages.into(), layout.memory_bytes.into());
    sb.origin = Origin::new(label_bytes(&options.label)?);
    sb.crc = sb.checksum().into();
    write_superblock(&**device, &sb)
}

/// The metadata store's options, as far as its area allows.
fn fitting(layout: &Layout, mut options: amphi_lsm::Options) -> amphi_lsm::Options {
    let most = layout.meta_pages as usize * PAGE / MEMTABLE_SHARE;
    options.memtable_bytes = options.memtable_bytes.min(most);
    options.table_bytes = options.table_bytes.min(most);
    options
}

/// Stores what changes of the superblock.
fn write_state<D: MemoryArea>(device: &D, layout: &Layout, state: &SuperState) -> amphi_device::Result<()> {
    device.persist(layout.state(), state.as_bytes(), None, Structure::Superblock)
}

/// The root of an empty file system.
pub fn root() -> InodeRecord {
    let mut root = InodeRecord::new_zeroed();
    root.ino = Ino::ROOT.0.into();
    root.head = InodeHead::directory(0o755, &TYPES);
    root.parent = Ino::ROOT.0.into();
    root
}

/// Reads the superblock, changing nothing.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn probe<D: BlockPort + MemoryArea>(device: &D) -> Result<(Superblock, Layout)> {
    let memory = device.memory()?.bytes;
    let sb: Superblock = read_superblock(device, TITLE)?;
    let layout = sb.layout(device.capacity_pages(), memory)?;
    Ok((sb, layout))
}

/// Changes what the superblock of an unmounted one says.
///
/// # Errors
/// As for [`probe`]; [`MountError::Unsuitable`].
pub fn tune<D: BlockPort + MemoryArea>(device: &D, changes: &Changes) -> Result<()> {
    let (mut sb, _) = probe(device)?;
    changes.rename_only(&mut sb.origin.label, &mut sb.origin.uuid)?;
    sb.crc = sb.checksum().into();
    write_superblock(device, &sb)
}

/// What a superblock says, for people.
#[derive(Clone, Debug)]
pub struct Info {
    /// Label.
    pub label: String,
    /// Unique name.
    pub uuid: [u8; 16],
    /// Where everything is.
    pub layout: Layout,
    /// Most inodes.
    pub inodes: u64,
    /// How often it was mounted.
    pub mounts: u64,
    /// Whether the last mount ended cleanly.
    pub clean: bool,
}

impl Info {
    /// What the superblock and what changes of it say.
    pub(crate) fn of(superblock: &Superblock, state: &SuperState, layout: &Layout) -> Self {
        Self {
            label: superblock.origin.label(),
            uuid: superblock.origin.uuid,
            layout: *layout,
            inodes: inodes_max(layout),
            mounts: state.mounts.get(),
            clean: state.clean.get() == 1,
        }
    }
}

/// Most inodes.
const fn inodes_max(layout: &Layout) -> u64 {
    layout.meta_pages as u64 * PAGE as u64 / BYTES_PER_INODE
}

/// Reads what the superblock says, changing nothing.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn info<D: BlockPort + MemoryArea>(device: &D) -> Result<Info> {
    let (superblock, layout) = probe(device)?;
    Ok(Info::of(&superblock, &read_state(device, &layout)?, &layout))
}

fn read_state<D: MemoryArea>(device: &D, layout: &Layout) -> Result<SuperState> {
    let mut state = SuperState::new_zeroed();
    device.load(layout.state(), state.as_mut_bytes(), Structure::Superblock)?;
    Ok(state)
}

/// Mounts the file system on a device, recovering it if need be.
///
/// # Errors
/// As [`MountError`] says.
pub fn open<D: BlockPort + MemoryArea>(
    device: &Arc<D>,
    options: MountOptions,
) -> Result<(Arc<Core<D>>, Recovered)> {
    let (superblock, layout) = probe(&**device)?;
    // What is only read is not merged.
    let merges = options.meta.merges && !options.read_only;
    let meta_options = amphi_lsm::Options { merges, ..options.meta };
    let meta = Meta::open(device, Layout::META_FIRST, fitting(&layout, meta_options))?;
    let value = meta.get(Key::Super)?.ok_or_else(|| damaged("record", 0))?;
    let record = SuperRecord::read_from_bytes(&value).map_err(|_| damaged("record", 0))?;
    if record.next_ino.get().max(record.inodes.get()) > COUNTER_MAX {
        return Err(damaged("record", 0).into());
    }
    let clean = record.clean.get() == 1;
    let loaded = load::load(&**device, &superblock, &layout, &meta)?;
    let inodes = if clean { record.inodes.get() } else { count_inodes(&meta)? };
    let capacity =
        u64::from(layout.segments).saturating_sub(held_segments(&layout)) * u64::from(layout.segment_blocks);
    let of_names = amphi_names::Options {
        read_only: options.read_only,
        access_times: options.access_times,
        cached_inodes: options.inode_cache,
        tick_ns: 1,
    };
    let mut write_versions = Vec::with_capacity(WRITE_VERSIONS);
    for processor in 0..WRITE_VERSIONS {
        let version = recover::write_version(&**device, layout.write_version(processor))?;
        write_versions.push(Padded(Mutex::new(version)));
    }
    let domains = (0..).zip(loaded.domains).map(|(number, parts)| Domain {
        number,
        gate: RwLock::new(()),
        parts: Mutex::new(parts),
    });
    let next_ino = record.next_ino.get();
    let mut state = read_state(&**device, &layout)?;
    state.mounts = state.mounts.get().saturating_add(1).into();
    state.mounted_ns = amphi_rt::time::wall_ns().into();
    state.clean = 0.into();
    // As many nodes as pages of files, in all domains.
    let nodes_kept = (options.page_cache_pages / (layout.domains as usize).max(1)).max(NODES_KEPT_MIN);
    let salt = superblock.origin.salt.get();
    let core = Arc::new(Core {
        device: Arc::clone(device),
        ground: Ground::new(device, salt, layout.areas, nodes_kept, |_, all| 0..all.len()),
        layout,
        superblock,
        names: Names::new(of_names),
        dentries: Dentries::new(options.name_cache),
        meta,
        domains: domains.collect(),
        segments: Segments::new(loaded.free_segments, segments_held(layout.domains)),
        nat_blocks: Mutex::new(loaded.free_nat),
        space: Space::new(capacity),
        write_versions: write_versions.into(),
        cache: FileCache::new(options.page_cache_pages),
        inodes: AtomicU64::new(inodes),
        inodes_max: inodes_max(&layout),
        numbers: Mutex::new((next_ino, next_ino)),
        sync: Mutex::new(()),
        collection: Mutex::new(()),
        state,
        counters: Counters::default(),
        options,
    });
    let mut recovered = Recovered { clean, ..Recovered::default() };
    drop_stale(&core, &loaded.stale, &loaded.stale_nat)?;
    if !clean {
        recovered = recover::all(&core, loaded.intents)?;
    }
    for domain in &core.domains {
        core.space.add(domain.parts.lock().settle());
    }
    // Recovery has left the logs half full and begun new ones; the next one will, too.
    while !clean && core.segments.are_scarce() {
        match collect::make_free(&core) {
            Err(amphi_vfs::Error::NoSpace) => break,
            done => done?,
        }
    }
    if !core.options.read_only {
        write_state(&**device, &core.layout, &core.state)?;
        core.put_super(next_ino, false)?;
        finish_orphans(&core)?;
    }
    Ok((core, recovered))
}

/// Drops what was written for checkpoints that were not made: the next ones have their versions. Where all is
/// well one that was unmounted cleanly has nothing of the kind.
fn drop_stale<D: BlockPort + MemoryArea>(core: &Core<D>, sit: &[(u32, u64)], nat: &[Lpa]) -> Result<()> {
    if sit.is_empty() && nat.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new();
    for (segment, version) in sit {
        meta::delete(&mut batch, Key::Sit(*segment, *version))?;
    }
    core.meta.write(&batch)?;
    for page in nat.iter().filter(|_| !planted::has(Bug::StaleNatCounts)) {
        core.ground.write(*page, &[0; PAGE], Structure::Pointer)?;
    }
    Ok(core.ground.settle()?)
}

fn count_inodes<D: BlockPort + MemoryArea>(meta: &Meta<D>) -> Result<u64> {
    let mut inodes = 0;
    meta.visit(b"i:", b"i:", |_, _| {
        inodes += 1;
        Ok(true)
    })?;
    Ok(inodes)
}

/// Deletes the files that have no name.
fn finish_orphans<D: BlockPort + MemoryArea>(core: &Core<D>) -> amphi_vfs::Result<()> {
    let mut orphans = Vec::new();
    core.meta.visit(b"o:", b"o:", |key, _| {
        let number = key.get(2..).and_then(|bytes| bytes.try_into().ok());
        orphans.push(Ino(u64::from_be_bytes(number.ok_or_else(|| damaged("an orphan", 0))?)));
        Ok(true)
    })?;
    for ino in orphans {
        let inode = core.inode(ino)?;
        amphi_names::delete_orphan(core, &inode)?;
    }
    Ok(())
}

/// Writes everything back, makes a checkpoint of all domains, and marks the file system clean. Nobody uses it
/// any more.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn close<D: BlockPort + MemoryArea>(core: &Core<D>) -> amphi_vfs::Result<()> {
    if core.options.read_only {
        return Ok(());
    }
    core.names.health.writable()?;
    amphi_names::write_all_atimes(core)?;
    finish_orphans(core)?;
    sync(core)?;
    let next = core.numbers.lock().0;
    core.put_super(next, true)?;
    let mut state = core.state;
    state.clean = 1.into();
    write_state(&*core.device, &core.layout, &state).map_err(amphi_volume::io_error)
}

/// Makes everything completed so far durable.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn sync<D: BlockPort + MemoryArea>(core: &Core<D>) -> amphi_vfs::Result<()> {
    write_back_all(core)?;
    if core.names.health.writable().is_ok() { checkpoint::all(core) } else { Ok(()) }
}
