//! Contents of files: every write goes to new pages, whole ones, and counts with the entry in the file's log
//! (NOVA §4.6). A page that is written in part is filled up from the old one.

use std::ops::Range;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{PAGE, blocks_of, holes, in_change, within};
use amphi_names::{Change, note_write};
use amphi_vfs::{Allocate, Cred, Result};

use crate::format::{ENTRY, FOOTER};
use crate::fs::NovaLike;
use crate::log::{Inode, State};
use crate::planted::{self, Bug};
use crate::tx::Tx;

/// Entries of a log page.
const LOG_ENTRIES: u64 = FOOTER / ENTRY;

impl<D: PageView + 'static> NovaLike<D> {
    /// Writes all of `data`, so that a crash leaves all of it or none.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::NoSpace`]; then nothing has changed. [`amphi_vfs::Error::Io`].
    pub fn write_file(
        &self,
        inode: &Inode,
        state: &mut State,
        range: Range<u64>,
        data: &[u8],
        cred: &Cred,
    ) -> Result<()> {
        let (blocks, end) = (blocks_of(&range), range.end);
        let count = blocks.end - blocks.start;
        // Each block may be a run of its own.
        let mut tx = self.change(count + count / LOG_ENTRIES, true)?;
        in_change(self, || {
            tx.touch(inode.ino, &mut state.part)?;
            if range.start > state.size && !blocks.contains(&(state.size / PAGE)) {
                self.clear_tail(state)?;
            }
            let valid = state.size;
            let runs = self.fill(&mut tx, state, blocks, valid, range, Some(data))?;
            state.size = valid.max(end);
            note_write(self, state, cred);
            runs.into_iter().try_for_each(|(block, page, count)| tx.map(inode.ino, state, block, page, count))
        })?;
        tx.commit()
    }

    /// Fills new pages with blocks as they are, up to byte `valid` of the file, but for `range`, which has
    /// `data` or zeros. Returns first block, first page and length of runs.
    fn fill(
        &self,
        tx: &mut Tx<'_, D>,
        state: &State,
        blocks: Range<u64>,
        valid: u64,
        range: Range<u64>,
        data: Option<&[u8]>,
    ) -> Result<Vec<(u64, u64, u64)>> {
        let mut runs = Vec::new();
        let mut next = blocks.start;
        while next < blocks.end {
            let (page, count) = match self.in_place(state, next) {
                Some(page) => (page, 1),
                None => tx.taken.take(blocks.end - next),
            };
            for (block, page) in (next..next + count).zip(page..) {
                let own = within(block, &range);
                let bytes = data.map(|data| {
                    let from = (block * PAGE + own.start as u64 - range.start) as usize;
                    &data[from..from + own.len()]
                });
                if let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 == PAGE) {
                    self.medium.store(page * PAGE, bytes, Structure::Data)?;
                    continue;
                }
                let mut whole = [0; PAGE as usize];
                let old = valid.saturating_sub(block * PAGE).min(PAGE) as usize;
                if let Some(from) = state.part.blocks.get(block) {
                    for part in [0..own.start.min(old), own.end.min(old)..old] {
                        let at = from.page * PAGE + part.start as u64;
                        self.medium.load(at, &mut whole[part], Structure::Data)?;
                    }
                }
                if let Some(bytes) = bytes {
                    whole[own].copy_from_slice(bytes);
                }
                self.medium.store(page * PAGE, &whole, Structure::Data)?;
            }
            if self.in_place(state, next).is_none() {
                runs.push((next, page, count));
            }
            next += count;
        }
        Ok(runs)
    }

    /// The page of a block that is overwritten where it is: none, unless that is planted.
    fn in_place(&self, state: &State, block: u64) -> Option<u64> {
        let planted = planted::has(Bug::DataInPlace).then(|| state.part.blocks.get(block)).flatten();
        planted.map(|block| block.page)
    }

    /// Clears what the file's last page holds behind the end, before the file grows past it. Nobody sees it
    /// before.
    pub fn clear_tail(&self, state: &State) -> Result<()> {
        let used = state.size % PAGE;
        if used == 0 || planted::has(Bug::TailNotCleared) {
            return Ok(());
        }
        let Some(block) = state.part.blocks.get(state.size / PAGE) else { return Ok(()) };
        let zeros = [0; PAGE as usize];
        self.medium.store(block.page * PAGE + used, &zeros[used as usize..], Structure::Data)
    }

    /// Holds space, makes holes, or makes a range zeros, in one change.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::NoSpace`]; then nothing has changed. [`amphi_vfs::Error::Io`].
    pub fn allocate_file(
        &self,
        inode: &Inode,
        state: &mut State,
        range: Range<u64>,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()> {
        let todo = match what {
            Allocate::Reserve { .. } => holes::<Self>(&state.part, blocks_of(&range)),
            Allocate::Zero { .. } => vec![blocks_of(&range)],
            Allocate::PunchHole => edges(state, &range),
        };
        let pages = todo.iter().map(|blocks| blocks.end - blocks.start).sum::<u64>();
        let mut tx = self.change(pages + (pages + todo.len() as u64) / LOG_ENTRIES, pages > 0)?;
        in_change(self, || {
            tx.touch(inode.ino, &mut state.part)?;
            let valid = state.size;
            if !what.keeps_size() && range.end > valid {
                self.clear_tail(state)?;
                state.size = range.end;
            }
            note_write(self, state, cred);
            for blocks in todo {
                for (block, page, count) in self.fill(&mut tx, state, blocks, valid, range.clone(), None)? {
                    tx.map(inode.ino, state, block, page, count)?;
                }
            }
            let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
            if what == Allocate::PunchHole && !whole.is_empty() {
                tx.map(inode.ino, state, whole.start, 0, whole.end - whole.start)?;
            }
            state.atime_dirty = false;
            tx.write_attr(inode, state, false)
        })?;
        tx.commit()
    }
}

/// The blocks of which a range has a part, if they have pages.
fn edges(state: &State, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut edges = Vec::new();
    for at in [range.start, range.end] {
        let block = at / PAGE;
        let known = edges.iter().any(|edge: &Range<u64>| edge.start == block);
        if !at.is_multiple_of(PAGE) && !known && state.part.blocks.get(block).is_some() {
            edges.push(block..block + 1);
        }
    }
    edges
}
