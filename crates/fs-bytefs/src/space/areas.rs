//! Which groups of a bitmap processors allocate in (BY-11).
//!
//! An SSD keeps every page that was written until it is written again or trimmed, and its garbage collection
//! moves it, whether a file still has it or not. What a file system costs it is therefore not what is in use
//! but what was ever used. So a processor that needs another group takes one that was used before and has
//! room again, the lowest first, and only then one that never held anything.
//!
//! Each processor has an area, an equal share of the groups, so that tasks on different ones work in
//! different groups and in different partitions of the firmware's log. It takes groups of others before
//! untouched ones of its own only when an eighth of all bits lie free in groups that were used.
//!
//! All of this is hints: whoever takes a group finds out under its lock what is free. What is known of its
//! room changes under that lock, so that none of it stays wrong.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use amphi_rt::sync::Padded;

use crate::format::GROUP_BITS;

/// Lengths of runs that groups are looked up by, in bits: a run is good enough for whom it gives the greatest
/// of these that is not more than is wanted. So what is wanted comes in at most four pieces, or in pieces of
/// 1 MB, as long as there are such.
pub const FITS: [u64; 5] = [256, 64, 16, 4, 1];
/// Free bits from which on a used group is worth moving to.
const ROOM: u64 = 64;
/// The part of all bits that may lie free in used groups while processors take untouched ones of their own
/// area.
const SPARED_SHARE: u64 = 8;

/// A set of groups.
struct GroupSet {
    words: Box<[AtomicU64]>,
    members: Padded<AtomicUsize>,
}

impl GroupSet {
    fn new(groups: usize) -> Self {
        let words = (0..groups.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words, members: Padded(AtomicUsize::new(0)) }
    }

    fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    fn contains(&self, group: usize) -> bool {
        self.word(group / 64) >> (group % 64) & 1 == 1
    }

    fn len(&self) -> usize {
        self.members.load(Ordering::Relaxed)
    }

    /// Whether it was not in the set before.
    fn insert(&self, group: usize) -> bool {
        let bit = 1 << (group % 64);
        // Looked at first: nearly always it is there, and then neither its line nor that of the count is
        // written.
        let new = !self.contains(group) && self.words[group / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0;
        if new {
            self.members.fetch_add(1, Ordering::Relaxed);
        }
        new
    }

    fn remove(&self, group: usize) {
        let bit = 1 << (group % 64);
        if self.contains(group) && self.words[group / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
            self.members.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The lowest of `groups` whose bit is set in the `words` of a set, or the highest.
fn seek(groups: &Range<usize>, highest: bool, words: impl Fn(usize) -> u64) -> Option<usize> {
    let within = |index: usize| {
        let first = index * 64;
        let low = u64::MAX << groups.start.saturating_sub(first).min(63);
        let high = u64::MAX >> (first + 64).saturating_sub(groups.end).min(63);
        words(index) & low & high
    };
    if groups.is_empty() {
        return None;
    }
    let mut indices = groups.start / 64..groups.end.div_ceil(64);
    if highest {
        indices.rev().find_map(|index| within(index).checked_ilog2().map(|bit| index * 64 + bit as usize))
    } else {
        indices.find_map(|index| {
            let word = within(index);
            (word != 0).then(|| index * 64 + word.trailing_zeros() as usize)
        })
    }
}

/// What is known of the groups of a bitmap.
pub struct Areas {
    /// Used groups that may have a run of [`FITS`] bits.
    fitting: [GroupSet; FITS.len()],
    /// Groups of which the device holds nothing.
    untouched: GroupSet,
    /// Groups that a processor allocates in.
    claimed: GroupSet,
    groups: usize,
    processors: usize,
}

impl Areas {
    /// Areas of `processors` in a bitmap whose groups have so many free bits; a group with `None` holds
    /// nothing yet.
    pub fn new(processors: usize, groups: usize, free: impl Iterator<Item = (usize, Option<u64>)>) -> Self {
        let set = || GroupSet::new(groups);
        let areas = Self {
            fitting: std::array::from_fn(|_| set()),
            untouched: set(),
            claimed: set(),
            groups,
            processors,
        };
        for (group, free) in free {
            match free {
                Some(free) => areas.freed(group, free),
                None => areas.emptied(group),
            }
        }
        areas
    }

    /// The groups of a processor.
    pub const fn of(&self, processor: usize) -> Range<usize> {
        let start = self.groups * processor / self.processors;
        start..self.groups * (processor + 1) / self.processors
    }

    /// Bits of the groups that were used.
    pub fn used_bits(&self) -> u64 {
        (self.groups - self.untouched.len().min(self.groups)) as u64 * GROUP_BITS
    }

    /// Takes a group for a processor that may have a run of the `class`th of [`FITS`], to be given back with
    /// [`leave`](Self::leave). Of `bits`, `free_in_used` lie free in groups that were used.
    pub fn claim(&self, class: usize, processor: usize, free_in_used: u64, bits: u64) -> Option<usize> {
        let (own, all) = (self.of(processor), 0..self.groups);
        let used =
            |word| self.fitting[class].word(word) & !self.untouched.word(word) & !self.claimed.word(word);
        let new = |word| self.untouched.word(word) & !self.claimed.word(word);
        let others_first = free_in_used >= bits / SPARED_SHARE;
        loop {
            let any_used = self.fitting[class].len() > 0;
            let any_new = self.untouched.len() > 0;
            // Others' from the top: their own allocation comes from below, and not into the same partition of
            // the log.
            let others = || any_used.then(|| seek(&all, true, used)).flatten();
            let group = any_used
                .then(|| seek(&own, false, used))
                .flatten()
                .or_else(|| others_first.then(others).flatten())
                .or_else(|| any_new.then(|| seek(&own, false, new)).flatten())
                .or_else(others)
                .or_else(|| any_new.then(|| seek(&all, true, new)).flatten())?;
            if self.claimed.insert(group) {
                return Some(group);
            }
        }
    }

    /// Takes a group that others may have too: what is left is in such groups only.
    pub fn share(&self, group: usize) {
        self.claimed.insert(group);
    }

    /// A processor does not allocate in a group any more.
    pub fn leave(&self, group: usize) {
        self.claimed.remove(group);
    }

    /// Whether the device holds nothing of a group.
    pub fn is_untouched(&self, group: usize) -> bool {
        self.untouched.contains(group)
    }

    /// A group is used from now on, if it was untouched; so many bits are still free.
    pub fn touched(&self, group: usize, free: u64) {
        if self.is_untouched(group) {
            self.untouched.remove(group);
            self.freed(group, free);
        }
    }

    /// The device no longer holds anything of a group.
    pub fn emptied(&self, group: usize) {
        self.untouched.insert(group);
    }

    /// Bits of a group were freed; so many are free now.
    pub fn freed(&self, group: usize, free: u64) {
        if free < ROOM {
            return;
        }
        for (set, fit) in self.fitting.iter().zip(FITS) {
            if fit <= free {
                set.insert(group);
            }
        }
    }

    /// A group with so many free bits was found to have no run of the `class`th of [`FITS`].
    pub fn misfits(&self, group: usize, class: usize, free: u64) {
        self.touched(group, free);
        let too_long = if free < ROOM { FITS.len() } else { class + 1 };
        for set in &self.fitting[..too_long] {
            set.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use amphi_rt::{Sim, cpu};

    use super::*;
    use crate::format::LINE;
    use crate::space::bitmap::{Bitmap, GroupPlace};
    use crate::space::group_bits::Run;

    fn empty(bits: u64) -> Bitmap {
        let place = |group| GroupPlace { at: (group * LINE) as u64, fixed: 0 };
        Bitmap::load(bits, (0..).map(|group| (place(group), [0; LINE])))
    }

    #[test]
    fn groups_are_sought_within_a_range_from_either_end() {
        let set = GroupSet::new(300);
        for group in [3, 63, 64, 130, 299] {
            assert!(set.insert(group) && !set.insert(group));
        }
        let ends =
            |range: Range<usize>| [false, true].map(|highest| seek(&range, highest, |index| set.word(index)));
        assert_eq!(ends(0..300), [Some(3), Some(299)]);
        assert_eq!(ends(4..299), [Some(63), Some(130)]);
        assert_eq!(ends(64..65), [Some(64), Some(64)]);
        assert_eq!(ends(65..130), [None, None]);
        assert_eq!(ends(3..3), [None, None]);
        set.remove(299);
        set.remove(298);
        assert_eq!((set.len(), ends(131..300)), (4, [None, None]));
    }

    /// Reserves and allocates.
    fn take(map: &Bitmap, want: u64, goal: Option<u64>) -> Run {
        assert!(map.reserve(want));
        let run = map.allocate(want, goal);
        map.unreserve(want - run.len);
        run
    }

    #[test]
    fn what_was_freed_is_used_again_before_what_was_never_used() {
        Sim::new(1).run(|| {
            let map = empty(64 * GROUP_BITS);
            let area = 64 / cpu::count() as u64 * GROUP_BITS;
            let first = take(&map, 300, None);
            assert!(map.release(first));
            assert_eq!(take(&map, 300, None), first, "the same group");
            let rest: Vec<Run> = (0..3).map(|_| take(&map, GROUP_BITS, None)).collect();
            assert!(rest.iter().all(|run| run.start < area), "in the processor's own area: {rest:?}");
            assert!(map.release(first));
            assert!(map.release(rest[1]));
            assert_eq!(take(&map, 200, None).start, first.start, "the lowest that was used");
            assert_eq!(take(&map, GROUP_BITS, None).len, 312, "and what is left of it");
            assert_eq!(take(&map, GROUP_BITS, None), rest[1], "the next");
            let new = take(&map, GROUP_BITS, None).start;
            assert!(new > rest[2].start && new < area, "and then one that was not used");
        });
    }

    /// Bits of metadata at the head of a group do not make it one that was used, and freeing all else makes
    /// it untouched again.
    #[test]
    fn metadata_does_not_make_a_group_a_used_one() {
        Sim::new(1).run(|| {
            let groups = 16 * cpu::count() as u64;
            let fixed = |group: usize| if group == 3 { 100 } else { 0 };
            let lines = (0..).map(|group| {
                let mut line = [0; LINE];
                (0..fixed(group)).for_each(|bit: usize| line[bit / 8] |= 1 << (bit % 8));
                (GroupPlace { at: 0, fixed: fixed(group) as u32 }, line)
            });
            let map = Bitmap::load(groups * GROUP_BITS, lines);
            assert!(map.fixed_are_set());
            for group in 0..3 {
                assert_eq!(take(&map, GROUP_BITS, None).start, group * GROUP_BITS, "the lowest first");
            }
            let fourth = Run { start: 3 * GROUP_BITS + 100, len: GROUP_BITS - 100 };
            assert_eq!(take(&map, GROUP_BITS, None), fourth, "behind the metadata");
            assert_eq!(take(&map, GROUP_BITS, None).start, 4 * GROUP_BITS);
            assert!(map.release(fourth));
            map.trimmed(3);
            assert!(map.release(Run { start: 0, len: GROUP_BITS }));
            assert_eq!(take(&map, GROUP_BITS, None).start, 0, "the used one, not the one discarded");
            assert_eq!(take(&map, GROUP_BITS, None), fourth);
        });
    }

    #[test]
    fn a_goal_does_not_lead_into_a_group_that_was_never_used_while_there_is_another() {
        Sim::new(1).run(|| {
            let map = empty(64 * GROUP_BITS);
            let full = take(&map, GROUP_BITS, None);
            let next = full.start + GROUP_BITS;
            assert!(map.release(Run { start: full.start, len: 300 }));
            assert_eq!(take(&map, 100, Some(next)).start, full.start);
            assert_eq!(take(&map, 200, Some(next)).start, full.start + 100, "so long as it lasts");
            assert_eq!(take(&map, GROUP_BITS, Some(next)).start, next);
        });
    }

    #[test]
    fn others_areas_are_used_once_an_eighth_lies_free_in_them() {
        let processors = cpu::count().max(2);
        let (groups, area) = (64 * processors, 64);
        let untouched = || (0..groups).map(|group| (group, None));
        let bits = groups as u64 * GROUP_BITS;
        let areas = Areas::new(processors, groups, untouched());
        let others = processors - 1;
        let last = areas.of(others).end - 1;
        areas.touched(last, GROUP_BITS);
        assert_eq!(areas.claim(0, 0, bits / 8 - 1, bits), Some(0), "an untouched one of its own");
        areas.leave(0);
        assert_eq!(areas.claim(0, 0, bits / 8, bits), Some(last), "another's that was used");
        assert_eq!(areas.claim(0, 0, bits / 8, bits), Some(0), "it is taken");
        areas.touched(area - 1, GROUP_BITS);
        assert_eq!(areas.claim(0, 0, bits, bits), Some(area - 1), "its own that was used");
    }

    #[test]
    fn what_is_large_does_not_go_into_small_holes_while_there_is_room_elsewhere() {
        Sim::new(1).run(|| {
            let map = empty(16 * GROUP_BITS);
            let run = take(&map, GROUP_BITS, None);
            // Every other bit, and half of the room at the end.
            for bit in (0..GROUP_BITS / 2).step_by(2) {
                assert!(map.release(Run { start: run.start + bit, len: 1 }));
            }
            assert_eq!(take(&map, 400, None).len, 400, "one piece");
            while map.available() > GROUP_BITS / 4 {
                take(&map, GROUP_BITS.min(map.available()), None);
            }
            assert_eq!(take(&map, 100, None).len, 1, "until there is nothing else");
        });
    }
}
