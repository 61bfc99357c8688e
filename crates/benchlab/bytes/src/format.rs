//! How a few bytes lie in a value: in memory only, but byte by byte.

use std::cmp::Ordering;
use std::num::NonZeroU64;

use zerocopy::{Immutable, IntoBytes};

/// Up to so many bytes lie in the value itself: a YCSB key of 23 B and the 8 B that the store adds to it.
pub const INLINE: usize = 31;

/// A few bytes. They are put together, moved and read as whole words: what is stored in other pieces than it
/// is loaded in soon after keeps the processor waiting.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub struct Inline {
    first: [u64; 3],
    /// Its last byte in memory is one more than the length, so that the zero tells this case from others and
    /// nothing is spent on a tag.
    last: NonZeroU64,
}

impl Inline {
    /// None.
    pub const EMPTY: Self = Self::new([0; 4], 0);

    /// The first `len` bytes of `words`, little-endian ones, of which the last byte must be zero.
    #[inline]
    const fn new(words: [u64; 4], len: usize) -> Self {
        let [first, second, third, last] = words;
        match NonZeroU64::new((last | (len as u64 + 1) << 56).to_le()) {
            Some(last) => Self { first: [first.to_le(), second.to_le(), third.to_le()], last },
            None => unreachable!(),
        }
    }

    /// A copy of `data`; none if they are too many.
    #[inline]
    pub fn of(data: &[u8]) -> Option<Self> {
        (data.len() <= INLINE).then(|| Self::new(words(data), data.len()))
    }

    #[inline]
    const fn len(&self) -> usize {
        (u64::from_le(self.last.get()) >> 56) as usize - 1
    }

    /// The bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.as_bytes()[..self.len()]
    }

    /// Adds `data` at the end; false if there is no room.
    #[inline]
    pub fn extend(&mut self, data: &[u8]) -> bool {
        let (had, sum) = (self.len(), self.len() + data.len());
        if sum > INLINE {
            return false;
        }
        // The new bytes behind four words of zeros, to be taken from as far before them as they are to be
        // moved.
        let [first, second, third, fourth] = words(data);
        let moved = [0, 0, 0, 0, first, second, third, fourth];
        let (before, bits) = (had / 8, 8 * (had % 8) as u32);
        let [first, second, third] = self.first;
        let old = [first, second, third, self.last.get()].map(u64::from_le);
        let new = std::array::from_fn(|at| {
            let from = 4 + at - before;
            let kept = match at.cmp(&before) {
                Ordering::Less => old[at],
                Ordering::Equal => old[at] & ((1 << bits) - 1),
                Ordering::Greater => 0,
            };
            kept | moved[from] << bits | moved[from - 1] >> 1 >> (63 - bits)
        });
        *self = Self::new(new, sum);
        true
    }

    /// Keeps the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            let [first, second, third] = self.first.map(u64::from_le);
            *self = Self::new([first, second, third, u64::from_le(self.last.get()) << 8 >> 8], len);
        }
    }
}

/// Up to [`INLINE`] bytes as little-endian words.
#[inline]
fn words(data: &[u8]) -> [u64; 4] {
    let (whole, rest) = (data.len() / 8, data.len() % 8);
    // The last bytes are the end of a whole word too, where there is one.
    let end = match data.last_chunk() {
        Some(_) if rest == 0 => 0,
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest),
        None => data.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let word = |at: usize| match data.get(8 * at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None if at == whole => end,
        None => 0,
    };
    [word(0), word(1), word(2), word(3)]
}
