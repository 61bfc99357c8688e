//! The firmware's state: everything that exists while the device has power.
//!
//! What outlives power is in the [`Image`]; this holds the rest and is rebuilt from the image at power-up.
//!
//! Lock order, outermost first: cleaning → a host write point → garbage collection → a partition → a cold write point → the pool of
//! free blocks; and checkpoints → a partition → trim log, transaction log, unflushed writes, log room. A host thread's stage is locked
//! with nothing else. No task sleeps while it holds a partition.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use amphi_device::{DurabilityContract, Error, Lpa, PAGE_BYTES, Result};
use amphi_rt::sync::RwLock;

use crate::Profile;
use crate::flash::{Blocks, Checkpoints, MapTable, TrimLog, VolatileCache};
use crate::format::{Layout, Oob, PAGE, control};
use crate::image::Image;
use crate::log::{Cleaning, LogSpace, PageIndex, TxLog};
use crate::personality::Personality;
use crate::ports::Stages;
use crate::power::Power;
use crate::stats::{Counters, Meters};
use crate::timing::Timing;
use crate::worker::Bell;

/// A 16 MB part of the address space. Its lock guards the log index *and* the mapping of its pages.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) index: RwLock<PageIndex>,
}

/// The firmware's state.
#[derive(Debug)]
pub(crate) struct Core {
    /// For the background tasks, which share the core.
    pub(crate) itself: Weak<Core>,
    pub(crate) image: Arc<Image>,
    pub(crate) layout: Layout,
    pub(crate) profile: Profile,
    pub(crate) image_id: u64,
    pub(crate) contract: DurabilityContract,
    pub(crate) timing: Timing,
    pub(crate) meters: Meters,
    pub(crate) power: Power,
    pub(crate) partitions: Box<[Partition]>,
    pub(crate) log: LogSpace,
    pub(crate) txlog: TxLog,
    pub(crate) cleaning: Cleaning,
    pub(crate) blocks: Blocks,
    pub(crate) table: MapTable,
    pub(crate) trims: TrimLog,
    pub(crate) checkpoints: Checkpoints,
    /// Flash pages that power-up read to find the mapping, per die.
    pub(crate) read_at_power_up: Box<[u64]>,
    pub(crate) volatile: VolatileCache,
    pub(crate) personality: Personality,
    pub(crate) stages: Stages,
    pub(crate) clean_bell: Bell,
    pub(crate) collect_bell: Bell,
    pub(crate) checkpoint_bell: Bell,
}

impl Core {
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

    /// Refuses a byte range outside the window.
    pub(crate) fn check_bytes(&self, what: &'static str, at: u64, len: usize) -> Result<()> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.window_bytes() => Ok(()),
            _ => Err(Error::OutOfRange { what, at, len: len as u64, bytes: self.window_bytes() }),
        }
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
