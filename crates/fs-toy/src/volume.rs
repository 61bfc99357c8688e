//! The toy as tools see it.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_names::Options;
use amphi_volume::{
    About, Error, FormatOptions, Identity, MountOptions, Needs, Progress, Report, Result, Volume,
    label_bytes, random_uuid,
};
use serde_json::Map as Object;
use zerocopy::FromZeros;

use crate::check;
use crate::format::{MAGIC, PAGES_MIN, Superblock, TITLE, VERSION};
use crate::log::Log;
use crate::map::Map;
use crate::store::{INODES, Toy, read_super, root};

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "toy",
    title: TITLE,
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
        if pages < PAGES_MIN {
            let why = format!("a toy needs {PAGES_MIN} pages, and would have {pages}");
            return Err(Error::Unsuitable(why));
        }
        let mut superblock = Superblock::new_zeroed();
        superblock.magic = MAGIC;
        superblock.version = VERSION.into();
        superblock.pages = pages.into();
        superblock.clean = 1.into();
        superblock.uuid = random_uuid();
        // By chance, too: no record of a toy that was there before is of this log.
        let (half_of_uuid, _) = superblock.uuid.split_first_chunk().expect("16 bytes begin with 8");
        superblock.generation = (u64::from_le_bytes(*half_of_uuid) >> 1).into();
        superblock.label = label_bytes(&options.label)?;
        // Written last, by the log: until then there is none, before anything of an old one is overwritten.
        device.write(Lpa(0), &[0; PAGE_BYTES], Structure::Superblock)?;
        device.flush()?;
        Map::format(Log::new(Arc::clone(device), superblock), vec![root()])?;
        Ok(())
    }

    fn mount(device: &Arc<D>, options: &MountOptions) -> Result<Self> {
        options.refuse_words(IDENTITY.title)?;
        let options = Options {
            read_only: options.read_only,
            access_times: options.access_times,
            cached_inodes: options.inode_cache.unwrap_or(CACHED_INODES),
            tick_ns: options.tick_ns.unwrap_or(1),
        };
        Self::open(device, options)
    }

    fn unmount(self) -> Result<()> {
        Ok(self.close()?)
    }

    fn about(&self) -> About {
        self.superblock().map_or_else(|_| about(&Superblock::new_zeroed()), |superblock| about(&superblock))
    }

    fn check(device: &Arc<D>, _: &mut dyn FnMut(Progress)) -> Result<Report> {
        check::check(device)
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
