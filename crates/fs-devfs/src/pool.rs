//! A bitmap in device memory: which blocks, or inode numbers, are free (§4.1). Updates are serialised by its
//! lock.
//!
//! Who will take something asks first, so that no operation runs out in the middle.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::Mutex;
use amphi_vfs::Result;

struct Bits {
    words: Vec<u64>,
    /// Where the last search ended.
    hand: u64,
}

/// The bitmap.
pub struct Pool {
    bits: Mutex<Bits>,
    /// What is free and promised to nobody.
    available: AtomicU64,
}

impl Pool {
    /// Of so many bits; `words` has those in use. The first `never` are never free, whatever a damaged bitmap
    /// says.
    pub fn new(mut words: Vec<u64>, bits: u64, never: u64) -> Self {
        words.resize(bits.div_ceil(64) as usize, 0);
        for bit in 0..never.min(bits) {
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        if let Some(last) = words.last_mut().filter(|_| !bits.is_multiple_of(64)) {
            *last |= u64::MAX << (bits % 64);
        }
        let free = words.iter().map(|word| u64::from(word.count_zeros())).sum();
        Self { bits: Mutex::new(Bits { words, hand: 0 }), available: AtomicU64::new(free) }
    }

    /// What is free and promised to nobody.
    pub fn available(&self) -> u64 {
        self.available.load(Ordering::Acquire)
    }

    /// Promises so many to the caller. False if there are not so many.
    pub fn reserve(&self, count: u64) -> bool {
        let take = |free: u64| free.checked_sub(count);
        self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok()
    }

    /// Takes a promise back.
    pub fn unreserve(&self, count: u64) {
        self.available.fetch_add(count, Ordering::AcqRel);
    }

    /// Takes the next run that is free, of at most `most`: first and count. They were promised to the caller.
    pub fn take(&self, most: u64) -> (u64, u64) {
        let mut bits = self.bits.lock();
        let words = bits.words.len() as u64;
        let from = bits.hand / 64;
        // The word of the hand is looked at again last, for what lies before the hand.
        let first = (from..=from + words)
            .find_map(|word| {
                let passed = if word == from { !(u64::MAX << (bits.hand % 64)) } else { 0 };
                let word = word % words;
                let free = !(bits.words[word as usize] | passed);
                (free != 0).then(|| word * 64 + u64::from(free.trailing_zeros()))
            })
            .unwrap_or_else(|| unreachable!("what was promised is there"));
        let mut count = 0;
        while count < most && bits.is_free(first + count) {
            bits.add(first + count);
            count += 1;
        }
        bits.hand = (first + count) % (words * 64);
        (first, count)
    }

    /// Calls `work` with each free run. Nobody takes of it meanwhile.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn each_free(&self, mut work: impl FnMut(Range<u64>) -> Result<()>) -> Result<()> {
        let mut from = 0;
        loop {
            let bits = self.bits.lock();
            let all = bits.words.len() as u64 * 64;
            let Some(first) = (from..all).find(|bit| bits.is_free(*bit)) else { return Ok(()) };
            from = (first..all).find(|bit| !bits.is_free(*bit)).unwrap_or(all);
            work(first..from)?;
        }
    }

    /// Gives a run back.
    pub fn put(&self, first: u64, count: u64) {
        let mut bits = self.bits.lock();
        // Of a damaged file system, some may be free already.
        let taken = (first..first + count).filter(|bit| bits.take_away(*bit)).count();
        drop(bits);
        self.unreserve(taken as u64);
    }
}

impl Bits {
    fn is_free(&self, bit: u64) -> bool {
        self.words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 0)
    }

    fn add(&mut self, bit: u64) {
        self.words[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// Clears a bit. Returns whether it was set.
    fn take_away(&mut self, bit: u64) -> bool {
        let word = &mut self.words[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        let was_set = *word & mask != 0;
        *word &= !mask;
        was_set
    }
}
