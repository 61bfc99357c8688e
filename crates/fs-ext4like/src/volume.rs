//! The ext4-like file system as tools see it.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_volume::{About, Error, Identity, Progress, Report, Result, Volume};

use crate::Ext4Like;
use crate::format::BLOCK;
use crate::fsck;
use crate::mount::{FormatOptions, IDENTITY, probe};
use crate::options::MountOptions;

impl<D: BlockPort + 'static> Volume<D> for Ext4Like<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        probe(device)
    }

    fn format(device: &Arc<D>, options: &amphi_volume::FormatOptions) -> Result<()> {
        let blocks = |bytes: u64| bytes / BLOCK as u64;
        let options = FormatOptions {
            label: options.label.clone(),
            inodes: options.inodes,
            blocks: options.bytes.map(blocks),
            journal_blocks: options
                .journal_bytes
                .map(|bytes| u32::try_from(blocks(bytes)).unwrap_or(u32::MAX)),
        };
        Self::format(device, &options)
    }

    fn mount(device: &Arc<D>, options: &amphi_volume::MountOptions) -> Result<Self> {
        let mut own = MountOptions::default();
        own.set_all(&options.words).map_err(Error::Unsuitable)?;
        own.read_only = options.read_only;
        own.access_times = options.access_times;
        if let Some(pages) = options.page_cache_pages {
            // Metadata share the host's memory with file data.
            (own.page_cache_pages, own.buffer_blocks) = (pages, pages);
        }
        own.dirty_pages = options.dirty_pages.or(own.dirty_pages);
        own.inode_cache = options.inode_cache.unwrap_or(own.inode_cache);
        if let Some(interval) = options.background_interval_ns {
            (own.commit_interval_ns, own.write_back_interval_ns) = (interval, interval);
        }
        own.dirty_expire_ns = options.dirty_expire_ns.unwrap_or(own.dirty_expire_ns);
        own.tick_ns = options.tick_ns.unwrap_or(own.tick_ns);
        Self::mount(Arc::clone(device), own)
    }

    fn unmount(self) -> Result<()> {
        Ok(self.unmount()?)
    }

    fn about(&self) -> About {
        self.info()
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        Ok(fsck::check(device)?.report())
    }
}
