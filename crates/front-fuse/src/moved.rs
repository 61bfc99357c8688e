//! Names that the kernel has moved lately, while another door was in use.
//!
//! The kernel moves what it believes a name to be; the file system moves what it is. They differ where
//! another door has changed the name and cannot say so yet: the kernel has the directory locked until its
//! rename is answered. When it hears of the change the name is gone, and what it believed stands under the
//! new name. So who tells it of a name tells it of where that was moved since the change began, too.

use std::collections::VecDeque;

use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;

/// Moves that are kept. A change is told as soon as the directory is free: the oldest makes room.
const MOVES_MAX: usize = 1024;

/// A name in a directory.
pub(crate) type Place = (Ino, Box<[u8]>);

/// The same, of a request.
pub(crate) type Named<'a> = (Ino, &'a [u8]);

#[derive(Debug)]
struct Move {
    from: Place,
    to: Place,
    /// Which rename it was: [`Marks::renamed`](amphi_queue::Marks::renamed).
    rename: u64,
}

/// The moves, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Moved(Mutex<VecDeque<Move>>);

impl Moved {
    /// The file system has moved `from` to `to`, which the kernel hears after this; `number` tells which
    /// rename it was. Numbers are drawn with the list locked, so that they ascend in it.
    pub(crate) fn note(&self, number: impl FnOnce() -> u64, moves: &[(Named<'_>, Named<'_>)]) {
        let place = |(dir, name): Named<'_>| (dir, name.into());
        let mut kept = self.0.lock();
        let rename = number();
        for (from, to) in moves {
            if kept.len() == MOVES_MAX {
                kept.pop_front();
            }
            kept.push_back(Move { from: place(*from), to: place(*to), rename });
        }
    }

    /// Where `name` of `dir` has been moved by renames that come after that many.
    pub(crate) fn after(&self, dir: Ino, name: &[u8], renames: u64) -> Vec<Place> {
        let moves = self.0.lock();
        let is_it = |moved: &&Move| moved.from.0 == dir && *moved.from.1 == *name;
        let later = moves.iter().rev().take_while(|moved| moved.rename > renames);
        later.filter(is_it).map(|moved| moved.to.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_found_by_where_they_began_unless_they_came_before() {
        let moved = Moved::default();
        let (x, y) = (Ino(2), Ino(3));
        moved.note(|| 1, &[((x, b"1"), (x, b"0"))]);
        moved.note(|| 2, &[((x, b"1"), (y, b"2")), ((y, b"2"), (x, b"1"))]);
        let of_x = |renames| moved.after(x, b"1", renames);
        assert_eq!(of_x(0), [(y, (*b"2").into()), (x, (*b"0").into())]);
        assert_eq!(of_x(1), [(y, (*b"2").into())]);
        assert_eq!(of_x(2), []);
        assert_eq!(moved.after(y, b"2", 1), [(x, (*b"1").into())]);
        for number in 0..MOVES_MAX as u64 + 1 {
            moved.note(|| 3 + number, &[((x, b"1"), (Ino(number), b"0"))]);
        }
        assert_eq!(of_x(0).len(), MOVES_MAX);
    }
}
