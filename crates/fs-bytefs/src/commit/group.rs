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
use amphi_vfs::{Error, Result};

use crate::base::Base;
use crate::commit::pending::Update;
use crate::commit::tx;
use crate::format::{LINE, PAGE};
use crate::options::MetadataMode;
use crate::planted::{self, Bug};
use crate::space::group_bits::Run;

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
