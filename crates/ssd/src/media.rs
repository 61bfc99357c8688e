//! The ground that every firmware stands on: the image, flash with its mapping, power, and time. It knows no
//! personality; of what one keeps over the pages it knows where that is, because writing or trimming a page
//! voids it.
//!
//! Lock order, outermost first: a host write point → garbage collection → a partition → a cold write point →
//! the pool of free blocks; and checkpoints → a partition → trim log, unflushed writes. No task sleeps while
//! it holds a partition.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use amphi_device::{DurabilityContract, Error, Lpa, PAGE_BYTES, Result};
use amphi_rt::sync::RwLock;

use crate::Profile;
use crate::flash::{Blocks, Checkpoints, MapTable, TrimLog, VolatileCache};
use crate::format::{Layout, Oob, PAGE, control};
use crate::image::Image;
use crate::overlay::PageIndex;
use crate::power::Power;
use crate::stats::{Counters, Meters};
use crate::timing::Timing;
use crate::worker::Bell;

/// A 16 MB part of the address space. Its lock guards what lies over its pages *and* their mapping.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) index: RwLock<PageIndex>,
}

/// Flash, image, power and time.
#[derive(Debug)]
pub(crate) struct Media {
    /// For the background tasks, which share it.
    pub(crate) itself: Weak<Self>,
    pub(crate) image: Arc<Image>,
    pub(crate) layout: Layout,
    pub(crate) profile: Profile,
    pub(crate) image_id: u64,
    pub(crate) contract: DurabilityContract,
    pub(crate) timing: Timing,
    pub(crate) meters: Meters,
    pub(crate) power: Power,
    pub(crate) partitions: Box<[Partition]>,
    pub(crate) blocks: Blocks,
    pub(crate) table: MapTable,
    pub(crate) trims: TrimLog,
    pub(crate) checkpoints: Checkpoints,
    /// Flash pages that power-up read to find the mapping, per die.
    pub(crate) read_at_power_up: Box<[u64]>,
    pub(crate) volatile: VolatileCache,
    pub(crate) collect_bell: Bell,
    pub(crate) checkpoint_bell: Bell,
}

impl Media {
    /// The next number of the sequence clock, which orders stores, commits, block writes and trims.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks(1)
    }

    /// The next `count` numbers of the clock; answers the first.
    pub(crate) fn ticks(&self, count: u64) -> u64 {
        self.image.word(control!(clock)).fetch_add(count, Ordering::AcqRel)
    }

    /// The image's counters.
    pub(crate) fn count(&self) -> Counters<'_> {
        Counters::of(&self.image)
    }

    /// The partition of a page, and the page's number within it.
    pub(crate) fn partition(&self, lpa: u64) -> (&Partition, u16) {
        let partition = lpa / self.layout.partition_pages;
        (&self.partitions[partition as usize], (lpa % self.layout.partition_pages) as u16)
    }

    /// The out-of-band record of a flash page.
    pub(crate) fn oob(&self, page: u64) -> Oob {
        self.image.read_struct(self.layout.oob_record(page))
    }

    /// Refuses a page range outside the device, or an empty one.
    pub(crate) fn check_pages(&self, what: &'static str, at: Lpa, bytes: usize) -> Result<()> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Error::Misaligned {
                what,
                value: bytes as u64,
                expected: "a positive multiple of 4096 bytes",
            });
        }
        self.check_page_count(what, at, (bytes / PAGE_BYTES) as u64)
    }

    /// Refuses a page range outside the device.
    pub(crate) fn check_page_count(&self, what: &'static str, at: Lpa, pages: u64) -> Result<()> {
        match at.0.checked_add(pages) {
            Some(end) if end <= self.layout.capacity_pages => Ok(()),
            _ => Err(Error::OutOfRange {
                what,
                at: at.0.saturating_mul(PAGE),
                len: pages.saturating_mul(PAGE),
                bytes: self.layout.capacity_pages * PAGE,
            }),
        }
    }
}
