//! Contents of files: where their pages are, and what is written to pages in host memory.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::Guard;
use amphi_page_cache::BoxedFrame;
use amphi_segments::files::{FileCache, Files, Promises};
use amphi_segments::reads::{load_edges, load_pages};
use amphi_segments::{Domain, Ground};
use amphi_vfs::{Allocate, Cred, Ino, Result, WriteMode};

use crate::change::Changing;
use crate::core::Core;
use crate::format::{Address, FILE_PAGES_MAX, PAGE};
use crate::nodes::{first_page, spot};
use crate::part::{Inode, Part, State};
use crate::planted::{self, Bug};
use crate::writeback::{Goes, write_back};
use crate::{allocate, sync};

const PAGE_BYTES: u64 = PAGE as u64;

impl<D: BlockPort> Core<D> {
    /// Drops all pages of a file that goes.
    pub fn forget_pages(&self, part: &mut Part) {
        self.cache.drop_range(&mut part.file, 0..u64::MAX);
    }

    /// Drops what a cut file has behind its end in memory.
    fn cut_pages(&self, part: &mut Part, size: u64) {
        self.cache.drop_range(&mut part.file, size.div_ceil(PAGE_BYTES)..u64::MAX);
        let last = size / PAGE_BYTES;
        let Some(page) = part.file.page_mut(last) else { return };
        let tail = &mut page[size as usize % PAGE..];
        if tail.iter().any(|byte| *byte != 0) && !planted::has(Bug::TailShown) {
            tail.fill(0);
            // The device has it yet.
            self.cache.mark_dirty(&mut part.file, last);
        }
    }
}

impl<D: BlockPort> Files for Core<D> {
    type Device = D;

    const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * PAGE_BYTES;

    fn cache(&self) -> &FileCache {
        &self.cache
    }

    fn ground(&self) -> &Ground<D> {
        &self.ground
    }

    fn domain(&self, _: Ino) -> &Domain {
        &self.domain
    }

    fn addresses(&self, inode: &Inode, _: &State, first: u64, end: u64) -> Result<Vec<Address>> {
        self.addresses(inode.ino.0 as u32, first, end)
    }

    fn stretch(&self, inode: &Inode, _: &State, pages: Range<u64>) -> Result<(Vec<Address>, u64)> {
        let (index, word) = spot(pages.start);
        Ok(match self.reach(inode.ino.0 as u32, index)? {
            Ok(nid) => {
                let next = first_page(index.map_or(Some(0), |index| Some(index + 1)));
                let words = word..word + (next - pages.start) as usize;
                (self.parts(&[nid])?.nodes[&nid].addresses[words].to_vec(), next)
            }
            Err(next) => (Vec::new(), first_page(Some(next))),
        })
    }

    /// What the device has behind the end of the file is no part of it: it becomes zeros, which are written
    /// before the file grows over them.
    fn keep(&self, inode: &Arc<Inode>, state: &mut State, page: u64, mut bytes: BoxedFrame) {
        let valid = state.size.saturating_sub(page * PAGE_BYTES).min(PAGE_BYTES) as usize;
        let hidden = bytes[valid..].iter().any(|byte| *byte != 0) && !planted::has(Bug::TailShown);
        if hidden {
            bytes[valid..].fill(0);
        }
        let dirty = hidden && !self.options.read_only;
        self.cache.insert(&mut state.part.file, page, bytes, dirty);
        if dirty {
            self.cache.note_dirty(inode);
        }
    }

    fn prepare(&self, inode: &Arc<Inode>, state: &mut State, bytes: Range<u64>) -> Result<Promises> {
        let edges = [state.size.min(bytes.end), bytes.start, bytes.end];
        load_edges(self, inode, state, &edges)?;
        let pages = bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES);
        allocate::hold(self, inode, state, pages)?;
        Ok(Promises::new())
    }

    fn finish(&self, inode: &Arc<Inode>, mut state: Guard<'_, Part>, mode: WriteMode) -> Result<()> {
        if mode.direct {
            write_back(self, inode, &mut state, Goes::InPlace)?;
        }
        drop(state);
        let syncs = mode.sync_data || mode.sync_metadata;
        if syncs { sync::fsync(self, inode, !mode.sync_metadata) } else { Ok(()) }
    }

    fn write_back(&self, inode: &Arc<Inode>, state: &mut State) -> Result<()> {
        write_back(self, inode, state, Goes::Away)
    }

    fn prepare_resize(&self, inode: &Arc<Inode>, state: &mut State, size: u64) -> Result<()> {
        let end = state.size;
        if size > end && !end.is_multiple_of(PAGE_BYTES) {
            load_pages(self, inode, state, end..end + 1)?;
        }
        // What lies before the new end must be there when it counts.
        let lacks = size > end || state.part.file.stored_size < size;
        if lacks { write_back(self, inode, state, Goes::Away) } else { Ok(()) }
    }

    fn cut_off<'a>(
        &'a self,
        _: &mut Changing<'a, D>,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
    ) -> Result<()> {
        self.cut_pages(&mut state.part, size);
        self.cache.note_dirty(inode);
        let cleared = self.cut(inode.ino.0 as u32, size.div_ceil(PAGE_BYTES));
        state.part.blocks = state.part.blocks.saturating_sub(self.names.health.judge(cleared)?);
        Ok(())
    }

    fn allocate(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        length: u64,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()> {
        allocate::allocate(self, inode, (offset, length), what, cred)
    }
}
