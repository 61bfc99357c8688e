//! Making room: clean pages leave, those not used since the last time first (the clock algorithm, file by
//! file). Files in use are passed over.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::budget::Budget;

/// What leaves in one round over all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Clean pages that were not used since the last round.
    Unused,
    /// Clean pages.
    Clean,
    /// All pages, after their file has been written back.
    All,
}

impl Round {
    /// Whether pages leave that were used of late.
    pub const fn also_used(self) -> bool {
        !matches!(self, Self::Unused)
    }
}

/// The files of a mount that may have cached pages.
pub trait Cached {
    /// One of them.
    type File;

    /// Calls `each` with the files, from place `start` on, until it breaks. Returns where that was.
    fn visit(&self, start: usize, each: impl FnMut(&Arc<Self::File>) -> ControlFlow<()>) -> usize;

    /// Drops pages of a file, unless somebody uses it just now.
    fn drop_pages(&self, file: &Arc<Self::File>, round: Round);
}

/// Brings the cache back under its limit, in these rounds. `hand` is where the last time ended.
pub fn shrink(files: &impl Cached, budget: &Budget, hand: &AtomicUsize, rounds: &[Round]) {
    for round in rounds {
        if !budget.exceeded() {
            return;
        }
        let start = hand.load(Ordering::Relaxed);
        let end = files.visit(start, |file| {
            if budget.is_enough() {
                return ControlFlow::Break(());
            }
            files.drop_pages(file, *round);
            ControlFlow::Continue(())
        });
        hand.store(end, Ordering::Relaxed);
    }
}
