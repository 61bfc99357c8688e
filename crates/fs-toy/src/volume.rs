//! The toy as tools see it.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_names::Options;
use amphi_volume::{
    About, Error, FormatOptions, Identity, MountOptions, Needs, Progress, Report, Result, Volume,
};
use serde_json::Map as Object;
use zerocopy::FromZeros;

use crate::check;
use crate::format::{FormatError, LABEL_BYTES, MAGIC, PAGES_MIN, Superblock, VERSION};
use crate::log::Log;
use crate::map::Map;
use crate::store::{INODES, Toy, ToyError, read_super, root};

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "toy",
    title: "the toy",
    summary: "The smallest file system of the house, to read and to copy: a map in memory, a log of its changes",
    words: "none",
    needs: Needs::Blocks,
};

/// Inodes that are kept in memory unless a mount says otherwise.
const CACHED_INODES: usize = 10_000;

impl<D: BlockPort + 'static> Volume<D> for Toy<D> {
    const IDENTITY: Identity = IDENTITY;

    fn probe(device: &D) -> Result<About> {
        Ok(about(&read_super(device)?))
    }

    fn format(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
        let pages = options.bytes.map_or(u64::MAX, |bytes| bytes / PAGE_BYTES as u64);
        let pages = pages.min(device.capacity_pages());
        let unsuitable = |why: String| Err(ToyError::Unsuitable(why).into());
        if pages < PAGES_MIN {
            return unsuitable(format!("a toy needs {PAGES_MIN} pages, and would have {pages}"));
        }
        if options.label.len() > LABEL_BYTES {
            return unsuitable(format!("the label is longer than {LABEL_BYTES} bytes"));
        }
        let mut superblock = Superblock::new_zeroed();
        superblock.magic = MAGIC;
        superblock.version = VERSION.into();
        superblock.pages = pages.into();
        superblock.clean = 1.into();
        superblock.uuid.as_chunks_mut::<8>().0.iter_mut().for_each(|half| {
            *half = amphi_rt::random::u64().to_le_bytes();
        });
        superblock.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
        // Written last, by the log: until then there is none.
        device.write(Lpa(0), &[0; PAGE_BYTES], Structure::Superblock).map_err(ToyError::from)?;
        Map::format(Log::new(Arc::clone(device), superblock), vec![root()])?;
        Ok(())
    }

    fn mount(device: &Arc<D>, options: &MountOptions) -> Result<Self> {
        if !options.words.is_empty() {
            let words = &options.words;
            return Err(ToyError::Unsuitable(format!("`{words}`: a toy has no mount options")).into());
        }
        let options = Options {
            read_only: options.read_only,
            access_times: options.access_times,
            cached_inodes: options.inode_cache.unwrap_or(CACHED_INODES),
            tick_ns: options.tick_ns.unwrap_or(1),
        };
        Ok(Self::open(device, options)?)
    }

    fn unmount(self) -> Result<()> {
        Ok(self.close()?)
    }

    fn about(&self) -> About {
        self.superblock().map_or_else(|_| about(&Superblock::new_zeroed()), |superblock| about(&superblock))
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        Ok(check::check(device)?)
    }
}

fn about(superblock: &Superblock) -> About {
    let bytes = superblock.pages.get() * PAGE_BYTES as u64;
    About {
        name: IDENTITY.name,
        label: superblock.label(),
        uuid: superblock.uuid,
        size_bytes: bytes,
        size_max_bytes: bytes,
        journal_bytes: 0,
        mount_options: String::new(),
        inodes: INODES,
        mounts: superblock.mounts.get(),
        clean: superblock.clean.get() == 1,
        own: Object::new(),
    }
}

impl From<ToyError> for Error {
    fn from(error: ToyError) -> Self {
        match error {
            ToyError::Format(FormatError::NotToy) => Self::NotThis { title: IDENTITY.title },
            error => Self::own(error),
        }
    }
}
