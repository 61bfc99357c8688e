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
//! Marks are a structure of a fixed layout, all atomic, so that they may lie in memory that processes share:
//! one of them sets marks, others find them.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_vfs::{Ino, Name};
use foldhash::quality::FixedState;

use crate::memory::no_marks;

/// Slots of each table. Where two share one, the mark stays and costs needless notices.
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
    inodes: [AtomicU64; SLOTS],
    names: [AtomicU64; SLOTS],
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
        mark(self.inode(ino), ino.0);
    }

    /// The kernel is about to be told contents of `ino`, or has told some itself and remembers them.
    pub fn contents(&self, ino: Ino) {
        mark(self.inode(ino), ino.0 | PAGES);
    }

    /// The kernel is about to be told what `name` is in `dir`, or that it is nothing.
    pub fn name(&self, dir: Ino, name: &[u8]) {
        let (slot, hash) = self.named(dir, name);
        mark(slot, hash);
    }

    /// Whether the kernel may know something of the inode.
    #[must_use]
    pub fn knows_inode(&self, ino: Ino) -> bool {
        is_of(self.inode(ino).load(Ordering::SeqCst), ino)
    }

    /// Whether the kernel may know what the name is.
    #[must_use]
    pub fn knows_name(&self, dir: Ino, name: Name<'_>) -> bool {
        let (slot, hash) = self.named(dir, name.bytes());
        matches!(slot.load(Ordering::SeqCst), found if found == SEVERAL || found == hash)
    }

    /// Takes an inode's mark away: what the kernel has to be told to forget, if anything.
    #[must_use]
    pub fn take_inode(&self, ino: Ino) -> Option<Remembered> {
        let slot = self.inode(ino);
        let found = slot.load(Ordering::SeqCst);
        if !is_of(found, ino) {
            return None;
        }
        unmark(slot, found);
        Some(if found & PAGES == 0 { Remembered::Attributes } else { Remembered::Contents })
    }

    /// Takes a name's mark away: whether the kernel has to be told to forget it.
    #[must_use]
    pub fn take_name(&self, dir: Ino, name: Name<'_>) -> bool {
        let (slot, hash) = self.named(dir, name.bytes());
        let found = slot.load(Ordering::SeqCst);
        let is_known = found == SEVERAL || found == hash;
        if is_known {
            unmark(slot, found);
        }
        is_known
    }

    const fn inode(&self, ino: Ino) -> &AtomicU64 {
        // Neighbours lie side by side, far ones anywhere.
        &self.inodes[(ino.0 ^ ino.0 >> 17) as usize % SLOTS]
    }

    /// A name's slot and its hash: not 0, and without the bit that means [`PAGES`].
    fn named(&self, dir: Ino, name: &[u8]) -> (&AtomicU64, u64) {
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

const fn is_of(found: u64, ino: Ino) -> bool {
    found == SEVERAL || found & !PAGES == ino.0
}

fn mark(slot: &AtomicU64, what: u64) {
    let found = slot.load(Ordering::SeqCst);
    if found == what || found == SEVERAL || found == what | PAGES {
        return;
    }
    let merge = |now: u64| match now {
        0 => Some(what),
        now if now & !PAGES == what & !PAGES => Some(now | what),
        _ => Some(SEVERAL),
    };
    // Always some: the closure refuses nothing.
    let _ = slot.fetch_update(Ordering::SeqCst, Ordering::SeqCst, merge);
}

/// A mark that was set again meanwhile stays.
fn unmark(slot: &AtomicU64, found: u64) {
    if found != SEVERAL {
        let _ = slot.compare_exchange(found, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_knows_one_and_then_only_that_there_are_several() {
        let slot = AtomicU64::new(0);
        mark(&slot, 5);
        assert_eq!(slot.load(Ordering::SeqCst), 5);
        mark(&slot, 5 | PAGES);
        mark(&slot, 5);
        assert_eq!(slot.load(Ordering::SeqCst), 5 | PAGES, "attributes take no pages away");
        unmark(&slot, 5);
        assert_eq!(slot.load(Ordering::SeqCst), 5 | PAGES, "what was marked again stays");
        unmark(&slot, 5 | PAGES);
        assert_eq!(slot.load(Ordering::SeqCst), 0);
        mark(&slot, 5);
        mark(&slot, 6);
        unmark(&slot, SEVERAL);
        assert_eq!(slot.load(Ordering::SeqCst), SEVERAL);
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
