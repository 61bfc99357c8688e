//! ByteFS as tools see it.

use std::sync::Arc;

use amphi_device::{BlockPort, WriteLog};
use amphi_volume::{About, Changes, Error, Identity, Needs, Progress, Repair, Report, Result, Volume};
use serde_json::Map;

use crate::format::{FormatError, PAGE};
use crate::fsck::{self, FsckError};
use crate::mount::{FormatOptions, Info, MountError, probe};
use crate::options::MountOptions;
use crate::{ByteFs, tune};

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "bytefs",
    title: "ByteFS",
    summary: "ByteFS: small updates travel by bytes, large ones by blocks",
    words: MountOptions::WORDS,
    needs: Needs::PageView,
};

impl<D: BlockPort + WriteLog + 'static> Volume<D> for ByteFs<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        Ok(about(probe(device)?))
    }

    fn format(device: &Arc<D>, options: &amphi_volume::FormatOptions) -> Result<()> {
        let pages = |bytes: u64| bytes / PAGE as u64;
        let options = FormatOptions {
            label: options.label.clone(),
            inodes: options.inodes,
            pages: options.bytes.map(pages),
            journal_pages: options.journal_bytes.map(|bytes| u32::try_from(pages(bytes)).unwrap_or(u32::MAX)),
        };
        Ok(Self::format(device, &options)?)
    }

    fn mount(device: &Arc<D>, options: &amphi_volume::MountOptions) -> Result<Self> {
        let mut own = Self::default_options(device)?;
        own.set_all(&options.words).map_err(MountError::Options)?;
        own.read_only = options.read_only;
        own.access_times = options.access_times;
        own.page_cache_pages = options.page_cache_pages.unwrap_or(own.page_cache_pages);
        own.dirty_pages = options.dirty_pages.or(own.dirty_pages);
        own.inode_cache = options.inode_cache.unwrap_or(own.inode_cache);
        own.write_back_interval_ns = options.background_interval_ns.unwrap_or(own.write_back_interval_ns);
        own.dirty_expire_ns = options.dirty_expire_ns.unwrap_or(own.dirty_expire_ns);
        Ok(Self::mount(Arc::clone(device), own)?)
    }

    fn unmount(self) -> Result<()> {
        Ok(self.unmount()?)
    }

    fn about(&self) -> About {
        about(self.info())
    }

    fn check(device: &Arc<D>, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
        Ok(fsck::check(&**device, progress)?.report())
    }

    fn repair(device: &Arc<D>, progress: &mut dyn FnMut(Progress)) -> Result<Repair> {
        let done = fsck::repair(&**device, progress)?;
        Ok(Repair { before: done.before.report(), after: done.after.report() })
    }

    fn tune(device: &D, changes: &Changes) -> Result<About> {
        Ok(about(tune::tune(device, changes)?))
    }

    fn grow(device: &D, bytes: Option<u64>) -> Result<(u64, u64)> {
        let grown = tune::grow(device, bytes.map(|bytes| bytes / PAGE as u64))?;
        Ok((grown.before, grown.after))
    }
}

fn about(info: Info) -> About {
    About {
        name: IDENTITY.name,
        label: info.label,
        uuid: info.uuid,
        size_bytes: info.bytes,
        size_max_bytes: info.bytes_max,
        journal_bytes: info.journal_bytes,
        mount_options: info.options,
        inodes: info.inodes.into(),
        mounts: info.mounts,
        clean: info.clean,
        own: Map::new(),
    }
}

impl From<MountError> for Error {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Format(FormatError::NotByteFs) => Self::NotThis { title: IDENTITY.title },
            error => Self::own(error),
        }
    }
}

impl From<FsckError> for Error {
    fn from(error: FsckError) -> Self {
        match error {
            FsckError::Format(FormatError::NotByteFs) => Self::NotThis { title: IDENTITY.title },
            error => Self::own(error),
        }
    }
}
