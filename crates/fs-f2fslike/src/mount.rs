//! Making, recognising, mounting and unmounting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_names::Names;
use amphi_rt::sync::{Mutex, RwLock};
use amphi_segments::files::FileCache;
use amphi_segments::format::{InodeHead, Origin};
use amphi_segments::{
    Domain, Ground, Segments, Space, damaged, read_superblock, segments_held, write_superblock,
};
use amphi_vfs::Ino;
pub use amphi_volume::Error as MountError;
use zerocopy::FromZeros;

type Result<T> = std::result::Result<T, MountError>;
use amphi_volume::{Changes, label_bytes};

use crate::checkpoint::{self, AHEAD};
use crate::core::{Core, Options, Standing};
use crate::format::{
    INODE, InodeRecord, Layout, MAGIC, NAT_ENTRIES, PACK_PAGES, PAGE, SEGMENT_BLOCKS_MAX, SIT_ENTRIES,
    Superblock, TITLE, TYPES, VERSION, address_words, set_record,
};
use crate::load::{Loaded, load};
use crate::recover;
use crate::sync;

/// Segments that cannot be filled: those that are held, those ahead, and both ends of the logs.
const IDLE: u64 = (segments_held(1) + AHEAD) as u64 + 4;
/// Fewest segments beyond those.
const SEGMENTS_MIN: u64 = 6;
/// Blocks of the smallest segment.
const SEGMENT_BLOCKS_MIN: u64 = 8;

/// Plans a file system for a device: segments of 2 MB, or smaller ones until those that cannot be filled take
/// an eighth of it.
fn plan(pages: u64) -> Result<Layout> {
    let mut blocks = SEGMENT_BLOCKS_MAX as u64;
    while blocks > SEGMENT_BLOCKS_MIN && IDLE * blocks > pages / 8 {
        blocks /= 2;
    }
    // There can be as many inodes as blocks.
    let nat = |segments: u64| (segments * blocks).div_ceil(NAT_ENTRIES as u64) + 1;
    let of = |segments: u64| Layout::new(blocks as u32, segments as u32, nat(segments) as u32);
    let rest = pages.saturating_sub(1 + 2 * PACK_PAGES as u64);
    let mut segments = (rest / (blocks + 1)).min(u64::from(u32::MAX) / 1024);
    while segments > 0 && of(segments).pages() > pages {
        segments -= 1;
    }
    if segments < IDLE + SEGMENTS_MIN {
        return Err(MountError::Unsuitable(format!("{pages} pages are too few")));
    }
    debug_assert!(of(segments).sit_blocks() as usize * SIT_ENTRIES >= segments as usize);
    Ok(of(segments))
}

/// Makes an empty file system.
///
/// # Errors
/// [`MountError::Unsuitable`], [`MountError::Device`].
pub fn format<D: BlockPort>(device: &Arc<D>, options: &amphi_volume::FormatOptions) -> Result<()> {
    let label = label_bytes(&options.label)?;
    let most = options.bytes.map_or(u64::MAX, |bytes| bytes / PAGE as u64);
    let layout = plan(device.capacity_pages().min(most))?;
    // Page 0 is written last: until then there is no file system.
    device.write(Lpa(0), &[0; PAGE], Structure::Superblock)?;
    device.flush()?;
    let zero = [0; PAGE];
    for page in Layout::pack(0)..layout.ssa_first() {
        device.write(Lpa(page), &zero, Structure::Other)?;
    }
    let mut sb = Superblock::new_zeroed();
    (sb.magic, sb.version) = (MAGIC, VERSION.into());
    (sb.segment_blocks, sb.segments) = (layout.segment_blocks.into(), layout.segments.into());
    sb.nat_blocks = layout.nat_blocks.into();
    sb.origin = Origin::new(label);
    sb.crc = sb.checksum().into();
    let core = assemble(device, sb, layout, Loaded::empty(&layout, true), Options::usual(false));
    core.count();
    make_root(&core)?;
    core.inodes.store(1, Ordering::Release);
    checkpoint::held(&core, true)?;
    write_superblock(&**device, &sb)
}

fn make_root<D: BlockPort>(core: &Core<D>) -> amphi_vfs::Result<()> {
    let mut root = InodeRecord::new_zeroed();
    root.head = InodeHead::directory(0o755, &TYPES);
    root.parent = (Ino::ROOT.0 as u32).into();
    core.space.set_used(1);
    let mut parts = core.domain.parts.lock();
    let nid = core.add_node(&mut parts, 0, INODE)?;
    debug_assert_eq!(u64::from(nid), Ino::ROOT.0, "the first number is the root's");
    if let Some(node) = parts.nodes.get_mut(&nid) {
        set_record(&mut node.addresses, &root);
    }
    Ok(())
}

/// Reads the superblock, changing nothing.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn probe<D: BlockPort>(device: &D) -> Result<(Superblock, Layout)> {
    let sb: Superblock = read_superblock(device, TITLE)?;
    let layout = sb.layout(device.capacity_pages())?;
    Ok((sb, layout))
}

/// Changes what the superblock of an unmounted one says.
///
/// # Errors
/// As for [`probe`]; [`MountError::Unsuitable`].
pub fn tune<D: BlockPort>(device: &D, changes: &Changes) -> Result<()> {
    let (mut sb, _) = probe(device)?;
    changes.rename_only(&mut sb.origin.label, &mut sb.origin.uuid)?;
    sb.crc = sb.checksum().into();
    write_superblock(device, &sb)
}

fn assemble<D: BlockPort>(
    device: &Arc<D>,
    superblock: Superblock,
    layout: Layout,
    loaded: Loaded,
    (options, names): (Options, amphi_names::Options),
) -> Core<D> {
    let Loaded { pack, parts, sit_copies, free, stale: _ } = loaded;
    let capacity = u64::from(layout.segments).saturating_sub(IDLE) * u64::from(layout.segment_blocks);
    let salt = superblock.origin.salt.get();
    Core {
        ground: Ground::new(device, salt, *layout, options.page_cache_pages, address_words),
        layout,
        superblock,
        options,
        names: Names::new(names),
        domain: Domain { number: 0, gate: RwLock::new(()), parts: Mutex::new(parts) },
        segments: Segments::new(free, segments_held(1)),
        space: Space::new(capacity),
        dents: Mutex::default(),
        ahead: Mutex::new(pack.ahead),
        fresh: Mutex::default(),
        orphans: Mutex::new(pack.orphans.iter().copied().collect()),
        dirtied: AtomicUsize::new(0),
        cache: FileCache::new(options.page_cache_pages),
        inodes: AtomicU64::new(pack.counts.inodes.get()),
        standing: Mutex::new(Standing {
            sit_copies,
            nat_journal: pack.nat.iter().map(|(nid, _)| *nid).collect(),
            sit_journal: pack.sit.iter().map(|(segment, _)| *segment).collect(),
            mounts: pack.counts.mounts.get(),
            mounted_ns: pack.counts.mounted_ns.get(),
            clean: pack.counts.clean.get() == 1,
        }),
        collection: Mutex::new(()),
    }
}

/// Mounts the file system on a device as of its last checkpoint, with what `fsync` has written since.
///
/// # Errors
/// As [`MountError`] says.
pub fn open<D: BlockPort>(
    device: &Arc<D>,
    options: Options,
    names: amphi_names::Options,
) -> Result<Arc<Core<D>>> {
    let (superblock, layout) = probe(&**device)?;
    let loaded = load(&**device, &superblock, &layout)?;
    if !options.read_only {
        // They would count for the next checkpoint.
        for page in &loaded.stale {
            device.write(*page, &[0; PAGE], Structure::Other)?;
        }
    }
    let core = Arc::new(assemble(device, superblock, layout, loaded, (options, names)));
    core.ground.settle()?;
    recover::roll_forward(&core)?;
    core.count();
    if !options.read_only {
        {
            let mut standing = core.standing.lock();
            standing.mounts += 1;
            standing.mounted_ns = amphi_rt::time::wall_ns();
        }
        checkpoint::now(&core)?;
        finish_orphans(&core)?;
    }
    Ok(core)
}

/// Deletes the files that have no name.
fn finish_orphans<D: BlockPort>(core: &Core<D>) -> amphi_vfs::Result<()> {
    let orphans: Vec<_> = core.orphans.lock().iter().copied().collect();
    for orphan in orphans {
        let inode = core.inode(Ino(orphan.into()))?;
        if inode.state.read().nlink > 0 {
            return Err(damaged("an inode without names, which has some:", orphan.into()));
        }
        amphi_names::delete_orphan(core, &inode)?;
    }
    Ok(())
}

/// Writes everything back, makes the last checkpoint and marks it so. Nobody uses the file system any more.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn close<D: BlockPort>(core: &Core<D>) -> amphi_vfs::Result<()> {
    if core.options.read_only {
        return Ok(());
    }
    core.names.health.writable()?;
    amphi_names::write_all_atimes(core)?;
    finish_orphans(core)?;
    sync::sync(core)?;
    let _gate = core.domain.gate.write();
    checkpoint::held(core, true)
}
