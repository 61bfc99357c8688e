//! The other firmware: device memory as a cache of whole flash pages, least recently used first out, with
//! write-back.
//!
//! It is what ByteFS compares its write log with (§5.1: peers run "with SSD cache managed in page
//! granularity"). A byte access to a page that is not cached brings in the whole page; a dirty page goes to
//! flash when it is evicted, or in the background when too many are dirty. The frames are protected memory:
//! what is in them survives a power cut, so a byte or block write is durable once it is there. There are no
//! transactions, and COMMIT, RECOVER and cleaning are refused.
//!
//! A frame's lasting state is its record in the image, which only a dirty frame has. Everything else is
//! rebuilt at power-up.

mod access;
mod frames;
mod recover;
mod write_back;

use std::ops::Deref;
use std::sync::{Arc, Weak};

use amphi_rt::sync::Mutex;

use crate::media::Media;
use crate::worker::Bell;
pub(crate) use access::FlashRead;
use frames::Frames;

/// The cache while there is power, on its media.
#[derive(Debug)]
pub(crate) struct PageCache {
    /// For the task that writes back, which shares the cache.
    itself: Weak<Self>,
    media: Arc<Media>,
    frames: Frames,
    /// Wakes that task.
    pub(crate) bell: Bell,
    /// Held while that task writes pages back. Before the locks of the media.
    pub(crate) writing_back: Mutex<()>,
}

impl Deref for PageCache {
    type Target = Media;

    fn deref(&self) -> &Media {
        &self.media
    }
}

impl PageCache {
    /// The cache of a device that powers up, not yet [found again](Self::load_cache).
    pub(crate) fn new(media: &Arc<Media>) -> Arc<Self> {
        let write_back_at_percent = media.profile.firmware.write_back_at_percent;
        Arc::new_cyclic(|itself| Self {
            itself: itself.clone(),
            media: Arc::clone(media),
            frames: Frames::new(&media.layout, write_back_at_percent),
            bell: Bell::default(),
            writing_back: Mutex::default(),
        })
    }

    /// Wakes the task that writes back.
    fn ring(&self) {
        let Some(cache) = self.itself.upgrade() else { return };
        self.bell.ring(|| {
            amphi_rt::task::spawn("ssd-cleaner", move || cache.bell.serve(|| cache.write_back_some()))
        });
    }

    /// When a cached page has come from flash, if the page is cached.
    pub(crate) fn cached_at(&self, lpa: u64) -> Option<u64> {
        self.frames.cached_at(lpa)
    }

    /// Pages that flash does not hold yet.
    pub(crate) fn dirty(&self) -> u64 {
        self.frames.dirty()
    }
}
