//! A system put on a device: making, mounting, unmounting it as a machine wants it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use amphi_device::PAGE_BYTES;
use amphi_fs_augefs::AugeFs;
use amphi_ssd::Ssd;
use amphi_vfs::FileSystem;
use amphi_volume::{FormatOptions, MountOptions, Volume};
use amphi_volumes::{Act, Kind};
use anyhow::{Context, Result};

use super::block_log::BlockLog;
use super::machine::Machine;
use super::system::System;

/// A mounted file system of an experiment.
pub(super) trait Mounted: Send + Sync {
    /// As a file system of any kind.
    fn file_system(&self) -> Arc<dyn FileSystem>;

    /// What it has counted since it was mounted.
    fn counted(&self) -> BTreeMap<String, u64>;

    /// Bytes of device memory that the file system has in use, by what they hold. Nothing where it does not
    /// run inside of the device.
    fn device_memory(&self) -> BTreeMap<String, u64>;

    /// Unmounts it; nobody else holds it any more.
    ///
    /// # Errors
    /// The device failed.
    fn unmount(self: Box<Self>) -> Result<()>;
}

impl System {
    /// Makes the file system.
    ///
    /// # Errors
    /// The device cannot carry it.
    pub(super) fn format(self, ssd: &Arc<Ssd>, machine: &Machine) -> Result<()> {
        let journal_pages = match self.kind() {
            Kind::Bytefs => Some(machine.journal_pages.min(BYTEFS_JOURNAL_PAGES_MAX)),
            Kind::Ext4like => Some(machine.journal_pages),
            // The others' journals go by the size of what they are in.
            _ => None,
        };
        let options = FormatOptions {
            inodes: Some(machine.inodes),
            journal_bytes: journal_pages.map(|pages| u64::from(pages) * PAGE_BYTES as u64),
            block_bytes: machine.block_bytes,
            domains: machine.domains,
            ..FormatOptions::default()
        };
        let cannot = || format!("{} cannot be made", self.title());
        if self.logs_to_blocks() {
            let device = BlockLog::new(ssd)?;
            return <AugeFs<BlockLog> as Volume<BlockLog>>::format(&device, &options).with_context(cannot);
        }
        self.kind().with(Make { ssd, options }).with_context(cannot)
    }

    /// Mounts it.
    ///
    /// # Errors
    /// It is not there, or the device fails.
    pub(super) fn mount(self, ssd: &Arc<Ssd>, machine: &Machine) -> Result<Box<dyn Mounted>> {
        let words = match self {
            Self::BytefsLog => "variant=log",
            Self::BytefsGrouped => "metadata=grouped",
            Self::F2fslikeLfs => "mode=lfs",
            Self::BytefsDual => "variant=dual",
            Self::Ext4Journal => "data=journal",
            Self::DevfsNaive => "crash=journal",
            Self::DevfsDemand => "on-close=maps",
            Self::DevfsDentry => "on-close=entries",
            Self::DevfsInode | Self::DevfsInodeDirect => "on-close=inodes",
            Self::AugefsSyn => "nodes=after-data",
            Self::AugefsRoc | Self::AugefsPmr => "writes=grouped",
            Self::AugefsSpan => "writes=grouped,groups=4",
            _ => "",
        };
        let threshold = machine.byte_threshold.filter(|_| matches!(self.kind(), Kind::Bytefs));
        let threshold = threshold.map(|threshold| format!("threshold={threshold}"));
        let memtable = self.is_augefs().then(|| format!("memtable={}", machine.memtable_bytes));
        let tasks = machine.log_tasks.filter(|_| self.is_augefs()).map(|tasks| format!("log-tasks={tasks}"));
        let words = [Some(words.to_owned()).filter(|words| !words.is_empty()), threshold, memtable, tasks];
        let options = MountOptions {
            words: words.into_iter().flatten().collect::<Vec<_>>().join(","),
            page_cache_pages: Some(machine.cache_pages),
            dirty_pages: Some(machine.dirty_pages),
            inode_cache: Some(machine.inodes as usize),
            background_interval_ns: Some(machine.commit_interval_ns),
            dirty_expire_ns: Some(machine.dirty_expire_ns),
            ..MountOptions::default()
        };
        let cannot = || format!("{} cannot be mounted", self.title());
        if self.logs_to_blocks() {
            let device = BlockLog::new(ssd)?;
            let mounted =
                <AugeFs<BlockLog> as Volume<BlockLog>>::mount(&device, &options).with_context(cannot)?;
            return Ok(Box::new(Opened::<BlockLog, _>(Arc::new(mounted), PhantomData)));
        }
        self.kind().with(Mount { ssd, options }).with_context(cannot)
    }
}

/// Pages of ByteFS's data journal, which holds less than a journal of all metadata.
const BYTEFS_JOURNAL_PAGES_MAX: u32 = 16_384;

struct Make<'a> {
    ssd: &'a Arc<Ssd>,
    options: FormatOptions,
}

impl Act<Ssd> for Make<'_> {
    type Out = amphi_volume::Result<()>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        V::format(self.ssd, &self.options)
    }
}

struct Mount<'a> {
    ssd: &'a Arc<Ssd>,
    options: MountOptions,
}

impl Act<Ssd> for Mount<'_> {
    type Out = amphi_volume::Result<Box<dyn Mounted>>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        Ok(Box::new(Opened::<Ssd, _>(Arc::new(V::mount(self.ssd, &self.options)?), PhantomData)))
    }
}

/// One on a device of a kind.
struct Opened<D, V>(Arc<V>, PhantomData<fn() -> D>);

impl<D: 'static, V: Volume<D>> Mounted for Opened<D, V> {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.0) as Arc<dyn FileSystem>
    }

    fn counted(&self) -> BTreeMap<String, u64> {
        let whole = |(name, value): (String, serde_json::Value)| Some((name, value.as_u64()?));
        self.0.counted().into_iter().filter_map(whole).collect()
    }

    fn device_memory(&self) -> BTreeMap<String, u64> {
        let stats = self.0.stats();
        let by_kind = stats.get("memory").and_then(|memory| memory.as_object()).into_iter().flatten();
        by_kind.filter_map(|(kind, bytes)| Some((kind.clone(), bytes.as_u64()?))).collect()
    }

    fn unmount(self: Box<Self>) -> Result<()> {
        let fs = Arc::into_inner(self.0).context("the file system is still in use")?;
        Ok(fs.unmount()?)
    }
}
