//! How many pages of each block are live, and how many were handed out and are not current yet.
//!
//! Every page that is written changes the counts of the block it goes to and of the one it leaves, from
//! whichever processor. So a block has both counts in one word, and the words of blocks that are filled at
//! the same time, one on each die and mostly neighbours by number, lie on cache lines of their own.

use std::sync::atomic::{AtomicU64, Ordering};

/// One page that was handed out and is not current yet. Below it, live pages are counted.
const PENDING: u64 = 1 << 32;
const LIVE: u64 = 1;

/// The counts of all blocks.
#[derive(Debug)]
pub(super) struct Counts {
    words: Box<[AtomicU64]>,
    dies: usize,
    of_a_die: usize,
}

impl Counts {
    /// Counts of blocks that are dealt out over `dies`, of which `live` says how many pages are live. None is
    /// pending.
    pub(super) fn new(live: &[u32], dies: usize) -> Self {
        let of_a_die = live.len().div_ceil(dies);
        let counts =
            Self { words: (0..of_a_die * dies).map(|_| AtomicU64::new(0)).collect(), dies, of_a_die };
        for (block, &live) in live.iter().enumerate() {
            counts.word(block).store(u64::from(live), Ordering::Relaxed);
        }
        counts
    }

    fn word(&self, block: usize) -> &AtomicU64 {
        &self.words[block % self.dies * self.of_a_die + block / self.dies]
    }

    /// A page was handed out: live, and not current yet.
    pub(super) fn hand_out(&self, block: usize) {
        self.word(block).fetch_add(PENDING + LIVE, Ordering::AcqRel);
    }

    /// A page that was handed out will not be used.
    pub(super) fn abandon(&self, block: usize) {
        let had = self.word(block).fetch_sub(PENDING + LIVE, Ordering::AcqRel);
        debug_assert!(
            had >= PENDING && had % PENDING >= LIVE,
            "block {block} has no page handed out: {had:#x}"
        );
    }

    /// Keeps the block from being erased, until [`settle`](Self::settle).
    pub(super) fn pin(&self, block: usize) {
        self.word(block).fetch_add(PENDING, Ordering::AcqRel);
    }

    /// A page that was handed out is current, or what pinned the block is done.
    pub(super) fn settle(&self, block: usize) {
        let had = self.word(block).fetch_sub(PENDING, Ordering::AcqRel);
        debug_assert!(had >= PENDING, "block {block} has no page that is not current: {had:#x}");
    }

    /// A live page is not any more.
    pub(super) fn invalidate(&self, block: usize) {
        let had = self.word(block).fetch_sub(LIVE, Ordering::AcqRel);
        // One more would take from the pages above, and the block would never be erased.
        debug_assert!(had % PENDING >= LIVE, "block {block} has no live page: {had:#x}");
    }

    /// Live pages.
    pub(super) fn live(&self, block: usize) -> u32 {
        self.word(block).load(Ordering::Acquire) as u32
    }

    /// Live pages, unless pages are not current yet or the block is pinned: by one look at the word, since
    /// whoever looks for a victim asks of every block.
    pub(super) fn settled_live(&self, block: usize) -> Option<u32> {
        u32::try_from(self.word(block).load(Ordering::Acquire)).ok()
    }

    /// Whether pages are not current yet, or the block is pinned.
    pub(super) fn is_pending(&self, block: usize) -> bool {
        self.settled_live(block).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_counts_of_its_own() {
        let live: Vec<u32> = (0..11).collect();
        let counts = Counts::new(&live, 4);
        for block in 0..11 {
            assert_eq!((counts.live(block), counts.is_pending(block)), (block as u32, false));
        }
        assert_eq!(counts.settled_live(6), Some(6));
        counts.hand_out(6);
        assert_eq!((counts.live(6), counts.is_pending(6), counts.settled_live(6)), (7, true, None));
        counts.pin(6);
        counts.settle(6);
        assert!(counts.is_pending(6));
        counts.abandon(6);
        assert_eq!((counts.live(6), counts.is_pending(6)), (6, false));
        counts.invalidate(6);
        assert_eq!(counts.live(6), 5);
        let others = (0..11).filter(|&block| block != 6);
        others.for_each(|block| {
            assert_eq!((counts.live(block), counts.is_pending(block)), (block as u32, false))
        });
    }

    /// A device of a few gigabytes has some forty blocks on each die.
    #[test]
    fn blocks_that_are_filled_together_share_no_cache_line() {
        let counts = Counts::new(&vec![0; 40 * 16], 16);
        let lines: std::collections::BTreeSet<usize> =
            (160..176).map(|block| &raw const *counts.word(block) as usize / 64).collect();
        assert_eq!(lines.len(), 16);
    }
}
