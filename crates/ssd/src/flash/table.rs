//! The mapping table: where each logical page is, in the controller's volatile memory.
//!
//! Two levels, so that a few pages spread over a terabyte take little: a directory word for every 64 logical
//! pages, and leaves of 64 words that are made when they are first written. Both lie in memory of which,
//! unless it is little, only what is touched exists. A look-up is two loads, without a lock; changes are
//! ordered by the lock of the page's partition. Power-up rebuilds the table from flash ([`super::rebuild`]),
//! so nothing of it is in the image.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::Mutex;

use crate::ImageError;
use crate::format::{LEAF, Mapping};
use crate::image::Image;

/// The mapping table.
#[derive(Debug)]
pub(crate) struct MapTable {
    memory: Memory,
    /// Where the leaves begin: 64 words each. Before them are a directory word per possible leaf, its slot
    /// plus one, and a word per slot, its leaf.
    leaves_at: u64,
    directory: u64,
    /// Slots taken.
    taken: AtomicU64,
    growing: Mutex<()>,
}

/// Words that are zero at first.
#[derive(Debug)]
enum Memory {
    /// Few: the crash laboratory powers up thousands of small devices a second, and each mapping would cost
    /// it two system calls and its page faults.
    Heap(Box<[AtomicU64]>),
    Mapped(Image),
}

impl Memory {
    /// Bytes up to which memory is the heap's.
    const HEAP_MAX: u64 = 64 << 10;

    fn new(bytes: u64) -> Result<Self, ImageError> {
        if bytes <= Self::HEAP_MAX {
            return Ok(Self::Heap((0..bytes / 8).map(|_| AtomicU64::new(0)).collect()));
        }
        Image::in_memory(bytes).map(Self::Mapped)
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        match self {
            Self::Heap(words) => &words[(at / 8) as usize],
            Self::Mapped(image) => image.word(at),
        }
    }
}

impl MapTable {
    /// A table of a device on which nothing was ever written.
    ///
    /// # Errors
    /// The system has no address space left.
    pub(crate) fn new(capacity_pages: u64) -> Result<Self, ImageError> {
        let directory = capacity_pages.div_ceil(LEAF);
        let leaves_at = (2 * directory * 8).next_multiple_of(4096);
        Ok(Self {
            memory: Memory::new(leaves_at + directory * LEAF * 8)?,
            leaves_at,
            directory,
            taken: AtomicU64::new(0),
            growing: Mutex::new(()),
        })
    }

    fn owner(&self, slot: u64) -> &AtomicU64 {
        self.memory.word((self.directory + slot) * 8)
    }

    fn word(&self, slot: u64, entry: u64) -> &AtomicU64 {
        self.memory.word(self.leaves_at + (slot * LEAF + entry) * 8)
    }

    /// Where a logical page is.
    #[inline]
    pub(crate) fn get(&self, lpa: u64) -> Mapping {
        match self.memory.word(lpa / LEAF * 8).load(Ordering::Acquire) {
            0 => Mapping::Never,
            slot => Mapping::from_word(self.word(slot - 1, lpa % LEAF).load(Ordering::Acquire)),
        }
    }

    /// Changes where a logical page is, and answers where it was. No one else changes the same page
    /// meanwhile.
    pub(crate) fn set(&self, lpa: u64, mapping: Mapping) -> Mapping {
        let slot = match self.memory.word(lpa / LEAF * 8).load(Ordering::Acquire) {
            0 => self.grow(lpa / LEAF),
            slot => slot - 1,
        };
        let word = self.word(slot, lpa % LEAF);
        let before = word.load(Ordering::Acquire);
        word.store(mapping.word(), Ordering::Release);
        Mapping::from_word(before)
    }

    fn grow(&self, leaf: u64) -> u64 {
        // A leaf may belong to several partitions, whose locks do not exclude each other.
        let _growing = self.growing.lock();
        let entry = self.memory.word(leaf * 8);
        if let Some(slot) = entry.load(Ordering::Acquire).checked_sub(1) {
            return slot;
        }
        let slot = self.taken.load(Ordering::Relaxed);
        self.owner(slot).store(leaf, Ordering::Relaxed);
        entry.store(slot + 1, Ordering::Release);
        self.taken.store(slot + 1, Ordering::Release);
        slot
    }

    /// Whether a page's neighbourhood, the 64 pages around it that share a leaf, was ever written.
    pub(crate) fn has_leaf(&self, lpa: u64) -> bool {
        self.memory.word(lpa / LEAF * 8).load(Ordering::Acquire) != 0
    }

    /// How many leaves there are. Those are numbered from 0 in the order they were made.
    pub(crate) fn leaves(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// The first logical page of a leaf, and its words as they are just now.
    pub(crate) fn leaf(&self, slot: u64) -> (u64, [u64; LEAF as usize]) {
        let mut entry = 0;
        let words = [0; LEAF as usize].map(|_: u64| {
            entry += 1;
            self.word(slot, entry - 1).load(Ordering::Acquire)
        });
        (self.owner(slot).load(Ordering::Relaxed) * LEAF, words)
    }

    /// Every logical page that was ever written and where it is.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, Mapping)> {
        (0..self.leaves()).flat_map(|slot| {
            let (first, words) = self.leaf(slot);
            (first..).zip(words.map(Mapping::from_word)).filter(|(_, mapping)| *mapping != Mapping::Never)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_found_and_the_rest_was_never_written() {
        let table = MapTable::new((1 << 40) / 4096).expect("address space");
        let small = MapTable::new(65).expect("memory");
        small.set(64, Mapping::At(9));
        assert_eq!((small.get(64), small.get(0), small.leaves()), (Mapping::At(9), Mapping::Never, 1));
        let pages = [0, 63, 64, 1 << 20, (1 << 28) - 1];
        for &page in &pages {
            table.set(page, Mapping::At(page + 7));
        }
        table.set(64, Mapping::Trimmed(3));
        assert_eq!(table.get(63), Mapping::At(70));
        assert_eq!(table.get(64), Mapping::Trimmed(3));
        assert_eq!((table.get(62), table.get(1 << 27)), (Mapping::Never, Mapping::Never));
        assert_eq!(table.leaves(), 4, "pages 0 and 63 share a leaf");
        assert!(table.has_leaf(1) && !table.has_leaf(128));
        let mut found: Vec<u64> = table.entries().map(|(lpa, _)| lpa).collect();
        found.sort_unstable();
        assert_eq!(found, pages);
    }
}
