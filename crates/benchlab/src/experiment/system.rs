//! The file systems of experiments, put on a device: making, mounting, unmounting them as a machine wants it.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions, Variant};
use amphi_fs_ext4like::Ext4Like;
use amphi_fs_romefs::RomeFs;
use amphi_ssd::{Firmware, Ssd};
use amphi_vfs::FileSystem;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

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
    /// RomeFS, on a memory area as large as the others' memory, or larger where its metadata need it.
    Romefs,
}

/// A mounted file system of an experiment.
pub(super) enum Mounted {
    Bytefs(Arc<ByteFs<Ssd>>),
    Ext4(Arc<Ext4Like<Ssd>>),
    Romefs(Arc<RomeFs<Ssd>>),
}

impl System {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Bytefs, Self::BytefsLog, Self::BytefsDual, Self::Ext4, Self::Romefs];
    /// Their names on the command line and in experiments.
    pub const NAMES: [&str; 5] = ["bytefs", "bytefs-log", "bytefs-dual", "ext4", "romefs"];

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
            Self::Ext4 => "Ext4-like",
            Self::Romefs => "RomeFS",
        }
    }

    /// Its firmware: only ByteFS has a write log, the peers run on a cache of pages (section 5.1).
    #[must_use]
    pub const fn firmware(self) -> Firmware {
        match self {
            Self::Bytefs | Self::BytefsLog => Firmware::Log,
            Self::BytefsDual | Self::Ext4 => Firmware::PageCache,
            Self::Romefs => Firmware::Memory,
        }
    }

    /// Makes the file system.
    ///
    /// # Errors
    /// The device cannot carry it.
    pub(super) fn format(self, ssd: &Arc<Ssd>, machine: &Machine) -> Result<()> {
        match self {
            Self::Bytefs | Self::BytefsLog | Self::BytefsDual => {
                let options = FormatOptions {
                    inodes: Some(machine.inodes),
                    journal_pages: Some(machine.journal_pages.min(16_384)),
                    ..FormatOptions::default()
                };
                ByteFs::format(&**ssd, &options).context("ByteFS cannot be made")
            }
            Self::Ext4 => {
                let options = amphi_fs_ext4like::FormatOptions {
                    inodes: Some(machine.inodes),
                    journal_blocks: Some(machine.journal_pages),
                    ..amphi_fs_ext4like::FormatOptions::default()
                };
                Ext4Like::format(&**ssd, &options).context("the block-only file system cannot be made")
            }
            Self::Romefs => {
                let options = amphi_fs_romefs::FormatOptions {
                    inodes: Some(machine.inodes),
                    ..amphi_fs_romefs::FormatOptions::default()
                };
                RomeFs::format(ssd, &options).context("RomeFS cannot be made")
            }
        }
    }

    /// Mounts it.
    ///
    /// # Errors
    /// It is not there, or the device fails.
    pub(super) fn mount(self, ssd: &Arc<Ssd>, machine: &Machine) -> Result<Mounted> {
        let ssd = Arc::clone(ssd);
        match self {
            Self::Bytefs | Self::BytefsLog | Self::BytefsDual => {
                let variant = match self {
                    Self::BytefsLog => Variant::Log,
                    Self::BytefsDual => Variant::Dual,
                    _ => Variant::Full,
                };
                let options = MountOptions {
                    variant,
                    page_cache_pages: machine.cache_pages,
                    dirty_pages: Some(machine.dirty_pages),
                    inode_cache: machine.inodes as usize,
                    write_back_interval_ns: machine.commit_interval_ns,
                    dirty_expire_ns: machine.dirty_expire_ns,
                    ..MountOptions::default()
                };
                let fs = ByteFs::mount(ssd, options).context("ByteFS cannot be mounted")?;
                Ok(Mounted::Bytefs(Arc::new(fs)))
            }
            Self::Ext4 => {
                let options = amphi_fs_ext4like::MountOptions {
                    commit_interval_ns: machine.commit_interval_ns,
                    write_back_interval_ns: machine.commit_interval_ns,
                    dirty_expire_ns: machine.dirty_expire_ns,
                    page_cache_pages: machine.cache_pages,
                    dirty_pages: Some(machine.dirty_pages),
                    // Metadata share the host's memory with file data.
                    buffer_blocks: machine.cache_pages,
                    inode_cache: machine.inodes as usize,
                    ..amphi_fs_ext4like::MountOptions::default()
                };
                let fs =
                    Ext4Like::mount(ssd, options).context("the block-only file system cannot be mounted")?;
                Ok(Mounted::Ext4(Arc::new(fs)))
            }
            Self::Romefs => {
                let options = amphi_fs_romefs::MountOptions {
                    page_cache_pages: machine.cache_pages,
                    inode_cache: machine.inodes as usize,
                    checkpoint_interval_ns: machine.commit_interval_ns,
                    ..amphi_fs_romefs::MountOptions::default()
                };
                let fs = RomeFs::mount(&ssd, options).context("RomeFS cannot be mounted")?;
                Ok(Mounted::Romefs(Arc::new(fs)))
            }
        }
    }
}

impl Mounted {
    /// As a file system of any kind.
    pub(super) fn file_system(&self) -> Arc<dyn FileSystem> {
        match self {
            Self::Bytefs(fs) => Arc::clone(fs) as Arc<dyn FileSystem>,
            Self::Ext4(fs) => Arc::clone(fs) as Arc<dyn FileSystem>,
            Self::Romefs(fs) => Arc::clone(fs) as Arc<dyn FileSystem>,
        }
    }

    /// Unmounts it; nobody else holds it any more.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn unmount(self) -> Result<()> {
        match self {
            Self::Bytefs(fs) => {
                let fs = Arc::into_inner(fs).context("the file system is still in use")?;
                Ok(fs.unmount()?)
            }
            Self::Ext4(fs) => {
                let fs = Arc::into_inner(fs).context("the file system is still in use")?;
                Ok(fs.unmount()?)
            }
            Self::Romefs(fs) => {
                let fs = Arc::into_inner(fs).context("the file system is still in use")?;
                Ok(fs.unmount()?)
            }
        }
    }
}
