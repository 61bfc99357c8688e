//! The toy as a file system: names by `amphi-names`, the contents of files page by page in the map.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_names::{Change, Changed, move_atime, note_write, read_moves_atime, regular, shed_capability};
use amphi_vfs::{
    Allocate, Cred, Error, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode,
};

use crate::map::{Key, PAGE, Value};
use crate::store::{FILE_BYTES_MAX, INODES, Inode, State, Toy};

const PAGE_BYTES: u64 = PAGE as u64;

impl<D: BlockPort + 'static> Toy<D> {
    fn file(&self, ino: Ino) -> Result<Arc<Inode>> {
        let inode = amphi_names::inode(self, ino)?;
        regular(inode.file_type)?;
        Ok(inode)
    }

    fn has_page(&self, ino: Ino, page: u64) -> bool {
        self.map.get(&Key::Page(ino, page), |_| ()).is_some()
    }

    /// The pages of `first .. end` that are no holes.
    fn pages_in(&self, ino: Ino, first: u64, end: u64) -> Vec<u64> {
        let mut pages = Vec::new();
        self.map.scan(Key::Page(ino, first), Key::Page(ino, end - 1), |key, _| {
            pages.extend(if let Key::Page(_, page) = key { Some(*page) } else { None });
            true
        });
        pages
    }

    /// Calls `body` with each page that `offset .. end` touches and the part of it that lies in there.
    fn by_page(offset: u64, end: u64, mut body: impl FnMut(u64, std::ops::Range<usize>)) {
        let mut at = offset;
        while at < end {
            let (page, from) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let len = (PAGE - from).min((end - at) as usize);
            body(page, from..from + len);
            at += len as u64;
        }
    }

    /// Takes pages for the holes in `offset .. end`. Returns which pages those are.
    fn take_holes(&self, ino: Ino, state: &mut State, offset: u64, end: u64) -> Result<Vec<u64>> {
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let there = self.pages_in(ino, pages.start, pages.end);
        let holes = pages.end - pages.start - there.len() as u64;
        self.take_pages(holes)?;
        state.pages += holes;
        Ok(pages.filter(|page| there.binary_search(page).is_err()).collect())
    }

    fn write_locked(
        &self,
        inode: &Inode,
        state: &mut State,
        offset: u64,
        data: &[u8],
        cred: &Cred,
    ) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        shed_capability(self, inode, state)?;
        self.take_holes(inode.ino, state, offset, end)?;
        let mut change = self.batch();
        let mut rest = data;
        Self::by_page(offset, end, |page, range| {
            let (part, behind) = rest.split_at(range.len());
            change.edit(inode.ino, page, |bytes| bytes[range].copy_from_slice(part));
            rest = behind;
        });
        state.size = state.size.max(end);
        note_write(self, state, cred);
        change.write_inode(inode, state, Changed::Contents)?;
        change.commit()
    }
}

impl<D: BlockPort + 'static> FileSystem for Toy<D> {
    amphi_names::forward_names!(self => self);

    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: true, data_durable_on_return: true }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], _: bool) -> Result<usize> {
        let inode = self.file(ino)?;
        let mut state = inode.state.write();
        let len = state.size.saturating_sub(offset).min(into.len() as u64);
        let mut rest = &mut into[..len as usize];
        Self::by_page(offset, offset + len, |page, range| {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(range.len());
            part.fill(0);
            self.map.get(&Key::Page(ino, page), |value| match value {
                Value::Page(bytes) => part.copy_from_slice(&bytes[range]),
                _ => unreachable!("a page's key has a page"),
            });
            rest = behind;
        });
        if read_moves_atime(self, &state) {
            move_atime(self, &inode, &mut state);
        }
        Ok(len as usize)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let inode = self.file(ino)?;
        self.names.health.writable()?;
        let mut state = inode.state.write();
        if !data.is_empty() {
            let offset = if mode.append { state.size } else { offset };
            self.write_locked(&inode, &mut state, offset, data, cred)?;
        }
        Ok(data.len())
    }

    fn fsync(&self, ino: Ino, _: bool) -> Result<()> {
        amphi_names::inode(self, ino).map(drop)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let pages = self.map.pages_max();
        let free = pages.saturating_sub(self.pages.load(Ordering::Acquire));
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: pages,
            blocks_free: free,
            blocks_available: free,
            inodes: INODES,
            inodes_free: INODES - self.inodes.load(Ordering::Acquire),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = self.file(ino)?;
        let state = inode.state.read();
        if offset >= state.size {
            return Err(Error::NoData);
        }
        let pages = offset / PAGE_BYTES..state.size.div_ceil(PAGE_BYTES);
        let found = match what {
            Seek::Data => {
                let data = self.pages_in(ino, pages.start, pages.end);
                Some(*data.first().ok_or(Error::NoData)?)
            }
            Seek::Hole => pages.into_iter().find(|page| !self.has_page(ino, *page)),
        };
        Ok(found.map_or(state.size, |page| offset.max(page * PAGE_BYTES)))
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let inode = self.file(ino)?;
        self.names.health.writable()?;
        let mut state = inode.state.write();
        if length == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = offset.saturating_add(length);
        let (reserves, keep_size) = (what.reserves(), what.keeps_size());
        if reserves && end > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        shed_capability(self, &inode, &mut state)?;
        let mut change = self.batch();
        if reserves {
            let holes = self.take_holes(ino, &mut state, offset, end)?;
            holes.into_iter().for_each(|page| change.edit(ino, page, |_| ()));
        }
        if what.clears() {
            for page in self.pages_in(ino, offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES)) {
                let within = |at: u64| at.saturating_sub(page * PAGE_BYTES).min(PAGE_BYTES) as usize;
                change.edit(ino, page, |bytes| bytes[within(offset)..within(end)].fill(0));
            }
        }
        let whole = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        if what == Allocate::PunchHole && !whole.is_empty() {
            change.free_pages(ino, &mut state, whole.start, whole.end - 1);
        }
        if !keep_size {
            state.size = state.size.max(end);
        }
        note_write(self, &mut state, cred);
        change.write_inode(&inode, &mut state, Changed::Contents)?;
        change.commit()
    }
}
