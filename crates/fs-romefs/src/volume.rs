//! RomeFS as tools see it.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_volume::{
    About, Changes, Error, Identity, Needs, Progress, Repair, Report, Result, Severity, Volume,
};
use serde_json::{Map, Value, json};

use crate::RomeFs;
use crate::format::TITLE;
use crate::fsck;
use crate::mount::{Info, probe};
use crate::options::{FormatOptions, MountOptions};
use crate::tune;

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "romefs",
    title: TITLE,
    summary: "RomeFS: large aligned parts of a write travel by blocks, the rest by bytes, at the same time",
    words: MountOptions::WORDS,
    needs: Needs::MemoryArea,
};

impl<D: BlockPort + MemoryArea + 'static> Volume<D> for RomeFs<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        match probe(device) {
            Ok(info) => Ok(about(info)),
            // A device without a memory area holds none.
            Err(Error::Device(_)) => Err(Error::NotThis { title: IDENTITY.title }),
            Err(error) => Err(error),
        }
    }

    fn format(device: &Arc<D>, options: &amphi_volume::FormatOptions) -> Result<()> {
        let usual = FormatOptions::default();
        let options = FormatOptions {
            label: options.label.clone(),
            block_bytes: options.block_bytes.unwrap_or(usual.block_bytes),
            inodes: options.inodes,
            bytes: options.bytes,
            journal_bytes: options.journal_bytes,
        };
        Self::format(device, &options)
    }

    fn mount(device: &Arc<D>, options: &amphi_volume::MountOptions) -> Result<Self> {
        let mut own = MountOptions::default();
        own.set_all(&probe(&**device)?.options).map_err(Error::Unsuitable)?;
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
        about(self.info())
    }

    fn counted(&self) -> Map<String, Value> {
        match json!(self.stats()) {
            Value::Object(counted) => counted,
            _ => Map::new(),
        }
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        Ok(report(&fsck::check(device)?))
    }

    fn repair(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Repair> {
        let fsck::Repair { before, after } = fsck::repair(device)?;
        Ok(Repair { before: report(&before), after: report(&after) })
    }

    fn tune(device: &D, changes: &Changes) -> Result<About> {
        Ok(about(tune::tune(device, changes)?))
    }

    fn grow(device: &D, bytes: Option<u64>) -> Result<(u64, u64)> {
        tune::grow(device, bytes)
    }
}

fn about(info: Info) -> About {
    let own = [
        ("memory_zone_bytes", info.memory_zone_bytes),
        ("log_bytes", info.log_bytes),
        ("threshold_bytes", info.threshold),
    ];
    About {
        name: IDENTITY.name,
        label: info.label,
        uuid: info.uuid,
        size_bytes: info.block_zone_bytes,
        size_max_bytes: info.block_zone_bytes_max,
        journal_bytes: info.journal_bytes,
        mount_options: info.options,
        inodes: info.inodes.into(),
        mounts: info.mounts,
        clean: info.clean,
        own: Map::from_iter(own.map(|(name, value)| (name.to_owned(), json!(value)))),
    }
}

fn report(report: &fsck::Report) -> Report {
    let count = |severity| report.findings.iter().filter(|found| found.severity() == severity).count() as u64;
    Report {
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        findings: report.findings.iter().map(|found| (found.severity(), found.to_string())).collect(),
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        pages: report.block_pages,
        pages_used: report.block_pages_used,
        cleanly_unmounted: report.cleanly_unmounted,
        own: json!(report),
    }
}
