//! Contents of files: written where they lie, past any page cache, with nothing that makes a write a whole
//! (PMFS §3.2). Data are durable before the pointers and the size that lead to them.

use std::ops::Range;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{PAGE, blocks_of, holes, in_change, within};
use amphi_names::{Change, Changed, note_write};
use amphi_vfs::{Allocate, Cred, Error, Result};

use crate::format::FAN;
use crate::fs::PmfsLike;
use crate::inode::{Inode, State};
use crate::planted::{self, Bug};
use crate::tree::NODES_MAX;
use crate::tx::Tx;

/// Bytes that one page of pointers leads to: as much is written by one change.
const PART: u64 = FAN * PAGE;

/// A range in parts, each below one page of pointers.
fn parts(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let part = at..range.end.min((at / PART + 1) * PART);
        at = part.end;
        (!part.is_empty()).then_some(part)
    })
}

impl<D: PageView + 'static> PmfsLike<D> {
    /// Promises the pages that blocks without any in a range lack, and those of pointers, for each part.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`].
    fn promise_parts(&self, state: &State, range: &Range<u64>) -> Result<Vec<(Range<u64>, u64)>> {
        let missing = |part: &Range<u64>| {
            let blocks = blocks_of(part);
            blocks.end - blocks.start - mapped(state, blocks)
        };
        if missing(range) > self.space.available() {
            return Err(Error::NoSpace);
        }
        let of_part = |part: Range<u64>| {
            let missing = missing(&part);
            (part, if missing == 0 { 0 } else { missing + NODES_MAX })
        };
        let parts: Vec<_> = parts(range.clone()).map(of_part).collect();
        let pages = parts.iter().map(|(_, pages)| pages).sum();
        // Given back with the change that does not take them; here only whether there are as many.
        let mut whole = self.change(pages, pages > 0)?;
        whole.taken.hand_over();
        Ok(parts)
    }

    /// Writes all of `data`. A crash may leave any part of it, but for what is behind the file's end.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; then nothing has changed. [`Error::Io`].
    pub fn write_file(
        &self,
        inode: &Inode,
        state: &mut State,
        range: Range<u64>,
        data: &[u8],
        cred: &Cred,
    ) -> Result<()> {
        let parts = self.promise_parts(state, &range)?;
        note_write(self, state, cred);
        let mut rest = data;
        for (part, pages) in parts {
            let mut tx = Tx::promised(self, pages);
            let (now, later) = rest.split_at((part.end - part.start) as usize);
            in_change(self, || {
                tx.touch(&mut state.part);
                self.clear_behind(state, part.start)?;
                self.fill(&mut tx, state, &part, Some(now))?;
                state.size = state.size.max(part.end);
                tx.write_inode(inode, state, Changed::Contents)
            })?;
            tx.commit()?;
            rest = later;
        }
        Ok(())
    }

    /// Stores `data`, or zeros, in a range. Blocks that have no pages get some.
    fn fill(
        &self,
        tx: &mut Tx<'_, D>,
        state: &mut State,
        range: &Range<u64>,
        data: Option<&[u8]>,
    ) -> Result<()> {
        let zeros = [0; PAGE as usize];
        let blocks = blocks_of(range);
        let mut next = blocks.start;
        while next < blocks.end {
            let known = state.part.tree.blocks.get(next).copied();
            let (page, count) = match known {
                Some(page) => (page, 1),
                None => {
                    let end = state
                        .part
                        .tree
                        .blocks
                        .next(next)
                        .map_or(blocks.end, |(block, _)| block.min(blocks.end));
                    tx.taken.take(end - next)
                }
            };
            for (block, page) in (next..next + count).zip(page..) {
                let own = within(block, range);
                let bytes = data.map_or(&zeros[own.clone()], |data| {
                    let from = (block * PAGE + own.start as u64 - range.start) as usize;
                    &data[from..from + own.len()]
                });
                if known.is_none() {
                    // What is not written of a new page shows as zeros.
                    for edge in [0..own.start, own.end..PAGE as usize] {
                        tx.store(page * PAGE + edge.start as u64, &zeros[edge], Structure::Data)?;
                    }
                    state.part.tree.map(tx, block, page)?;
                }
                let (at, end) = (page * PAGE + own.start as u64, block * PAGE + own.end as u64);
                if known.is_some() && end <= state.size {
                    // Seen at once, and in no order with the times.
                    self.medium.store(at, bytes, Structure::Data)?;
                } else {
                    tx.store(at, bytes, Structure::Data)?;
                }
            }
            next += count;
        }
        Ok(())
    }

    /// Clears what lies behind the file's end, up to `end`, before the file grows past it. Nobody sees it
    /// before.
    pub fn clear_behind(&self, state: &State, end: u64) -> Result<()> {
        if end <= state.size || planted::has(Bug::TailNotCleared) {
            return Ok(());
        }
        let range = state.size..end;
        let zeros = [0; PAGE as usize];
        let mut from = range.start / PAGE;
        while let Some((block, page)) = state.part.tree.blocks.next(from) {
            if block * PAGE >= end {
                break;
            }
            let own = within(block, &range);
            self.medium.store(page * PAGE + own.start as u64, &zeros[own], Structure::Data)?;
            from = block + 1;
        }
        Ok(())
    }

    /// Holds space, makes holes, or makes a range zeros.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; then nothing has changed. [`Error::Io`].
    pub fn allocate_file(
        &self,
        inode: &Inode,
        state: &mut State,
        range: Range<u64>,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()> {
        let punches = what == Allocate::PunchHole;
        let parts = if punches { Vec::new() } else { self.promise_parts(state, &range)? };
        let mut tx = self.change(0, false)?;
        in_change(self, || {
            note_write(self, state, cred);
            for (part, pages) in parts {
                let mut tx = Tx::promised(self, pages);
                tx.touch(&mut state.part);
                if matches!(what, Allocate::Zero { .. }) {
                    self.fill(&mut tx, state, &part, None)?;
                } else {
                    for hole in holes::<Self>(&state.part, blocks_of(&part)) {
                        self.fill(&mut tx, state, &(hole.start * PAGE..hole.end * PAGE), None)?;
                    }
                }
                tx.write_inode(inode, state, Changed::Contents)?;
                tx.commit()?;
            }
            tx.touch(&mut state.part);
            if punches {
                self.punch(&mut tx, state, &range)?;
            }
            if !what.keeps_size() && range.end > state.size {
                self.clear_behind(state, range.end)?;
                state.size = range.end;
            }
            tx.write_inode(inode, state, Changed::Contents)
        })?;
        tx.commit()
    }

    /// Makes whole blocks of a range holes, and clears what it has of others.
    fn punch(&self, tx: &mut Tx<'_, D>, state: &mut State, range: &Range<u64>) -> Result<()> {
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        let zeros = [0; PAGE as usize];
        for at in [range.start, range.end] {
            let block = at / PAGE;
            if let Some(page) = state.part.tree.blocks.get(block)
                && !whole.contains(&block)
            {
                let own = within(block, range);
                tx.store(page * PAGE + own.start as u64, &zeros[own], Structure::Data)?;
            }
        }
        if !whole.is_empty() {
            state.part.tree.unmap(tx, whole);
        }
        Ok(())
    }
}

/// How many of `blocks` have pages.
fn mapped(state: &State, blocks: Range<u64>) -> u64 {
    let (mut from, mut count) = (blocks.start, 0);
    while let Some((block, _)) = state.part.tree.blocks.next(from).filter(|(block, _)| *block < blocks.end) {
        (from, count) = (block + 1, count + 1);
    }
    count
}
