//! DevFS as tools see it.

use std::sync::Arc;

use amphi_device::{BlockPort, CommandPort, MemoryArea, PAGE_BYTES};
use amphi_volume::{
    About, Changes, Error, Identity, Needs, Progress, Repair, Report, Result, Severity, TakeCommands, Volume,
};
use serde_json::{Map, Value, json};

use crate::DevFs;
use crate::check;
use crate::format::{Superblock, TITLE};
use crate::mount::{read_super, tune};
use crate::options::{Crash, FormatOptions, MountOptions};
use crate::planted::{self, Bug};
use crate::repair;

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "devfs",
    title: TITLE,
    summary: "DevFS: the file system runs inside of the SSD, whose capacitors stand in for a journal on flash",
    words: MountOptions::WORDS,
    needs: Needs::Inside,
};

impl<D: BlockPort + MemoryArea + CommandPort + 'static> Volume<D> for DevFs<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        match read_super(device) {
            Ok(superblock) => Ok(about(&superblock)),
            // A device without memory for a file system holds none.
            Err(Error::Device(_)) => Err(Error::NotThis { title: IDENTITY.title }),
            Err(error) => Err(error),
        }
    }

    fn format(device: &Arc<D>, options: &amphi_volume::FormatOptions) -> Result<()> {
        let own =
            FormatOptions { label: options.label.clone(), bytes: options.bytes, inodes: options.inodes };
        Self::format(device, &own)
    }

    fn mount(device: &Arc<D>, options: &amphi_volume::MountOptions) -> Result<Self> {
        let mut own = MountOptions::default();
        own.set_all(&options.words).map_err(Error::Unsuitable)?;
        own.read_only = options.read_only;
        own.access_times = options.access_times;
        own.inode_cache = options.inode_cache.unwrap_or(own.inode_cache);
        own.tick_ns = options.tick_ns.unwrap_or(own.tick_ns);
        Self::mount(device, &own)
    }

    fn unmount(self) -> Result<()> {
        Ok(self.unmount()?)
    }

    fn about(&self) -> About {
        about(&self.superblock())
    }

    fn stats(&self) -> Map<String, Value> {
        Self::stats(self)
    }

    fn take_commands<T: TakeCommands<Self>>(fs: &Arc<Self>, then: T) -> T::Out {
        if planted::has(Bug::CommandsAsCalls) {
            return then.by_calls(fs);
        }
        then.by_device(fs)
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        Ok(report(check::check(device)?))
    }

    fn repair(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Repair> {
        let (before, after) = repair::repair(device)?;
        Ok(Repair { before: report(before), after: report(after) })
    }

    fn tune(device: &D, changes: &Changes) -> Result<About> {
        Ok(about(&tune(device, changes)?))
    }
}

fn report(found: check::Report) -> Report {
    let count =
        |severity| found.findings.iter().filter(|finding| finding.severity() == severity).count() as u64;
    Report {
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        findings: found.findings.iter().map(|finding| (finding.severity(), finding.to_string())).collect(),
        files: found.files,
        directories: found.directories,
        symlinks: found.symlinks,
        pages: found.pages,
        pages_used: found.pages_used,
        cleanly_unmounted: found.cleanly_unmounted,
        own: Value::Null,
    }
}

fn about(superblock: &Superblock) -> About {
    let bytes = superblock.pages.get() * PAGE_BYTES as u64;
    let crash = match Crash::of_number(superblock.crash.get()) {
        Some(Crash::Journal) => "journal",
        _ => "capacitors",
    };
    About {
        name: IDENTITY.name,
        label: superblock.label(),
        uuid: superblock.uuid,
        size_bytes: bytes,
        size_max_bytes: bytes,
        journal_bytes: superblock.slots.get() * PAGE_BYTES as u64,
        mount_options: String::new(),
        inodes: superblock.inodes.get(),
        mounts: superblock.mounts.get(),
        clean: superblock.clean.get() == 1,
        own: Map::from_iter([("crash".to_owned(), json!(crash))]),
    }
}
