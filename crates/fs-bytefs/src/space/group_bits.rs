//! The bits of a group of a bitmap, and runs of them: setting, clearing, finding clear ones.

use crate::format::{GROUP_BITS, LINE};

const WORDS: usize = LINE / 8;

/// The bits of one group, lowest bit first.
pub type GroupBits = [u64; WORDS];

/// A run of bits: `start .. start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First bit.
    pub start: u64,
    /// Number of bits, not zero.
    pub len: u64,
}

impl Run {
    /// The parts of the run that lie in one group each, as (group, run).
    pub fn by_group(self) -> impl Iterator<Item = (usize, Self)> {
        let mut left = self;
        std::iter::from_fn(move || {
            if left.len == 0 {
                return None;
            }
            let group = left.start / GROUP_BITS;
            let len = left.len.min((group + 1) * GROUP_BITS - left.start);
            let part = Self { start: left.start, len };
            left = Self { start: left.start + len, len: left.len - len };
            Some((group as usize, part))
        })
    }
}

/// Sets or clears `run`, all of which lies in the group that `bits` are. Returns false if a bit already was
/// so.
pub fn change(bits: &mut GroupBits, run: Run, set: bool) -> bool {
    let mut changed = true;
    let mut bit = run.start % GROUP_BITS;
    let end = bit + run.len;
    while bit < end {
        let word = (bit / 64) as usize;
        let low = bit % 64;
        let count = (end - bit).min(64 - low);
        let mask = (u64::MAX >> (64 - count)) << low;
        if set {
            changed &= bits[word] & mask == 0;
            bits[word] |= mask;
        } else {
            changed &= bits[word] & mask == mask;
            bits[word] &= !mask;
        }
        bit += count;
    }
    changed
}

/// The first run of clear bits at or after `from` (< 512) that has at least `least`, at most `want` long;
/// `None` if there is none.
pub fn first_clear_of(bits: &GroupBits, from: u64, least: u64, want: u64) -> Option<(u64, u64)> {
    let mut from = from;
    loop {
        let (start, len) = first_clear(bits, from, want)?;
        if len >= least {
            return Some((start, len));
        }
        from = start + len;
    }
}

/// The first run of clear bits at or after `from` (< 512), at most `want` long; `None` if there is none.
pub fn first_clear(bits: &GroupBits, from: u64, want: u64) -> Option<(u64, u64)> {
    let mut bit = from;
    while bit < GROUP_BITS {
        let word = bits[(bit / 64) as usize] >> (bit % 64);
        let room = 64 - bit % 64;
        let ones = u64::from(word.trailing_ones()).min(room);
        if ones == room {
            bit += room;
            continue;
        }
        bit += ones;
        break;
    }
    if bit >= GROUP_BITS {
        return None;
    }
    let start = bit;
    while bit < GROUP_BITS && bit - start < want {
        let word = bits[(bit / 64) as usize] >> (bit % 64);
        let room = 64 - bit % 64;
        let zeros = u64::from(word.trailing_zeros()).min(room);
        bit += zeros;
        if zeros < room {
            break;
        }
    }
    Some((start, (bit - start).min(want)))
}

/// The line to write for `bits`.
pub fn line(bits: &GroupBits) -> [u8; LINE] {
    let mut line = [0; LINE];
    for (chunk, word) in line.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
        *chunk = word.to_le_bytes();
    }
    line
}
