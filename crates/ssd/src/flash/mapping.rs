//! The page mapping: from logical pages to flash pages, and what it takes to change it safely.
//!
//! A change takes effect with the flash page's out-of-band record, after its data, and is then entered in the
//! table, under the write lock of the page's partition. A firmware that dies before the record is whole
//! leaves the old contents current; one that dies after it, the new.

use std::sync::atomic::Ordering;

use amphi_device::{Error, Lpa, Result};
use smallvec::SmallVec;

use crate::flash::Stream;
use crate::format::{LEAF, Mapping, Oob, PAGE};
use crate::media::Media;
use crate::overlay::PageIndex;
use crate::planted::{self, Bug};
use crate::stats::Counter;

/// Most pages of a block write that are programmed before the first of them becomes current.
const TOGETHER: usize = 64;

/// What a logical page's flash contents already contain of the log (see [`Oob`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) written_at: u64,
    pub(crate) merged_to: u64,
}

impl Media {
    /// Where a logical page is.
    pub(crate) fn mapping(&self, lpa: u64) -> Mapping {
        self.table.get(lpa)
    }

    /// Changes the mapping, and nothing else. Answers what it was.
    pub(crate) fn set_mapping(&self, lpa: u64, mapping: Mapping) -> Mapping {
        self.table.set(lpa, mapping)
    }

    /// The marks of a page as it is mapped. A damaged record has none, so that no log entry is dropped for
    /// it.
    pub(crate) fn marks(&self, lpa: u64, mapping: Mapping) -> Marks {
        match mapping {
            Mapping::Never => Marks::default(),
            Mapping::Trimmed(at) => Marks { written_at: at, merged_to: at },
            Mapping::At(page) => {
                let oob = self.oob(page);
                if oob.is_of(lpa as u32) {
                    Marks { written_at: oob.written_at.get(), merged_to: oob.merged_to.get() }
                } else {
                    Marks::default()
                }
            }
        }
    }

    /// Reads a page's bytes from flash, as they are without the log. Called with a lock of the page's
    /// partition held.
    ///
    /// # Errors
    /// [`Error::Media`] if the flash page's record is damaged or another page's.
    pub(crate) fn read_flash(&self, lpa: u64, offset: usize, into: &mut [u8]) -> Result<()> {
        match self.mapping(lpa) {
            Mapping::Never | Mapping::Trimmed(_) => into.fill(0),
            Mapping::At(page) => {
                let oob = self.oob(page);
                if !oob.is_of(lpa as u32) || !self.is_correctable(page, &oob) {
                    self.count().add(Counter::UncorrectableReads, 1);
                    return Err(Error::Media(Lpa(lpa)));
                }
                self.image.read(self.layout.flash_page(page) + offset as u64, into);
            }
        }
        Ok(())
    }

    /// Programs a page handed out by [`Media::take_page`]. It is not current before [`Media::publish`].
    ///
    /// # Errors
    /// Power was lost; the page is then spent.
    pub(crate) fn program(&self, page: u64, data: &[u8]) -> Result<()> {
        self.program_all([(page, data)].into_iter())
    }

    /// As [`program`](Self::program), pages one after the other, waiting for the memory once.
    ///
    /// # Errors
    /// Power was lost; all of the pages are then spent.
    fn program_all<'a>(&self, pages: impl Iterator<Item = (u64, &'a [u8])> + Clone) -> Result<()> {
        let mut programmed = 0;
        let outcome = pages.clone().try_for_each(|(page, data)| {
            self.power.step()?;
            self.image.stream(self.layout.flash_page(page), data);
            programmed += 1;
            Ok(())
        });
        self.image.settle_streams();
        for (page, _) in pages.clone().take(programmed) {
            // Mark only: a record without checksum belongs to no logical page, but the flash page is not
            // blank any more.
            let mark = u64::from(Oob::PROGRAMMED);
            self.image.word(self.layout.oob_record(page)).store(mark, Ordering::Release);
        }
        if outcome.is_err() {
            pages.for_each(|(page, _)| self.blocks.abandon(page));
        }
        outcome
    }

    /// Makes a programmed flash page the current contents of a logical page, and answers where those were
    /// before. Called with the partition's write lock held.
    ///
    /// # Errors
    /// Power was lost. Before the record was whole, the old contents stay current and the page is spent; else
    /// it is the power-up that makes the page current.
    pub(crate) fn publish(&self, lpa: u64, page: u64, oob: &Oob) -> Result<Mapping> {
        if let Err(lost) = self.power.step() {
            self.blocks.abandon(page);
            return Err(lost);
        }
        self.image.write_struct(self.layout.oob_record(page), oob);
        if let Err(lost) = self.power.step() {
            self.blocks.abandon(page);
            return Err(lost);
        }
        let old = self.set_mapping(lpa, Mapping::At(page));
        self.blocks.published(page);
        if let Mapping::At(old) = old {
            self.blocks.invalidate(old);
        }
        Ok(old)
    }

    /// Writes pages for the host, from `lpa` on: programs them, makes them current, and voids the log's
    /// entries for them (ByteFS §4.4). Page i goes to turn + i. Answers how many, the first ones, are current
    /// now, at least one and at most [`TOGETHER`] unless it failed; and how it failed: no room, or power
    /// lost. The old contents of the others stay.
    pub(crate) fn write_pages<'a>(
        &self,
        lpa: u64,
        pages: impl Iterator<Item = &'a [u8]>,
        turn: usize,
    ) -> (usize, Result<()>) {
        // A page handed out and not yet current keeps its block from being collected: not where free blocks
        // are few.
        let most = if self.blocks.is_low() { 1 } else { TOGETHER };
        let mut taken: SmallVec<[(u64, &[u8]); TOGETHER]> = SmallVec::new();
        for data in pages.take(most) {
            debug_assert_eq!(data.len() as u64, PAGE);
            match self.take_page(Stream::Fresh, Some(turn.wrapping_add(taken.len()))) {
                Ok(page) => taken.push((page, data)),
                Err(cause) if taken.is_empty() => return (0, Err(cause)),
                // The next call meets it, with none of these in the way.
                Err(_) => break,
            }
        }
        if let Err(lost) = self.program_all(taken.iter().copied()) {
            return (0, Err(lost));
        }
        let mut current = 0;
        while current < taken.len() {
            let first = lpa + current as u64;
            let (partition, number) = self.partition(first);
            let here = (self.layout.partition_pages - u64::from(number)) as usize;
            let here = &taken[current..taken.len().min(current + here)];
            let mut index = partition.index.write();
            let began = self.ticks(here.len() as u64);
            // Few of them are in the log.
            let mut logged = index.next_page(number);
            for ((page, _), number) in here.iter().zip(number..) {
                let at = lpa + current as u64;
                if let Err(lost) = self.make_current(at, *page, began + (at - first)) {
                    taken[current + 1..].iter().for_each(|(page, _)| self.blocks.abandon(*page));
                    return (current, Err(lost));
                }
                if logged == Some(number) && !planted::has(Bug::StaleEntryAfterBlockWrite) {
                    index.remove(number);
                    logged = number.checked_add(1).and_then(|next| index.next_page(next));
                }
                current += 1;
            }
        }
        (current, Ok(()))
    }

    /// Makes a page that the host wrote current. Called with the partition's write lock held, under which
    /// `now` was drawn.
    fn make_current(&self, lpa: u64, page: u64, now: u64) -> Result<()> {
        if planted::has(Bug::StaleEntryAfterBlockWrite) {
            return self.publish(lpa, page, &Oob::new(lpa as u32, 0, 0)).map(drop);
        }
        self.remember_unflushed(now, lpa, page);
        self.publish(lpa, page, &Oob::new(lpa as u32, now, now)).map(drop)
    }

    /// Declares pages of one partition unused. Answers whether the trim log had room to note it.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn trim_part(
        &self,
        index: &mut PageIndex,
        lpa: u64,
        pages: u64,
        in_partition: u16,
    ) -> Result<bool> {
        let number = |lpa_now: u64| in_partition + (lpa_now - lpa) as u16;
        let mut used = Vec::new();
        let mut at = lpa;
        while at < lpa + pages {
            // A neighbourhood without mapping and log entries has nothing to forget.
            if !self.table.has_leaf(at) && index.pages() == 0 {
                at = (at / LEAF + 1) * LEAF;
                continue;
            }
            if matches!(self.mapping(at), Mapping::At(_)) || !index.chunks(number(at)).is_empty() {
                used.push(at);
            }
            at += 1;
        }
        let (Some(&first), Some(&last)) = (used.first(), used.last()) else { return Ok(true) };
        let Some(trimmed) = self.append_trim(first, last + 1 - first)? else { return Ok(false) };
        for lpa in used {
            if let Mapping::At(page) = self.set_mapping(lpa, Mapping::Trimmed(trimmed)) {
                self.blocks.invalidate(page);
            }
            index.remove(number(lpa));
        }
        Ok(true)
    }
}
