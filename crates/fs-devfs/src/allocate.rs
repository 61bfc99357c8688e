//! Space of files that is reserved, cleared or given back: `fallocate`.

use std::ops::Range;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{note_write, regular, shed_capability};
use amphi_vfs::{Allocate, Cred, Error, Result};

use crate::controller::Controller;
use crate::filemap::{Blocks, Filemap};
use crate::files::{blocks_of, in_steps, within};
use crate::format::{FILE_BYTES_MAX, PAGE, UNWRITTEN};
use crate::part::{Inode, State};
use crate::tx::Tx;

const PAGE_BYTES: u64 = PAGE as u64;

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// Reserves, clears or punches a range.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::TooLarge`]; then nothing has changed. [`Error::Corrupt`], [`Error::Io`].
    pub fn allocate_range(
        &self,
        inode: &Inode,
        (offset, length): (u64, u64),
        what: Allocate,
        cred: &Cred,
    ) -> Result<()> {
        regular(inode.file_type)?;
        self.names.health.writable()?;
        let mut state = inode.state.write();
        let state = &mut *state;
        if length == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = offset.saturating_add(length);
        let (reserves, keep_size) = (what.reserves(), what.keeps_size());
        if reserves && end > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let end = if reserves { end } else { end.min(state.size.next_multiple_of(PAGE_BYTES)) };
        let clears = what.clears();
        let whole = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        let blocks = if reserves { blocks_of(offset, end) } else { whole.clone() };
        // Holes take at least what the file does not have; so a range that is far too long is not looked at.
        let have = state.part.blocks + self.blocks.available();
        if reserves && blocks.end - blocks.start > have {
            return Err(Error::NoSpace);
        }
        shed_capability(self, inode, state)?;
        let steps = in_steps(if reserves { blocks.clone() } else { 0..0 });
        let needs = steps.clone().map(|step| self.blocks_needed(inode, state, step));
        let needs = needs.collect::<Result<Vec<_>>>()?;
        let mut promised = needs.iter().sum();
        if !self.blocks.reserve(promised) {
            return Err(Error::NoSpace);
        }
        let outcome = (|| {
            if clears && offset < end {
                self.clear_edges(inode, state, offset..end, &whole)?;
            }
            for (step, need) in steps.zip(needs) {
                promised -= need;
                self.allocate_step(inode, state, Tx::promised(self, need), step, &whole, what)?;
            }
            if reserves { Ok(()) } else { self.punch(inode, state, blocks) }
        })();
        self.blocks.unreserve(promised);
        outcome.inspect_err(|error| self.names.health.fail(error))?;
        let grows = !keep_size && end > state.size;
        if grows {
            self.clear_tail(inode, state)?;
            state.size = end;
        }
        note_write(self, state, cred);
        let mut tx = Tx::new(self, 0)?;
        tx.write_inode(inode.ino, inode.parent(), state);
        tx.commit()
    }

    /// Clears the parts of blocks at the ends of a range.
    fn clear_edges(&self, inode: &Inode, state: &State, range: Range<u64>, whole: &Range<u64>) -> Result<()> {
        let all = blocks_of(range.start, range.end);
        self.settle_queue(inode, state, &all)?;
        let last = (all.end - 1 > all.start).then_some(all.end - 1);
        for block in std::iter::once(all.start).chain(last).filter(|block| !whole.contains(block)) {
            if let Blocks::Mapped(pointer, _) = self.look(inode, state, block, 1)?
                && pointer & UNWRITTEN == 0
            {
                let part = within(block, range.start, range.end);
                let at = part.start;
                self.write_part((inode, state), (block, pointer.into(), false), at, &[0; PAGE][part])?;
            }
        }
        Ok(())
    }

    /// Makes a hole of whole blocks. Of what is one already, however large, nothing is written.
    fn punch(&self, inode: &Inode, state: &mut State, blocks: Range<u64>) -> Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            match self.look(inode, state, block, blocks.end - block)? {
                Blocks::Hole(count) => block += count,
                _ => {
                    let end = in_steps(block..blocks.end).next().map_or(blocks.end, |step| step.end);
                    let tx = Tx::promised(self, 0);
                    self.allocate_step(inode, state, tx, block..end, &blocks, Allocate::PunchHole)?;
                    block = end;
                }
            }
        }
        Ok(())
    }

    /// As much of a range as one record takes.
    fn allocate_step(
        &self,
        inode: &Inode,
        state: &mut State,
        mut tx: Tx<'_, D>,
        blocks: Range<u64>,
        whole: &Range<u64>,
        what: Allocate,
    ) -> Result<()> {
        tx.belongs_to(inode.ino, state.generation);
        let punches = what == Allocate::PunchHole;
        let clears = matches!(what, Allocate::Zero { .. });
        let mut block = blocks.start;
        while block < blocks.end {
            let found = self.look(inode, state, block, blocks.end - block)?;
            let (pointers, count): (Vec<u32>, u64) = match found {
                Blocks::Hole(count) if punches => (Vec::new(), count),
                Blocks::Hole(count) => {
                    let (page, count) = tx.take_blocks(count);
                    state.part.blocks += count;
                    ((page..page + count).map(|page| page as u32 | UNWRITTEN).collect(), count)
                }
                Blocks::Mapped(pointer, count) if punches => {
                    tx.free_blocks(u64::from(pointer & !UNWRITTEN), count);
                    state.part.give_up(count)?;
                    (vec![0; count as usize], count)
                }
                // What is reserved stays, and the edges have been cleared.
                Blocks::Mapped(_, count) if !clears => (Vec::new(), count),
                Blocks::Mapped(..) if !whole.contains(&block) => (Vec::new(), 1),
                Blocks::Mapped(pointer, count) => {
                    let count = count.min(whole.end - block);
                    ((pointer..pointer + count as u32).map(|pointer| pointer | UNWRITTEN).collect(), count)
                }
                Blocks::Unknown => unreachable!("a look reads what it lacks"),
            };
            if !pointers.is_empty() {
                tx.set_pointers(&mut state.part, block, &pointers)?;
            }
            block += count;
        }
        tx.write_inode(inode.ino, inode.parent(), state);
        tx.commit()?;
        *inode.beside.filemap.lock() = Filemap::default();
        Ok(())
    }
}
