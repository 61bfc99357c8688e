//! What the firmware makes of flash and protected memory. Ports ask here, once a command or once a page, and a personality
//! knows nothing of the others: a transactional write log, a page cache, or a memory area.

use amphi_device::{Error, PAGE_BYTES, Result, Structure};

use crate::core::Core;
use crate::format::{Mapping, PAGE};
use crate::page_cache::PageCache;
use crate::power::Loss;
use crate::protected::Protected;
use crate::stats::{Cause, Stats};

/// The firmware's personality, with what it alone keeps.
#[derive(Debug)]
pub(crate) enum Personality {
    /// A transactional write log over the pages.
    Log,
    /// A cache of whole pages.
    PageCache(PageCache),
    /// A memory area beside the pages.
    Memory(Protected),
}

/// A store as it reaches the device. It lies within one page of its address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store<'a> {
    /// Byte of the window.
    pub(crate) at: u64,
    pub(crate) data: &'a [u8],
    /// Transaction, or 0.
    pub(crate) tx: u32,
    pub(crate) tag: Structure,
}

impl Store<'_> {
    /// The page that the window shows there, on firmware whose window shows pages.
    pub(crate) const fn lpa(&self) -> u64 {
        self.at / PAGE
    }

    /// The first byte within that page.
    pub(crate) const fn offset(&self) -> usize {
        (self.at % PAGE) as usize
    }
}

/// What the commands of a write log are refused with.
const NO_LOG: [Error; 2] = [
    Error::Unsupported("transactions: its memory is a page cache, not a write log"),
    Error::Unsupported("transactions: its memory is an area of its own, not a write log"),
];

impl Core {
    /// Size of the byte port's window.
    pub(crate) fn window_bytes(&self) -> u64 {
        match &self.personality {
            Personality::Log | Personality::PageCache(_) => self.layout.capacity_pages * PAGE,
            Personality::Memory(memory) => memory.bytes(),
        }
    }

    /// Refuses a transaction where the firmware has none.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(crate) fn check_log(&self) -> Result<()> {
        match &self.personality {
            Personality::Log => Ok(()),
            Personality::PageCache(_) => Err(NO_LOG[0].clone()),
            Personality::Memory(_) => Err(NO_LOG[1].clone()),
        }
    }

    /// Loads bytes as the device holds them. Answers when those that had to come from flash have come, at least `start`.
    ///
    /// # Errors
    /// A flash page cannot be read.
    pub(crate) fn load_bytes(&self, start: u64, at: u64, into: &mut [u8]) -> Result<u64> {
        match &self.personality {
            Personality::Log => {
                in_pages(start, at, into, |lpa, offset, part| self.load_logged(start, lpa, offset, part))
            }
            Personality::PageCache(cache) => in_pages(start, at, into, |lpa, offset, part| {
                self.load_cached(cache, lpa, offset, part, false)
            }),
            Personality::Memory(memory) => {
                memory.load(at, into);
                Ok(start)
            }
        }
    }

    /// Takes in a store that has arrived. Answers when the device has it: 0 unless a page has to come from flash first.
    ///
    /// # Errors
    /// There is no room for it; power was lost.
    pub(crate) fn take_in(&self, store: &Store<'_>) -> Result<u64> {
        match &self.personality {
            Personality::Log => self.append(store),
            Personality::PageCache(cache) => self.store_cached(cache, store),
            Personality::Memory(memory) => self.store_in_memory(memory, store).map(|()| 0),
        }
    }

    /// Takes in a store that was on its way when the device went down. Answers whether there was room.
    pub(crate) fn take_in_at(&self, loss: Loss, store: &Store<'_>) -> bool {
        match &self.personality {
            Personality::Log if loss == Loss::HostCrash => self.append_after_host_crash(store),
            Personality::Log => self.append_at_power_loss(store),
            Personality::PageCache(cache) => self.store_cached_at_loss(cache, store),
            Personality::Memory(memory) => self.store_in_memory_at_loss(memory, store),
        }
    }

    /// Whether taking in a store is work for a firmware processor: a memory area is filled past all of them.
    pub(crate) const fn has_entries(&self) -> bool {
        !matches!(self.personality, Personality::Memory(_))
    }

    /// Lets parts of a page of a block write in flight, each its first byte in the page and its bytes, reach the device while
    /// power goes. `seq` is the number that the write would have got. Answers whether there was room.
    pub(crate) fn take_in_torn(&self, lpa: u64, parts: &[(usize, &[u8])], seq: u64) -> bool {
        match &self.personality {
            Personality::Log => parts.iter().all(|part| self.append_numbered(&torn(lpa, *part), seq)),
            Personality::PageCache(cache) => {
                parts.iter().all(|part| self.store_cached_at_loss(cache, &torn(lpa, *part)))
            }
            Personality::Memory(_) => self.write_torn_page(lpa, parts),
        }
    }

    /// A block read's page.
    ///
    /// # Errors
    /// The flash page cannot be read.
    pub(crate) fn read_page(&self, lpa: u64, into: &mut [u8]) -> Result<()> {
        match &self.personality {
            Personality::Log => self.read_merged(lpa, into),
            Personality::PageCache(cache) => self.load_cached(cache, lpa, 0, into, true).map(|_| ()),
            Personality::Memory(_) => self.read_flash_page(lpa, into),
        }
    }

    /// What a block read of a page would find, without bringing it into a cache.
    ///
    /// # Errors
    /// The flash page cannot be read.
    pub(crate) fn peek_page(&self, lpa: u64, into: &mut [u8]) -> Result<()> {
        match &self.personality {
            Personality::PageCache(cache) => self.peek_cached(cache, lpa, into),
            Personality::Log => self.read_merged(lpa, into),
            Personality::Memory(_) => self.read_flash_page(lpa, into),
        }
    }

    /// Books the flash's time of a block read that is fetched at `start`. Answers when all pages are there.
    pub(crate) fn book_pages(&self, start: u64, pages: std::ops::Range<u64>) -> u64 {
        let cached_at = |lpa| match &self.personality {
            Personality::PageCache(cache) => cache.cached_at(lpa),
            Personality::Log | Personality::Memory(_) => None,
        };
        let (mut from_flash, mut ready) = (0, start);
        for lpa in pages {
            if let Some(cached) = cached_at(lpa) {
                ready = ready.max(cached);
            } else if let Mapping::At(page) = self.mapping(lpa) {
                from_flash += 1;
                ready = ready.max(self.time_page_read(Cause::Host, start, page));
            }
        }
        // A cache counts what it brings in.
        if from_flash > 0 && !matches!(self.personality, Personality::PageCache(_)) {
            self.count().flash_read(Cause::Host, from_flash);
        }
        ready
    }

    /// Books what it takes to admit a block write of `pages` pages that have arrived. Answers when it is admitted.
    ///
    /// # Errors
    /// A cache cannot make room.
    pub(crate) fn book_admission(&self, arrived: u64, pages: u64, turn: usize) -> Result<u64> {
        if let Personality::PageCache(cache) = &self.personality {
            return Ok(arrived.max(self.make_room(cache, pages)?));
        }
        if self.timing.is_free() {
            return Ok(0);
        }
        Ok((0..pages as usize).fold(arrived, |admitted, page| {
            let die = self.blocks.die_of_turn(turn.wrapping_add(page));
            admitted.max(self.time_program(Cause::Host, arrived, die))
        }))
    }

    /// Writes the first of a block write's pages, from `lpa` on, and as many more as go together. Answers how many those are, when
    /// a cache had room for them, and how it failed: the old contents of the others stay.
    pub(crate) fn write_some<'a>(
        &self,
        lpa: u64,
        mut pages: impl Iterator<Item = &'a [u8]>,
        turn: usize,
    ) -> (usize, u64, Result<()>) {
        if let Err(lost) = self.power.check() {
            return (0, 0, Err(lost));
        }
        if let Personality::PageCache(cache) = &self.personality {
            let Some(page) = pages.next() else { return (0, 0, Ok(())) };
            return match self.write_page_cached(cache, lpa, page) {
                Ok(ready_at) => (1, ready_at, Ok(())),
                Err(cause) => (0, 0, Err(cause)),
            };
        }
        let (written, outcome) = self.write_pages(lpa, pages, turn);
        self.count().flash_write(Cause::Host, written as u64);
        (written, 0, outcome)
    }

    /// Forgets pages that were trimmed. Called with the partition's write lock held, after the mapping says so.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn forget_pages(&self, mut pages: std::ops::Range<u64>) -> Result<()> {
        match &self.personality {
            Personality::PageCache(cache) => pages.try_for_each(|lpa| self.drop_cached(cache, lpa)),
            Personality::Log | Personality::Memory(_) => Ok(()),
        }
    }

    /// What the background task does in one round.
    ///
    /// # Errors
    /// Flash cannot be read or written; power was lost.
    pub(crate) fn background_round(&self) -> Result<()> {
        match &self.personality {
            Personality::Log => self.clean_one_region(),
            Personality::PageCache(cache) => self.write_back_some(cache),
            Personality::Memory(_) => Ok(()),
        }
    }

    /// Wakes the background task.
    pub(crate) fn ring_background(&self) {
        let Some(core) = self.itself.upgrade() else { return };
        self.clean_bell.ring(|| {
            amphi_rt::task::spawn("ssd-cleaner", move || core.clean_bell.serve(|| core.background_round()))
        });
    }

    /// Finds again what protected memory holds beside the log, at power-up.
    ///
    /// # Errors
    /// It holds what no device writes.
    pub(crate) fn load_protected(&self) -> Result<()> {
        match &self.personality {
            Personality::Log => Ok(()),
            Personality::PageCache(cache) => self.load_cache(cache),
            Personality::Memory(memory) => {
                Self::check_memory(memory);
                Ok(())
            }
        }
    }

    /// What of protected memory is in use beside the log, as address and length in the image.
    pub(crate) fn protected_in_use(&self) -> Vec<(u64, u64)> {
        match &self.personality {
            Personality::Log => Vec::new(),
            Personality::PageCache(cache) => self.cache_in_use(cache),
            Personality::Memory(memory) => self.memory_in_use(memory),
        }
    }

    /// What of a window on protected memory is in use: first byte and length.
    pub(crate) fn window_in_use(&self) -> Vec<(u64, u64)> {
        match &self.personality {
            Personality::Log | Personality::PageCache(_) => Vec::new(),
            Personality::Memory(memory) => memory.used().collect(),
        }
    }

    /// Whether a page is in a cache.
    pub(crate) fn is_cached(&self, lpa: u64) -> bool {
        matches!(&self.personality, Personality::PageCache(cache) if cache.find(lpa).is_some())
    }

    /// Reports the use of memory.
    pub(crate) fn report_memory(&self, stats: &mut Stats) {
        match &self.personality {
            Personality::Log => {}
            Personality::PageCache(cache) => stats.cache_dirty = cache.dirty(),
            Personality::Memory(memory) => stats.memory_used = memory.used_bytes(),
        }
        stats.cache_capacity = self.layout.cache_frames;
        stats.memory_capacity = self.layout.memory_bytes;
    }
}

/// Part of a page of a block write as firmware takes it in that knows stores alone.
const fn torn<'a>(lpa: u64, (offset, data): (usize, &'a [u8])) -> Store<'a> {
    Store { at: lpa * PAGE + offset as u64, data, tx: 0, tag: Structure::Other }
}

/// Loads bytes page by page. Answers when the last of them is there.
fn in_pages(
    start: u64,
    at: u64,
    into: &mut [u8],
    load: impl Fn(u64, usize, &mut [u8]) -> Result<u64>,
) -> Result<u64> {
    let mut done = start;
    let (mut at_byte, mut rest) = (at, into);
    while !rest.is_empty() {
        let offset = (at_byte % PAGE) as usize;
        let (part, after) = rest.split_at_mut((PAGE_BYTES - offset).min(rest.len()));
        done = done.max(load(at_byte / PAGE, offset, part)?);
        at_byte += part.len() as u64;
        rest = after;
    }
    Ok(done)
}
