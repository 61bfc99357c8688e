//! Where a range of a file lies, for whoever reaches it past the file system ([`Extents`]).

use amphi_device::BlockPort;
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Error, Extents, Ino, PageRun, Result};

use crate::core::Core;
use crate::data::file::drop_range;
use crate::data::writeback::fsync;
use crate::format::BLOCK;
use crate::fs::Ext4Like;

impl<D: BlockPort + 'static> Extents for Ext4Like<D> {
    fn settle(&self, ino: Ino, offset: u64, length: u64) -> Result<Vec<PageRun>> {
        settle(self.core(), ino, offset, length)
    }
}

fn settle<D: BlockPort>(core: &Core<D>, ino: Ino, offset: u64, length: u64) -> Result<Vec<PageRun>> {
    if core.journals_data() {
        // The journal may hold older contents, and would bring them in place after a crash.
        return Err(Error::Unsupported("pages of files past the journal, with `data=journal`"));
    }
    core.writable()?;
    let inode = core.inode(ino)?;
    inode.state.read().file()?;
    fsync(core, &inode, false)?;
    drop_range(core, &inode, offset, usize::try_from(length).map_err(|_| Error::TooLarge)?);
    let state = inode.state.read();
    let (mut index, end) = (offset / BLOCK as u64, (offset + length) / BLOCK as u64);
    let mut runs: Vec<PageRun> = Vec::new();
    while index < end {
        let Mapped::At { lba: first, pages } = state.extents.map(index) else {
            return Err(Error::Invalid("the range has pages that were never written; write it first"));
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
