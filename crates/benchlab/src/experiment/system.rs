//! The file systems of experiments, put on a device: making, mounting, unmounting them as a machine wants it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use amphi_device::PAGE_BYTES;
use amphi_fs_augefs::AugeFs;
use amphi_ssd::{Firmware, Ssd};
use amphi_vfs::FileSystem;
use amphi_volume::{FormatOptions, MountOptions, Volume};
use amphi_volumes::{Act, Kind};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::block_log::BlockLog;
use super::machine::Machine;

/// A file system with the firmware it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// All of ByteFS.
    Bytefs,
    /// Dual interface and write log.
    BytefsLog,
    /// Dual interface alone, on firmware that caches pages.
    BytefsDual,
    /// The block-only journaling file system of ext4's kind.
    Ext4,
    /// The same with `data=journal`: data are atomic too.
    Ext4Journal,
    /// RomeFS, on a memory area as large as the others' memory, or larger where its metadata need it.
    Romefs,
    /// AugeFS, on a memory area.
    Augefs,
    /// DevFS, which programs send commands to past the kernel.
    Devfs,
    /// DevFS behind the kernel: each command is a system call.
    DevfsCap,
    /// The same without capacitors: journals and queues have copies on flash.
    DevfsNaive,
    /// The file system of NOVA's kind, which uses bytes alone.
    Novalike,
    /// That of PMFS's kind, which does too.
    Pmfslike,
    /// `DevfsCap`, whose maps of files leave device memory when the files are closed.
    DevfsDemand,
    /// The same, and directories' entries go to host memory.
    DevfsDentry,
    /// The same, and inodes go to host memory: all of reverse caching.
    DevfsInode,
    /// All of reverse caching, past the kernel.
    DevfsInodeDirect,
    /// The file system of F2FS's kind, which uses blocks alone.
    F2fslike,
    /// All of ByteFS, with transactions that are grouped.
    BytefsGrouped,
    /// AugeFS that submits nodes once the data that they name have arrived.
    AugefsSyn,
    /// AugeFS whose metadata store is as an ordinary one: one task writes for all, its log lies on the block
    /// side.
    AugefsRoc,
    /// The same with the log in the memory area.
    AugefsPmr,
    /// AugeFS with its parallel write path, its log on the block side.
    AugefsPara,
    /// `AugefsRoc`, of whose groups several are on their way to the log at once.
    AugefsSpan,
}

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
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Bytefs,
        Self::BytefsLog,
        Self::BytefsDual,
        Self::Ext4,
        Self::Ext4Journal,
        Self::Romefs,
        Self::Augefs,
        Self::Devfs,
        Self::DevfsCap,
        Self::DevfsNaive,
        Self::Novalike,
        Self::Pmfslike,
        Self::DevfsDemand,
        Self::DevfsDentry,
        Self::DevfsInode,
        Self::DevfsInodeDirect,
        Self::F2fslike,
        Self::BytefsGrouped,
        Self::AugefsSyn,
        Self::AugefsRoc,
        Self::AugefsPmr,
        Self::AugefsPara,
        Self::AugefsSpan,
    ];
    /// Their names on the command line and in experiments.
    pub const NAMES: [&str; 23] = [
        "bytefs",
        "bytefs-log",
        "bytefs-dual",
        "ext4",
        "ext4-journal",
        "romefs",
        "augefs",
        "devfs",
        "devfs-cap",
        "devfs-naive",
        "novalike",
        "pmfslike",
        "devfs-demand",
        "devfs-dentry",
        "devfs-inode",
        "devfs-inode-direct",
        "f2fslike",
        "bytefs-grouped",
        "augefs-syn",
        "augefs-roc",
        "augefs-pmr",
        "augefs-para",
        "augefs-span",
    ];

    /// The one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == name).map(|at| Self::ALL[at])
    }

    /// Its name in figures.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Bytefs => "ByteFS",
            Self::BytefsLog => "ByteFS-Log",
            Self::BytefsDual => "ByteFS-Dual",
            Self::BytefsGrouped => "ByteFS grouped",
            Self::Ext4 => "Ext4-like",
            Self::Ext4Journal => "Ext4-like DJ",
            Self::Romefs => "RomeFS",
            Self::Augefs => "AugeFS",
            Self::Devfs => "DevFS",
            Self::DevfsCap => "DevFS +cap",
            Self::DevfsNaive => "DevFS naive",
            Self::Novalike => "NOVA-like",
            Self::Pmfslike => "PMFS-like",
            Self::DevfsDemand => "DevFS +cap +demand",
            Self::DevfsDentry => "DevFS +cap +demand +dentry",
            Self::DevfsInode => "DevFS +cap +demand +dentry +inode",
            Self::DevfsInodeDirect => "DevFS +cap +demand +dentry +inode +direct",
            Self::F2fslike => "F2FS-like",
            Self::AugefsSyn => "AugeFS-syn",
            Self::AugefsRoc => "AugeFS-roc",
            Self::AugefsPmr => "AugeFS-roc +PMR",
            Self::AugefsPara => "AugeFS-roc +ParaPre",
            Self::AugefsSpan => "AugeFS-span",
        }
    }

    /// Its firmware: only ByteFS has a write log, the peers run on a cache of pages (section 5.1).
    #[must_use]
    pub const fn firmware(self) -> Firmware {
        match self {
            Self::Bytefs | Self::BytefsLog | Self::BytefsGrouped => Firmware::Log,
            Self::BytefsDual
            | Self::Ext4
            | Self::Ext4Journal
            | Self::Novalike
            | Self::Pmfslike
            | Self::F2fslike => Firmware::PageCache,
            Self::Romefs
            | Self::Augefs
            | Self::AugefsSyn
            | Self::AugefsRoc
            | Self::AugefsPmr
            | Self::AugefsPara
            | Self::AugefsSpan => Firmware::Memory,
            _ => Firmware::FileSystem,
        }
    }

    /// Whether it runs inside of the device.
    pub(super) const fn is_inside(self) -> bool {
        matches!(self.kind(), Kind::Devfs)
    }

    /// Whether what a closed file has in device memory leaves it at once.
    pub(super) const fn empties_memory_on_close(self) -> bool {
        matches!(self, Self::DevfsDemand | Self::DevfsDentry | Self::DevfsInode | Self::DevfsInodeDirect)
    }

    /// The file system that it is a variant of.
    const fn kind(self) -> Kind {
        match self {
            Self::Bytefs | Self::BytefsLog | Self::BytefsDual | Self::BytefsGrouped => Kind::Bytefs,
            Self::Ext4 | Self::Ext4Journal => Kind::Ext4like,
            Self::Romefs => Kind::Romefs,
            Self::Augefs
            | Self::AugefsSyn
            | Self::AugefsRoc
            | Self::AugefsPmr
            | Self::AugefsPara
            | Self::AugefsSpan => Kind::Augefs,
            Self::Novalike => Kind::Novalike,
            Self::Pmfslike => Kind::Pmfslike,
            Self::F2fslike => Kind::F2fslike,
            _ => Kind::Devfs,
        }
    }

    /// Whether it is AugeFS, in whole or without something.
    pub(super) const fn is_augefs(self) -> bool {
        matches!(self.kind(), Kind::Augefs)
    }

    /// Whether it is there for single figures: another one with something left out, or with what closed files
    /// have leaving device memory.
    pub(super) fn is_a_part(self) -> bool {
        self.empties_memory_on_close() || self.is_augefs() && self != Self::Augefs
    }

    /// Whether its log lies on the block side, although it would belong into a memory area.
    const fn logs_to_blocks(self) -> bool {
        matches!(self, Self::AugefsRoc | Self::AugefsPara | Self::AugefsSpan)
    }

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
