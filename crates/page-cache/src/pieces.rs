//! A range of bytes as parts of pages and whole pages; pages on the device as commands.

use std::ops::Range;

use crate::PAGE;

/// A range of bytes of a file, as the parts of pages that it begins and ends with and the whole pages
/// between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Pages of which it covers a part, and that part.
    pub parts: [Option<(u64, Range<usize>)>; 2],
    /// Pages that it covers as a whole.
    pub whole: Range<u64>,
}

impl Pieces {
    /// Those of `start .. end`.
    #[must_use]
    pub const fn of(start: u64, end: u64) -> Self {
        let (first, last) = (start.div_ceil(PAGE as u64), end / PAGE as u64);
        let (head, tail) = ((start % PAGE as u64) as usize, (end % PAGE as u64) as usize);
        if first > last {
            return Self { parts: [Some((last, head..tail)), None], whole: first..first };
        }
        let head = if head > 0 { Some((first - 1, head..PAGE)) } else { None };
        let tail = if tail > 0 { Some((last, 0..tail)) } else { None };
        Self { parts: [head, tail], whole: first..last }
    }
}

/// Pages in the order of their places, cut into runs that are contiguous on the device and at most `most`
/// long, which is not 0.
pub fn commands<'a, T>(
    pages: &'a [T],
    most: usize,
    place: impl Fn(&T) -> u64 + 'a,
) -> impl Iterator<Item = &'a [T]> {
    let mut rest = pages;
    std::iter::from_fn(move || {
        let follows = |pair: &&[T]| place(&pair[1]) == place(&pair[0]) + 1;
        let follow = rest.windows(2).take(most - 1).take_while(follows).count();
        let (run, behind) = rest.split_at((follow + 1).min(rest.len()));
        rest = behind;
        (!run.is_empty()).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_its_pieces() {
        let page = PAGE as u64;
        let of = |start, end| Pieces::of(start, end);
        assert_eq!(of(0, 2 * page), Pieces { parts: [None, None], whole: 0..2 });
        assert_eq!(of(10, 20), Pieces { parts: [Some((0, 10..20)), None], whole: 1..1 });
        assert_eq!(of(page, page + 5), Pieces { parts: [None, Some((1, 0..5))], whole: 1..1 });
        let both = [Some((0, 10..PAGE)), Some((3, 0..5))];
        assert_eq!(of(10, 3 * page + 5), Pieces { parts: both, whole: 1..3 });
    }

    #[test]
    fn commands_end_where_pages_part_or_are_enough() {
        let pages = [4_u64, 5, 6, 7, 9, 10, 3];
        let runs: Vec<&[u64]> = commands(&pages, 3, |page| *page).collect();
        assert_eq!(runs, [&[4, 5, 6][..], &[7], &[9, 10], &[3]]);
        assert_eq!(commands(&[0_u64; 0], 3, |page| *page).count(), 0);
    }
}
