//! What transactions have changed and the device does not have yet: the lines of a group, newest bytes only.

use amphi_device::Structure;
use amphi_rt::hash::HashMap;
use amphi_rt::sync::{Mutex, Padded};

use crate::format::{LINE, PAGE};
use crate::planted::{self, Bug};
use crate::space::group_bits::Run;

/// A change of some bytes of one page.
pub(super) struct Update {
    /// Byte address on the device.
    pub at: u64,
    /// Where the new bytes lie among those of its transaction.
    pub bytes: std::ops::Range<usize>,
    /// What they are of.
    pub tag: Structure,
}

impl Update {
    /// Whether what begins at `at` continues it, in the same page.
    pub fn continues(&self, at: u64, tag: Structure) -> bool {
        self.tag == tag && self.at + self.bytes.len() as u64 == at && !at.is_multiple_of(PAGE as u64)
    }
}

/// A line of metadata that the device does not have yet.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub bytes: [u8; LINE],
    /// The bytes of it that changed, one bit each.
    pub changed: u64,
    pub tag: Structure,
}

/// What operations have changed, as one.
#[derive(Default)]
pub(super) struct Group {
    /// By number of line of the device.
    pub lines: HashMap<u64, Pending>,
    /// Blocks that are free once it counts.
    pub freed: Vec<Run>,
}

impl Group {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.freed.is_empty()
    }

    pub fn add(&mut self, at: u64, bytes: &[u8], tag: Structure) {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let from = (at % LINE as u64) as usize;
            let len = (LINE - from).min(bytes.len() - done);
            let line = self.lines.entry(at / LINE as u64);
            let line = line.or_insert(Pending { bytes: [0; LINE], changed: 0, tag });
            line.bytes[from..from + len].copy_from_slice(&bytes[done..done + len]);
            line.changed |= (u64::MAX >> (LINE - len)) << from;
            line.tag = tag;
            done += len;
        }
    }

    /// Its changes in the order of their addresses, each within a page, and their bytes.
    pub fn updates(&self) -> (Vec<Update>, Vec<u8>) {
        let mut numbers: Vec<u64> = self.lines.keys().copied().collect();
        numbers.sort_unstable();
        let (mut updates, mut bytes): (Vec<Update>, Vec<u8>) = (Vec::new(), Vec::new());
        for number in numbers {
            let line = &self.lines[&number];
            let mut from = 0;
            while from < LINE {
                let rest = line.changed >> from;
                from += rest.trailing_zeros() as usize;
                if from >= LINE {
                    break;
                }
                let len = ((line.changed >> from).trailing_ones() as usize).min(LINE - from);
                let at = number * LINE as u64 + from as u64;
                bytes.extend_from_slice(&line.bytes[from..from + len]);
                match updates.last_mut() {
                    Some(last) if last.continues(at, line.tag) => last.bytes.end = bytes.len(),
                    _ => updates.push(Update { at, bytes: bytes.len() - len..bytes.len(), tag: line.tag }),
                }
                from += len;
            }
        }
        (updates, bytes)
    }
}

#[derive(Default)]
pub(super) struct State {
    /// The one that operations join.
    pub running: Group,
    /// Its number: all before have been closed.
    pub number: u64,
    /// The one that is being committed.
    pub closing: Option<Group>,
    /// One could not be committed: the device and the host are apart.
    pub failed: bool,
}

/// The running group and the one before it.
#[derive(Default)]
pub struct Groups {
    pub(super) state: Padded<Mutex<State>>,
    /// Held by who commits a group: one at a time, in their order.
    pub(super) turn: Mutex<()>,
}

impl Groups {
    /// Blocks that will be free.
    pub fn freed(&self) -> u64 {
        let state = self.state.lock();
        let groups = state.closing.iter().chain([&state.running]);
        groups.flat_map(|group| &group.freed).map(|run| run.len).sum()
    }

    /// The number of the group with the newest change of some bytes of the device, if it does not count yet.
    pub(super) fn of(&self, at: u64, len: u64) -> Option<u64> {
        let state = self.state.lock();
        let has = |group: &Group| {
            (at / LINE as u64..(at + len).div_ceil(LINE as u64)).any(|line| group.lines.contains_key(&line))
        };
        if has(&state.running) {
            return Some(state.number);
        }
        state.closing.as_ref().filter(|closing| has(closing)).map(|_| state.number - 1)
    }

    /// Lines of `len` bytes from `at` that the device does not have, older ones first.
    pub(super) fn over(&self, at: u64, len: u64) -> Vec<(u64, Pending)> {
        let state = self.state.lock();
        let groups = state.closing.iter().chain([&state.running]).filter(|group| !group.lines.is_empty());
        let lines = at / LINE as u64..(at + len) / LINE as u64;
        let found = groups.flat_map(|group| {
            lines.clone().filter_map(|number| group.lines.get(&number).map(|line| (number, *line)))
        });
        if planted::has(Bug::GroupNotRead) { Vec::new() } else { found.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_last_counts_and_neighbours_travel_together() {
        let mut group = Group::default();
        group.add(100, &[1; 60], Structure::Dentry);
        group.add(120, &[2; 4], Structure::Dentry);
        group.add(192, &[3; 64], Structure::Dentry);
        group.add(4090, &[4; 6], Structure::Inode);
        group.add(4096, &[5; 8], Structure::Inode);
        let (updates, bytes) = group.updates();
        let stores: Vec<_> = updates.iter().map(|update| (update.at, update.bytes.len())).collect();
        assert_eq!(stores, [(100, 60), (192, 64), (4090, 6), (4096, 8)], "none goes beyond its page");
        let mut due = [1; 60];
        due[20..24].fill(2);
        assert_eq!(bytes[..60], due);
        group.add(160, &[6; 32], Structure::Dentry);
        assert_eq!(group.updates().0[0].bytes.len(), 156, "gaps are closed");
    }
}
