//! What each personality makes of a command. Ports ask here, once a command or once a page, and a personality
//! knows nothing of the others.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use amphi_device::{Entry, Error, Lpa, PAGE_BYTES, Result, Structure};

use crate::Firmware;
use crate::ba_buffer::BaBuffer;
use crate::core::Core;
use crate::format::{Mapping, PAGE};
use crate::log::Log;
use crate::memory;
use crate::page_cache::FlashRead;
use crate::personality::Personality;
use crate::power::Loss;
use crate::stats::{Cause, Counter, Stats};
use crate::store::Store;

impl Core {
    /// Size of the byte port's window.
    pub(crate) fn window_bytes(&self) -> u64 {
        match &self.personality {
            Personality::Log(_) | Personality::PageCache(_) => self.layout.capacity_pages * PAGE,
            Personality::Memory(memory) => memory.bytes(),
            Personality::BaBuffer(buffer) => buffer.memory.bytes(),
        }
    }

    /// The write log, which alone has transactions.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the firmware is another one.
    pub(crate) fn log(&self) -> Result<&Log> {
        match &self.personality {
            Personality::Log(log) => Ok(log),
            Personality::PageCache(_) => {
                Err(Error::Unsupported("transactions: its memory is a page cache, not a write log"))
            }
            Personality::Memory(_) => {
                Err(Error::Unsupported("transactions: its memory is an area of its own, not a write log"))
            }
            Personality::BaBuffer(_) => {
                Err(Error::Unsupported("transactions: its memory is a BA-buffer, not a write log"))
            }
        }
    }

    /// The BA-buffer, onto which alone pages are pinned.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the firmware is another one.
    pub(crate) fn pins(&self) -> Result<&BaBuffer> {
        match &self.personality {
            Personality::BaBuffer(buffer) => Ok(buffer),
            Personality::Log(_) | Personality::PageCache(_) | Personality::Memory(_) => {
                Err(Error::Unsupported("pins: its memory is no BA-buffer"))
            }
        }
    }

    /// Lets a block command at these pages pass the LBA checker. None of them is pinned while the answer
    /// lives.
    ///
    /// # Errors
    /// One of the pages is pinned.
    pub(crate) fn pass_checker(&self, at: Lpa, pages: u64) -> Result<Option<impl Sized>> {
        match &self.personality {
            Personality::BaBuffer(buffer) => match buffer.pass(at, pages) {
                Ok(pass) => Ok(Some(pass)),
                Err(refusal) => {
                    self.count().add(Counter::BlockCommandsGated, 1);
                    Err(refusal)
                }
            },
            Personality::Log(_) | Personality::PageCache(_) | Personality::Memory(_) => Ok(None),
        }
    }

    /// Loads bytes as the device holds them. Answers when those that had to come from flash have come, at
    /// least `start`.
    ///
    /// # Errors
    /// A flash page cannot be read.
    pub(crate) fn load_bytes(&self, start: u64, at: u64, into: &mut [u8]) -> Result<u64> {
        match &self.personality {
            Personality::Log(log) => in_pages(start, 0, at, into, |from, lpa, offset, part| {
                log.load_logged(from, lpa, offset, part)
            }),
            Personality::PageCache(cache) => {
                let at_once = self.profile.firmware.fill_at_once;
                in_pages(start, at_once, at, into, |from, lpa, offset, part| {
                    cache.load_cached(FlashRead::From(from), lpa, offset, part)
                })
            }
            Personality::Memory(memory) => {
                memory.load(at, into);
                Ok(start)
            }
            Personality::BaBuffer(buffer) => {
                buffer.memory.load(at, into);
                Ok(start)
            }
        }
    }

    /// Takes in a store that has arrived. Answers when the device has it: 0 unless a page has to come from
    /// flash first.
    ///
    /// # Errors
    /// There is no room for it; power was lost.
    pub(crate) fn take_in(&self, store: &Store<'_>) -> Result<u64> {
        match &self.personality {
            Personality::Log(log) => log.append(store),
            Personality::PageCache(cache) => cache.store_cached(store),
            Personality::Memory(memory) => memory::store(self, memory, store).map(|()| 0),
            Personality::BaBuffer(buffer) => {
                memory::store(self, &buffer.memory, store)?;
                // A dump that began meanwhile may not have it: then nobody is told that it has arrived. The
                // fence is the other half of the exchange in `Power::cut`.
                fence(Ordering::SeqCst);
                self.power.check().map(|()| 0)
            }
        }
    }

    /// Takes in a store that was on its way when the device went down. Answers whether there was room.
    pub(crate) fn take_in_at(&self, loss: Loss, store: &Store<'_>) -> bool {
        match &self.personality {
            Personality::Log(log) if loss == Loss::HostCrash => log.append_after_host_crash(store),
            Personality::Log(log) => log.append_at_power_loss(store),
            Personality::PageCache(cache) => cache.store_cached_at_loss(store),
            Personality::Memory(memory) => memory::store_at_loss(memory, store),
            // What comes after the dump is lost with the memory.
            Personality::BaBuffer(buffer) => {
                !buffer.has_dump() && memory::store_at_loss(&buffer.memory, store)
            }
        }
    }

    /// Whether taking in a store is work for a firmware processor: a memory area and a BA-buffer are filled
    /// past all of them.
    pub(crate) const fn has_entries(&self) -> bool {
        !matches!(self.personality, Personality::Memory(_) | Personality::BaBuffer(_))
    }

    /// Lets parts of a page of a block write in flight, each its first byte in the page and its bytes, reach
    /// the device while power goes. `seq` is the number that the write would have got. Answers whether there
    /// was room.
    pub(crate) fn take_in_torn(&self, lpa: u64, parts: &[(usize, &[u8])], seq: u64) -> bool {
        match &self.personality {
            Personality::Log(log) => parts.iter().all(|part| log.append_numbered(&torn(lpa, *part), seq)),
            Personality::PageCache(cache) => {
                parts.iter().all(|part| cache.store_cached_at_loss(&torn(lpa, *part)))
            }
            Personality::Memory(_) | Personality::BaBuffer(_) => memory::write_torn_page(self, lpa, parts),
        }
    }

    /// A block read's page.
    ///
    /// # Errors
    /// The flash page cannot be read.
    pub(crate) fn read_page(&self, lpa: u64, into: &mut [u8]) -> Result<()> {
        match &self.personality {
            Personality::Log(log) => log.read_merged(lpa, into),
            Personality::PageCache(cache) => cache.load_cached(FlashRead::Booked, lpa, 0, into).map(|_| ()),
            Personality::Memory(_) | Personality::BaBuffer(_) => memory::read_page(self, lpa, into),
        }
    }

    /// What a block read of a page would find, without bringing it into a cache.
    ///
    /// # Errors
    /// The flash page cannot be read.
    pub(crate) fn peek_page(&self, lpa: u64, into: &mut [u8]) -> Result<()> {
        match &self.personality {
            Personality::PageCache(cache) => cache.peek_cached(lpa, into),
            Personality::Log(log) => log.read_merged(lpa, into),
            Personality::Memory(_) | Personality::BaBuffer(_) => memory::read_page(self, lpa, into),
        }
    }

    /// Books the flash's time of a block read that is fetched at `start`. Answers when all pages are there.
    pub(crate) fn book_pages(&self, start: u64, pages: Range<u64>) -> u64 {
        let cached_at = |lpa| match &self.personality {
            Personality::PageCache(cache) => cache.cached_at(lpa),
            Personality::Log(_) | Personality::Memory(_) | Personality::BaBuffer(_) => None,
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
        if matches!(self.personality, Personality::PageCache(_)) {
            // It counts what it brings in.
            return self.timing.fill(ready, from_flash);
        }
        if from_flash > 0 {
            self.count().flash_read(Cause::Host, from_flash);
        }
        ready
    }

    /// Books what it takes to admit a block write of `pages` pages that have arrived. Answers when it is
    /// admitted.
    ///
    /// # Errors
    /// A cache cannot make room.
    pub(crate) fn book_admission(&self, arrived: u64, pages: u64, turn: usize) -> Result<u64> {
        if let Personality::PageCache(cache) = &self.personality {
            return Ok(arrived.max(cache.make_room(pages)?));
        }
        Ok(self.book_programs(arrived, pages, turn))
    }

    /// Books programs of `pages` pages that arrive at the write buffer. Answers when it has admitted them.
    pub(crate) fn book_programs(&self, arrived: u64, pages: u64, turn: usize) -> u64 {
        if self.timing.is_free() {
            return 0;
        }
        (0..pages as usize).fold(arrived, |admitted, page| {
            let die = self.blocks.die_of_turn(turn.wrapping_add(page));
            admitted.max(self.time_program(Cause::Host, arrived, die))
        })
    }

    /// Writes the first of a block write's pages, from `lpa` on, and as many more as go together. Answers how
    /// many those are, when a cache had room for them, and how it failed: the old contents of the others
    /// stay.
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
            return match cache.write_page_cached(lpa, page) {
                Ok(ready_at) => (1, ready_at, Ok(())),
                Err(cause) => (0, 0, Err(cause)),
            };
        }
        let (written, outcome) = self.write_pages(lpa, pages, turn);
        self.count().flash_write(Cause::Host, written as u64);
        (written, 0, outcome)
    }

    /// Forgets pages that were trimmed. Called with the partition's write lock held, after the mapping says
    /// so.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn forget_pages(&self, mut pages: Range<u64>) -> Result<()> {
        match &self.personality {
            Personality::PageCache(cache) => pages.try_for_each(|lpa| cache.drop_cached(lpa)),
            Personality::Log(_) | Personality::Memory(_) | Personality::BaBuffer(_) => Ok(()),
        }
    }

    /// Ends the background task.
    pub(crate) fn close_background(&self) {
        match &self.personality {
            Personality::Log(log) => log.bell.close(),
            Personality::PageCache(cache) => cache.bell.close(),
            Personality::Memory(_) | Personality::BaBuffer(_) => {}
        }
    }

    /// Keeps background work of the firmware from changing anything as long as the answer lives: cleaning,
    /// writing cached pages back, garbage collection and checkpoints of the mapping.
    pub(crate) fn hold_background(&self) -> impl Sized {
        let (mut cleaning, mut writing_back) = (None, None);
        match &self.personality {
            Personality::Log(log) => cleaning = Some(log.cleaning.0.lock()),
            Personality::PageCache(cache) => writing_back = Some(cache.writing_back.lock()),
            Personality::Memory(_) | Personality::BaBuffer(_) => {}
        }
        (cleaning, writing_back, self.blocks.collecting.lock(), self.checkpoints.hold())
    }

    /// Power is lost, and what was on its way has been decided: saves volatile memory.
    pub(crate) fn dump_memory(&self) {
        match &self.personality {
            Personality::BaBuffer(buffer) => buffer.dump(),
            // A memory area has its energy; firmware that hosts a file system is told how far it goes.
            Personality::Memory(memory) if self.profile.firmware.kind == Firmware::FileSystem => {
                memory::lose_from(memory, self.profile.bytes_saved());
            }
            Personality::Log(_) | Personality::PageCache(_) | Personality::Memory(_) => {}
        }
    }

    /// Spends the time that restoring volatile memory took at power-up.
    pub(crate) fn wait_for_restore(&self) {
        match &self.personality {
            Personality::BaBuffer(buffer) => buffer.wait_for_restore(),
            Personality::Log(_) | Personality::PageCache(_) | Personality::Memory(_) => {}
        }
    }

    /// Finds again what protected memory holds, at power-up.
    ///
    /// # Errors
    /// It holds what no device writes; power was lost again.
    pub(crate) fn load_protected(&self) -> Result<()> {
        match &self.personality {
            Personality::Log(log) => log.rebuild_index(),
            Personality::PageCache(cache) => cache.load_cache(),
            Personality::Memory(memory) => {
                memory::power_up(memory);
                Ok(())
            }
            Personality::BaBuffer(buffer) => buffer.restore(),
        }
    }

    /// What of protected memory is in use, as address and length in the image.
    pub(crate) fn protected_in_use(&self) -> Vec<(u64, u64)> {
        match &self.personality {
            Personality::Log(log) => log.in_image(),
            Personality::PageCache(cache) => cache.in_image(),
            Personality::Memory(memory) => memory.in_image(),
            Personality::BaBuffer(buffer) => buffer.in_image(),
        }
    }

    /// The entries of a BA-buffer's table.
    pub(crate) fn pinned(&self) -> Vec<Entry> {
        self.pins().map_or_else(|_| Vec::new(), BaBuffer::entries)
    }

    /// What of a window on protected memory is in use: first byte and length.
    pub(crate) fn window_in_use(&self) -> Vec<(u64, u64)> {
        match &self.personality {
            Personality::Log(_) | Personality::PageCache(_) => Vec::new(),
            Personality::Memory(memory) => memory.used().collect(),
            Personality::BaBuffer(buffer) => buffer.memory.used().collect(),
        }
    }

    /// Whether a page is in a cache.
    pub(crate) fn is_cached(&self, lpa: u64) -> bool {
        matches!(&self.personality, Personality::PageCache(cache) if cache.cached_at(lpa).is_some())
    }

    /// Reports the use of memory.
    pub(crate) fn report_memory(&self, stats: &mut Stats) {
        match &self.personality {
            Personality::Log(log) => log.report(stats),
            Personality::PageCache(cache) => stats.cache_dirty = cache.dirty(),
            Personality::Memory(memory) => stats.memory_used = memory.used_bytes(),
            Personality::BaBuffer(buffer) => {
                stats.memory_used = buffer.memory.used_bytes();
                stats.pinned_entries = buffer.entries().len() as u64;
            }
        }
        stats.log_capacity = self.layout.region_bytes;
        stats.cache_capacity = self.layout.cache_frames;
        stats.memory_capacity = self.layout.memory_bytes;
        stats.pin_capacity = self.layout.pin_entries;
    }
}

/// Part of a page of a block write as firmware takes it in that knows stores alone.
const fn torn<'a>(lpa: u64, (offset, data): (usize, &'a [u8])) -> Store<'a> {
    Store { at: lpa * PAGE + offset as u64, data, tx: 0, tag: Structure::Other }
}

/// Loads bytes page by page, each from a moment on. Behind `at_once` pages that have to come the next ones
/// are asked for when these are there; 0: at once, too. Answers when all are there.
fn in_pages(
    start: u64,
    at_once: u64,
    at: u64,
    into: &mut [u8],
    load: impl Fn(u64, u64, usize, &mut [u8]) -> Result<u64>,
) -> Result<u64> {
    let (mut from, mut missing, mut done) = (start, 0, start);
    let (mut at_byte, mut rest) = (at, into);
    while !rest.is_empty() {
        let offset = (at_byte % PAGE) as usize;
        let (part, after) = rest.split_at_mut((PAGE_BYTES - offset).min(rest.len()));
        let ready = load(from, at_byte / PAGE, offset, part)?;
        done = done.max(ready);
        missing += u64::from(ready > from);
        if at_once > 0 && missing == at_once {
            (from, missing) = (done, 0);
        }
        at_byte += part.len() as u64;
        rest = after;
    }
    Ok(done)
}
