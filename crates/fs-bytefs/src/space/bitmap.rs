//! Block and inode bitmaps (BY-11). A bitmap is divided into 64 B groups of 512 bits, the unit of update by
//! bytes.
//!
//! A group's line lies in the allocation group that it is of (`format/layout.rs`).
//!
//! Each group has two copies in host DRAM. *used* says what may be handed out: it also holds what unfinished
//! transactions have taken, and what committed ones have freed leaves it only after their commit. *disk* is
//! what the device holds; it changes under the group's lock, which a transaction keeps from writing the line
//! until its commit, so that one transaction's line never carries another's bits.
//!
//! Every task allocates in the group of the processor it runs on, what lies lowest there, so that tasks on
//! different processors work in different groups, and what was freed is used again before more of the device;
//! which group comes next, `areas.rs` decides. `reserve` takes from one counter; whoever has reserved will
//! find a free bit.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, MutexGuard, Padded};

use crate::format::{GROUP_BITS, LINE};
use crate::space::areas::{Areas, FITS};
use crate::space::group_bits::{GroupBits, Run, change, first_clear, first_clear_of};

struct Group {
    used: Mutex<GroupBits>,
    /// Free bits in `used`: a hint, read without the lock.
    free: AtomicU32,
    disk: Mutex<GroupBits>,
    place: GroupPlace,
}

/// What a group is to the device.
#[derive(Clone, Copy, Debug)]
pub struct GroupPlace {
    /// Byte address of its line.
    pub at: u64,
    /// How many bits, the lowest of the group, are always set: those of metadata.
    pub fixed: u32,
}

impl Group {
    /// Whether none of `bits`, of this group, is set but those that always are, and there are others.
    fn holds_nothing(&self, bits: &GroupBits) -> bool {
        let set = bits.iter().map(|word| word.count_ones()).sum::<u32>();
        set == self.place.fixed && u64::from(set) < GROUP_BITS
    }
}

/// In place of a processor's group before it first allocates.
const NOWHERE: usize = usize::MAX;

/// One of the two bitmaps.
pub struct Bitmap {
    groups: Box<[Group]>,
    bits: u64,
    /// Free bits that nobody has reserved.
    unreserved: Padded<AtomicI64>,
    /// How many of them only [`reserve_last`](Bitmap::reserve_last) promises.
    held_back: i64,
    /// The group in which each processor allocates, or [`NOWHERE`].
    cursors: Box<[Padded<AtomicUsize>]>,
    areas: Areas,
    /// Whose turn it is in [`allocate_in_turn`](Bitmap::allocate_in_turn).
    turn: AtomicUsize,
}

impl Bitmap {
    /// A bitmap of `bits` bits. Each of its groups lies at a place, and reads so from the device.
    pub fn load(bits: u64, lines: impl Iterator<Item = (GroupPlace, [u8; LINE])>) -> Self {
        let mut free_total = 0;
        let groups: Box<[Group]> = (0..bits.div_ceil(GROUP_BITS))
            .zip(lines)
            .map(|(g, (place, line))| {
                let mut disk = GroupBits::default();
                for (word, chunk) in disk.iter_mut().zip(line.as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*chunk);
                }
                let mut used = disk;
                let end = bits - g * GROUP_BITS;
                if end < GROUP_BITS {
                    change(&mut used, Run { start: end, len: GROUP_BITS - end }, true);
                }
                let free = used.iter().map(|word| word.count_zeros()).sum::<u32>();
                free_total += i64::from(free);
                Group { used: Mutex::new(used), free: AtomicU32::new(free), disk: Mutex::new(disk), place }
            })
            .collect();
        debug_assert_eq!(groups.len() as u64, bits.div_ceil(GROUP_BITS), "there is a line for each group");
        let cpus = cpu::count().max(1);
        let cursors = (0..cpus).map(|_| Padded(AtomicUsize::new(NOWHERE))).collect();
        let free = groups.iter().map(|group| {
            let held = !group.holds_nothing(&group.disk.lock());
            held.then(|| u64::from(group.free.load(Ordering::Relaxed)))
        });
        let areas = Areas::new(cpus, groups.len(), free.enumerate());
        Self {
            groups,
            areas,
            bits,
            unreserved: Padded(AtomicI64::new(free_total)),
            held_back: 0,
            cursors,
            turn: AtomicUsize::new(0),
        }
    }

    /// Holds `bits` back for [`reserve_last`](Self::reserve_last).
    pub fn hold_back(self, bits: u64) -> Self {
        Self { held_back: bits as i64, ..self }
    }

    /// Free bits that nobody has reserved.
    pub fn free(&self) -> u64 {
        self.unreserved.load(Ordering::Relaxed).max(0) as u64
    }

    /// Those of them that are not held back.
    pub fn available(&self) -> u64 {
        self.free().saturating_sub(self.held_back as u64)
    }

    /// Bits in all.
    pub const fn bits(&self) -> u64 {
        self.bits
    }

    /// Promises `count` bits to the caller, who later allocates or [`unreserve`](Self::unreserve)s them.
    /// False if there are not as many.
    pub fn reserve(&self, count: u64) -> bool {
        self.promise(count, self.held_back)
    }

    /// As [`reserve`](Self::reserve), down to the last bit: for what must not fail for lack of space.
    pub fn reserve_last(&self, count: u64) -> bool {
        self.promise(count, 0)
    }

    fn promise(&self, count: u64, left: i64) -> bool {
        let count = count as i64;
        if self.unreserved.fetch_sub(count, Ordering::AcqRel) >= count + left {
            return true;
        }
        self.unreserved.fetch_add(count, Ordering::AcqRel);
        false
    }

    /// Gives back what was reserved and not allocated.
    pub fn unreserve(&self, count: u64) {
        if count == 0 {
            return;
        }
        self.unreserved.fetch_add(count as i64, Ordering::AcqRel);
    }

    /// Allocates 1 to `want` consecutive bits, at `goal` if that is free, of at least one that the caller has
    /// reserved. The run lies in one group. The caller's reservation shrinks by the run's length.
    pub fn allocate(&self, want: u64, goal: Option<u64>) -> Run {
        // Where a file's last group ends another begins, which may never have been used: that is decided as
        // for a new file.
        let usable = |goal: &u64| {
            *goal < self.bits
                && !(goal.is_multiple_of(GROUP_BITS) && self.areas.is_untouched((goal / GROUP_BITS) as usize))
        };
        if let Some(goal) = goal.filter(usable)
            && let Some(run) =
                self.allocate_in((goal / GROUP_BITS) as usize, goal % GROUP_BITS, want, FITS.len() - 1)
        {
            return run;
        }
        self.allocate_at(cpu::current(), want)
    }

    /// As [`allocate`](Self::allocate), one bit, in the groups of all processors in turn: for what tasks on
    /// any of them will work with.
    pub fn allocate_in_turn(&self) -> Run {
        self.allocate_at(self.turn.fetch_add(1, Ordering::Relaxed), 1)
    }

    /// Allocates 1 to `want` consecutive bits, of which the caller has reserved one, in the group of a
    /// processor.
    fn allocate_at(&self, processor: usize, want: u64) -> Run {
        let processor = processor % self.cursors.len();
        let class = FITS.iter().position(|fit| *fit <= want).unwrap_or(FITS.len() - 1);
        let mut group = self.cursors[processor].load(Ordering::Relaxed);
        if group == NOWHERE {
            group = self.areas.of(processor).start % self.groups.len();
        } else if self.groups[group].free.load(Ordering::Relaxed) > 0
            && let Some(run) = self.allocate_in(group, 0, want, class)
        {
            return run;
        }
        for class in class..FITS.len() {
            while let Some(group) = self.areas.claim(class, processor, self.free_in_used(), self.bits) {
                if let Some(run) = self.allocate_in(group, 0, want, class) {
                    self.move_to(processor, group);
                    return run;
                }
                self.areas.leave(group);
            }
        }
        // What is left is scattered, or where others allocate.
        loop {
            if self.groups[group].free.load(Ordering::Relaxed) > 0
                && let Some(run) = self.allocate_in(group, 0, want, FITS.len() - 1)
            {
                self.areas.share(group);
                self.move_to(processor, group);
                return run;
            }
            group = (group + 1) % self.groups.len();
        }
    }

    /// A processor allocates in this group from now on, which it has claimed.
    fn move_to(&self, processor: usize, group: usize) {
        let before = self.cursors[processor].swap(group, Ordering::Relaxed);
        if before != NOWHERE && before != group {
            self.areas.leave(before);
        }
    }

    /// Free bits in groups that were used, less those that metadata has in others.
    fn free_in_used(&self) -> u64 {
        self.areas.used_bits().saturating_sub(self.bits - self.free().min(self.bits))
    }

    /// Number of groups.
    pub const fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Takes all free bits of a group, as runs to be [`release`](Self::release)d; none if too few are left
    /// for others.
    pub fn take_free(&self, index: usize) -> Vec<Run> {
        let start = index as u64 * GROUP_BITS;
        let group = &self.groups[index];
        let mut used = group.used.lock();
        let free = used.iter().map(|word| u64::from(word.count_zeros())).sum::<u64>();
        if free == 0 || !self.reserve(free) {
            return Vec::new();
        }
        let mut runs = Vec::new();
        while let Some((from, len)) = first_clear(&used, 0, GROUP_BITS) {
            let run = Run { start: start + from, len };
            change(&mut used, run, true);
            runs.push(run);
        }
        group.free.fetch_sub(free as u32, Ordering::Relaxed);
        self.areas.touched(index, 0);
        runs
    }

    /// The device no longer holds anything of what is free in a group.
    pub fn trimmed(&self, index: usize) {
        let group = &self.groups[index];
        let used = group.used.lock();
        if group.holds_nothing(&used) {
            self.areas.emptied(index);
        }
    }

    /// Allocates in a group, from a bit on, a run that has at least the `class`th of [`FITS`].
    fn allocate_in(&self, index: usize, from: u64, want: u64, class: usize) -> Option<Run> {
        let group = &self.groups[index];
        let mut used = group.used.lock();
        let Some((start, len)) = first_clear_of(&used, from, FITS[class], want) else {
            if from == 0 {
                self.areas.misfits(index, class, u64::from(group.free.load(Ordering::Relaxed)));
            }
            return None;
        };
        let run = Run { start: index as u64 * GROUP_BITS + start, len };
        change(&mut used, run, true);
        let free = group.free.fetch_sub(len as u32, Ordering::Relaxed) - len as u32;
        self.areas.touched(index, u64::from(free));
        Some(run)
    }

    /// Makes bits available again: the transaction that freed them is durable, or the one that took them was
    /// given up. Returns false, and changes nothing in that group, where a bit was already free: the image
    /// claims something twice.
    #[must_use]
    pub fn release(&self, run: Run) -> bool {
        let mut sound = true;
        for (index, part) in run.by_group() {
            let Some(group) = self.groups.get(index) else { return false };
            let mut used = group.used.lock();
            let mut after = *used;
            if change(&mut after, part, false) {
                *used = after;
                let free = group.free.fetch_add(part.len as u32, Ordering::Relaxed) + part.len as u32;
                self.areas.freed(index, u64::from(free));
                self.unreserve(part.len);
            } else {
                sound = false;
            }
        }
        sound
    }

    /// Whether `bit` is in use; false beyond the end.
    pub fn is_used(&self, bit: u64) -> bool {
        bit < self.bits && {
            let word = self.groups[(bit / GROUP_BITS) as usize].used.lock()[(bit % GROUP_BITS / 64) as usize];
            word >> (bit % 64) & 1 == 1
        }
    }

    /// Locks the device's copy of a group. Locks are taken in ascending order of group.
    pub fn lock_disk(&self, group: usize) -> MutexGuard<'_, GroupBits> {
        self.groups[group].disk.lock()
    }

    /// Byte address of a group's line on the device.
    pub const fn address(&self, group: usize) -> u64 {
        self.groups[group].place.at
    }

    /// Whether every bit that is always set is set.
    pub fn fixed_are_set(&self) -> bool {
        self.groups.iter().all(|group| {
            let fixed = Run { start: 0, len: u64::from(group.place.fixed) };
            change(&mut group.used.lock().clone(), fixed, false)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A bitmap without any bit set.
    fn empty(bits: u64) -> Bitmap {
        let place = |group| GroupPlace { at: (group * LINE) as u64, fixed: 0 };
        Bitmap::load(bits, (0..).map(|group| (place(group), [0; LINE])))
    }

    #[test]
    fn hands_out_every_bit_once_and_then_refuses() {
        let map = empty(1300);
        let mut seen = BTreeSet::new();
        let mut want = 1;
        while map.available() > 0 {
            let promised = want.min(map.available());
            assert!(map.reserve(promised));
            let run = map.allocate(promised, None);
            map.unreserve(promised - run.len);
            assert!(run.start + run.len <= 1300, "{run:?} is inside");
            for bit in run.start..run.start + run.len {
                assert!(seen.insert(bit), "bit {bit} handed out twice");
            }
            want = want % 97 + 1;
        }
        assert_eq!(seen.len(), 1300);
        assert!(!map.reserve(1));
        assert!(map.release(Run { start: 500, len: 30 }));
        assert!(map.reserve(30));
        assert_eq!(map.allocate(30, Some(500)), Run { start: 500, len: 12 }, "a run stays in its group");
    }

    #[test]
    fn processors_take_turns_in_areas_of_their_own() {
        let processors = cpu::count().max(1) as u64;
        let area = 4 * GROUP_BITS;
        let map = empty(processors * area);
        assert!(map.reserve(2 * processors));
        let starts: Vec<u64> = (0..2 * processors).map(|_| map.allocate_in_turn().start).collect();
        let due: Vec<u64> = (0..2 * processors).map(|n| n % processors * area + n / processors).collect();
        assert_eq!(starts, due);
    }

    #[test]
    fn a_group_that_was_trimmed_counts_as_never_used() {
        let map = empty(4 * GROUP_BITS);
        assert!(map.reserve(GROUP_BITS));
        let run = map.allocate(GROUP_BITS, None);
        assert!(map.release(run));
        let group = (run.start / GROUP_BITS) as usize;
        assert!(!map.areas.is_untouched(group));
        let taken = map.take_free(group);
        assert!(taken.iter().all(|run| map.release(*run)));
        map.trimmed(group);
        assert!(map.areas.is_untouched(group));
        assert_eq!(map.free_in_used(), 0);
    }

    #[test]
    fn the_goal_is_met_when_free() {
        let map = empty(4096);
        assert!(map.reserve(20));
        assert_eq!(map.allocate(10, Some(1000)), Run { start: 1000, len: 10 });
        assert_eq!(map.allocate(10, Some(1005)).start, 1010, "and else the next free bits of its group");
    }

    #[test]
    fn runs_split_at_groups() {
        let parts: Vec<_> = Run { start: 510, len: 600 }.by_group().collect();
        assert_eq!(
            parts,
            [
                (0, Run { start: 510, len: 2 }),
                (1, Run { start: 512, len: 512 }),
                (2, Run { start: 1024, len: 86 })
            ]
        );
    }

    #[test]
    fn a_double_free_is_noticed_and_not_counted() {
        let map = empty(512);
        assert!(map.reserve(1));
        let run = map.allocate(1, None);
        assert!(map.release(run));
        assert!(!map.release(run));
        assert_eq!(map.available(), 512);
    }
}
