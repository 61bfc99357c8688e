//! Making a DevFS, mounting it, ending a mount.

use std::sync::Arc;

use amphi_device::{BlockPort, CommandPort, Lpa, MemoryArea, Structure};
use amphi_names::Names;
use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, FileType, Ino};
use zerocopy::{FromZeros, IntoBytes};

use crate::away::{AwayTable, HostMemory};
use crate::controller::Controller;
use crate::format::{
    BODY, INODES, Inode, Layout, MAGIC, Map, PAGE, PAGES_MAX, PAGES_MIN, SLOTS_MIN, SlotHead, Superblock,
    TYPES, VERSION,
};
use crate::media::Media;
use crate::memory::{DeviceMemory, Kind};
use crate::meta::Meta;
use crate::open_files::OpenFiles;
use crate::options::{FormatOptions, MountOptions};
use crate::planted::{self, Bug};
use crate::pool::Pool;
use crate::recover::{self, Recovered};
use crate::slots::Slots;
use crate::stats::Counters;

pub use amphi_volume::Error as MountError;
use amphi_volume::{Changes, label_bytes, random_uuid};

type Result<T> = std::result::Result<T, MountError>;

/// Time stamps that a mount can give: for twelve days at a million a second.
const STAMPS_PER_MOUNT: u64 = 1 << 40;

/// Slots that a memory of so many bytes is given: half of it, if capacitors save that much (§4.3).
fn slots_of(memory_bytes: u64, saved_bytes: u64) -> u64 {
    (memory_bytes / 2).min(saved_bytes) / PAGE as u64
}

/// Bytes of the memory that capacitors save.
fn saved_bytes<D: CommandPort>(device: &D) -> u64 {
    if planted::has(Bug::EnergyNotAsked) { u64::MAX } else { device.saved_bytes() }
}

/// Reads the superblock.
///
/// # Errors
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn read_super<D: BlockPort + MemoryArea>(device: &D) -> Result<Superblock> {
    device.memory()?;
    let mut page = Box::new([0; PAGE]);
    device.read(Lpa(0), &mut page[..], Structure::Superblock)?;
    Superblock::decode(&page, device.capacity_pages(), slots_of(device.bytes(), u64::MAX))
}

/// Changes what the superblock of an unmounted one says; returns what it says then.
///
/// # Errors
/// As for [`read_super`]; [`MountError::Unsuitable`].
pub fn tune<D: BlockPort + MemoryArea>(device: &D, changes: &Changes) -> Result<Superblock> {
    let mut superblock = read_super(device)?;
    changes.rename_only(&mut superblock.label, &mut superblock.uuid)?;
    device.write(Lpa(0), &superblock.encode(), Structure::Superblock)?;
    Ok(superblock)
}

fn write_super<D: BlockPort + MemoryArea>(media: &Media<D>, superblock: &Superblock) -> Result<()> {
    Ok(media.write(0, &superblock.encode(), Structure::Superblock)?)
}

/// Makes an empty one, over whatever was there.
///
/// # Errors
/// [`MountError::Unsuitable`], [`MountError::Device`].
pub fn format<D: BlockPort + MemoryArea + CommandPort + 'static>(
    device: &Arc<D>,
    options: &FormatOptions,
) -> Result<()> {
    let unsuitable = |why: String| Err(MountError::Unsuitable(why));
    let media = Arc::new(Media::new(device)?);
    let atom = device.contract().block_atomic_bytes;
    if (atom as usize) < PAGE {
        return unsuitable(format!(
            "DevFS runs inside of the SSD and writes whole pages in place; this one may tear them at {atom} bytes: \
             make it with `--firmware file-system`"
        ));
    }
    let pages = options.bytes.map_or(u64::MAX, |bytes| bytes / PAGE as u64);
    let pages = pages.min(device.capacity_pages()).min(PAGES_MAX);
    let slots = slots_of(device.bytes(), saved_bytes(&**device));
    if slots < SLOTS_MIN {
        let least = SLOTS_MIN * PAGE as u64;
        return unsuitable(format!(
            "DevFS needs {} KiB of device memory, and capacitors that save {} KiB of it; this device has {} KiB \
             and saves {}",
            2 * least / 1024,
            least / 1024,
            device.bytes() / 1024,
            device.saved_bytes() / 1024
        ));
    }
    let label = label_bytes(&options.label)?;
    let inodes = options.inodes.map_or(pages / 4, u64::from).max(2 * INODES);
    let mut superblock = Superblock::new_zeroed();
    superblock.magic = MAGIC;
    superblock.version = VERSION.into();
    superblock.pages = pages.into();
    superblock.inodes = inodes.into();
    superblock.slots = slots.into();
    superblock.clean = 1.into();
    superblock.first_stamp = (amphi_rt::random::u64() >> 4).into();
    (superblock.uuid, superblock.label) = (random_uuid(), label);
    let layout = Layout::of(&superblock);
    if pages < PAGES_MIN || inodes > pages || layout.first_block + 8 > pages {
        return unsuitable(format!(
            "{inodes} inodes and {slots} slots of memory take {} of {pages} pages; give the SSD more bytes or less memory",
            layout.first_block
        ));
    }
    // Written last: until then there is none.
    device.write(Lpa(0), &[0; PAGE], Structure::Superblock)?;
    device.trim(Lpa(1), layout.first_block - 1)?;
    for slot in 0..slots {
        let mut bytes = Box::new([0; PAGE]);
        media.load_slot(slot, &mut bytes)?;
        if bytes[..size_of::<SlotHead>()].iter().any(|byte| *byte != 0) {
            media.store_slot(slot, 0, SlotHead::new_zeroed().as_bytes(), Structure::Journal)?;
        }
    }
    fill(&media, &superblock, &layout)?;
    write_super(&media, &superblock)
}

/// Writes the metadata of an empty file system: what is taken, and the root.
fn fill<D: BlockPort + MemoryArea>(
    media: &Arc<Media<D>>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<()> {
    let now = amphi_rt::time::wall_ns() as u64;
    let root = Inode {
        kind: TYPES.code(FileType::Directory),
        mode: 0o755.into(),
        nlink: 2.into(),
        atime: now.into(),
        mtime: now.into(),
        ctime: now.into(),
        parent: Ino::ROOT.0.into(),
        ..Inode::new_zeroed()
    };
    let stamp = superblock.first_stamp.get();
    let memory = Arc::new(DeviceMemory::new(u64::MAX, 1));
    let meta = Meta::new(media, &memory, *layout);
    let mut changed = Vec::new();
    let mut change = |number: u64, body: &mut dyn FnMut(&mut [u8])| {
        let page = meta.page(number)?;
        let mut frame = page.write();
        body(&mut frame.bytes[..BODY]);
        frame.stamp = stamp;
        changed.push((number, stamp));
        Ok::<_, Error>(())
    };
    let mut bit = 0;
    while bit < layout.first_block {
        let page = layout.blocks_map + bit / crate::format::BITS;
        let end = layout.first_block.min((bit / crate::format::BITS + 1) * crate::format::BITS);
        change(page, &mut |bytes| {
            (bit..end)
                .map(|bit| (bit % crate::format::BITS) as usize)
                .for_each(|bit| bytes[bit / 8] |= 1 << (bit % 8));
        })?;
        bit = end;
    }
    // Number 0 is nobody's.
    change(layout.inodes_map, &mut |bytes| bytes[0] = 0b11)?;
    let (page, at) = layout.inode(Ino::ROOT.0);
    change(page, &mut |bytes| bytes[at..at + size_of::<Inode>()].copy_from_slice(root.as_bytes()))?;
    Ok(meta.write_back(changed.into_iter())?)
}

/// What is mounted.
pub struct Mounted<D: BlockPort + MemoryArea + 'static> {
    pub controller: Arc<Controller<D>>,
    pub superblock: Mutex<Superblock>,
    pub recovered: Recovered,
}

/// Opens the one on a device, and finishes what the last mount did not.
///
/// # Errors
/// [`MountError`].
pub fn open<D: BlockPort + MemoryArea + CommandPort + 'static>(
    device: &Arc<D>,
    options: &MountOptions,
    host: &Arc<HostMemory>,
) -> Result<Mounted<D>> {
    let mounted = assemble(device, options, host)?;
    if !options.read_only {
        mounted.announce(options.crash)?;
        finish_orphans(&mounted.controller)?;
    }
    Ok(mounted)
}

/// Brings in place what a loss of power left in protected memory, and reads what there is to know.
///
/// # Errors
/// [`MountError`].
pub fn assemble<D: BlockPort + MemoryArea + CommandPort + 'static>(
    device: &Arc<D>,
    options: &MountOptions,
    host: &Arc<HostMemory>,
) -> Result<Mounted<D>> {
    let mut superblock = read_super(&**device)?;
    let media = Arc::new(Media::new(device)?);
    let layout = Layout::of(&superblock);
    let counters = Arc::new(Counters::default());
    let commands = device.processors()?.max(1) as u64;
    let memory = Arc::new(DeviceMemory::new(options.memory.unwrap_or_else(|| device.bytes()), commands));
    let meta = Meta::new(&media, &memory, layout);
    let left = recover::read_slots(&media, &superblock)?;
    // No slot says reliably which stamp was the last: the head of one may be torn. So each mount has a range
    // of its own.
    superblock.first_stamp = (superblock.first_stamp.get() + STAMPS_PER_MOUNT).into();
    let stamp = superblock.first_stamp.get();
    let mut recovered = Recovered { slots: left.len() as u64, ..Recovered::default() };
    recovered.records = recover::redo(&meta, &left)?;
    let (blocks, inodes) = (pool(&meta, &layout, Map::Blocks)?, pool(&meta, &layout, Map::Inodes)?);
    // No more is accepted than capacitors save, although a memory of before may have more slots.
    let saved = slots_of(memory.budget(), saved_bytes(&**device));
    if saved < SLOTS_MIN {
        return Err(MountError::Unsuitable(format!(
            "DevFS needs {} KiB of device memory, and capacitors that save half of it",
            2 * SLOTS_MIN * PAGE as u64 / 1024
        )));
    }
    let slots = superblock.slots.get().min(saved);
    let slots = Slots::new(&media, slots, (options.crash, layout.log), stamp, &counters);
    memory.take(Kind::Slots, slots.count(), slots.count() * PAGE as u64);
    let controller = Arc::new(Controller {
        names: Names::new(options.names()),
        away: AwayTable::new(host, &memory),
        on_close: options.on_close,
        open_files: OpenFiles::default(),
        hash: amphi_rt::hash::State::default(),
        freed_pages: Mutex::default(),
        media,
        memory,
        meta,
        slots,
        layout,
        blocks,
        inodes,
        counters,
    });
    let before = crate::Crash::of_number(superblock.crash.get()).unwrap_or_default();
    recovered.parts = controller.replay_queues(&left, before)?;
    Ok(Mounted { controller, superblock: Mutex::new(superblock), recovered })
}

/// A bitmap in memory.
fn pool<D: BlockPort + MemoryArea>(meta: &Meta<D>, layout: &Layout, map: Map) -> Result<Pool> {
    // Number 0 is nobody's and 1 the root's; what lies before the blocks is metadata.
    let never = if map == Map::Blocks { layout.first_block } else { Ino::ROOT.0 + 1 };
    Ok(Pool::new(words(meta, layout, map)?, layout.bits(map), never))
}

/// The words of a bitmap.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn words<D: BlockPort + MemoryArea>(
    meta: &Meta<D>,
    layout: &Layout,
    map: Map,
) -> amphi_vfs::Result<Vec<u64>> {
    let bits = layout.bits(map);
    let mut words = Vec::with_capacity(bits.div_ceil(64) as usize);
    for page in 0..bits.div_ceil(crate::format::BITS) {
        meta.with(layout.map(map) + page, |bytes| {
            words.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
        })?;
    }
    words.truncate(bits.div_ceil(64) as usize);
    Ok(words)
}

/// The numbers whose bits are set.
pub fn ones(words: &[u64]) -> impl Iterator<Item = u64> {
    let bits = |(index, word): (usize, &u64)| {
        let word = *word;
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u64 * 64 + bit)
    };
    words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(bits)
}

/// Deletes files without names, and frees what lies behind the end of those that were being cut.
fn finish_orphans<D: BlockPort + MemoryArea + 'static>(controller: &Controller<D>) -> Result<()> {
    let words = words(&controller.meta, &controller.layout, Map::Orphans)?;
    for ino in ones(&words).map(Ino) {
        let inode = amphi_names::inode(controller, ino)?;
        let mut state = inode.state.write();
        if state.nlink > 0 {
            controller.finish_cut(&inode, &mut state)?;
        } else {
            drop(state);
            amphi_names::delete_orphan(controller, &inode)?;
        }
    }
    Ok(())
}

impl<D: BlockPort + MemoryArea + 'static> Mounted<D> {
    /// Notes that there is a mount, before its first change.
    ///
    /// # Errors
    /// [`MountError::Damaged`]: the device failed.
    pub fn announce(&self, crash: crate::Crash) -> Result<()> {
        let mut superblock = self.superblock.lock();
        superblock.mounts = superblock.mounts.get().saturating_add(1).into();
        superblock.clean = 0.into();
        superblock.crash = crash.number().into();
        write_super(&self.controller.media, &superblock)
    }

    /// Brings everything in place and notes that the mount has ended.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(&self) -> amphi_vfs::Result<()> {
        let controller = &self.controller;
        if controller.names.health.writable().is_err() {
            return Ok(());
        }
        amphi_names::write_all_atimes(&**controller)?;
        self.settle_and_close()
    }

    /// The same without what inodes in memory have.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn settle_and_close(&self) -> amphi_vfs::Result<()> {
        let controller = &self.controller;
        controller.settle()?;
        let mut superblock = self.superblock.lock();
        superblock.clean = 1.into();
        controller.media.write(0, &superblock.encode(), Structure::Superblock)
    }
}
