//! Names that the kernel has moved lately.
//!
//! The kernel moves what it believes a name to be; the file system moves what it is. They differ where
//! another door has changed the name and cannot say so yet: the kernel has the directory locked until its
//! rename is answered. When it hears of the change, the name is gone, and what it believed stands under the
//! new name. So who tells it of a name tells it of where that was moved, too.

use std::collections::VecDeque;

use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;

/// Moves that are kept. A change is told as soon as the directory is free: the oldest makes room.
const MOVES_MAX: usize = 1024;

/// A name in a directory.
pub(crate) type Place = (Ino, Box<[u8]>);

#[derive(Debug)]
struct Move {
    from: Place,
    to: Place,
    at_ms: u64,
}

/// The moves, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Moved(Mutex<VecDeque<Move>>);

impl Moved {
    /// The kernel is about to move `from` to `to`, at a time in ms.
    pub(crate) fn note(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), at_ms: u64) {
        let place = |(dir, name): (Ino, &[u8])| (dir, name.into());
        let moved = Move { from: place(from), to: place(to), at_ms };
        let mut moves = self.0.lock();
        if moves.len() == MOVES_MAX {
            moves.pop_front();
        }
        moves.push_back(moved);
    }

    /// Where `name` of `dir` has been moved since a time in ms. What is older is forgotten.
    pub(crate) fn since(&self, dir: Ino, name: &[u8], since_ms: u64) -> Vec<Place> {
        let mut moves = self.0.lock();
        while moves.front().is_some_and(|moved| moved.at_ms < since_ms) {
            moves.pop_front();
        }
        let is_it = |moved: &&Move| moved.from.0 == dir && *moved.from.1 == *name;
        moves.iter().filter(is_it).map(|moved| moved.to.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_found_by_where_they_began_until_they_are_old() {
        let moved = Moved::default();
        let (x, y) = (Ino(2), Ino(3));
        moved.note((x, b"1"), (x, b"0"), 5);
        moved.note((x, b"1"), (y, b"2"), 7);
        moved.note((y, b"1"), (y, b"3"), 7);
        let of_x = |since_ms| moved.since(x, b"1", since_ms);
        assert_eq!(of_x(5), [(x, (*b"0").into()), (y, (*b"2").into())]);
        assert_eq!(of_x(6), [(y, (*b"2").into())]);
        assert_eq!(of_x(8), []);
        for number in 0..MOVES_MAX as u64 + 1 {
            moved.note((x, b"1"), (Ino(number), b"0"), 9);
        }
        assert_eq!(of_x(9).len(), MOVES_MAX);
    }
}
