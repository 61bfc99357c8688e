//! The orphan table: inodes that need work after a crash. An inode without names that is still referenced
//! stands here so that the next mount deletes it; one whose blocks beyond the end are being freed stands here
//! so that the next mount goes on with that.
//!
//! A slot is 4 B; sixteen share a line. The line's lock is held from the change until the commit, as a bitmap
//! group's is.

use amphi_rt::sync::{Mutex, MutexGuard};

use crate::format::{LINE, Layout, ORPHANS_PER_LINE, PAGE};

/// The slots of one line as the device holds them; 0 is empty.
pub type SlotLine = [u32; ORPHANS_PER_LINE];

/// The table and its free slots.
pub struct Orphans {
    lines: Box<[Mutex<SlotLine>]>,
    free: Mutex<Free>,
    /// Slots that were filled when the table was read, ascending, and their inodes.
    found: Vec<(u32, u32)>,
    first_page: u64,
}

/// Free slots. Nearly all of 16,384 are, so they are not listed.
#[derive(Debug, Default)]
struct Free {
    /// Slots that were taken and came back: the last is taken first.
    returned: Vec<u32>,
    /// From here on no slot was ever taken. Those found filled are not free.
    untaken: u32,
    /// How many of the slots found filled lie before that.
    passed: usize,
}

impl Orphans {
    /// The table whose contents, read from the device starting at `first_page`, are `bytes`.
    pub fn load(first_page: u64, bytes: &[u8]) -> Self {
        let mut found = Vec::new();
        let lines = bytes.as_chunks::<LINE>().0[..Layout::orphan_slots() as usize / ORPHANS_PER_LINE]
            .iter()
            .zip((0..).step_by(ORPHANS_PER_LINE))
            .map(|(raw, first)| {
                let mut line = [0; ORPHANS_PER_LINE];
                // As good as all are empty, at every mount.
                if *raw != [0; LINE] {
                    for (slot, (ino, raw)) in (first..).zip(line.iter_mut().zip(raw.as_chunks::<4>().0)) {
                        *ino = u32::from_le_bytes(*raw);
                        if *ino != 0 {
                            found.push((slot, *ino));
                        }
                    }
                }
                Mutex::new(line)
            })
            .collect();
        Self { lines, free: Mutex::default(), found, first_page }
    }

    /// The slots that were filled when the table was read, as (slot, inode).
    pub fn found(&self) -> &[(u32, u32)] {
        &self.found
    }

    /// Takes a free slot; `None` when 16,384 inodes are waiting.
    pub fn take_slot(&self) -> Option<u32> {
        let mut free = self.free.lock();
        if let Some(slot) = free.returned.pop() {
            return Some(slot);
        }
        while self.found.get(free.passed).is_some_and(|(slot, _)| *slot == free.untaken) {
            free.passed += 1;
            free.untaken += 1;
        }
        let slot = free.untaken;
        (slot < Layout::orphan_slots()).then(|| {
            free.untaken += 1;
            slot
        })
    }

    /// Gives a slot back, after the transaction that emptied it (or instead of the one that would have filled
    /// it).
    pub fn return_slot(&self, slot: u32) {
        self.free.lock().returned.push(slot);
    }

    /// The line of a slot and the slot's byte address on the device.
    pub fn place(&self, slot: u32) -> (usize, u64) {
        let line = slot as usize / ORPHANS_PER_LINE;
        let at = self.first_page * PAGE as u64
            + (line * LINE) as u64
            + u64::from(slot % ORPHANS_PER_LINE as u32) * 4;
        (line, at)
    }

    /// Locks a line. Locks are taken in ascending order.
    pub fn lock(&self, line: usize) -> MutexGuard<'_, SlotLine> {
        self.lines[line].lock()
    }

    /// Every filled slot, as (slot, inode).
    pub fn filled(&self) -> Vec<(u32, u32)> {
        let mut filled = Vec::new();
        for (l, line) in self.lines.iter().enumerate() {
            for (i, ino) in line.lock().iter().enumerate().filter(|(_, ino)| **ino != 0) {
                filled.push(((l * ORPHANS_PER_LINE + i) as u32, *ino));
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ORPHAN_PAGES;

    #[test]
    fn free_slots_are_taken_in_order_but_for_those_found_filled() {
        let mut bytes = vec![0; ORPHAN_PAGES as usize * PAGE];
        for slot in [0, 1, 3, 17] {
            bytes[slot * 4..][..4].copy_from_slice(&(slot as u32 + 100).to_le_bytes());
        }
        let table = Orphans::load(7, &bytes);
        assert_eq!(table.found(), [(0, 100), (1, 101), (3, 103), (17, 117)]);
        assert_eq!(table.filled(), table.found());
        assert_eq!([2, 4, 5].map(Some), std::array::from_fn(|_| table.take_slot()));
        table.return_slot(4);
        table.return_slot(17);
        assert_eq!([17, 4, 6].map(Some), std::array::from_fn(|_| table.take_slot()));
        let left = std::iter::from_fn(|| table.take_slot()).count() as u32;
        assert_eq!(left, Layout::orphan_slots() - 7 - 1, "0 to 6 and 17 are taken");
        assert_eq!(*table.lock(1), [0, 117, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
