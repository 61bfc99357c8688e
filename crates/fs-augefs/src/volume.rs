//! AugeFS as tools see it.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea, PAGE_BYTES};
use amphi_volume::{About, Changes, Error, Identity, Needs, Progress, Repair, Report, Result, Volume};
use serde_json::json;

use crate::AugeFs;
use crate::format::TITLE;
use crate::fsck;
use crate::mount::{Info, info, tune};
use crate::options::{FormatOptions, MountOptions};

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "augefs",
    title: TITLE,
    summary: "AugeFS: log-structured, files in domains, metadata in a key-value store with its log in a memory area",
    words: MountOptions::WORDS,
    needs: Needs::MemoryArea,
};

impl<D: BlockPort + MemoryArea + 'static> Volume<D> for AugeFs<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        match info(device) {
            Ok(info) => Ok(about(&info)),
            // A device without a memory area holds none.
            Err(Error::Device(_)) => Err(Error::NotThis { title: IDENTITY.title }),
            Err(error) => Err(error),
        }
    }

    fn format(device: &Arc<D>, options: &amphi_volume::FormatOptions) -> Result<()> {
        if options.bytes.is_some() {
            let whole = "an AugeFS takes the whole device; it cannot be made smaller than that".to_owned();
            return Err(Error::Unsuitable(whole));
        }
        let own = FormatOptions::for_device(device.capacity_pages(), options);
        Self::format(device, &own)
    }

    fn mount(device: &Arc<D>, options: &amphi_volume::MountOptions) -> Result<Self> {
        let mut own = MountOptions::default();
        own.set_all(&options.words).map_err(Error::Unsuitable)?;
        own.read_only = options.read_only;
        own.access_times = options.access_times;
        own.page_cache_pages = options.page_cache_pages.unwrap_or(own.page_cache_pages);
        own.inode_cache = options.inode_cache.unwrap_or(own.inode_cache);
        own.checkpoint_interval_ns = options.background_interval_ns.unwrap_or(own.checkpoint_interval_ns);
        Self::mount(device, own)
    }

    fn unmount(self) -> Result<()> {
        Ok(self.unmount()?)
    }

    fn about(&self) -> About {
        about(&self.info())
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        Ok(report(&fsck::check(device)?))
    }

    fn repair(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Repair> {
        let fsck::Repair { before, after } = fsck::repair(device)?;
        Ok(Repair { before: report(&before), after: report(&after) })
    }

    fn tune(device: &D, changes: &Changes) -> Result<About> {
        tune(device, changes)?;
        Self::probe(device)
    }
}

fn about(info: &Info) -> About {
    let own = [
        ("domains", u64::from(info.layout.domains)),
        ("segment_bytes", u64::from(info.layout.segment_blocks) * PAGE_BYTES as u64),
        ("meta_bytes", u64::from(info.layout.meta_pages) * PAGE_BYTES as u64),
        ("log_bytes", info.layout.log_bytes()),
    ];
    let (known, used) = ((info.label.clone(), info.uuid), (info.mounts, info.clean));
    amphi_segments::about(IDENTITY.name, known, &info.layout, info.inodes, used, &own)
}

fn report(report: &fsck::Report) -> Report {
    Report {
        errors: report.errors,
        warnings: report.warnings,
        findings: report.findings.iter().map(|found| (found.severity, found.what.clone())).collect(),
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        pages: report.blocks,
        pages_used: report.blocks_used,
        cleanly_unmounted: report.cleanly_unmounted,
        own: json!(report),
    }
}
