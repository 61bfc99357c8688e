//! Where a range of a file lies, for whoever reaches it past the file system ([`Extents`]).

use amphi_device::BlockPort;
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Allocate, Error, Extents, Ino, PageRun, Result};

use crate::core::Core;
use crate::data::allocate::allocate;
use crate::data::file::drop_range;
use crate::data::writeback::{fsync, settled};
use crate::format::BLOCK;
use crate::fs::Ext4Like;

impl<D: BlockPort + 'static> Extents for Ext4Like<D> {
    fn settle(&self, ino: Ino, offset: u64, length: u64) -> Result<Vec<PageRun>> {
        settle(self.core(), ino, offset, length, false)
    }

    fn place(&self, ino: Ino, offset: u64, length: u64) -> Result<Vec<PageRun>> {
        settle(self.core(), ino, offset, length, true)
    }

    fn landed(&self, ino: Ino, offset: u64, length: u64, size: u64) -> Result<()> {
        landed(self.core(), ino, offset, length, size)
    }

    fn allocate_unnoticed(&self, ino: Ino, offset: u64, length: u64, what: Allocate) -> Result<()> {
        allocate(self.core(), ino, offset, length, what, None)
    }

    fn identity(&self) -> [u8; 16] {
        self.info().uuid
    }
}

/// The block of a byte.
fn block(at: u64) -> Result<u32> {
    u32::try_from(at / BLOCK as u64).map_err(|_| Error::TooLarge)
}

fn settle<D: BlockPort>(
    core: &Core<D>,
    ino: Ino,
    offset: u64,
    length: u64,
    also_reserved: bool,
) -> Result<Vec<PageRun>> {
    if core.journals_data() {
        // The journal may hold older contents, and would bring them in place after a crash.
        return Err(Error::Unsupported("pages of files past the journal, with `data=journal`"));
    }
    core.writable()?;
    let inode = core.inode(ino)?;
    inode.state.read().body.file()?;
    fsync(core, &inode, false)?;
    drop_range(core, &inode, offset, usize::try_from(length).map_err(|_| Error::TooLarge)?);
    let state = inode.state.read();
    let page = |at: u64| at / BLOCK as u64;
    let (mut index, end) = (page(offset), page(offset.checked_add(length).ok_or(Error::TooLarge)?));
    let mut runs: Vec<PageRun> = Vec::new();
    while index < end {
        let (first, pages) = match state.extents.map(index) {
            Mapped::At { lba, pages } => (lba, pages),
            Mapped::Unwritten { lba, pages } if also_reserved => (lba, pages),
            _ => return Err(Error::Invalid("the range has pages that were never written; write it first")),
        };
        let pages = pages.min(end - index);
        match runs.last_mut() {
            Some(run) if run.first + run.pages == first => run.pages += pages,
            _ => runs.push(PageRun { first, pages }),
        }
        index += pages;
    }
    Ok(runs)
}

/// Blocks that saying so may change: the inode, and leaves of its extent tree.
const CREDITS: usize = 32;

fn landed<D: BlockPort>(core: &Core<D>, ino: Ino, offset: u64, length: u64, size: u64) -> Result<()> {
    core.writable()?;
    let inode = core.inode(ino)?;
    {
        let mut state = settled(&inode);
        state.body.file()?;
        let (first, end) = (block(offset)?, block(offset.checked_add(length).ok_or(Error::TooLarge)?)?);
        let (mut index, mut is_reserved) = (first, false);
        while index < end {
            let mapped = state.extents.map(u64::from(index));
            if matches!(mapped, Mapped::Hole { .. }) {
                return Err(Error::Invalid("the range has pages that were never reserved"));
            }
            is_reserved |= matches!(mapped, Mapped::Unwritten { .. });
            index = index.saturating_add(u32::try_from(mapped.pages()).unwrap_or(u32::MAX));
        }
        if !is_reserved && size <= state.size_on_disk {
            return Ok(());
        }
        let mut handle = core.handle(CREDITS)?;
        state.extents.mark(first, end, false);
        (state.size, state.size_on_disk) = (state.size.max(size), state.size_on_disk.max(size));
        state.body.file_mut()?.version += 1;
        handle.write_inode(&inode, &mut state, true)?;
        handle.finish();
    }
    fsync(core, &inode, true)
}
