//! `sync` of the whole file system, in the order in which the kernel's sync_filesystem() calls ext4.
//!
//! In ordered mode that makes two commits where there are new data, and one where there are none; what the
//! steps are called there stands beside each. The kernel's steps run in threads of their own, so that on a
//! device without delays their order is a matter of chance; this is the order that they have on a device
//! whose writes take longer than a thread's wake-up. docs/validation.md has the trace.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_vfs::Result;
use amphi_volume::io_error;

use crate::core::Core;
use crate::data::writeback::{Allocation, arrive, depart_together};
use crate::index::part::Inode;

impl<D: BlockPort> Core<D> {
    /// Makes everything durable: data, then the journal, then what the journal holds in place.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn sync_all(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let is_flushed = if self.journals_data() { self.sync_journaled()? } else { self.sync_ordered()? };
        self.sound()?;
        // ext4_sync_fs() with wait: a flush of its own, unless the commit that it waits for flushes the
        // device after the data.
        if !is_flushed {
            self.device.flush().map_err(io_error)?;
        }
        // sync_blockdev(): what has been committed, in place.
        self.write_in_place(u64::MAX, false)
    }

    /// Ordered mode. Returns whether the device was flushed after the last write.
    fn sync_ordered(&self) -> Result<bool> {
        let dirty = self.dirty_since(u64::MAX);
        let has_committed = self.sync_data(&dirty)?;
        // What somebody else had.
        self.write_back_files(u64::MAX)?;
        // ext4_sync_fs() with wait: what the ends of the writes have put into the next transaction.
        let commits_again = self.commit_running()?;
        Ok(commits_again || (has_committed && dirty.is_empty()))
    }

    /// Writes data, and commits what the writes began with while they are on their way. Returns whether there
    /// was anything to commit.
    fn sync_data(&self, inodes: &[Arc<Inode>]) -> Result<bool> {
        let mut has_committed = None;
        while has_committed.is_none() {
            let mut waiting = inodes.iter().peekable();
            let mut leaves_some = false;
            loop {
                // writeback_inodes_sb(): blocks are allocated as unwritten ones
                // (ext4_should_dioread_nolock()), and the writes started.
                let round =
                    depart_together(self, std::iter::from_fn(|| waiting.next()), Allocation::Unwritten)?;
                leaves_some |= round.leaves_some;
                let is_last = waiting.peek().is_none() && !leaves_some;
                // ext4_sync_fs() without wait starts a commit. sync_inodes_sb() then waits for the writes,
                // whose ends convert the extents in handles of the next transaction, since the one that
                // allocated is closed by then.
                arrive(self, &round.departures, || {
                    if is_last {
                        has_committed = Some(self.commit_running()?);
                    }
                    Ok(())
                })?;
                if round.departures.is_empty() || waiting.peek().is_none() {
                    break;
                }
            }
        }
        Ok(has_committed.unwrap_or(false))
    }

    /// Full data journaling. Returns whether the device was flushed after the last write.
    fn sync_journaled(&self) -> Result<bool> {
        self.write_back_files(u64::MAX)?;
        // ext4_sync_fs() without wait starts the commit, for which ext4_do_writepages(), called by
        // sync_inodes_sb(), waits before it writes the data in place.
        let has_committed = self.commit_running()?;
        if self.write_data_in_place(std::slice::from_ref(&(0..u64::MAX)))? == 0 {
            return Ok(has_committed);
        }
        // That has a handle open (mpage_prepare_extent_to_map()), in which it changes nothing; but jbd2
        // commits a transaction that a handle has opened, which ext4_sync_fs() with wait then asks for.
        let mut handle = self.handle(1)?;
        handle.want_commit();
        handle.finish();
        self.commit_running()
    }
}
