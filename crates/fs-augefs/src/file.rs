//! Contents of files: what is written to pages in host memory, and the blocks that they are promised.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::Guard;
use amphi_segments::files::{FileCache, Files, Promises};
use amphi_segments::reads::load_edges;
use amphi_segments::{Domain, Ground};
use amphi_vfs::{Allocate, Cred, Ino, Result, WriteMode};

use crate::allocate::{self, promise_nodes};
use crate::change::Batched;
use crate::core::Core;
use crate::drops::plan_cut;
use crate::format::{ADDRESSES, Address, FILE_BYTES_MAX, PAGE};
use crate::nodes::slot_of;
use crate::part::{Inode, Part, State};
use crate::planted::{self, Bug};
use crate::writeback::{Edit, write_back};

/// Brings the pages at both ends of a range that is written in part into memory, and has every page of it
/// promised a block that has none.
fn promise<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    bytes: Range<u64>,
) -> Result<Promises> {
    load_edges(core, inode, state, &[bytes.start, bytes.end])?;
    let pages = bytes.start / PAGE as u64..bytes.end.div_ceil(PAGE as u64);
    let addresses = {
        let domain = core.domain(inode.ino);
        let _gate = domain.gate.read();
        core.addresses(domain, (inode.ino, state), pages.start, pages.end)?
    };
    let wanted: Promises = pages
        .clone()
        .zip(&addresses)
        .filter(|(page, address)| address.is_hole() && !state.part.file.pages.is_dirty(*page))
        .map(|(page, _)| page)
        .collect();
    promise_nodes(core, &mut state.part, pages, wanted.len() as u64)?;
    state.part.promised += wanted.len() as u64;
    Ok(wanted)
}

impl<D: BlockPort + MemoryArea> Core<D> {
    /// Drops the pages `range`, dirty or not, and what they were promised.
    pub fn drop_pages(&self, part: &mut Part, range: Range<u64>) {
        let promised = self.cache.drop_range(&mut part.file, range);
        part.promised -= promised;
        let kept: std::collections::BTreeSet<_> =
            part.file.pages.dirty().iter().map(|page| slot_of(*page).0).collect();
        let nodes = part.promised_nodes.len();
        part.promised_nodes.retain(|index| kept.contains(index));
        self.space.give_back(promised + (nodes - part.promised_nodes.len()) as u64);
    }

    /// Drops all pages of a file that goes.
    pub fn forget_pages(&self, state: &mut State) {
        self.drop_pages(&mut state.part, 0..u64::MAX);
    }

    /// Drops what a cut file has behind its end in memory.
    pub fn cut_pages(&self, state: &mut State, size: u64) {
        self.drop_pages(&mut state.part, size.div_ceil(PAGE as u64)..u64::MAX);
        if let Some(page) = state.part.file.page_mut(size / PAGE as u64) {
            page[size as usize % PAGE..].fill(0);
        }
    }
}

impl<D: BlockPort + MemoryArea> Files for Core<D> {
    type Device = D;

    const FILE_BYTES_MAX: u64 = FILE_BYTES_MAX;

    fn cache(&self) -> &FileCache {
        &self.cache
    }

    fn ground(&self) -> &Ground<D> {
        &self.ground
    }

    fn domain(&self, ino: Ino) -> &Domain {
        self.domain(ino)
    }

    fn addresses(&self, inode: &Inode, state: &State, first: u64, end: u64) -> Result<Vec<Address>> {
        self.addresses(self.domain(inode.ino), (inode.ino, state), first, end)
    }

    fn stretch(&self, inode: &Inode, state: &State, pages: Range<u64>) -> Result<(Vec<Address>, u64)> {
        let (index, _) = slot_of(pages.start);
        let first = |index: u32| u64::from(index) * ADDRESSES as u64;
        if !state.part.nodes.contains_key(&index) {
            let next = state.part.nodes.range(index..).next();
            return Ok((Vec::new(), next.map_or(pages.end, |(index, _)| first(*index))));
        }
        let next = (first(index) + ADDRESSES as u64).min(pages.end);
        Ok((Files::addresses(self, inode, state, pages.start, next)?, next))
    }

    fn prepare(&self, inode: &Arc<Inode>, state: &mut State, bytes: Range<u64>) -> Result<Promises> {
        promise(self, inode, state, bytes)
    }

    fn finish(&self, inode: &Arc<Inode>, mut state: Guard<'_, Part>, mode: WriteMode) -> Result<()> {
        if mode.sync_data || mode.sync_metadata || mode.direct {
            write_back(self, inode, &mut state, &Edit::default())?;
        }
        Ok(())
    }

    fn write_back(&self, inode: &Arc<Inode>, state: &mut State) -> Result<()> {
        write_back(self, inode, state, &Edit::default())
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

    fn prepare_resize(&self, inode: &Arc<Inode>, state: &mut State, size: u64) -> Result<()> {
        // What lies before the new end must be there when it counts.
        let lacks = state.part.file.stored_size < size.min(state.size);
        if lacks { write_back(self, inode, state, &Edit::default()) } else { Ok(()) }
    }

    fn cut_off<'a>(
        &'a self,
        change: &mut Batched<'a, D>,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
    ) -> Result<()> {
        let drops = plan_cut(self, inode, state, size)?;
        self.cut_pages(state, size);
        if let Some(drops) = drops {
            change.drop_blocks(drops);
        }
        Ok(())
    }

    fn was_loaded(&self, part: &mut Part) {
        if planted::has(Bug::PagesForgotten) {
            self.cache.drop_clean(&mut part.file);
        }
    }
}
