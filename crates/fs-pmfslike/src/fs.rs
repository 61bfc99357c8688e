//! [`PmfsLike`]: the mounted file system, and its operations as `vfs` names them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::PageView;
use amphi_names::{Inode, Names, note_read, read_moves_atime, regular};
use amphi_vfs::{
    Allocate, Cred, Error, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode,
};

use crate::format::{FormatError, Layout, PAGE, Superblock};
use crate::log::Log;
use crate::medium::Medium;
use crate::space::{Numbers, Space};
use crate::table::Table;

/// Why a file system could not be made or mounted.
#[derive(Debug, thiserror::Error)]
pub enum PmfsError {
    /// There is none.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] amphi_device::Error),
    /// The device cannot carry one, or an option is unknown.
    #[error("{0}")]
    Unsuitable(String),
    /// Something beyond the superblock is damaged.
    #[error(transparent)]
    Damaged(#[from] Error),
}

/// A mounted file system of PMFS's kind.
///
/// Dropping it without an unmount is a crash of the file system: what was acknowledged is there after the
/// next mount.
pub struct PmfsLike<D: PageView + 'static> {
    pub(crate) medium: Medium<D>,
    pub(crate) layout: Layout,
    pub(crate) superblock: Superblock,
    pub(crate) mounts: u64,
    pub(crate) was_clean: bool,
    pub(crate) names: Names<Self>,
    pub(crate) space: Space,
    pub(crate) numbers: Numbers,
    pub(crate) table: Table,
    pub(crate) log: Log,
    pub(crate) changes: AtomicU64,
}

impl<D: PageView + 'static> PmfsLike<D> {
    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.medium.device
    }

    /// Barriers that it has waited for: fences with their write-verify reads.
    pub fn barriers(&self) -> u64 {
        self.medium.barriers()
    }

    pub(crate) fn next_change(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::Relaxed)
    }

    fn file(&self, ino: Ino) -> Result<Arc<Inode<Self>>> {
        let inode = amphi_names::inode(self, ino)?;
        regular(inode.file_type)?;
        Ok(inode)
    }
}

impl<D: PageView + 'static> FileSystem for PmfsLike<D> {
    amphi_names::forward_names!(self => self);

    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: false, data_durable_on_return: true }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], _: bool) -> Result<usize> {
        let inode = self.file(ino)?;
        let state = inode.state.read();
        if state.gone {
            return Err(Error::Stale(ino));
        }
        let read = self.read_file(&state, offset, into)?;
        let moves = read_moves_atime(self, &state);
        drop(state);
        if moves {
            note_read(self, &inode);
        }
        Ok(read)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let inode = self.file(ino)?;
        self.names.health.writable()?;
        let mut state = inode.state.write();
        if state.gone {
            return Err(Error::Stale(ino));
        }
        if !data.is_empty() {
            let offset = if mode.append { state.size } else { offset };
            self.write_file(&inode, &mut state, offset, data, cred)?;
        }
        Ok(data.len())
    }

    fn fsync(&self, ino: Ino, _: bool) -> Result<()> {
        // Every call is durable when it returns.
        amphi_names::inode(self, ino).map(drop)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let free = self.space.available();
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: self.space.total(),
            blocks_free: free,
            blocks_available: free,
            inodes: self.layout.inodes,
            inodes_free: self.numbers.free() + (self.layout.inodes + 1 - self.table.end(&self.layout)),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = self.file(ino)?;
        let state = inode.state.read();
        if offset >= state.size {
            return Err(Error::NoData);
        }
        let mut block = offset / PAGE;
        let found = match what {
            Seek::Data => state.part.tree.blocks.next(block).map(|(block, _)| block * PAGE),
            Seek::Hole => {
                while state.part.tree.blocks.get(block).is_some() {
                    block += 1;
                }
                Some((block * PAGE).min(state.size))
            }
        };
        let found = found.filter(|at| what == Seek::Hole || *at < state.size).ok_or(Error::NoData)?;
        Ok(found.max(offset))
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let inode = self.file(ino)?;
        self.names.health.writable()?;
        if length == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let mut state = inode.state.write();
        if state.gone {
            return Err(Error::Stale(ino));
        }
        self.allocate_file(&inode, &mut state, offset, length, what, cred)
    }
}
