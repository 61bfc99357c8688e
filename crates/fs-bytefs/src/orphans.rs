//! The orphan table: inodes that need work after a crash. An inode without names that is still referenced stands here so that the next
//! mount deletes it; one whose blocks beyond the end are being freed stands here so that the next mount goes on with that.
//!
//! A slot is 4 B; sixteen share a line. The line's lock is held from the change until the commit, as a bitmap group's is.

use amphi_rt::sync::{Mutex, MutexGuard};

use crate::format::{LINE, Layout, ORPHANS_PER_LINE, PAGE};

/// The slots of one line as the device holds them; 0 is empty.
pub type SlotLine = [u32; ORPHANS_PER_LINE];

/// The table and its free slots.
pub struct Orphans {
    lines: Box<[Mutex<SlotLine>]>,
    free: Mutex<Vec<u32>>,
    first_page: u64,
}

impl Orphans {
    /// The table whose contents, read from the device starting at `first_page`, are `bytes`.
    pub fn load(first_page: u64, bytes: &[u8]) -> Self {
        let slots = bytes.as_chunks::<4>().0;
        let mut free = Vec::new();
        let lines = slots[..Layout::orphan_slots() as usize]
            .chunks_exact(ORPHANS_PER_LINE)
            .enumerate()
            .map(|(l, chunk)| {
                let mut line = [0; ORPHANS_PER_LINE];
                for (i, slot) in chunk.iter().enumerate() {
                    line[i] = u32::from_le_bytes(*slot);
                    if line[i] == 0 {
                        free.push((l * ORPHANS_PER_LINE + i) as u32);
                    }
                }
                Mutex::new(line)
            })
            .collect();
        free.reverse();
        Self { lines, free: Mutex::new(free), first_page }
    }

    /// Takes a free slot; `None` when 16,384 inodes are waiting.
    pub fn take_slot(&self) -> Option<u32> {
        self.free.lock().pop()
    }

    /// Gives a slot back, after the transaction that emptied it (or instead of the one that would have filled it).
    pub fn return_slot(&self, slot: u32) {
        self.free.lock().push(slot);
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
