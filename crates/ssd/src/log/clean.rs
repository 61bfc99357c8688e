//! Log cleaning (ByteFS §4.3, Algorithm 1): moves committed data from a log region to flash, page by page, so
//! that the region can be used again.
//!
//! The region being cleaned no longer takes appends: they go to the other one. For each page with data in it,
//! the old flash page is read if the log does not cover it, the newest committed version of every byte is
//! merged in, and the result is programmed and published. What open transactions stored is carried over to
//! the fresh region. A page's record says up to which commit it is merged (`merged_to`), which is what makes
//! cleaning safe to interrupt and to repeat.
//!
//! Pages are cleaned in batches of as many as there are dies. The reads of a batch begin before its first
//! program: a die that programs would keep a read waiting, and a page read late keeps its own program
//! waiting, on and on where pages lie unluckily.

use amphi_device::{Error, Result};
use amphi_rt::sync::Mutex;

use crate::flash::Stream;
use crate::format::{Mapping, Oob, PAGE};
use crate::log::Log;
use crate::log::space::region_of;
use crate::log::versions::{Version, cover};
use crate::overlay::PageIndex;
use crate::planted::{self, Bug};
use crate::stats::{Activity, Cause, Counter};

/// Buffers that cleaning reuses from page to page.
#[derive(Debug)]
pub(crate) struct Scratch {
    page: Box<[u8]>,
    pub(super) entry: Box<[u8]>,
    pub(super) versions: Vec<Version>,
    batch: Vec<Ahead>,
}

/// A page to be cleaned.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    lpa: u64,
    /// The flash page that is being read for it, and when that is there.
    read: Option<(u64, u64)>,
}

impl Default for Scratch {
    fn default() -> Self {
        let page = || vec![0; PAGE as usize].into_boxed_slice();
        Self { page: page(), entry: page(), versions: Vec::new(), batch: Vec::new() }
    }
}

/// One cleaning at a time.
#[derive(Debug, Default)]
pub(crate) struct Cleaning(pub(crate) Mutex<Scratch>);

/// What cleaning did to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cleaned {
    /// Pages programmed: 0 or 1.
    pub(crate) pages: u64,
    carried: u64,
    /// Entries that found no room in the fresh region and stay where they are.
    stuck: u64,
    /// A page that flash cannot give and the log does not cover, if there is one.
    pub(crate) unreadable: Option<u64>,
    /// The earliest commit whose entries are still in the log.
    oldest_commit: u64,
    /// When the device is done with it.
    done_at: u64,
}

impl Default for Cleaned {
    fn default() -> Self {
        Self { pages: 0, carried: 0, stuck: 0, unreadable: None, oldest_commit: u64::MAX, done_at: 0 }
    }
}

impl Log {
    /// A round of the background cleaner: one region.
    ///
    /// # Errors
    /// As for [`clean_region`](Self::clean_region).
    pub(crate) fn clean_one_region(&self) -> Result<()> {
        let mut scratch = self.cleaning.0.lock();
        self.clean_region(&mut scratch, Cause::LogCleaning).map(|_| ())
    }

    /// Cleans one region: what an interrupted or incomplete cleaning left, or else the active one, which
    /// stops taking appends. Answers whether the region is empty now.
    ///
    /// # Errors
    /// A page cannot be read or written; power was lost. What was not cleaned stays in the log.
    pub(crate) fn clean_region(&self, scratch: &mut Scratch, cause: Cause) -> Result<bool> {
        let active = self.active_region();
        // Not the clock: a commit that has its number and is not seen yet looks open when its entries are
        // carried.
        let horizon = self.horizon();
        let resumed = self.log_tail(1 - active) > 0;
        let old = if resumed {
            1 - active
        } else {
            if self.log_tail(active) == 0 {
                // No entry at all: no commit is referred to.
                self.trim_txlog(horizon)?;
                return Ok(true);
            }
            self.power.step()?;
            self.switch_region();
            active
        };
        let _cleaning = self.meters.begin(Activity::LogCleaning);
        let total = self.clean_pages(scratch, Some(old), cause)?;
        if total.stuck > 0 {
            return Ok(false);
        }
        self.clear_region(old)?;
        // What was committed before the switch had all its entries in the region that is empty now; a few may
        // have been carried, and nobody knows which of them an earlier attempt has carried.
        if !resumed {
            self.trim_txlog(horizon.min(total.oldest_commit - 1))?;
        }
        self.count().add(Counter::Cleanings, 1);
        Ok(true)
    }

    /// Cleans every page that has chunks in region `old` (in any, if none is given).
    ///
    /// # Errors
    /// As for [`clean_page`](Self::clean_page).
    pub(crate) fn clean_pages(
        &self,
        scratch: &mut Scratch,
        old: Option<usize>,
        cause: Cause,
    ) -> Result<Cleaned> {
        let mut total = Cleaned::default();
        let dies = (self.profile.flash.channels * self.profile.flash.ways) as usize;
        scratch.batch.clear();
        for (number, partition) in self.partitions.iter().enumerate() {
            let mut from = 0;
            loop {
                let next = {
                    let index = partition.index.read();
                    let mut next = index.next_page(from);
                    while let (Some(page), Some(old)) = (next, old) {
                        if index.chunks(page).iter().any(|chunk| region_of(chunk.place) == old) {
                            break;
                        }
                        next = index.next_page(page + 1);
                    }
                    next
                };
                let Some(page) = next else { break };
                let lpa = number as u64 * self.layout.partition_pages + u64::from(page);
                scratch.batch.push(Ahead { lpa, read: self.read_ahead(lpa, cause) });
                if scratch.batch.len() == dies {
                    self.clean_batch(scratch, old, cause, &mut total)?;
                }
                from = page + 1;
            }
        }
        self.clean_batch(scratch, old, cause, &mut total)?;
        self.count().add(Counter::EntriesCarried, total.carried);
        Ok(total)
    }

    /// Begins to read the flash page that committed data will be merged with, if it will be.
    fn read_ahead(&self, lpa: u64, cause: Cause) -> Option<(u64, u64)> {
        if self.timing.is_free() {
            return None;
        }
        let (partition, in_partition) = self.partition(lpa);
        let index = partition.index.read();
        let Mapping::At(page) = self.mapping(lpa) else { return None };
        let chunks = index.chunks(in_partition).iter().copied();
        let mut lasting = chunks.filter(|&chunk| self.version(chunk).lasting).peekable();
        if lasting.peek().is_none() || cover(lasting, 0, PAGE as usize) {
            return None;
        }
        Some((page, self.time_page_read(cause, self.timing.now(), page)))
    }

    /// Cleans the pages of a batch, and waits for the flash.
    fn clean_batch(
        &self,
        scratch: &mut Scratch,
        old: Option<usize>,
        cause: Cause,
        total: &mut Cleaned,
    ) -> Result<()> {
        let mut batch = std::mem::take(&mut scratch.batch);
        for page in batch.drain(..) {
            let cleaned = self.clean_page(scratch, page, old, cause)?;
            total.pages += cleaned.pages;
            total.carried += cleaned.carried;
            total.stuck += cleaned.stuck;
            total.unreadable = total.unreadable.or(cleaned.unreadable);
            total.oldest_commit = total.oldest_commit.min(cleaned.oldest_commit);
            total.done_at = total.done_at.max(cleaned.done_at);
        }
        scratch.batch = batch;
        self.timing.wait(total.done_at);
        Ok(())
    }

    /// Merges the committed data of one page into flash, and carries the rest of it out of region `old`.
    ///
    /// # Errors
    /// The new page cannot be placed, or power was lost; the log keeps the data. So it does, without an
    /// error, if the old page cannot be read.
    fn clean_page(
        &self,
        scratch: &mut Scratch,
        Ahead { lpa, read }: Ahead,
        old: Option<usize>,
        cause: Cause,
    ) -> Result<Cleaned> {
        let (partition, in_partition) = self.partition(lpa);
        loop {
            let mut cleaned = Cleaned::default();
            let (base, marks, horizon) = {
                let index = partition.index.read();
                let base = self.mapping(lpa);
                let marks = self.marks(lpa, base);
                let horizon = self.horizon();
                scratch.versions.clear();
                let chunks = index.chunks(in_partition).iter().map(|&chunk| self.version(chunk));
                scratch
                    .versions
                    .extend(chunks.filter(|version| version.lasting && version.effect <= horizon));
                if !scratch.versions.is_empty() {
                    let now = self.timing.now();
                    if !cover(scratch.versions.iter().map(|version| version.chunk), 0, PAGE as usize) {
                        match self.read_flash(lpa, 0, &mut scratch.page) {
                            // One bad page must not stop cleaning: what the log has of it moves on to the
                            // fresh region.
                            Err(Error::Media(_)) => {
                                cleaned.unreadable = Some(lpa);
                                scratch.versions.clear();
                            }
                            outcome => outcome?,
                        }
                        if let Mapping::At(page) = base {
                            let ahead = read.filter(|&(of, _)| of == page).map(|(_, done_at)| done_at);
                            cleaned.done_at = ahead.unwrap_or_else(|| self.time_page_read(cause, now, page));
                            self.count().flash_read(cause, 1);
                        }
                    }
                    self.apply(&mut scratch.versions, &mut scratch.page);
                }
                (base, marks, horizon)
            };
            let page = if scratch.versions.is_empty() {
                None
            } else {
                let page = self.take_page(Stream::Fresh, None)?;
                let from = cleaned.done_at.max(self.timing.prepare_page());
                cleaned.done_at = self.time_program(cause, from, self.blocks.die_of(page));
                self.program(page, &scratch.page)?;
                self.count().flash_write(cause, 1);
                Some(page)
            };
            let mut index = partition.index.write();
            if self.mapping(lpa) != base || self.marks(lpa, base) != marks {
                // A block write, trim or garbage collection came first; look again.
                if let Some(page) = page {
                    self.blocks.abandon(page);
                }
                continue;
            }
            let far = if planted::has(Bug::MergedTooFar) { horizon + 1000 } else { horizon };
            if let Some(page) = page {
                self.publish(lpa, page, &Oob::new(lpa as u32, marks.written_at, far))?;
                cleaned.pages = 1;
            }
            let merged_to = if page.is_some() { horizon } else { marks.merged_to };
            self.drop_merged(&mut index, in_partition, merged_to, &mut scratch.versions);
            if let Some(old) = old {
                if cleaned.unreadable.is_some() {
                    let carried = self.carry_unreadable(scratch, &mut index, in_partition, lpa)?;
                    cleaned.carried += carried.unwrap_or(0);
                }
                let mut outcome = Ok(());
                index.retain(in_partition, |chunk| {
                    if region_of(chunk.place) == old && outcome.is_ok() {
                        let version = self.version(*chunk);
                        if version.lasting {
                            cleaned.oldest_commit = cleaned.oldest_commit.min(version.effect);
                        }
                        match self.carry_entry(chunk.place, &mut scratch.entry) {
                            Ok(Some(place)) => {
                                chunk.place = place;
                                cleaned.carried += 1;
                            }
                            Ok(None) => cleaned.stuck += 1,
                            Err(cause) => outcome = Err(cause),
                        }
                    }
                    true
                });
                outcome?;
            }
            return Ok(cleaned);
        }
    }

    /// Takes a page's chunks that flash contains out of the index, except those that loads still need: where
    /// an open transaction's older store lies below a merged one, the index must keep both, or the older
    /// would show.
    fn drop_merged(&self, index: &mut PageIndex, page: u16, merged_to: u64, versions: &mut Vec<Version>) {
        versions.clear();
        versions.extend(index.chunks(page).iter().map(|&chunk| self.version(chunk)));
        versions.sort_unstable_by_key(Version::order);
        let mut kept = 0;
        for position in 0..versions.len() {
            let version = versions[position];
            let merged = version.lasting && version.effect <= merged_to;
            let needed = || {
                let chunk = version.chunk;
                versions[..kept].iter().any(|older| older.chunk.meets(usize::from(chunk.offset), chunk.end()))
            };
            // Versions later than the merge are kept anyway, and hold nothing merged back.
            if !merged && version.effect > merged_to {
                continue;
            }
            if !merged || needed() {
                versions[kept] = version;
                kept += 1;
            }
        }
        versions.truncate(kept);
        index.retain(page, |chunk| {
            let version = self.version(*chunk);
            !(version.lasting && version.effect <= merged_to)
                || versions.iter().any(|kept| kept.chunk.place == chunk.place)
        });
    }

    /// Cleans until every entry committed before the call is in flash.
    ///
    /// # Errors
    /// As for the pages.
    pub(crate) fn clean_all(&self) -> Result<()> {
        let mut scratch = self.cleaning.0.lock();
        let mut emptied = true;
        if self.log_tail(1 - self.active_region()) > 0 {
            emptied = self.clean_region(&mut scratch, Cause::LogCleaning)?;
        }
        emptied = emptied && self.clean_region(&mut scratch, Cause::LogCleaning)?;
        if !emptied {
            // Open transactions hold the old region; what is committed in the other one still goes to flash.
            self.clean_pages(&mut scratch, None, Cause::LogCleaning)?;
        }
        Ok(())
    }
}
