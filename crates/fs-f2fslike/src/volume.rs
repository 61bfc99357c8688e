//! The file system as tools see it.

use std::sync::Arc;

use amphi_device::{BlockPort, PAGE_BYTES};
use amphi_volume::{
    About, Changes, Error, FormatOptions, Identity, MountOptions, Needs, Progress, Report, Result, Volume,
};

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
    words: Options::WORDS,
    needs: Needs::Blocks,
};

impl<D: BlockPort + 'static> Volume<D> for F2fsLike<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        let (superblock, layout) = mount::probe(device)?;
        let counts = crate::load::load(device, &superblock, &layout)?.pack.counts;
        Ok(about(&superblock, &layout, (counts.mounts.get(), counts.clean.get() == 1)))
    }

    fn format(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
        mount::format(device, options)
    }

    fn mount(device: &Arc<D>, options: &MountOptions) -> Result<Self> {
        let (mut own, mut names) = Options::usual(options.read_only);
        own.set_all(&options.words).map_err(Error::Unsuitable)?;
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

    fn tune(device: &D, changes: &Changes) -> Result<About> {
        mount::tune(device, changes)?;
        Self::probe(device)
    }
}

fn about(superblock: &crate::format::Superblock, layout: &crate::format::Layout, used: (u64, bool)) -> About {
    let own = [("segment_bytes", u64::from(layout.segment_blocks) * PAGE_BYTES as u64)];
    let known = (superblock.origin.label(), superblock.origin.uuid);
    amphi_segments::about(IDENTITY.name, known, layout, (layout.nids() - 1).into(), used, &own)
}
