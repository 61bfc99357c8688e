//! What a kernel may remember of each inode and name, so that a change that did not go through it can be told
//! it, and only if it has to be.
//!
//! A mount may have other doors than the kernel's. What comes in there changes inodes and names that the
//! kernel believes it knows for a day. Telling it costs a system call, more than most changes do. So each
//! inode and each name has a mark, set before an answer about it is read from the file system, and taken away
//! when the kernel is told to forget it: of a thousand changes in a row only the first costs anything.
//!
//! The order is what makes it right. Whoever answers sets the mark, then reads. Whoever changes has changed,
//! then takes the mark away, then tells. If the answer was read before the change, its mark is found, and the
//! kernel drops what it hears of requests that it had sent before it was told (attributes), or has the page
//! or the directory locked until they are answered (contents, names).
//!
//! Inodes and names share slots. A slot that several have used says so for good; beside it stands who of them
//! was told last and has not been marked since, so that a thousand changes in a row cost one notice there
//! too.
//!
//! Marks are a structure of a fixed layout, all atomic, so that they may lie in memory that processes share:
//! one of them sets marks, others find them.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_vfs::{Ino, Name};
use foldhash::quality::FixedState;

use crate::memory::no_marks;

/// Slots of each table. Where several share one, changes of theirs in turn cost needless notices.
const SLOTS: usize = 1 << 17;
/// More than one inode or name has used the slot.
const SEVERAL: u64 = u64::MAX;
/// Beside an inode's number: the kernel may have pages of its contents, not only attributes.
const PAGES: u64 = 1 << 63;

/// The marks. Memory that is all zero is a table without any.
#[repr(C)]
pub struct Marks {
    /// Names are told apart by a hash that nobody can foresee.
    seed: AtomicU64,
    inodes: [Slot; SLOTS],
    names: [Slot; SLOTS],
}

/// What the kernel may know of those that share a slot.
#[derive(Debug, Default)]
#[repr(C)]
struct Slot {
    /// Whom it may know something of: nobody (0), one, or [`SEVERAL`].
    mark: AtomicU64,
    /// Of several the one of whom it knows nothing.
    told: AtomicU64,
}

/// What the kernel may have had of an inode whose mark was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// Attributes alone.
    Attributes,
    /// Attributes and contents.
    Contents,
}

impl Marks {
    /// New ones.
    #[must_use]
    pub fn new() -> Box<Self> {
        let marks = no_marks();
        marks.begin();
        marks
    }

    /// Draws the number that the hash of names depends on. Nothing is marked yet.
    pub fn begin(&self) {
        self.seed.store(amphi_rt::random::u64(), Ordering::SeqCst);
    }

    /// The kernel is about to be told attributes of `ino`.
    pub fn attributes(&self, ino: Ino) {
        self.inode(ino).mark(ino.0);
    }

    /// The kernel is about to be told contents of `ino`, or has told some itself and remembers them.
    pub fn contents(&self, ino: Ino) {
        self.inode(ino).mark(ino.0 | PAGES);
    }

    /// The kernel is about to be told what `name` is in `dir`, or that it is nothing.
    pub fn name(&self, dir: Ino, name: &[u8]) {
        let (slot, hash) = self.named(dir, name);
        slot.mark(hash);
    }

    /// Whether the kernel may know something of the inode.
    #[must_use]
    pub fn knows_inode(&self, ino: Ino) -> bool {
        self.inode(ino).found(ino.0).is_some()
    }

    /// Whether the kernel may know what the name is.
    #[must_use]
    pub fn knows_name(&self, dir: Ino, name: Name<'_>) -> bool {
        let (slot, hash) = self.named(dir, name.bytes());
        slot.found(hash).is_some()
    }

    /// Takes an inode's mark away: what the kernel has to be told to forget, if anything.
    #[must_use]
    pub fn take_inode(&self, ino: Ino) -> Option<Remembered> {
        let slot = self.inode(ino);
        let found = slot.found(ino.0)?;
        slot.unmark(found, ino.0);
        Some(if found & PAGES == 0 { Remembered::Attributes } else { Remembered::Contents })
    }

    /// Takes a name's mark away: whether the kernel has to be told to forget it.
    #[must_use]
    pub fn take_name(&self, dir: Ino, name: Name<'_>) -> bool {
        let (slot, hash) = self.named(dir, name.bytes());
        let found = slot.found(hash);
        if let Some(found) = found {
            slot.unmark(found, hash);
        }
        found.is_some()
    }

    const fn inode(&self, ino: Ino) -> &Slot {
        // Neighbours lie side by side, far ones anywhere. Areas of numbers that lie a power of two apart
        // begin far from each other: file systems give processors such areas.
        const FAR: u64 = 40_503;
        &self.inodes[ino.0.wrapping_add((ino.0 >> 17).wrapping_mul(FAR)) as usize % SLOTS]
    }

    /// A name's slot and its hash: not 0, and without the bit that means [`PAGES`].
    fn named(&self, dir: Ino, name: &[u8]) -> (&Slot, u64) {
        let hasher = FixedState::with_seed(self.seed.load(Ordering::Relaxed));
        let hash = (hasher.hash_one((dir.0, name)) & !PAGES).max(1);
        (&self.names[hash as usize % SLOTS], hash)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").finish_non_exhaustive()
    }
}

impl Slot {
    /// The mark, if it is about `what`, which is without [`PAGES`].
    fn found(&self, what: u64) -> Option<u64> {
        let found = self.mark.load(Ordering::SeqCst);
        let is_its = match found {
            SEVERAL => self.told.load(Ordering::SeqCst) != what,
            one => one & !PAGES == what,
        };
        is_its.then_some(found)
    }

    /// Marks `what`, which may be with [`PAGES`].
    fn mark(&self, what: u64) {
        let found = self.mark.load(Ordering::SeqCst);
        if found != what && found != SEVERAL && found != what | PAGES {
            let merge = |now: u64| match now {
                0 => Some(what),
                now if now & !PAGES == what & !PAGES => Some(now | what),
                _ => Some(SEVERAL),
            };
            // Always some: the closure refuses nothing.
            let _ = self.mark.fetch_update(Ordering::SeqCst, Ordering::SeqCst, merge);
        }
        // It is known again. Looked at first, so that what many answer about stays in all caches.
        let what = what & !PAGES;
        if self.told.load(Ordering::SeqCst) == what {
            let _ = self.told.compare_exchange(what, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Takes the mark away that was found about `what`. One that was set again meanwhile stays.
    fn unmark(&self, found: u64, what: u64) {
        if found == SEVERAL {
            self.told.store(what, Ordering::SeqCst);
        } else {
            let _ = self.mark.compare_exchange(found, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_knows_one_and_then_that_there_are_several() {
        let slot = Slot::default();
        slot.mark(5);
        assert_eq!((slot.found(5), slot.found(6)), (Some(5), None));
        slot.mark(5 | PAGES);
        slot.mark(5);
        assert_eq!(slot.found(5), Some(5 | PAGES), "attributes take no pages away");
        slot.unmark(5, 5);
        assert_eq!(slot.found(5), Some(5 | PAGES), "what was marked again stays");
        slot.unmark(5 | PAGES, 5);
        assert_eq!(slot.found(5), None);
        slot.mark(5);
        slot.mark(6 | PAGES);
        assert_eq!(
            (slot.found(5), slot.found(6), slot.found(7)),
            (Some(SEVERAL), Some(SEVERAL), Some(SEVERAL))
        );
    }

    #[test]
    fn of_several_that_share_a_slot_one_is_told_once_until_it_is_marked_again() {
        let slot = Slot::default();
        slot.mark(5);
        slot.mark(6);
        slot.unmark(SEVERAL, 5);
        assert_eq!((slot.found(5), slot.found(6)), (None, Some(SEVERAL)), "a change in a row costs nothing");
        slot.mark(6);
        assert_eq!(slot.found(5), None, "another one's mark is not its own");
        slot.mark(5 | PAGES);
        assert_eq!(slot.found(5), Some(SEVERAL), "the kernel asked again");
        slot.unmark(SEVERAL, 5);
        slot.unmark(SEVERAL, 6);
        assert_eq!((slot.found(5), slot.found(6)), (Some(SEVERAL), None), "of one it is known");
    }

    #[test]
    fn areas_a_power_of_two_apart_share_no_slots_at_their_beginnings() {
        let marks = Marks::new();
        for area in 0..8_u64 {
            for ino in 1..2000 {
                let ino = Ino((area << 17) + ino);
                assert!(!marks.knows_inode(ino), "{ino:?}");
                marks.attributes(ino);
            }
            let several = (1..2000)
                .filter(|ino| marks.take_inode(Ino((area << 17) + ino)) != Some(Remembered::Attributes));
            assert_eq!(several.count(), 0, "area {area}");
            (1..2000).for_each(|ino| marks.attributes(Ino((area << 17) + ino)));
        }
    }

    #[test]
    fn what_is_marked_is_found_and_told_once() {
        let marks = Marks::new();
        let name = Name::new(b"a").expect("a name");
        assert!(!marks.knows_inode(Ino(5)) && !marks.knows_name(Ino(1), name));
        assert_eq!((marks.take_inode(Ino(5)), marks.take_name(Ino(1), name)), (None, false));
        marks.attributes(Ino(5));
        marks.name(Ino(1), b"a");
        assert!(marks.knows_inode(Ino(5)) && marks.knows_name(Ino(1), name));
        assert!(!marks.knows_inode(Ino(6)) && !marks.knows_name(Ino(2), name));
        assert_eq!(marks.take_inode(Ino(5)), Some(Remembered::Attributes));
        assert!(marks.take_name(Ino(1), name));
        assert!(!marks.knows_inode(Ino(5)) && !marks.knows_name(Ino(1), name), "it is told once");
        marks.contents(Ino(5));
        assert_eq!(marks.take_inode(Ino(5)), Some(Remembered::Contents));
    }
}
