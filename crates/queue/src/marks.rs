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
//! or the directory locked until they are answered (contents, names). While somebody tells, others who change
//! the same find no mark, and tell too: they must not be answered before the kernel has heard.
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
    /// Renames by the kernel that the file system has carried out while there was another door.
    renames: AtomicU64,
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
    /// How many are telling the kernel of those whose marks they took away.
    telling: AtomicU64,
}

/// What the kernel may have had of an inode whose mark was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// Attributes alone.
    Attributes,
    /// Attributes and contents.
    Contents,
}

/// The kernel is being told of one whose mark was taken away; dropped when it has been.
#[derive(Debug)]
#[must_use = "the kernel is to be told meanwhile"]
pub struct Telling<'a> {
    slot: &'a Slot,
    /// What it is to forget.
    pub remembered: Remembered,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.slot.telling.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Marks {
    /// New ones.
    #[must_use]
    pub fn new() -> Box<Self> {
        let marks = Self::none();
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

    /// The file system has carried out a rename by the kernel, which is not answered yet: its number, from 1.
    pub fn renamed(&self) -> u64 {
        self.renames.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the last rename by the kernel.
    #[must_use]
    pub fn renames(&self) -> u64 {
        self.renames.load(Ordering::SeqCst)
    }

    /// Whether the kernel may know something of the inode.
    #[must_use]
    pub fn knows_inode(&self, ino: Ino) -> bool {
        self.inode(ino).may_be_known(ino.0)
    }

    /// Whether the kernel may know what the name is.
    #[must_use]
    pub fn knows_name(&self, dir: Ino, name: Name<'_>) -> bool {
        let (slot, hash) = self.named(dir, name.bytes());
        slot.may_be_known(hash)
    }

    /// Takes an inode's mark away, if the kernel has to be told to forget it.
    pub fn take_inode(&self, ino: Ino) -> Option<Telling<'_>> {
        self.inode(ino).take(ino.0)
    }

    /// Takes a name's mark away, if the kernel has to be told to forget it.
    pub fn take_name(&self, dir: Ino, name: Name<'_>) -> Option<Telling<'_>> {
        let (slot, hash) = self.named(dir, name.bytes());
        slot.take(hash)
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
    fn mark_of(&self, what: u64) -> Option<u64> {
        let found = self.mark.load(Ordering::SeqCst);
        let is_its = match found {
            SEVERAL => self.told.load(Ordering::SeqCst) != what,
            one => one & !PAGES == what,
        };
        is_its.then_some(found)
    }

    /// Whether the kernel may know of `what`, which is without [`PAGES`].
    fn may_be_known(&self, what: u64) -> bool {
        // In this order: whoever has taken the mark away tells, or has told.
        self.mark_of(what).is_some() || self.telling.load(Ordering::SeqCst) > 0
    }

    fn take(&self, what: u64) -> Option<Telling<'_>> {
        if !self.may_be_known(what) {
            return None;
        }
        self.telling.fetch_add(1, Ordering::SeqCst);
        let found = self.mark_of(what);
        if let Some(found) = found {
            self.unmark(found, what);
        }
        let attributes_alone = found.is_some_and(|found| found & PAGES == 0);
        let remembered = if attributes_alone { Remembered::Attributes } else { Remembered::Contents };
        Some(Telling { slot: self, remembered })
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

    /// What the kernel has to forget of an inode, and has been told to.
    fn forgets(marks: &Marks, ino: u64) -> Option<Remembered> {
        marks.take_inode(Ino(ino)).map(|telling| telling.remembered)
    }

    #[test]
    fn a_slot_knows_one_and_then_that_there_are_several() {
        let slot = Slot::default();
        slot.mark(5);
        assert_eq!((slot.mark_of(5), slot.mark_of(6)), (Some(5), None));
        slot.mark(5 | PAGES);
        slot.mark(5);
        assert_eq!(slot.mark_of(5), Some(5 | PAGES), "attributes take no pages away");
        slot.unmark(5, 5);
        assert_eq!(slot.mark_of(5), Some(5 | PAGES), "what was marked again stays");
        slot.unmark(5 | PAGES, 5);
        assert_eq!(slot.mark_of(5), None);
        slot.mark(5);
        slot.mark(6 | PAGES);
        assert_eq!(
            (slot.mark_of(5), slot.mark_of(6), slot.mark_of(7)),
            (Some(SEVERAL), Some(SEVERAL), Some(SEVERAL))
        );
    }

    #[test]
    fn of_several_that_share_a_slot_one_is_told_once_until_it_is_marked_again() {
        let slot = Slot::default();
        slot.mark(5);
        slot.mark(6);
        slot.unmark(SEVERAL, 5);
        assert_eq!(
            (slot.mark_of(5), slot.mark_of(6)),
            (None, Some(SEVERAL)),
            "a change in a row costs nothing"
        );
        slot.mark(6);
        assert_eq!(slot.mark_of(5), None, "another one's mark is not its own");
        slot.mark(5 | PAGES);
        assert_eq!(slot.mark_of(5), Some(SEVERAL), "the kernel asked again");
        slot.unmark(SEVERAL, 5);
        slot.unmark(SEVERAL, 6);
        assert_eq!((slot.mark_of(5), slot.mark_of(6)), (Some(SEVERAL), None), "of one it is known");
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
            let several =
                (1..2000).filter(|ino| forgets(&marks, (area << 17) + ino) != Some(Remembered::Attributes));
            assert_eq!(several.count(), 0, "area {area}");
            (1..2000).for_each(|ino| marks.attributes(Ino((area << 17) + ino)));
        }
    }

    #[test]
    fn what_is_marked_is_found_and_told_once() {
        let marks = Marks::new();
        let name = Name::new(b"a").expect("a name");
        assert!(!marks.knows_inode(Ino(5)) && !marks.knows_name(Ino(1), name));
        assert!(marks.take_inode(Ino(5)).is_none() && marks.take_name(Ino(1), name).is_none());
        marks.attributes(Ino(5));
        marks.name(Ino(1), b"a");
        assert!(marks.knows_inode(Ino(5)) && marks.knows_name(Ino(1), name));
        assert!(!marks.knows_inode(Ino(6)) && !marks.knows_name(Ino(2), name));
        assert_eq!(forgets(&marks, 5), Some(Remembered::Attributes));
        assert!(marks.take_name(Ino(1), name).is_some());
        assert!(!marks.knows_inode(Ino(5)) && !marks.knows_name(Ino(1), name), "it is told once");
        marks.contents(Ino(5));
        assert_eq!(forgets(&marks, 5), Some(Remembered::Contents));
    }

    #[test]
    fn who_changes_what_somebody_else_is_just_telling_of_tells_too() {
        let marks = Marks::new();
        let name = Name::new(b"a").expect("a name");
        marks.attributes(Ino(5));
        marks.name(Ino(1), b"a");
        let (first, first_name) = (marks.take_inode(Ino(5)), marks.take_name(Ino(1), name));
        assert!(marks.knows_inode(Ino(5)) && marks.knows_name(Ino(1), name));
        let (second, second_name) = (marks.take_inode(Ino(5)), marks.take_name(Ino(1), name));
        assert!(first.is_some() && first_name.is_some() && second.is_some() && second_name.is_some());
        drop((first, first_name));
        assert!(marks.knows_inode(Ino(5)), "the second one tells still");
        drop((second, second_name));
        assert!(!marks.knows_inode(Ino(5)) && !marks.knows_name(Ino(1), name));
        marks.attributes(Ino(5));
        let telling = marks.take_inode(Ino(5));
        marks.attributes(Ino(5));
        drop(telling);
        assert!(marks.knows_inode(Ino(5)), "what the kernel asks for meanwhile is marked");
    }
}
