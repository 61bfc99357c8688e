//! Making, recognising, mounting and unmounting. Mounting undoes what a journal has open, reads every inode's
//! log to learn which pages are free (NOVA §4.8), and deletes files without names.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use amphi_device::{Lpa, PAGE_BYTES, PageView, Structure};
use amphi_names::{Names, Options};
use amphi_rt::cpu;
use amphi_vfs::{Error, FileType, Ino};
use amphi_volume::FormatOptions;
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{
    ATTR, CLEAN_AT, EntryHead, INODE, InodeHead, LABEL_BYTES, LANES_MAX, Layout, MAGIC, MOUNTS_AT, PAGE,
    PAGES_MIN, Superblock, VERSION, head_checksum, seal, valid_word,
};
use crate::fs::{NovaError, NovaLike, Numbers};
use crate::journal::Journal;
use crate::log;
use crate::medium::Medium;
use crate::planted::{self, Bug};
use crate::space::Space;

/// Bytes of the device for each inode, unless told otherwise.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Pages that are cleared by one command.
const CLEARED_PAGES: u64 = 256;

type Result<T> = std::result::Result<T, NovaError>;

/// What page 0 says.
#[derive(Clone, Copy)]
pub struct About {
    pub superblock: Superblock,
    pub layout: Layout,
    pub mounts: u64,
    pub clean: bool,
}

/// Makes an empty file system.
///
/// # Errors
/// [`NovaError`].
pub fn format<D: PageView>(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
    device.check_page_view()?;
    let pages = options.bytes.map_or(u64::MAX, |bytes| bytes / PAGE).min(device.capacity_pages());
    let inodes = options.inodes.map_or((pages * PAGE / BYTES_PER_INODE).max(64), u64::from);
    let lanes = (cpu::count() as u64).clamp(1, LANES_MAX);
    let layout = Layout { pages, inodes, lanes };
    if pages < PAGES_MIN || layout.data() + PAGES_MIN / 2 > pages {
        let why = format!("{inodes} inodes and {lanes} journals leave no room on {pages} pages");
        return Err(NovaError::Unsuitable(why));
    }
    if options.label.len() > LABEL_BYTES {
        return Err(NovaError::Unsuitable(format!("the label is longer than {LABEL_BYTES} bytes")));
    }
    let mut superblock = Superblock::new_zeroed();
    (superblock.magic, superblock.version) = (MAGIC, VERSION.into());
    (superblock.pages, superblock.inodes, superblock.lanes) = (pages.into(), inodes.into(), lanes.into());
    superblock.uuid.as_chunks_mut::<8>().0.iter_mut().for_each(|half| {
        *half = amphi_rt::random::u64().to_le_bytes();
    });
    superblock.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    superblock.crc = superblock.checksum().into();
    let zeros = vec![0; (CLEARED_PAGES * PAGE) as usize];
    let mut at = 0;
    while at < layout.data() {
        let count = CLEARED_PAGES.min(layout.data() - at);
        device.write(Lpa(at), &zeros[..(count * PAGE) as usize], Structure::Other)?;
        at += count;
    }
    device.flush()?;
    let medium = Medium::new(device);
    medium.store(layout.inode(Ino::ROOT.0), root().as_bytes(), Structure::Inode)?;
    medium.store_word(CLEAN_AT, 1, Structure::Superblock)?;
    medium.barrier()?;
    // Last: until then there is none.
    medium.store(0, superblock.as_bytes(), Structure::Superblock)?;
    medium.barrier()?;
    Ok(())
}

fn root() -> InodeHead {
    let now = amphi_rt::time::wall_ns();
    let mut root = InodeHead::new_zeroed();
    root.valid = valid_word(FileType::Directory, 0).into();
    root.crc = head_checksum(Ino::ROOT.0, 0).into();
    let first = &mut root.first;
    first.head = EntryHead { kind: ATTR, slots: 1, ..EntryHead::new_zeroed() };
    (first.mode, first.nlink, first.parent) = (0o755.into(), 2.into(), (Ino::ROOT.0 as u32).into());
    (first.atime, first.mtime, first.ctime) = (now.into(), now.into(), now.into());
    seal(Ino::ROOT.0, first.as_mut_bytes());
    root
}

/// Reads page 0.
///
/// # Errors
/// [`NovaError::Format`], [`NovaError::Device`].
pub fn read_super<D: PageView>(device: &D) -> Result<About> {
    device.check_page_view()?;
    let mut page = Box::new([0; PAGE_BYTES]);
    device.read(Lpa(0), &mut page[..], Structure::Superblock)?;
    let mut superblock = Superblock::new_zeroed();
    superblock.as_mut_bytes().copy_from_slice(&page[..size_of::<Superblock>()]);
    let layout = superblock.layout(device.capacity_pages())?;
    let word = |at: u64| page[at as usize..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    Ok(About { superblock, layout, mounts: word(MOUNTS_AT), clean: word(CLEAN_AT) == 1 })
}

/// Numbers of the inodes that are there. The table is read by blocks, as it is large.
///
/// # Errors
/// [`NovaError::Device`].
pub fn inodes_there<D: PageView>(device: &D, layout: &Layout) -> Result<Vec<Ino>> {
    let mut there = Vec::new();
    let mut bytes = vec![0; (CLEARED_PAGES * PAGE) as usize];
    let (mut page, per_page) = (layout.table(), PAGE / INODE);
    while page < layout.data() {
        let count = CLEARED_PAGES.min(layout.data() - page);
        let bytes = &mut bytes[..(count * PAGE) as usize];
        device.read(Lpa(page), bytes, Structure::Inode)?;
        let first = (page - layout.table()) * per_page;
        let is_there = |head: &&[u8]| head[..8] != [0; 8];
        let numbers = bytes.chunks(INODE as usize).zip(first..);
        there.extend(numbers.filter(|(head, _)| is_there(head)).map(|(_, ino)| Ino(ino)));
        page += count;
    }
    there.retain(|ino| (1..=layout.inodes).contains(&ino.0));
    Ok(there)
}

/// Which pages are in use.
pub struct Used {
    first: u64,
    words: Vec<u64>,
}

impl Used {
    pub fn new(layout: &Layout) -> Self {
        let pages = layout.pages - layout.data();
        Self { first: layout.data(), words: vec![0; pages.div_ceil(64) as usize] }
    }

    /// Marks a run. False if one of its pages was marked.
    pub fn mark(&mut self, page: u64, count: u64) -> bool {
        let mut sound = true;
        for bit in page - self.first..page - self.first + count {
            let word = &mut self.words[(bit / 64) as usize];
            sound &= *word & 1 << (bit % 64) == 0;
            *word |= 1 << (bit % 64);
        }
        sound
    }

    /// How many are.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn give_free(&self, space: &Space, layout: &Layout) {
        let pages = layout.pages - layout.data();
        let mut start = None;
        for bit in 0..=pages {
            let is_free = bit < pages && self.words[(bit / 64) as usize] & 1 << (bit % 64) == 0;
            match (is_free, start) {
                (true, None) => start = Some(bit),
                (false, Some(from)) => {
                    space.give(self.first + from, bit - from);
                    start = None;
                }
                _ => {}
            }
        }
    }
}

/// Mounts the one on a device.
///
/// # Errors
/// [`NovaError`].
pub fn open<D: PageView + 'static>(device: &Arc<D>, options: Options) -> Result<NovaLike<D>> {
    let about = read_super(&**device)?;
    let layout = about.layout;
    let medium = Medium::new(device);
    let journal = Journal::recover(&medium, &layout)?;
    let mut used = Used::new(&layout);
    let there = inodes_there(&**device, &layout)?;
    let mut orphans = Vec::new();
    for ino in &there {
        let loaded = log::load(&medium, &layout, *ino)?;
        let sound = loaded
            .part
            .pages()
            .into_iter()
            .fold(true, |sound, (page, count)| used.mark(page, count) && sound);
        if !sound {
            let twice = Error::corrupt("inode", ino.0, "it has a page that is another's");
            return Err(twice.into());
        }
        if loaded.part.attr.nlink.get() == 0 {
            orphans.push(*ino);
        }
    }
    let space = Space::new(&layout);
    used.give_free(&space, &layout);
    let there: std::collections::BTreeSet<_> = there.into_iter().map(|ino| ino.0).collect();
    let read_only = options.read_only;
    let fs = NovaLike {
        medium,
        layout,
        superblock: about.superblock,
        mounts: about.mounts.saturating_add(u64::from(!read_only)),
        was_clean: about.clean,
        names: Names::new(options),
        space,
        inodes: Numbers::new(&layout, |ino| !there.contains(&ino)),
        journal,
        changes: AtomicU64::new(1),
        unlinked: AtomicU64::new(0),
        rewritten: AtomicU64::new(0),
    };
    if !read_only {
        fs.medium.store_word(MOUNTS_AT, fs.mounts, Structure::Superblock)?;
        fs.medium.store_word(CLEAN_AT, 0, Structure::Superblock)?;
        fs.medium.barrier()?;
        for ino in orphans.into_iter().filter(|_| !planted::has(Bug::OrphansNotFinished)) {
            amphi_names::delete_orphan(&fs, &amphi_names::inode(&fs, ino)?)?;
        }
    }
    Ok(fs)
}

/// Deletes files without names and notes that the mount has ended.
///
/// # Errors
/// [`Error::Io`].
pub fn close<D: PageView + 'static>(fs: &NovaLike<D>) -> amphi_vfs::Result<()> {
    if fs.names.health.writable().is_err() {
        return Ok(());
    }
    amphi_names::write_all_atimes(fs)?;
    let mut orphans = Vec::new();
    fs.names.cache.visit(0, |inode| {
        let state = inode.state.read();
        if state.nlink == 0 && !state.gone {
            orphans.push(Arc::clone(inode));
        }
        std::ops::ControlFlow::Continue(())
    });
    for orphan in orphans {
        amphi_names::delete_orphan(fs, &orphan)?;
    }
    fs.medium.store_word(CLEAN_AT, 1, Structure::Superblock)?;
    fs.medium.barrier()
}
