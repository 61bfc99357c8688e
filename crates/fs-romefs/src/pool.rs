//! What can be handed out: data blocks, metadata pages, leaves, log pages, inodes. A pool knows what is free
//! now; the bitmap on the device follows with the transaction that uses it.
//!
//! Each processor has a part where it looks first, so that tasks neither wait for each other nor spread what
//! they write. A part of what lies in the memory zone is in one piece. A part of the data blocks is one
//! stripe in sixteen, and no stripe is begun while those before have something free: so what is in use stays
//! at the front, whoever writes, and the SSD never sees the rest. If it did, it would move stale data
//! until the next `fstrim`, since nothing else tells it what is free.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::Result;

/// Most parts, a power of two.
const PARTS: u64 = 16;
/// A part in one piece has at least so many words.
const PART_WORDS_MIN: u64 = 16;
/// Most words of a stripe, which are a page of the bitmap: two processors seldom change the same page.
const STRIPE_WORDS_MAX: u64 = 512;
/// Stripes that a part has at least, if there are words enough.
const STRIPES_MIN: u64 = 16;
/// Of so many stripes one more is begun at once.
const STRIPES_FOR_ONE_MORE: usize = 64;

struct Part {
    /// Bits in use, stripe behind stripe.
    words: Vec<u64>,
    /// Word to look at first.
    hand: usize,
}

/// The pool behind a bitmap.
pub struct Pool {
    parts: Box<[Padded<Mutex<Part>>]>,
    stripe_words: u64,
    /// Stripes that were begun.
    begun: AtomicU64,
    /// Stripes that are begun at once: one of each part in a large pool, so that tasks do not meet.
    begun_at_once: u64,
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
    pub fn new(bits: u64, words: Vec<u64>) -> Self {
        let part_words = bits.div_ceil(64).div_ceil(PARTS).max(PART_WORDS_MIN);
        let pool = Self::of_stripes(bits, words, part_words);
        Self { begun: pool.stripes().into(), ..pool }
    }

    /// A pool which hands out what lies at the front, as long as there is any.
    pub fn from_the_front(bits: u64, words: Vec<u64>) -> Self {
        let stripe_words = bits.div_ceil(64) / (PARTS * STRIPES_MIN);
        Self::of_stripes(bits, words, stripe_words.clamp(1, STRIPE_WORDS_MAX))
    }

    fn of_stripes(bits: u64, mut words: Vec<u64>, stripe_words: u64) -> Self {
        words.resize(bits.div_ceil(64) as usize, 0);
        if let Some(last) = words.last_mut()
            && !bits.is_multiple_of(64)
        {
            *last |= u64::MAX << (bits % 64);
        }
        let used: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let all = words.len() as u64;
        let stripes: Vec<&[u64]> = words.chunks(stripe_words as usize).collect();
        let parts = stripes.len().clamp(1, PARTS as usize);
        let part = |number| {
            let words = stripes.iter().skip(number).step_by(parts).copied().collect::<Vec<_>>().concat();
            Padded(Mutex::new(Part { words, hand: 0 }))
        };
        Self {
            parts: (0..parts).map(part).collect(),
            stripe_words,
            begun: AtomicU64::new(0),
            begun_at_once: (stripes.len() / STRIPES_FOR_ONE_MORE).clamp(1, parts) as u64,
            bits,
            free: AtomicU64::new(all * 64 - used),
        }
    }

    const fn stripes(&self) -> u64 {
        self.bits.div_ceil(self.stripe_words * 64)
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
        self.take_for(cpu::current(), wanted)
    }

    fn take_for(&self, processor: usize, wanted: u64) -> Option<Run> {
        let parts = self.parts.len();
        let start = processor % parts;
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            let taken = (0..parts).find_map(|offset| {
                // By exclusive or, two processors that have filled their parts do not meet in the next one.
                let number = if parts.is_power_of_two() { start ^ offset } else { (start + offset) % parts };
                let stripes = (begun + (parts - 1 - number) as u64) / parts as u64;
                let run = self.parts[number].lock().take(wanted, self.stripe_words, stripes)?;
                Some(Run { first: self.bit_of(number, run.first), ..run })
            });
            if let Some(run) = taken {
                self.free.fetch_sub(run.count, Ordering::Relaxed);
                return Some(run);
            }
            if begun >= self.stripes() {
                return None;
            }
            let more = begun + self.begun_at_once;
            let _ = self.begun.compare_exchange(begun, more, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The part of a bit, and which of the part's bits it is.
    const fn place_of(&self, bit: u64) -> (usize, u64) {
        let (stripe_bits, parts) = (self.stripe_words * 64, self.parts.len() as u64);
        let stripe = bit / stripe_bits;
        ((stripe % parts) as usize, stripe / parts * stripe_bits + bit % stripe_bits)
    }

    /// The bit that is `local` of a part.
    const fn bit_of(&self, part: usize, local: u64) -> u64 {
        let (stripe_bits, parts) = (self.stripe_words * 64, self.parts.len() as u64);
        (local / stripe_bits * parts + part as u64) * stripe_bits + local % stripe_bits
    }

    /// Calls `work` with each free run, as far as it is in one stripe. Nobody takes of it meanwhile.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn each_free(&self, mut work: impl FnMut(Run) -> Result<()>) -> Result<()> {
        for (number, part) in self.parts.iter().enumerate() {
            let mut from = 0;
            loop {
                let part = part.lock();
                let Some(run) = part.free_from(from, self.stripe_words) else { break };
                work(Run { first: self.bit_of(number, run.first), ..run })?;
                from = run.first + run.count;
            }
        }
        Ok(())
    }

    /// Takes a run back. What does not exist, or is free, is left alone: a damaged image may say so.
    pub fn give_back(&self, run: Run) {
        let mut freed = 0;
        for bit in run.first..(run.first + run.count).min(self.bits) {
            let (part, local) = self.place_of(bit);
            let mut part = self.parts[part].lock();
            let (word, mask) = ((local / 64) as usize, 1 << (local % 64));
            freed += u64::from(part.words[word] & mask != 0);
            part.words[word] &= !mask;
            part.hand = part.hand.min(word);
        }
        self.free.fetch_add(freed, Ordering::Relaxed);
    }
}

impl Part {
    fn is_free(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 0
    }

    /// The first free run from a bit on, within a stripe.
    fn free_from(&self, from: u64, stripe_words: u64) -> Option<Run> {
        let (all, stripe_bits) = (self.words.len() as u64 * 64, stripe_words * 64);
        let first = (from..all).find(|bit| self.is_free(*bit))?;
        let end = all.min((first / stripe_bits + 1) * stripe_bits);
        let end = (first..end).find(|bit| !self.is_free(*bit)).unwrap_or(end);
        Some(Run { first, count: end - first })
    }

    /// The first free bit of `stripes` stripes, and up to `wanted` behind it in its own stripe.
    fn take(&mut self, wanted: u64, stripe_words: u64, stripes: u64) -> Option<Run> {
        let reach = self.words.len().min((stripes * stripe_words) as usize);
        let Some(word) = (self.hand..reach).find(|word| self.words[*word] != u64::MAX) else {
            self.hand = self.hand.max(reach);
            return None;
        };
        self.hand = word;
        let first = word as u64 * 64 + u64::from(self.words[word].trailing_ones());
        let end = ((first / 64 / stripe_words + 1) * stripe_words).min(self.words.len() as u64) * 64;
        let mut count = 0;
        while count < wanted && first + count < end {
            let bit = first + count;
            let word = &mut self.words[(bit / 64) as usize];
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
    use amphi_rt::random::Generator;
    use proptest::prelude::*;

    use super::*;

    /// However often 85 % of a pool are written anew by any processor, the last tenth is never handed out.
    #[test]
    fn what_is_in_use_stays_at_the_front() {
        let bits = 1 << 20;
        let pool = Pool::from_the_front(bits, Vec::new());
        let mut random = Generator::new(21);
        let mut runs: Vec<Run> = Vec::new();
        let mut written = 0;
        while written < 5 * bits {
            while pool.free() < bits * 15 / 100 {
                let number = random.below(runs.len() as u64) as usize;
                pool.give_back(runs.swap_remove(number));
            }
            let run = pool.take_for(random.below(48) as usize, 1 + random.below(256)).expect("15 % are free");
            assert!(run.first + run.count <= bits * 9 / 10, "{run:?}");
            written += run.count;
            runs.push(run);
        }
    }

    proptest! {
        /// What is handed out was free, and is handed out once.
        #[test]
        fn behaves_like_a_set(
            front in any::<bool>(),
            bits in 1..30_000_u64,
            steps in proptest::collection::vec((any::<bool>(), 1..200_u64), 1..100),
        ) {
            let pool = if front { Pool::from_the_front } else { Pool::new }(bits, vec![1]);
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
