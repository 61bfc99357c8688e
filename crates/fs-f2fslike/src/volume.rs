//! The file system as tools see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, PAGE_BYTES};
use amphi_volume::{About, FormatOptions, Identity, MountOptions, Needs, Progress, Report, Result, Volume};
use serde_json::{Map, json};

use crate::core::{Core, Options};
use crate::format::TITLE;
use crate::fs::F2fsLike;
use crate::fsck;
use crate::mount;

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "f2fslike",
    title: TITLE,
    summary: "A file system of F2FS's kind: log-structured, with checkpoints, blocks alone",
    words: "none",
    needs: Needs::Blocks,
};

/// Inodes and pages that are kept in memory, and how often a checkpoint is made, unless a mount says
/// otherwise. F2FS's interval is 60 s; ours is AugeFS's, so that figures compare like with like.
const CACHED_INODES: usize = 262_144;
const CACHED_PAGES: usize = 65_536;
const INTERVAL_NS: u64 = 5_000_000_000;

/// How a mount behaves that says nothing.
pub const fn usual(read_only: bool) -> (Options, amphi_names::Options) {
    let names = amphi_names::Options {
        read_only,
        access_times: amphi_vfs::AccessTimes::Relative,
        cached_inodes: CACHED_INODES,
        tick_ns: 1,
    };
    (Options { read_only, page_cache_pages: CACHED_PAGES, interval_ns: INTERVAL_NS }, names)
}

impl<D: BlockPort + 'static> Volume<D> for F2fsLike<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        let (superblock, layout) = mount::probe(device)?;
        let pack = crate::load::load(device, &superblock, &layout)?.pack;
        Ok(about(&superblock, &layout, (pack.mounts, pack.clean)))
    }

    fn format(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
        mount::format(device, options)
    }

    fn mount(device: &Arc<D>, options: &MountOptions) -> Result<Self> {
        options.refuse_words(IDENTITY.title)?;
        let (mut own, mut names) = usual(options.read_only);
        names.access_times = options.access_times;
        names.cached_inodes = options.inode_cache.unwrap_or(names.cached_inodes);
        names.tick_ns = options.tick_ns.unwrap_or(names.tick_ns);
        own.page_cache_pages = options.page_cache_pages.unwrap_or(own.page_cache_pages);
        own.interval_ns = options.background_interval_ns.unwrap_or(own.interval_ns);
        Self::open(device, own, names)
    }

    fn unmount(self) -> Result<()> {
        Ok(self.unmount()?)
    }

    fn about(&self) -> About {
        let Core { superblock, layout, standing, .. } = self.core();
        let standing = standing.lock();
        about(superblock, layout, (standing.mounts, standing.clean))
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        fsck::check(device)
    }
}

fn about(
    superblock: &crate::format::Superblock,
    layout: &crate::format::Layout,
    (mounts, clean): (u64, bool),
) -> About {
    let bytes = layout.main_blocks() * PAGE_BYTES as u64;
    let own = [("segment_bytes", u64::from(layout.segment_blocks) * PAGE_BYTES as u64)];
    About {
        name: IDENTITY.name,
        label: superblock.label(),
        uuid: superblock.uuid,
        size_bytes: bytes,
        size_max_bytes: bytes,
        journal_bytes: 0,
        mount_options: String::new(),
        inodes: (layout.nids() - 1).into(),
        mounts,
        clean,
        own: Map::from_iter(own.map(|(name, value)| (name.to_owned(), json!(value)))),
    }
}

/// What a check found, as tools want it.
pub fn report<D: BlockPort>(core: &Core<D>, found: fsck::Outcome) -> Report {
    Report {
        errors: found.errors,
        warnings: found.warnings,
        findings: found.findings,
        files: found.files,
        directories: found.directories,
        symlinks: found.symlinks,
        pages: core.space.capacity(),
        pages_used: core.space.capacity() - core.space.free(),
        cleanly_unmounted: core.standing.lock().clean,
        own: json!({ "inodes": core.inodes.load(Ordering::Acquire) }),
    }
}
