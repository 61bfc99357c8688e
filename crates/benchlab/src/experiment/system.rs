//! The file systems of experiments: their names, and what each needs of a device.

use amphi_ssd::Firmware;
use amphi_volumes::Kind;
use serde::{Deserialize, Serialize};

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
    /// The file system of F2FS's kind, which writes nothing in place.
    F2fslikeLfs,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 24] = [
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
        Self::F2fslikeLfs,
    ];
    /// Their names on the command line and in experiments.
    pub const NAMES: [&str; 24] = [
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
        "f2fslike-lfs",
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
            Self::F2fslikeLfs => "F2FS-like lfs",
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
            | Self::F2fslike
            | Self::F2fslikeLfs => Firmware::PageCache,
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
    pub(super) const fn kind(self) -> Kind {
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
            Self::F2fslike | Self::F2fslikeLfs => Kind::F2fslike,
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
        let of_augefs = self.is_augefs() && self != Self::Augefs;
        self.empties_memory_on_close() || of_augefs || self == Self::F2fslikeLfs
    }

    /// Whether its log lies on the block side, although it would belong into a memory area.
    pub(super) const fn logs_to_blocks(self) -> bool {
        matches!(self, Self::AugefsRoc | Self::AugefsPara | Self::AugefsSpan)
    }
}
