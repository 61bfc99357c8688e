//! What can be handed out: data blocks, metadata pages, leaves, log pages, inodes. A pool knows what is free
//! now; the bitmap on the device follows with the transaction that uses it.
//!
//! Each processor has a part where it looks first, so that tasks neither wait for each other nor spread what
//! they write.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};

/// Most parts.
const PARTS: u64 = 16;
/// A part has at least so many words.
const PART_WORDS_MIN: u64 = 16;

struct Part {
    /// Bits in use.
    words: Vec<u64>,
    /// Word to look at first.
    hand: usize,
}

/// The pool behind a bitmap.
pub struct Pool {
    parts: Box<[Padded<Mutex<Part>>]>,
    /// Words of a part.
    part_words: u64,
    bits: u64,
    free: AtomicU64,
}

/// A run of what was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Pool {
    /// A pool of `bits`, of which those that `words` have set are in use.
    pub fn new(bits: u64, mut words: Vec<u64>) -> Self {
        words.resize(bits.div_ceil(64) as usize, 0);
        if let Some(last) = words.last_mut()
            && !bits.is_multiple_of(64)
        {
            *last |= u64::MAX << (bits % 64);
        }
        let used: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let all = words.len() as u64;
        let part_words = all.div_ceil(PARTS).max(PART_WORDS_MIN);
        let part = |words: &[u64]| Padded(Mutex::new(Part { words: words.to_vec(), hand: 0 }));
        Self {
            parts: words.chunks(part_words as usize).map(part).collect(),
            part_words,
            bits,
            free: AtomicU64::new(all * 64 - used),
        }
    }

    /// How many there are.
    pub const fn bits(&self) -> u64 {
        self.bits
    }

    /// How many are free.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Hands out a run of up to `wanted`, as long as one is found where this processor looks first.
    pub fn take(&self, wanted: u64) -> Option<Run> {
        let start = cpu::current() % self.parts.len();
        (0..self.parts.len()).find_map(|offset| {
            let number = (start + offset) % self.parts.len();
            let run = self.parts[number].lock().take(wanted)?;
            self.free.fetch_sub(run.count, Ordering::Relaxed);
            Some(Run { first: number as u64 * self.part_words * 64 + run.first, ..run })
        })
    }

    /// Takes a run back. What does not exist, or is free, is left alone: a damaged image may say so.
    pub fn give_back(&self, run: Run) {
        let mut freed = 0;
        for bit in run.first..(run.first + run.count).min(self.bits) {
            let (part, word) = (bit / 64 / self.part_words, bit / 64 % self.part_words);
            let mut part = self.parts[part as usize].lock();
            let mask = 1 << (bit % 64);
            freed += u64::from(part.words[word as usize] & mask != 0);
            part.words[word as usize] &= !mask;
            part.hand = part.hand.min(word as usize);
        }
        self.free.fetch_add(freed, Ordering::Relaxed);
    }
}

impl Part {
    /// The first free bit and as many behind it as there are, up to `wanted`.
    fn take(&mut self, wanted: u64) -> Option<Run> {
        let from = (self.hand..self.words.len()).find(|word| self.words[*word] != u64::MAX);
        let Some(word) = from else {
            self.hand = self.words.len();
            return None;
        };
        self.hand = word;
        let first = word as u64 * 64 + u64::from(self.words[word].trailing_ones());
        let mut count = 0;
        while count < wanted {
            let bit = first + count;
            let Some(word) = self.words.get_mut((bit / 64) as usize) else { break };
            let mask = 1 << (bit % 64);
            if *word & mask != 0 {
                break;
            }
            *word |= mask;
            count += 1;
        }
        Some(Run { first, count })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is handed out was free, and is handed out once.
        #[test]
        fn behaves_like_a_set(bits in 1..3000_u64, steps in proptest::collection::vec((any::<bool>(), 1..200_u64), 1..100)) {
            let pool = Pool::new(bits, vec![1]);
            let mut used = vec![false; bits as usize];
            used[0] = true;
            let mut runs = Vec::new();
            for (take, count) in steps {
                if take {
                    if let Some(run) = pool.take(count) {
                        prop_assert!(run.count >= 1 && run.count <= count);
                        for bit in run.first..run.first + run.count {
                            prop_assert!(!std::mem::replace(&mut used[bit as usize], true));
                        }
                        runs.push(run);
                    } else {
                        prop_assert!(used.iter().all(|used| *used));
                    }
                } else if !runs.is_empty() {
                    let run = runs.swap_remove(count as usize % runs.len());
                    pool.give_back(run);
                    (run.first..run.first + run.count).for_each(|bit| used[bit as usize] = false);
                }
                prop_assert_eq!(pool.free(), used.iter().filter(|used| !**used).count() as u64);
            }
        }
    }
}
