//! What a check finds in use: bitmaps that cost memory only where a bit is set, and the claims on device
//! pages that are made with them.

/// Bytes of a page.
const PAGE: usize = 4096;

/// Bits in one chunk: as many as one bitmap page holds.
pub const CHUNK_BITS: u64 = (PAGE * 8) as u64;
const CHUNK_WORDS: usize = PAGE / 8;

type Chunk = Box<[u64; CHUNK_WORDS]>;

/// A bitmap of a fixed number of bits, in chunks that exist once they have a bit set.
#[derive(Clone)]
pub struct Bits {
    chunks: Vec<Option<Chunk>>,
    len: u64,
}

impl Bits {
    /// `len` bits, none of them set.
    #[must_use]
    pub fn new(len: u64) -> Self {
        let chunks = usize::try_from(len.div_ceil(CHUNK_BITS)).unwrap_or(usize::MAX);
        Self { chunks: (0..chunks).map(|_| None).collect(), len }
    }

    /// Takes over the first `count` bits of a bitmap page as read from the device, as those from `first`, a
    /// multiple of 64, on. Bits beyond the end are dropped.
    pub fn load(&mut self, first: u64, count: u64, page: &[u8; PAGE]) {
        let count = count.min(self.len.saturating_sub(first));
        for (index, bytes) in (0..).zip(page.as_chunks::<8>().0) {
            let word = u64::from_le_bytes(*bytes) & low_mask(count.saturating_sub(index * 64));
            if word != 0
                && let Some(held) = self.word_mut(first / 64 + index)
            {
                *held = word;
            }
        }
    }

    /// The 64 bits from bit `64 * index` on.
    #[must_use]
    pub fn word(&self, index: u64) -> u64 {
        let (chunk, word) = split(index);
        self.chunks.get(chunk).and_then(Option::as_ref).map_or(0, |c| c[word])
    }

    fn word_mut(&mut self, index: u64) -> Option<&mut u64> {
        let (chunk, word) = split(index);
        let slot = self.chunks.get_mut(chunk)?;
        Some(&mut slot.get_or_insert_with(|| Box::new([0; CHUNK_WORDS]))[word])
    }

    /// Whether a bit is set.
    #[must_use]
    pub fn get(&self, bit: u64) -> bool {
        self.word(bit / 64) >> (bit % 64) & 1 == 1
    }

    /// Sets one bit; false if it was set already, or is beyond the end.
    pub fn set(&mut self, bit: u64) -> bool {
        if bit >= self.len || self.get(bit) {
            return false;
        }
        if let Some(word) = self.word_mut(bit / 64) {
            *word |= 1 << (bit % 64);
        }
        true
    }

    /// Every word that has a bit set, with its index.
    pub fn words(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let chunks = self.chunks.iter().enumerate().filter_map(|(i, chunk)| Some((i, chunk.as_ref()?)));
        let words = |(i, chunk): (usize, &Chunk)| ((i * CHUNK_WORDS) as u64, **chunk);
        chunks.map(words).flat_map(|(first, chunk)| (first..).zip(chunk)).filter(|&(_, word)| word != 0)
    }

    /// Bits set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words().map(|(_, word)| u64::from(word.count_ones())).sum()
    }

    /// Runs of bits set in `self` and not in `other`, as (first, length).
    pub fn without(&self, other: &Self, each: impl FnMut(u64, u64)) {
        runs(self.words().map(|(at, word)| (at, word & !other.word(at))), each);
    }

    /// Runs of bits that are not set, as (first, length).
    pub fn gaps(&self, each: impl FnMut(u64, u64)) {
        let there = |at: u64| low_mask(self.len - at * 64);
        runs((0..self.len.div_ceil(64)).map(|at| (at, !self.word(at) & there(at))), each);
    }
}

/// Calls `each` with the runs of bits set in words with their indices, which ascend.
fn runs(words: impl Iterator<Item = (u64, u64)>, mut each: impl FnMut(u64, u64)) {
    let mut run: Option<(u64, u64)> = None;
    for (at, mut left) in words {
        while left != 0 {
            let low = left.trailing_zeros();
            let ones = (left >> low).trailing_ones();
            let first = at * 64 + u64::from(low);
            left &= !(low_mask(u64::from(ones)) << low);
            match &mut run {
                Some((start, len)) if *start + *len == first => *len += u64::from(ones),
                _ => {
                    if let Some((start, len)) = run.replace((first, u64::from(ones))) {
                        each(start, len);
                    }
                }
            }
        }
    }
    if let Some((start, len)) = run {
        each(start, len);
    }
}

fn split(word: u64) -> (usize, usize) {
    let words = CHUNK_WORDS as u64;
    (usize::try_from(word / words).unwrap_or(usize::MAX), (word % words) as usize)
}

/// The lowest `bits` bits set; all from 64 on.
const fn low_mask(bits: u64) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Which device pages something owns.
pub struct Claims {
    /// The pages.
    pub bits: Bits,
    patience: u64,
}

impl Claims {
    /// No claims on a device of `pages` pages yet.
    #[must_use]
    pub fn new(pages: u64) -> Self {
        Self { bits: Bits::new(pages), patience: pages }
    }

    /// Claims `len` pages from `first` on, which lie inside the device. Calls `conflict` with each run
    /// claimed before. False once more pages than the device has were claimed twice: from then on a claim
    /// ends at its first conflict. So all claims together take time in proportion to the device and the
    /// number of claims, whatever the image says.
    pub fn claim(&mut self, first: u64, len: u64, mut conflict: impl FnMut(u64, u64)) -> bool {
        let end = first + len;
        let mut at = first;
        let mut run: Option<(u64, u64)> = None;
        let mut complete = true;
        while at < end {
            let low = at % 64;
            let bits = (64 - low).min(end - at);
            let mask = low_mask(bits) << low;
            let Some(word) = self.bits.word_mut(at / 64) else { break };
            let taken = *word & mask;
            *word |= mask;
            if taken != 0 {
                for bit in (0..64).filter(|bit| taken >> bit & 1 == 1) {
                    let page = at - low + bit;
                    match &mut run {
                        Some((start, len)) if *start + *len == page => *len += 1,
                        _ => {
                            if let Some((start, len)) = run.replace((page, 1)) {
                                conflict(start, len);
                            }
                        }
                    }
                }
                let cost = u64::from(taken.count_ones());
                if self.patience < cost {
                    complete = false;
                    break;
                }
                self.patience -= cost;
            }
            at += bits;
        }
        if let Some((start, len)) = run {
            conflict(start, len);
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_claim_reports_exactly_the_pages_shared() {
        let mut claims = Claims::new(100_000);
        assert!(claims.claim(60, 10, |_, _| panic!("nothing was claimed")));
        let mut shared = Vec::new();
        assert!(claims.claim(10, 200, |first, len| shared.push((first, len))));
        assert_eq!(shared, [(60, 10)]);
        assert_eq!(claims.bits.count(), 200);
    }

    #[test]
    fn endless_conflicts_run_out_of_patience() {
        let mut claims = Claims::new(1 << 20);
        claims.claim(0, 1 << 20, |_, _| ());
        let complete = (0..100).filter(|_| claims.claim(0, 1 << 20, |_, _| ())).count();
        assert_eq!(complete, 1);
    }

    #[test]
    fn differences_are_runs_across_words_and_chunks() {
        let (mut a, mut b) = (Bits::new(3 * CHUNK_BITS), Bits::new(3 * CHUNK_BITS));
        for bit in CHUNK_BITS - 3..CHUNK_BITS + 5 {
            assert!(a.set(bit));
        }
        assert!(!a.set(CHUNK_BITS));
        b.set(CHUNK_BITS + 1);
        let mut runs = Vec::new();
        a.without(&b, |first, len| runs.push((first, len)));
        assert_eq!(runs, [(CHUNK_BITS - 3, 4), (CHUNK_BITS + 2, 3)]);
        let mut gaps = Vec::new();
        a.gaps(|first, len| gaps.push((first, len)));
        assert_eq!(gaps, [(0, CHUNK_BITS - 3), (CHUNK_BITS + 5, 2 * CHUNK_BITS - 5)]);
        let mut rest = Vec::new();
        Bits::new(70).gaps(|first, len| rest.push((first, len)));
        assert_eq!(rest, [(0, 70)]);
    }

    #[test]
    fn bits_beyond_the_end_are_dropped_on_loading() {
        let mut bits = Bits::new(70);
        bits.load(0, CHUNK_BITS, &[0xff; PAGE]);
        assert_eq!(bits.count(), 70);
        assert!(bits.get(69) && !bits.get(70));
    }

    #[test]
    fn a_part_of_a_page_is_loaded_where_it_belongs() {
        let mut bits = Bits::new(2 * CHUNK_BITS);
        let first = CHUNK_BITS - 512;
        bits.load(first, 1024, &[0xff; PAGE]);
        assert_eq!(bits.count(), 1024);
        assert!(bits.get(first) && bits.get(first + 1023) && !bits.get(first - 1) && !bits.get(first + 1024));
    }
}
