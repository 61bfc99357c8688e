//! The page mapping: from logical pages to flash pages, and what it takes to change it safely.
//!
//! A change is published by one aligned store of the table word, under the write lock of the page's partition, after the flash page and its
//! out-of-band record are complete. A firmware that dies in between leaves the old contents current.

use std::sync::atomic::Ordering;

use amphi_device::{Error, Lpa, Result};

use crate::core::{Core, Partition};
use crate::flash::Stream;
use crate::format::{Mapping, Oob, PAGE};
use crate::log::PageIndex;

/// What a logical page's flash contents already contain of the log (see [`Oob`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) written_at: u64,
    pub(crate) merged_to: u64,
}

impl Core {
    /// Where a logical page is.
    pub(crate) fn mapping(&self, lpa: u64) -> Mapping {
        Mapping::from_word(self.image.word(self.layout.mapping_word(lpa)).load(Ordering::Acquire))
    }

    /// Changes the mapping, and nothing else.
    pub(crate) fn set_mapping(&self, lpa: u64, mapping: Mapping) {
        self.image.word(self.layout.mapping_word(lpa)).store(mapping.word(), Ordering::Release);
    }

    /// The marks of a page as it is mapped. A damaged record has none, so that no log entry is dropped for it.
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

    /// Gives a partition's part of the mapping table storage on the host's disk. Called with the partition's write lock held.
    fn store_partition(&self, partition: &Partition, lpa: u64) -> Result<()> {
        if partition.stored.load(Ordering::Relaxed) {
            return Ok(());
        }
        let number = lpa / self.layout.partition_pages;
        let first = number * self.layout.partition_pages;
        self.image.allocate(self.layout.mapping_word(first), self.layout.partition_pages * 8)?;
        self.power.step()?;
        self.image
            .word(self.layout.used_partitions + number / 64 * 8)
            .fetch_or(1 << (number % 64), Ordering::AcqRel);
        partition.stored.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a page's bytes from flash, as they are without the log. Called with a lock of the page's partition held.
    ///
    /// # Errors
    /// [`Error::Media`] if the flash page's record is damaged or another page's.
    pub(crate) fn read_flash(&self, lpa: u64, offset: usize, into: &mut [u8]) -> Result<()> {
        match self.mapping(lpa) {
            Mapping::Never | Mapping::Trimmed(_) => into.fill(0),
            Mapping::At(page) => {
                if !self.oob(page).is_of(lpa as u32) {
                    return Err(Error::Media(Lpa(lpa)));
                }
                self.image.read(self.layout.flash_page(page) + offset as u64, into);
            }
        }
        Ok(())
    }

    /// Programs a page handed out by [`Core::take_page`]. It is not current before [`Core::publish`].
    ///
    /// # Errors
    /// Power was lost; the page is then spent.
    pub(crate) fn program(&self, page: u64, data: &[u8]) -> Result<()> {
        if let Err(lost) = self.power.step() {
            self.blocks.abandon(page);
            return Err(lost);
        }
        self.image.write(self.layout.flash_page(page), data);
        // Mark only: a record without checksum belongs to no logical page, but the flash page is not blank any more.
        let mark = u64::from(Oob::PROGRAMMED);
        self.image.word(self.layout.oob_record(page)).store(mark, Ordering::Release);
        Ok(())
    }

    /// Makes a programmed flash page the current contents of a logical page. Called with the partition's write lock held.
    ///
    /// # Errors
    /// The host's disk is full, or power was lost; the old contents stay current and the page is spent.
    pub(crate) fn publish(&self, partition: &Partition, lpa: u64, page: u64, oob: &Oob) -> Result<()> {
        if let Err(cause) = self.store_partition(partition, lpa).and_then(|()| self.power.step()) {
            self.blocks.abandon(page);
            return Err(cause);
        }
        self.image.write_struct(self.layout.oob_record(page), oob);
        if let Err(lost) = self.power.step() {
            self.blocks.abandon(page);
            return Err(lost);
        }
        let old = self.mapping(lpa);
        self.set_mapping(lpa, Mapping::At(page));
        self.blocks.published(page);
        if let Mapping::At(old) = old {
            self.blocks.invalidate(old);
        }
        Ok(())
    }

    /// Writes a page for the host: programs it, makes it current, and voids the log's entries for it (ByteFS §4.4).
    ///
    /// # Errors
    /// No room, or power lost; the old contents stay current.
    pub(crate) fn write_page(&self, lpa: u64, data: &[u8], turn: usize) -> Result<()> {
        debug_assert_eq!(data.len() as u64, PAGE);
        let page = self.take_page(Stream::Fresh, Some(turn))?;
        self.program(page, data)?;
        let (partition, in_partition) = self.partition(lpa);
        let mut index = partition.index.write();
        let now = self.tick();
        let before = self.mapping(lpa);
        self.publish(partition, lpa, page, &Oob::new(lpa as u32, now, now))?;
        self.remember_unflushed(lpa, before, page);
        index.remove(in_partition);
        Ok(())
    }

    /// Declares a page unused.
    ///
    /// # Errors
    /// No room on the host's disk, or power lost.
    pub(crate) fn trim_page(
        &self,
        partition: &Partition,
        index: &mut PageIndex,
        lpa: u64,
        in_partition: u16,
    ) -> Result<()> {
        let old = self.mapping(lpa);
        if !matches!(old, Mapping::At(_)) && index.chunks(in_partition).is_empty() {
            return Ok(());
        }
        self.store_partition(partition, lpa)?;
        self.power.step()?;
        self.set_mapping(lpa, Mapping::Trimmed(self.tick()));
        if let Mapping::At(page) = old {
            self.blocks.invalidate(page);
        }
        index.remove(in_partition);
        Ok(())
    }
}
