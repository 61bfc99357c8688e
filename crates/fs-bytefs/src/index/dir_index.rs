//! The index of a directory's entries by hashed name, in host DRAM: buckets of one line of the processor's
//! cache each.
//!
//! A bucket holds up to seven entries with a byte of each one's hash, so that finding an entry in a directory
//! that no cache holds waits for one line of memory where a table with its tags apart waits for two. An entry
//! that finds its bucket full goes to the next one that is not; every bucket passed counts it, and a search
//! ends at the first bucket that none passed.

/// Entries in a bucket.
const ENTRIES: usize = 7;
/// Entries for each bucket, on average, beyond which the table doubles.
const FILL: usize = 5;

/// An entry: where it is, and its inode's number, which is known so before its line has come from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// First line of the entry in the directory.
    pub line: u32,
    /// Its inode.
    pub ino: u32,
}

#[repr(C, align(64))]
#[derive(Clone, Default)]
struct Bucket {
    /// Of each entry a byte of its hash, never 0; 0 where there is none.
    tags: [u8; ENTRIES],
    /// Entries that found this bucket full; once 255, it is not known how many.
    passed: u8,
    slots: [Slot; ENTRIES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// The index.
#[derive(Default)]
pub struct DirIndex {
    /// A power of two of them, or none.
    buckets: Vec<Bucket>,
    len: usize,
}

/// A byte of a hash that is not 0, from bits that do not choose the bucket.
const fn tag_of(hash: u64) -> u8 {
    (hash >> 57) as u8 | 0x80
}

impl DirIndex {
    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Buckets from the one of `hash` on, all of them once.
    fn way(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let count = self.buckets.len();
        let first = hash as usize;
        (0..count).map(move |step| first.wrapping_add(step) & (count - 1))
    }

    /// Where the entry is that has this hash and for which `wanted` holds: bucket and place in it.
    fn place(&self, hash: u64, mut wanted: impl FnMut(Slot) -> bool) -> Option<(usize, usize)> {
        let tag = tag_of(hash);
        for at in self.way(hash) {
            let bucket = &self.buckets[at];
            for (number, _) in bucket.tags.iter().enumerate().filter(|(_, other)| **other == tag) {
                if wanted(bucket.slots[number]) {
                    return Some((at, number));
                }
            }
            if bucket.passed == 0 {
                return None;
            }
        }
        None
    }

    /// The entry that has this hash and for which `wanted` holds.
    pub fn find(&self, hash: u64, wanted: impl FnMut(Slot) -> bool) -> Option<Slot> {
        self.place(hash, wanted).map(|(bucket, number)| self.buckets[bucket].slots[number])
    }

    /// Adds an entry; `hash_of` tells the hashes of those that are there.
    pub fn insert(&mut self, hash: u64, slot: Slot, hash_of: impl Fn(Slot) -> u64) {
        if self.len >= self.buckets.len() * FILL {
            let doubled = vec![Bucket::default(); (2 * self.buckets.len()).max(1)];
            for bucket in std::mem::replace(&mut self.buckets, doubled) {
                for (_, slot) in bucket.tags.into_iter().zip(bucket.slots).filter(|(tag, _)| *tag != 0) {
                    self.put(hash_of(slot), slot);
                }
            }
        }
        self.put(hash, slot);
        self.len += 1;
    }

    fn put(&mut self, hash: u64, slot: Slot) {
        for at in self.way(hash) {
            let bucket = &mut self.buckets[at];
            if let Some(number) = bucket.tags.iter().position(|tag| *tag == 0) {
                bucket.tags[number] = tag_of(hash);
                bucket.slots[number] = slot;
                return;
            }
            bucket.passed = bucket.passed.saturating_add(1);
        }
        unreachable!("the table doubles before it is full");
    }

    /// Removes the entry in this line, which has this hash.
    pub fn remove(&mut self, hash: u64, line: u32) {
        let Some((holder, number)) = self.place(hash, |slot| slot.line == line) else { return };
        for at in self.way(hash).take_while(|at| *at != holder) {
            let passed = &mut self.buckets[at].passed;
            if *passed < u8::MAX {
                *passed -= 1;
            }
        }
        self.buckets[holder].tags[number] = 0;
        self.len -= 1;
    }

    /// Makes the entry in this line, which has this hash, one of another inode.
    pub fn set_inode(&mut self, hash: u64, line: u32, ino: u32) {
        if let Some((bucket, number)) = self.place(hash, |slot| slot.line == line) {
            self.buckets[bucket].slots[number].ino = ino;
        }
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few buckets, so that many entries pass full ones.
    fn crowded(line: u32) -> u64 {
        u64::from(line % 3) | u64::from(line % 5) << 57
    }

    #[test]
    fn entries_are_found_until_they_are_removed_however_crowded() {
        for (hash, entries) in [
            (crowded as fn(u32) -> u64, 700),
            (|line| u64::from(line).wrapping_mul(0x9E37_79B9_7F4A_7C15), 5000),
        ] {
            let mut index = DirIndex::default();
            let find = |index: &DirIndex, line| index.find(hash(line), |slot| slot.line == line);
            for line in 0..entries {
                index.insert(hash(line), Slot { line, ino: line + 7 }, |slot| hash(slot.line));
            }
            for line in (0..entries).filter(|line| line % 3 != 1) {
                index.remove(hash(line), line);
            }
            for line in 0..entries {
                let expected = (line % 3 == 1).then_some(Slot { line, ino: line + 7 });
                assert_eq!(find(&index, line), expected, "line {line}");
            }
            for line in (0..entries).filter(|line| line % 3 == 1) {
                index.set_inode(hash(line), line, 5);
                assert_eq!(find(&index, line), Some(Slot { line, ino: 5 }));
                index.remove(hash(line), line);
            }
            assert!(index.is_empty());
            let left = index.buckets.iter().filter(|bucket| bucket.passed > 0 && bucket.passed < u8::MAX);
            assert_eq!(left.count(), 0, "who left is not counted any more");
        }
    }
}
