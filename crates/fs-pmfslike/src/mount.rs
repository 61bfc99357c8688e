//! Making, recognising, mounting and unmounting. Mounting undoes what the log has open, reads all inodes and
//! their trees to learn which pages are free, as PMFS does after a crash (§3.2), and deletes files without
//! names.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use amphi_device::{Lpa, PAGE_BYTES, PageView, Structure};
use amphi_names::{Names, Options};
use amphi_vfs::{Error, FileType, Ino};
use amphi_volume::FormatOptions;
use zerocopy::{FromZeros, IntoBytes};

use crate::dir::first_block;
use crate::format::{
    CLEAN_AT, INODE, LABEL_BYTES, LOG_AT, LOG_PAGES, Layout, MAGIC, MOUNTS_AT, PAGE, PAGES_MIN, Record,
    SAME_TIME, Superblock, TABLE_AT, VERSION, log_word, record_checksum, root_word, valid_word,
};
use crate::fs::{PmfsError, PmfsLike};
use crate::inode;
use crate::log::Log;
use crate::medium::Medium;
use crate::planted::{self, Bug};
use crate::space::{Numbers, Space};
use crate::table::Table;

/// Bytes of the device for each inode, unless told otherwise.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Pages of the device for each page of the log, unless told otherwise.
const PAGES_PER_LOG_PAGE: u64 = 256;
/// Pages that are cleared by one command.
const CLEARED_PAGES: u64 = 256;

type Result<T> = std::result::Result<T, PmfsError>;

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
/// [`PmfsError`].
pub fn format<D: PageView>(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
    device.check_page_view()?;
    let pages = options.bytes.map_or(u64::MAX, |bytes| bytes / PAGE).min(device.capacity_pages());
    let inodes = options.inodes.map_or((pages * PAGE / BYTES_PER_INODE).max(64), u64::from);
    let log_pages = options.journal_bytes.map_or(pages / PAGES_PER_LOG_PAGE, |bytes| bytes / PAGE);
    let log_pages = log_pages.clamp(*LOG_PAGES.start(), *LOG_PAGES.end());
    let layout = Layout { pages, inodes, log_pages };
    if pages < PAGES_MIN || layout.data() + PAGES_MIN / 2 > pages {
        return Err(PmfsError::Unsuitable(format!("a log of {log_pages} pages leaves no room on {pages}")));
    }
    if inodes >= pages * (PAGE / INODE) {
        return Err(PmfsError::Unsuitable(format!("{inodes} inodes are more than {pages} pages hold")));
    }
    if options.label.len() > LABEL_BYTES {
        return Err(PmfsError::Unsuitable(format!("the label is longer than {LABEL_BYTES} bytes")));
    }
    let mut superblock = Superblock::new_zeroed();
    (superblock.magic, superblock.version) = (MAGIC, VERSION.into());
    (superblock.pages, superblock.inodes) = (pages.into(), inodes.into());
    superblock.log_pages = log_pages.into();
    superblock.uuid.as_chunks_mut::<8>().0.iter_mut().for_each(|half| {
        *half = amphi_rt::random::u64().to_le_bytes();
    });
    superblock.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    superblock.crc = superblock.checksum().into();
    // Behind the log the table's first page, then the root's first block.
    let (table, block) = (layout.data(), layout.data() + 1);
    let zeros = vec![0; (CLEARED_PAGES * PAGE) as usize];
    let mut at = 0;
    while at <= table {
        let count = CLEARED_PAGES.min(table + 1 - at);
        device.write(Lpa(at), &zeros[..(count * PAGE) as usize], Structure::Other)?;
        at += count;
    }
    device.flush()?;
    let medium = Medium::new(device);
    medium.store(block * PAGE, &first_block(Ino::ROOT, Ino::ROOT)[..], Structure::Dentry)?;
    medium.store(table * PAGE + Ino::ROOT.0 * INODE, root(block).as_bytes(), Structure::Inode)?;
    let mut record = Record::new_zeroed();
    (record.root, record.size) = (root_word(table, 0).into(), PAGE.into());
    medium.store(TABLE_AT, record.as_bytes(), Structure::Inode)?;
    medium.store_word(LOG_AT, log_word(0, 1), Structure::Journal)?;
    medium.store_word(CLEAN_AT, 1, Structure::Superblock)?;
    medium.barrier()?;
    // Last: until then there is none.
    medium.store(0, superblock.as_bytes(), Structure::Superblock)?;
    medium.barrier()?;
    Ok(())
}

fn root(block: u64) -> Record {
    let now = amphi_rt::time::wall_ns();
    let mut root = Record::new_zeroed();
    let valid = valid_word(FileType::Directory, 0);
    (root.valid, root.root, root.size) = (valid.into(), root_word(block, 0).into(), PAGE.into());
    (root.mtime, root.ctime, root.atime) = (now.into(), SAME_TIME.into(), now.into());
    (root.nlink, root.mode) = (2.into(), 0o755.into());
    root.crc = record_checksum(Ino::ROOT.0, valid, 0).into();
    root
}

/// Reads page 0.
///
/// # Errors
/// [`PmfsError::Format`], [`PmfsError::Device`].
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
/// [`PmfsError`].
pub fn open<D: PageView + 'static>(device: &Arc<D>, options: Options) -> Result<PmfsLike<D>> {
    let about = read_super(&**device)?;
    let layout = about.layout;
    let medium = Medium::new(device);
    let log = Log::recover(&medium, &layout)?;
    let mut used = Used::new(&layout);
    let table = Table::load(&medium, &layout)?;
    let mut mark = |ino: Ino, pages: Vec<(u64, u64)>| {
        if pages.into_iter().fold(true, |sound, (page, count)| used.mark(page, count) && sound) {
            return Ok(());
        }
        Err(Error::corrupt("inode", ino.0, "it has a page that is another's"))
    };
    mark(Ino(0), table.pages())?;
    let there = table.there(&medium, &layout)?;
    let mut orphans = Vec::new();
    for ino in &there {
        let loaded = inode::load(&medium, &layout, *ino, table.address(*ino)?)?;
        mark(*ino, loaded.part.pages())?;
        if loaded.part.record.nlink.get() == 0 {
            orphans.push(*ino);
        }
    }
    let space = Space::new(&layout);
    used.give_free(&space, &layout);
    let there: BTreeSet<u64> = there.into_iter().map(|ino| ino.0).collect();
    let free = (1..table.end(&layout)).rev().filter(|ino| !there.contains(ino)).map(|ino| ino as u32);
    let read_only = options.read_only;
    let fs = PmfsLike {
        medium,
        layout,
        superblock: about.superblock,
        mounts: about.mounts.saturating_add(u64::from(!read_only)),
        was_clean: about.clean,
        names: Names::new(options),
        space,
        numbers: Numbers::new(free.collect()),
        table,
        log,
        changes: AtomicU64::new(1),
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
pub fn close<D: PageView + 'static>(fs: &PmfsLike<D>) -> amphi_vfs::Result<()> {
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
