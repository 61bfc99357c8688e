//! Groups of transactions (`metadata=grouped`, ByteFS §4.8): an operation on metadata joins the running
//! group in host memory, and `fsync`, `sync`, a full group or the next interval commit the group as one
//! transaction of the firmware.
//!
//! The order of joins is the order of operations: whoever joins holds the locks of what it changes, and its
//! lines replace those that earlier operations left. Groups are committed one after another, each as a whole,
//! so what a crash leaves is what some number of operations had done, and no later one. Blocks that an
//! operation frees are used again once its group counts: before that, a crash brings them back to who had
//! them.
//!
//! Until then the device does not know what a group holds, so whoever reads metadata from it has these lines
//! laid over ([`Base::read_metadata`]). What is read is locked or not yet in memory, and nobody changes it
//! meanwhile; so the lines are taken before the device is asked, since a commit in between only brings them
//! there.

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_rt::hash::HashMap;
use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::{Error, Result};

use crate::base::Base;
use crate::commit::tx::{self, Update};
use crate::format::{LINE, PAGE};
use crate::options::MetadataMode;
use crate::planted::{self, Bug};
use crate::space::bitmap::Run;

/// A line of metadata that the device does not have yet.
#[derive(Clone, Copy)]
struct Pending {
    bytes: [u8; LINE],
    /// The bytes of it that changed, one bit each.
    changed: u64,
    tag: Structure,
}

/// What operations have changed, as one.
#[derive(Default)]
struct Group {
    /// By number of line of the device.
    lines: HashMap<u64, Pending>,
    /// Blocks that are free once it counts.
    freed: Vec<Run>,
}

impl Group {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.freed.is_empty()
    }

    fn add(&mut self, at: u64, bytes: &[u8], tag: Structure) {
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
    fn updates(&self) -> (Vec<Update>, Vec<u8>) {
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
struct State {
    /// The one that operations join.
    running: Group,
    /// Its number: all before have been closed.
    number: u64,
    /// The one that is being committed.
    closing: Option<Group>,
    /// One could not be committed: the device and the host are apart.
    failed: bool,
}

/// The running group and the one before it.
#[derive(Default)]
pub struct Groups {
    state: Padded<Mutex<State>>,
    /// Held by who commits a group: one at a time, in their order.
    turn: Mutex<()>,
}

impl Groups {
    /// Blocks that will be free.
    pub fn freed(&self) -> u64 {
        let state = self.state.lock();
        let groups = state.closing.iter().chain([&state.running]);
        groups.flat_map(|group| &group.freed).map(|run| run.len).sum()
    }

    /// The number of the group with the newest change of some bytes of the device, if it does not count yet.
    fn of(&self, at: u64, len: u64) -> Option<u64> {
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
    fn over(&self, at: u64, len: u64) -> Vec<(u64, Pending)> {
        let state = self.state.lock();
        let groups = state.closing.iter().chain([&state.running]).filter(|group| !group.lines.is_empty());
        let lines = at / LINE as u64..(at + len) / LINE as u64;
        let found = groups.flat_map(|group| {
            lines.clone().filter_map(|number| group.lines.get(&number).map(|line| (number, *line)))
        });
        if planted::has(Bug::GroupNotRead) { Vec::new() } else { found.collect() }
    }
}

impl<D: BlockPort + WriteLog> Base<D> {
    /// Whether operations on metadata join a group.
    #[inline]
    pub fn groups_metadata(&self) -> bool {
        self.options.metadata == MetadataMode::Grouped
    }

    /// Adds a transaction to the running group. Whoever calls it holds what guards these bytes, and then
    /// calls [`commit_full_group`](Self::commit_full_group).
    pub(super) fn join_group(&self, updates: &[Update], bytes: &[u8], freed: &[Run]) {
        let mut state = self.groups.state.lock();
        for update in updates {
            state.running.add(update.at, &bytes[update.bytes.clone()], update.tag);
        }
        state.running.freed.extend_from_slice(freed);
    }

    /// Commits the running group if it holds as much as it may.
    ///
    /// # Errors
    /// As [`commit_groups`](Self::commit_groups).
    pub(super) fn commit_full_group(&self) -> Result<()> {
        let full = {
            let state = self.groups.state.lock();
            (state.running.lines.len() * LINE >= self.options.group_bytes).then_some(state.number)
        };
        full.map_or(Ok(()), |number| self.commit_through(number))
    }

    /// Makes durable what has been done to an inode, if that is in a group, and what was done before it.
    ///
    /// # Errors
    /// As [`commit_groups`](Self::commit_groups).
    pub fn commit_inode(&self, ino: u32) -> Result<()> {
        if !self.groups_metadata() || planted::has(Bug::FsyncLeavesGroup) {
            return Ok(());
        }
        let at = self.layout.inode_address(ino);
        self.groups.of(at, 2 * LINE as u64).map_or(Ok(()), |number| self.commit_through(number))
    }

    /// Makes durable what all operations so far have done.
    ///
    /// # Errors
    /// [`Error::Io`], and the file system has then turned read-only; [`Error::ReadOnly`] if it had before.
    pub fn commit_groups(&self) -> Result<()> {
        if !self.groups_metadata() {
            return Ok(());
        }
        let number = self.groups.state.lock().number;
        self.commit_through(number)
    }

    /// Commits the groups up to this one, unless others have.
    fn commit_through(&self, number: u64) -> Result<()> {
        let _turn = self.groups.turn.lock();
        let (updates, bytes) = {
            let mut state = self.groups.state.lock();
            if state.failed {
                return Err(Error::ReadOnly);
            }
            if state.number > number || state.running.is_empty() {
                return Ok(());
            }
            state.number += 1;
            let closing = std::mem::take(&mut state.running);
            let updates = closing.updates();
            state.closing = Some(closing);
            updates
        };
        let stored = self.store_group(&updates, &bytes);
        let mut state = self.groups.state.lock();
        if let Err(error) = stored {
            // It is still laid over what is read.
            state.failed = true;
            drop(state);
            self.fail(&error);
            return Err(error);
        }
        let freed = state.closing.take().map(|group| group.freed).unwrap_or_default();
        drop(state);
        if freed.iter().all(|run| self.blocks.release(*run)) {
            return Ok(());
        }
        let error = Error::corrupt("bitmaps", None, "blocks are claimed twice");
        self.fail(&error);
        Err(error)
    }

    fn store_group(&self, updates: &[Update], bytes: &[u8]) -> Result<()> {
        if planted::has(Bug::GroupOutOfOrder) {
            let (first, last) = updates.split_at(updates.len() / 2);
            tx::store_and_commit(self, last, bytes)?;
            return tx::store_and_commit(self, first, bytes);
        }
        tx::store_and_commit(self, updates, bytes)
    }

    /// Reads pages of metadata as operations so far have left them.
    ///
    /// # Errors
    /// The device's.
    pub fn read_metadata(&self, lpa: Lpa, into: &mut [u8], tag: Structure) -> amphi_device::Result<()> {
        debug_assert!(into.len().is_multiple_of(PAGE), "the block port reads pages");
        let at = lpa.byte(0);
        let over = if self.groups_metadata() { self.groups.over(at, into.len() as u64) } else { Vec::new() };
        self.device.read(lpa, into, tag)?;
        for (number, line) in over {
            let from = (number * LINE as u64 - at) as usize;
            for (byte, new) in into[from..from + LINE]
                .iter_mut()
                .zip(line.bytes)
                .enumerate()
                .filter_map(|(bit, pair)| (line.changed >> bit & 1 == 1).then_some(pair))
            {
                *byte = new;
            }
        }
        Ok(())
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
