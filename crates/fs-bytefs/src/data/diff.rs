//! Which 64 B lines of a page differ from its duplicate, and what that says about the way back to the device
//! (BY-14).
//!
//! The comparison is compiled for AVX-512, for AVX2 and for any processor; the first call finds out which of
//! them this one runs.

use std::ops::Range;
use std::sync::LazyLock;

use pulp::Arch;

use crate::format::{LINE, LINES_PER_PAGE, PAGE};

/// One bit per line of a page; bit 0 is the first line.
pub type LineMask = u64;

/// Lines compared between two looks at how many differ.
const STRETCH: usize = 8;

/// The lines in which `now` differs from `before`.
#[must_use]
pub fn changed_lines(before: &[u8; PAGE], now: &[u8; PAGE]) -> LineMask {
    dispatch(Compare { before, now, threshold: 0 })
}

/// The lines in which `now` differs from `before`, if the page [goes by bytes](goes_by_bytes). As soon as so
/// many differ that it does not, the rest of it need not be looked at.
#[must_use]
pub fn lines_by_bytes(before: &[u8; PAGE], now: &[u8; PAGE], threshold: u32) -> Option<LineMask> {
    let mask = dispatch(Compare { before, now, threshold });
    goes_by_bytes(mask, threshold).then_some(mask)
}

/// As [`lines_by_bytes`], of a page of which only the lines in `kept` can differ; whatever `before` has
/// elsewhere means nothing.
#[must_use]
pub fn kept_lines_by_bytes(
    before: &[u8; PAGE],
    now: &[u8; PAGE],
    kept: LineMask,
    threshold: u32,
) -> Option<LineMask> {
    if kept == LineMask::MAX {
        return lines_by_bytes(before, now, threshold);
    }
    let (before, now) = (before.as_chunks::<LINE>().0, now.as_chunks::<LINE>().0);
    let mut mask = 0;
    for line in runs(kept).flat_map(|(first, lines)| first..first + lines) {
        mask |= u64::from(before[line] != now[line]) << line;
        if !goes_by_bytes(mask, threshold) {
            return None;
        }
    }
    Some(mask)
}

/// The lines that bytes of a page lie in.
#[must_use]
pub const fn lines_of(bytes: &Range<usize>) -> LineMask {
    if bytes.start >= bytes.end {
        return 0;
    }
    let (first, last) = (bytes.start / LINE, (bytes.end - 1) / LINE);
    (LineMask::MAX >> (LINES_PER_PAGE - 1 - (last - first))) << first
}

fn dispatch(compare: Compare<'_>) -> LineMask {
    static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);
    ARCH.dispatch(compare)
}

struct Compare<'a> {
    before: &'a [u8; PAGE],
    now: &'a [u8; PAGE],
    /// The comparison may end once the page does not go by bytes by this threshold; never if 0.
    threshold: u32,
}

impl pulp::NullaryFnOnce for Compare<'_> {
    type Output = LineMask;

    #[inline(always)]
    fn call(self) -> LineMask {
        let mut mask = 0;
        let (before, now) = (self.before.as_chunks::<LINE>().0, self.now.as_chunks::<LINE>().0);
        for from in (0..LINES_PER_PAGE).step_by(STRETCH) {
            for line in from..from + STRETCH {
                mask |= u64::from(before[line] != now[line]) << line;
            }
            if !goes_by_bytes(mask, self.threshold) {
                break;
            }
        }
        mask
    }
}

/// As [`changed_lines`], for whatever processor the caller is compiled for. Lines are compared as arrays of a
/// fixed length, which the compiler turns into vector instructions as wide as the caller is compiled for.
#[must_use]
#[inline(always)]
pub fn compare(before: &[u8; PAGE], now: &[u8; PAGE]) -> LineMask {
    let mut mask = 0;
    let (before, _) = before.as_chunks::<LINE>();
    let (now, _) = now.as_chunks::<LINE>();
    for (i, (a, b)) in before.iter().zip(now).enumerate() {
        mask |= u64::from(a != b) << i;
    }
    mask
}

/// Whether a page with these modified lines goes by bytes: the modified ratio R is below `1 / threshold`
/// (§4.6: 1/8).
#[must_use]
pub const fn goes_by_bytes(mask: LineMask, threshold: u32) -> bool {
    mask.count_ones() * threshold < LINES_PER_PAGE as u32
}

/// Runs of set bits, as (first line, number of lines), lowest first.
pub fn runs(mut mask: LineMask) -> impl Iterator<Item = (usize, usize)> {
    let mut base = 0;
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let skip = mask.trailing_zeros();
        mask >>= skip;
        let first = base + skip;
        let len = mask.trailing_ones();
        mask = mask.checked_shr(len).unwrap_or(0);
        base = first + len;
        Some((first as usize, len as usize))
    })
}
