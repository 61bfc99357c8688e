//! The write log, one of the personalities (ByteFS §4.3): two regions of device memory that take every byte
//! write, the three-layer index over them, the transaction log, cleaning and recovery.
//!
//! Lock order: cleaning → the locks of the [`Media`], of which a partition → transaction log, log room.

mod append;
mod clean;
mod commits;
mod read;
mod recover;
mod space;
mod txlog;
mod unreadable;
mod versions;

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::format::control;
use crate::media::Media;
use crate::stats::Stats;
use crate::worker::Bell;
use clean::Cleaning;
use space::LogSpace;
use txlog::TxLog;

/// The write log while there is power, on its media.
#[derive(Debug)]
pub(crate) struct Log {
    /// For the cleaner, which shares the log.
    itself: Weak<Self>,
    media: Arc<Media>,
    space: LogSpace,
    txlog: TxLog,
    pub(crate) cleaning: Cleaning,
    /// Wakes the cleaner, and those who wait for it.
    pub(crate) bell: Bell,
}

impl Deref for Log {
    type Target = Media;

    fn deref(&self) -> &Media {
        &self.media
    }
}

impl Log {
    /// The log of a device that powers up, not yet [found again](Self::rebuild_index).
    pub(crate) fn new(media: &Arc<Media>) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            itself: itself.clone(),
            media: Arc::clone(media),
            space: LogSpace::default(),
            txlog: TxLog::new(media.layout.txlog_entries),
            cleaning: Cleaning::default(),
            bell: Bell::default(),
        })
    }

    /// Wakes the cleaner.
    pub(crate) fn ring(&self) {
        let Some(log) = self.itself.upgrade() else { return };
        self.bell
            .ring(|| amphi_rt::task::spawn("ssd-cleaner", move || log.bell.serve(|| log.clean_one_region())));
    }

    /// Reports its use.
    pub(crate) fn report(&self, stats: &mut Stats) {
        let active = self.active_region();
        stats.log_used = self.log_tail(active);
        stats.log_cleaning_used = self.log_tail(1 - active);
        stats.txlog_used = self.txlog_used();
    }

    /// What of the image it takes, as address and length.
    pub(crate) fn in_image(&self) -> Vec<(u64, u64)> {
        let layout = &self.layout;
        let [head, tail] = [control!(txlog_head), control!(txlog_tail)]
            .map(|at| self.image.word(at).load(Ordering::Relaxed));
        let commits = (head..tail).map(|position| position % layout.txlog_entries);
        let commits =
            commits.flat_map(|slot| [(layout.txlog_ids + slot * 4, 4), (layout.txlog_clock + slot * 8, 8)]);
        let regions = (0..2).map(|region| (layout.log[region], self.log_tail(region)));
        commits.chain(regions).collect()
    }
}
