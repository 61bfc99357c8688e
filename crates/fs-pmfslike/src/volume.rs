//! The file system as tools see it.

use std::sync::Arc;

use amphi_device::PageView;
use amphi_names::Options;
use amphi_volume::{
    About, Error, FormatOptions, Identity, MountOptions, Needs, Progress, Report, Result, Volume,
};
use serde_json::Map as Object;

use crate::format::{FormatError, PAGE};
use crate::fs::{PmfsError, PmfsLike};
use crate::{check, mount};

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "pmfslike",
    title: "PMFS-like",
    summary: "A file system of PMFS's kind: metadata in place under an undo log, data in place, bytes alone",
    words: "none",
    needs: Needs::PageView,
};

/// Inodes that are kept in memory unless a mount says otherwise.
const CACHED_INODES: usize = 262_144;

impl<D: PageView + 'static> Volume<D> for PmfsLike<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        match mount::read_super(device) {
            Ok(found) => Ok(about(&found)),
            // A device whose window shows something else holds none.
            Err(PmfsError::Device(amphi_device::Error::Unsupported(_))) => {
                Err(Error::NotThis { title: IDENTITY.title })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn format(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
        Ok(mount::format(device, options)?)
    }

    fn mount(device: &Arc<D>, options: &MountOptions) -> Result<Self> {
        if !options.words.is_empty() {
            let words = &options.words;
            let why = format!("`{words}`: the PMFS-like file system has no mount options");
            return Err(PmfsError::Unsuitable(why).into());
        }
        let options = Options {
            read_only: options.read_only,
            access_times: options.access_times,
            cached_inodes: options.inode_cache.unwrap_or(CACHED_INODES),
            tick_ns: options.tick_ns.unwrap_or(1),
        };
        Ok(mount::open(device, options)?)
    }

    fn unmount(self) -> Result<()> {
        Ok(mount::close(&self)?)
    }

    fn about(&self) -> About {
        about(&mount::About {
            superblock: self.superblock,
            layout: self.layout,
            mounts: self.mounts,
            clean: self.was_clean,
        })
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        Ok(check::check(device)?)
    }
}

fn about(found: &mount::About) -> About {
    let bytes = found.layout.pages * PAGE;
    About {
        name: IDENTITY.name,
        label: found.superblock.label(),
        uuid: found.superblock.uuid,
        size_bytes: bytes,
        size_max_bytes: bytes,
        journal_bytes: found.layout.log_pages * PAGE,
        mount_options: String::new(),
        inodes: found.layout.inodes,
        mounts: found.mounts,
        clean: found.clean,
        own: Object::new(),
    }
}

impl From<PmfsError> for Error {
    fn from(error: PmfsError) -> Self {
        match error {
            PmfsError::Format(FormatError::NotPmfs) => Self::NotThis { title: IDENTITY.title },
            error => Self::own(error),
        }
    }
}
