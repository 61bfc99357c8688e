//! [`NovaLike`]: the mounted file system, and its operations as `vfs` names them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::PageView;
use amphi_names::{Inode, Names, note_read, read_moves_atime, regular};
use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::{
    Allocate, Cred, Error, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode,
};

use crate::format::{FormatError, Layout, PAGE, Superblock};
use crate::journal::Journal;
use crate::medium::Medium;
use crate::space::Space;

/// Why a file system could not be made or mounted.
#[derive(Debug, thiserror::Error)]
pub enum NovaError {
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

/// A mounted file system of NOVA's kind.
///
/// Dropping it without an unmount is a crash of the file system: what was acknowledged is there after the
/// next mount.
pub struct NovaLike<D: PageView + 'static> {
    pub(crate) medium: Medium<D>,
    pub(crate) layout: Layout,
    pub(crate) superblock: Superblock,
    pub(crate) mounts: u64,
    pub(crate) was_clean: bool,
    pub(crate) names: Names<Self>,
    pub(crate) space: Space,
    pub(crate) inodes: Numbers,
    pub(crate) journal: Journal,
    pub(crate) changes: AtomicU64,
    pub(crate) unlinked: AtomicU64,
    pub(crate) rewritten: AtomicU64,
}

/// Free numbers of inodes: a stack for each processor.
pub struct Numbers {
    parts: Box<[Padded<Mutex<Vec<u32>>>]>,
    free: AtomicU64,
}

impl Numbers {
    /// Those that `is_free`, dealt out in runs.
    pub fn new(layout: &Layout, is_free: impl Fn(u64) -> bool) -> Self {
        let lanes = layout.lanes as usize;
        let mut parts = vec![Vec::new(); lanes];
        let run = (layout.inodes / layout.lanes).max(1);
        let mut free = 0;
        for ino in (1..=layout.inodes).rev().filter(|ino| is_free(*ino)) {
            parts[((ino - 1) / run) as usize % lanes].push(ino as u32);
            free += 1;
        }
        Self {
            parts: parts.into_iter().map(|part| Padded(Mutex::new(part))).collect(),
            free: AtomicU64::new(free),
        }
    }

    /// Takes a number, the processor's own first.
    pub fn take(&self) -> Option<Ino> {
        let own = cpu::current() % self.parts.len();
        let mut order = (own..self.parts.len()).chain(0..own);
        let ino = order.find_map(|part| self.parts[part].0.lock().pop())?;
        self.free.fetch_sub(1, Ordering::AcqRel);
        Some(Ino(ino.into()))
    }

    /// Gives one back.
    pub fn give(&self, ino: Ino) {
        self.parts[cpu::current() % self.parts.len()].0.lock().push(ino.0 as u32);
        self.free.fetch_add(1, Ordering::AcqRel);
    }

    /// How many are free.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }
}

impl<D: PageView + 'static> NovaLike<D> {
    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.medium.device
    }

    /// Barriers that it has waited for: fences with their write-verify reads.
    pub fn barriers(&self) -> u64 {
        self.medium.barriers()
    }

    /// Pages that collection has freed: unlinked ones, and those of logs that were written anew.
    pub fn pages_collected(&self) -> (u64, u64) {
        (self.unlinked.load(Ordering::Relaxed), self.rewritten.load(Ordering::Relaxed))
    }

    pub(crate) fn collected(&self, pages: u64, anew: bool) {
        let counter = if anew { &self.rewritten } else { &self.unlinked };
        counter.fetch_add(pages, Ordering::Relaxed);
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

impl<D: PageView + 'static> FileSystem for NovaLike<D> {
    amphi_names::forward_names!(self => self);

    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: true, data_durable_on_return: true }
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
            inodes_free: self.inodes.free(),
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
            Seek::Data => state.part.blocks.next(block).map(|(block, _)| block * PAGE),
            Seek::Hole => {
                while state.part.blocks.get(block).is_some() {
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
