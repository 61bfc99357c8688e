//! Metadata pages in device memory. They are read when somebody asks for them, changed by records, and
//! written in place when the journal that has those records is emptied.
//!
//! A page knows the time stamp of its newest record, in memory and on flash. So redo after a loss of power
//! knows which records a page has, however the journals of other files were emptied meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_rt::sync::{Mutex, MutexGuard, OnceCell, RwLock, RwLockWriteGuard};
use amphi_vfs::{Error, Failure, Result};
use hashbrown::HashMap;
use zerocopy::FromBytes;

use crate::format::{BODY, Footer, Layout, PAGE};
use crate::media::Media;
use crate::memory::{DeviceMemory, Kind};
use crate::planted::{self, Bug};

const SHARDS: u64 = 16;

/// A page's bytes.
pub struct Frame {
    pub bytes: [u8; PAGE],
    /// Time stamp of the newest record in them.
    pub stamp: u64,
    /// A record that changes the page failed on its way into a journal, and may be there or not. If it is,
    /// a page written without it, and with a later stamp, would have the rest of the record count alone.
    pub is_in_doubt: bool,
}

impl Frame {
    /// Fails if the page must not be changed or written any more.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sound(&self) -> Result<()> {
        if !self.is_in_doubt || planted::has(Bug::DoubtForgotten) {
            return Ok(());
        }
        Err(Error::Io(Failure::Earlier("a record of the journal was not written".to_owned())))
    }
}

/// A page in memory.
pub struct Page {
    frame: OnceCell<Box<RwLock<Frame>>>,
    /// The time stamp on flash. Who writes the page holds it.
    on_flash: Mutex<u64>,
}

type Shard = HashMap<u64, Arc<Page>, amphi_rt::hash::State>;

/// The pages in memory.
pub struct Meta<D> {
    pub media: Arc<Media<D>>,
    memory: Arc<DeviceMemory>,
    layout: Layout,
    shards: Box<[Mutex<Shard>]>,
    hand: AtomicUsize,
}

impl<D: BlockPort + MemoryArea> Meta<D> {
    /// None are read yet.
    pub fn new(media: &Arc<Media<D>>, memory: &Arc<DeviceMemory>, layout: Layout) -> Self {
        Self {
            media: Arc::clone(media),
            memory: Arc::clone(memory),
            layout,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hand: AtomicUsize::new(0),
        }
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, Shard> {
        self.shards[(number % SHARDS) as usize].lock()
    }

    /// What a page holds, for accounting.
    const fn tag(&self, number: u64) -> Structure {
        if number < self.layout.inode_table {
            Structure::Bitmap
        } else if number < self.layout.log {
            Structure::Inode
        } else {
            Structure::Pointer
        }
    }

    /// A page.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn page(&self, number: u64) -> Result<Arc<Page>> {
        if number == 0 || number >= self.layout.pages {
            return Err(Error::corrupt("page", number, "it is referred to, and is none"));
        }
        let page = {
            let mut shard = self.shard(number);
            let entry = shard.entry(number).or_insert_with(|| {
                self.memory.take(Kind::Metadata, 1, PAGE as u64);
                Arc::new(Page { frame: OnceCell::default(), on_flash: Mutex::new(0) })
            });
            Arc::clone(entry)
        };
        if page.frame.get().is_none() {
            let mut bytes = [0; PAGE];
            self.media.read(number, &mut bytes, self.tag(number))?;
            let stamp = Footer::open(&mut bytes, number)
                .ok_or_else(|| Error::corrupt("metadata page", number, "it fails its checksum"))?;
            page.frame.get_or_init(|| {
                *page.on_flash.lock() = stamp;
                Box::new(RwLock::new(Frame { bytes, stamp, is_in_doubt: false }))
            });
            self.evict();
        }
        Ok(page)
    }

    /// Calls `body` with a page's bytes before the footer.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn with<T>(&self, number: u64, body: impl FnOnce(&[u8; BODY]) -> T) -> Result<T> {
        let page = self.page(number)?;
        let frame = page.frame().read();
        let (bytes, _) = frame.bytes.split_first_chunk().unwrap_or_else(|| unreachable!("a page is longer"));
        Ok(body(bytes))
    }

    /// Reads a structure.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn read<T: FromBytes>(&self, number: u64, at: usize) -> Result<T> {
        let value =
            self.with(number, |bytes| T::read_from_prefix(&bytes[at..]).map(|(value, _)| value).ok())?;
        value.ok_or_else(|| Error::corrupt("metadata page", number, "a structure crosses its end"))
    }

    /// Writes an empty page in place, so that whatever was there before is no metadata of ours.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn begin_page(&self, number: u64, stamp: u64) -> Result<()> {
        let mut bytes = [0; PAGE];
        Footer::seal(&mut bytes, number, stamp);
        self.media.write(number, &bytes, Structure::Pointer)?;
        self.forget(number);
        Ok(())
    }

    /// Drops a page that is no metadata any more.
    pub fn forget(&self, number: u64) {
        if self.shard(number).remove(&number).is_some() {
            self.memory.give(Kind::Metadata, 1, PAGE as u64);
        }
    }

    /// Writes those of `pages` in place whose bytes on flash are older than the stamps say.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn write_back(&self, pages: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        let mut wanted: Vec<_> = pages.collect();
        wanted.sort_unstable();
        let pages = wanted.iter().map(|(number, _)| self.page(*number)).collect::<Result<Vec<_>>>()?;
        let mut writes = Vec::new();
        let mut locked = Vec::new();
        for (page, (number, stamp)) in pages.iter().zip(&wanted) {
            let on_flash = page.on_flash.lock();
            if *on_flash >= *stamp {
                continue;
            }
            let mut bytes = Box::new([0; PAGE]);
            let newest = {
                let frame = page.frame().read();
                frame.sound()?;
                bytes.copy_from_slice(&frame.bytes);
                frame.stamp
            };
            Footer::seal(&mut bytes, *number, newest);
            locked.push((on_flash, newest));
            if planted::has(Bug::PageNotInPlace) && self.tag(*number) == Structure::Inode {
                continue;
            }
            writes.push((*number, self.tag(*number), bytes));
        }
        self.media.write_each(&writes)?;
        // Not before: a page whose write failed is as dirty as it was.
        locked.iter_mut().for_each(|(on_flash, newest)| **on_flash = *newest);
        Ok(())
    }

    /// Makes room in device memory: pages that flash has as they are, and nobody looks at, go.
    pub fn evict(&self) {
        if self.memory.has_room_for_pages() {
            return;
        }
        for _ in 0..SHARDS {
            let shard = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS as usize;
            let mut gone = 0;
            self.shards[shard].lock().retain(|_, page| {
                let stays = Arc::strong_count(page) > 1 || page.is_dirty();
                gone += u64::from(!stays);
                stays
            });
            self.memory.give(Kind::Metadata, gone, gone * PAGE as u64);
            if gone > 0 {
                return;
            }
        }
    }
}

impl Page {
    fn frame(&self) -> &RwLock<Frame> {
        self.frame.get().unwrap_or_else(|| unreachable!("a page that is given out has its bytes"))
    }

    /// Locks the page to change it.
    pub fn write(&self) -> RwLockWriteGuard<'_, Frame> {
        self.frame().write()
    }

    fn is_dirty(&self) -> bool {
        let on_flash = *self.on_flash.lock();
        // One that could not be read has nothing to lose.
        self.frame
            .get()
            .map(|frame| frame.read())
            .is_some_and(|frame| frame.stamp > on_flash || frame.is_in_doubt)
    }
}
