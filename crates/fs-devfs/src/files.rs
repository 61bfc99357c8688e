//! The contents of files: what is read and written, and which blocks it takes.
//!
//! Whole blocks are written in place, or where nothing was, before the record that maps them (§4.2: data,
//! then metadata). Parts of blocks go into the file's queue in protected memory, and from there in place when
//! the queue is full.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_names::{note_write, regular, shed_capability};
use amphi_vfs::{Cred, Error, Result, Seek};

use crate::blocks::{Leaf, pages_needed};
use crate::controller::{Controller, queue_of};
use crate::filemap::{Blocks, Filemap};
use crate::format::{FILE_BYTES_MAX, Map, PAGE, POINTERS, UNWRITTEN};
use crate::memory::{Hold, Kind};
use crate::part::{Inode, State};
use crate::planted::{self, Bug};
use crate::slots::{Queued, in_place};
use crate::tx::Tx;

const PAGE_BYTES: u64 = PAGE as u64;
/// Blocks that one record maps at most.
const BLOCKS_PER_RECORD: u64 = 128;
/// Bytes of a part that a queue takes; a longer one makes the block be written.
const QUEUED_BYTES_MAX: usize = 2048;

/// The blocks that hold `offset .. end`.
pub const fn blocks_of(offset: u64, end: u64) -> Range<u64> {
    offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)
}

/// Where a block's own bytes are in `offset .. end`, from the block's start.
pub fn within(block: u64, offset: u64, end: u64) -> Range<usize> {
    let start = block * PAGE_BYTES;
    offset.saturating_sub(start) as usize..(end - start).min(PAGE_BYTES) as usize
}

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// What blocks are, as far as one answer goes. Reads the leaf if the map lacks it.
    pub fn look(&self, inode: &Inode, state: &State, block: u64, most: u64) -> Result<Blocks> {
        let mut map = inode.beside.filemap.lock();
        loop {
            let found = map.find(block, most);
            if found != Blocks::Unknown {
                return Ok(found);
            }
            if self.memory.is_short() {
                // A leaf at a time is enough.
                *map = Filemap::default();
            }
            match self.leaf(&state.part, block / POINTERS)? {
                Leaf::At(page) => self.read_leaf(&mut map, page, block / POINTERS)?,
                // Holes are in no map: a file can have more of them than memory holds.
                Leaf::HoleUpTo(leaf) => return Ok(Blocks::Hole(most.min(leaf * POINTERS - block))),
            }
        }
    }

    fn read_leaf(&self, map: &mut Filemap, page: u32, leaf: u64) -> Result<()> {
        let pointers = self.pointers_in(page)?.into_iter().enumerate();
        // Only now: a leaf that is known and empty is holes.
        map.learn(leaf);
        for (index, pointer) in pointers.filter(|(_, pointer)| *pointer != 0) {
            map.insert(leaf * POINTERS + index as u64, 1, pointer);
        }
        self.weigh(map);
        Ok(())
    }

    fn weigh(&self, map: &mut Filemap) {
        let bytes = map.bytes();
        match &mut map.hold {
            Some(hold) => hold.resize(1, bytes),
            None => map.hold = Some(Hold::new(&self.memory, Kind::Filemaps, 1, bytes)),
        }
    }

    /// Calls `body` with each run of `blocks` and what it is.
    fn each_run(
        &self,
        inode: &Inode,
        state: &State,
        blocks: Range<u64>,
        mut body: impl FnMut(u64, Blocks) -> Result<()>,
    ) -> Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            let found = self.look(inode, state, block, blocks.end - block)?;
            body(block, found)?;
            block += found.count();
        }
        Ok(())
    }

    /// Reads from a file. Returns how many bytes there were.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn read_file(&self, inode: &Inode, state: &State, offset: u64, into: &mut [u8]) -> Result<usize> {
        let len = state.size.saturating_sub(offset).min(into.len() as u64);
        if len == 0 {
            return Ok(0);
        }
        let end = offset + len;
        let into = &mut into[..len as usize];
        let blocks = blocks_of(offset, end);
        // Before flash is read: what leaves the queue meanwhile is on flash then.
        let queued = self.queued(inode, state, &blocks);
        let place = |at: u64| (at - offset) as usize;
        self.each_run(inode, state, blocks, |first, found| {
            let bytes = |count: u64| {
                let run = offset.max(first * PAGE_BYTES)..end.min((first + count) * PAGE_BYTES);
                place(run.start)..place(run.end)
            };
            match found {
                Blocks::Mapped(pointer, count) if pointer & UNWRITTEN == 0 => {
                    self.read_run(u64::from(pointer), first, (offset, end), &mut into[bytes(count)])
                }
                Blocks::Mapped(_, count) | Blocks::Hole(count) => {
                    into[bytes(count)].fill(0);
                    Ok(())
                }
                Blocks::Unknown => unreachable!("a look reads what it lacks"),
            }
        })?;
        for part in queued {
            if part.fresh {
                // What flash has there is of an older file.
                let run = offset.max(part.block * PAGE_BYTES)..end.min((part.block + 1) * PAGE_BYTES);
                into[place(run.start)..place(run.end)].fill(0);
            }
            let start = part.block * PAGE_BYTES + part.within as u64;
            let run = offset.max(start)..end.min(start + part.data.len() as u64);
            if run.start < run.end {
                let from = (run.start - start) as usize;
                let data = &part.data[from..from + (run.end - run.start) as usize];
                into[place(run.start)..place(run.end)].copy_from_slice(data);
            }
        }
        Ok(len as usize)
    }

    /// Reads what of `offset .. end` lies in blocks from `first` on, which are at `page` and behind it.
    fn read_run(&self, page: u64, first: u64, (offset, end): (u64, u64), into: &mut [u8]) -> Result<()> {
        let start = offset.max(first * PAGE_BYTES);
        let mut page = page + (start / PAGE_BYTES - first);
        let skipped = (start % PAGE_BYTES) as usize;
        let mut rest = into;
        let mut edge = [0; PAGE];
        if skipped > 0 || rest.len() < PAGE {
            let count = (PAGE - skipped).min(rest.len());
            self.media.read(page, &mut edge, Structure::Data)?;
            let (part, behind) = rest.split_at_mut(count);
            part.copy_from_slice(&edge[skipped..skipped + count]);
            (rest, page) = (behind, page + 1);
        }
        let whole = rest.len() / PAGE * PAGE;
        let (middle, last) = rest.split_at_mut(whole);
        if !middle.is_empty() {
            self.media.read(page, middle, Structure::Data)?;
        }
        if !last.is_empty() {
            self.media.read(page + (whole / PAGE) as u64, &mut edge, Structure::Data)?;
            last.copy_from_slice(&edge[..last.len()]);
        }
        debug_assert!(start < end, "a run has bytes");
        Ok(())
    }

    /// What a file's queue has of some blocks.
    fn queued(&self, inode: &Inode, state: &State, blocks: &Range<u64>) -> Vec<Queued> {
        let slot = self.slots.find(queue_of(inode, state));
        let Some(slot) = slot else { return Vec::new() };
        slot.parts.iter().filter(|part| blocks.contains(&part.block)).cloned().collect()
    }

    /// Brings a file's queue in place if it has anything of some blocks, which are about to change under it.
    pub fn settle_queue(&self, inode: &Inode, state: &State, blocks: &Range<u64>) -> Result<()> {
        if planted::has(Bug::QueueNotSettled) {
            return Ok(());
        }
        let Some(mut slot) = self.slots.find(queue_of(inode, state)) else { return Ok(()) };
        if slot.parts.iter().any(|part| blocks.contains(&part.block)) {
            self.slots.commit(&self.meta, &mut slot)?;
        }
        Ok(())
    }

    /// Writes a part of a block: into the queue, or in place if it is long.
    pub fn write_part(
        &self,
        (inode, state): (&Inode, &State),
        (block, page, fresh): (u64, u64, bool),
        at: usize,
        data: &[u8],
    ) -> Result<()> {
        // A copy: a program may change `data` between the checksum of the entry and its bytes.
        let part = Queued { block, page, within: at, data: data.to_vec(), fresh };
        if data.len() > QUEUED_BYTES_MAX {
            self.settle_queue(inode, state, &(block..block + 1))?;
            return in_place(&self.media, &[part]);
        }
        let offset = block * PAGE_BYTES + at as u64;
        let mut slot = self.slots.acquire(&self.meta, queue_of(inode, state), data.len())?;
        let stamp = self.slots.stamp();
        if !planted::has(Bug::QueueInMemoryOnly) {
            let bytes = if planted::has(Bug::BytesReadTwice) { data } else { &part.data };
            self.slots.append(&mut slot, stamp, offset, fresh, bytes)?;
        }
        slot.parts.push(part);
        Ok(())
    }

    /// Clears what the file's last block holds behind the end, before the file grows past it.
    pub fn clear_tail(&self, inode: &Inode, state: &State) -> Result<()> {
        let at = (state.size % PAGE_BYTES) as usize;
        if at == 0 || planted::has(Bug::TailNotCleared) {
            return Ok(());
        }
        let block = state.size / PAGE_BYTES;
        match self.look(inode, state, block, 1)? {
            Blocks::Mapped(pointer, _) if pointer & UNWRITTEN == 0 => {
                self.write_part((inode, state), (block, pointer.into(), false), at, &[0; PAGE][at..])
            }
            _ => Ok(()),
        }
    }

    /// Blocks that writing `blocks` can take at most.
    pub fn blocks_needed(&self, inode: &Inode, state: &State, blocks: Range<u64>) -> Result<u64> {
        let mut holes = 0;
        self.each_run(inode, state, blocks.clone(), |_, found| {
            if let Blocks::Hole(count) = found {
                holes += count;
            }
            Ok(())
        })?;
        let pages = if holes > 0 { pages_needed(blocks.start, blocks.end - blocks.start) } else { 0 };
        Ok(holes + pages)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::NoSpace`]; then nothing is written. [`Error::Corrupt`], [`Error::Io`].
    pub fn write_file(
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
        let chunks = in_chunks(offset, end);
        let needs =
            chunks.clone().map(|chunk| self.blocks_needed(inode, state, blocks_of(chunk.start, chunk.end)));
        let needs = needs.collect::<Result<Vec<_>>>()?;
        let total = needs.iter().sum();
        if !self.blocks.reserve(total) {
            return Err(Error::NoSpace);
        }
        let mut promised = total;
        let outcome = (|| {
            if offset > state.size {
                self.clear_tail(inode, state)?;
            }
            for (chunk, need) in chunks.zip(needs) {
                promised -= need;
                let tx = Tx::promised(self, need);
                let part = &data[(chunk.start - offset) as usize..(chunk.end - offset) as usize];
                self.write_chunk(inode, state, chunk, part, tx, cred)?;
            }
            Ok(())
        })();
        self.blocks.unreserve(promised);
        // What is in the queue of a write that failed must not come in place.
        outcome.inspect_err(|error| self.names.health.fail(error))
    }

    fn write_chunk(
        &self,
        inode: &Inode,
        state: &mut State,
        chunk: Range<u64>,
        data: &[u8],
        mut tx: Tx<'_, D>,
        cred: &Cred,
    ) -> Result<()> {
        tx.belongs_to(inode.ino, state.generation);
        let mut runs = Vec::new();
        self.each_run(inode, state, blocks_of(chunk.start, chunk.end), |first, found| {
            runs.push((first, found));
            Ok(())
        })?;
        let mut mapped = Vec::new();
        for (first, found) in runs {
            let (mut block, end, pointer) = match found {
                Blocks::Mapped(pointer, count) => (first, first + count, Some(pointer)),
                Blocks::Hole(count) => (first, first + count, None),
                Blocks::Unknown => unreachable!("a look reads what it lacks"),
            };
            while block < end {
                let (page, count, fresh) = match pointer {
                    Some(pointer) => {
                        let page = u64::from(pointer & !UNWRITTEN) + (block - first);
                        (page, end - block, pointer & UNWRITTEN != 0)
                    }
                    None => {
                        let (page, count) = tx.take_blocks(end - block);
                        (page, count, true)
                    }
                };
                self.write_blocks((inode, state), (block, page, count, fresh), &chunk, data)?;
                if fresh {
                    let pointers: Vec<u32> = (page..page + count).map(|page| page as u32).collect();
                    tx.set_pointers(&mut state.part, block, &pointers)?;
                    if pointer.is_none() {
                        state.part.blocks += count - u64::from(planted::has(Bug::BlocksMiscounted));
                    }
                    mapped.push((block, count, page as u32));
                }
                block += count;
            }
        }
        state.size = state.size.max(chunk.end);
        note_write(self, state, cred);
        if planted::has(Bug::SizeForgotten) && !mapped.is_empty() {
            tx.commit()?;
        } else {
            tx.write_inode(inode.ino, inode.parent(), state);
            tx.commit()?;
        }
        if !mapped.is_empty() {
            let mut map = inode.beside.filemap.lock();
            mapped.into_iter().for_each(|(block, count, page)| map.insert(block, count, page));
            self.weigh(&mut map);
        }
        Ok(())
    }

    /// Writes what of `data`, which is for `chunk`, lies in blocks that are at `page` and behind it.
    fn write_blocks(
        &self,
        file: (&Inode, &State),
        (first, page, count, fresh): (u64, u64, u64, bool),
        chunk: &Range<u64>,
        data: &[u8],
    ) -> Result<()> {
        let (mut block, end) = (first, first + count);
        while block < end {
            let page = page + (block - first);
            let range = within(block, chunk.start, chunk.end);
            let at = (block * PAGE_BYTES + range.start as u64 - chunk.start) as usize;
            if range.len() < PAGE {
                self.write_part(file, (block, page, fresh), range.start, &data[at..at + range.len()])?;
                block += 1;
                continue;
            }
            let whole = (end.min(chunk.end / PAGE_BYTES)) - block;
            if !fresh {
                self.settle_queue(file.0, file.1, &(block..block + whole))?;
            }
            self.media.write(page, &data[at..at + whole as usize * PAGE], Structure::Data)?;
            block += whole;
        }
        Ok(())
    }

    /// Gives a file another size.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; then nothing has changed. [`Error::Corrupt`], [`Error::Io`].
    pub fn resize_file(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Tx<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let outcome = self.resize_to(inode, state, size, apply);
        // What is in memory has changed, whatever flash says; but not where there was no block for
        // attributes.
        outcome.inspect_err(|error| {
            if *error != Error::NoSpace {
                self.names.health.fail(error);
            }
        })
    }

    fn resize_to(
        &self,
        inode: &Inode,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Tx<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        let mut tx = Tx::new(self, 0)?;
        tx.belongs_to(inode.ino, state.generation);
        apply(&mut tx, state)?;
        let from = size.div_ceil(PAGE_BYTES);
        if size > state.size {
            self.clear_tail(inode, state)?;
        } else {
            self.settle_queue(inode, state, &(size / PAGE_BYTES..u64::MAX))?;
        }
        let shrinks = size < state.size;
        state.size = size;
        // What one record cannot free is freed by those behind it, or by the next mount.
        let marks = !state.orphan;
        let mut all = true;
        if shrinks {
            all = tx.cut(&mut state.part, from, false)?;
            inode.beside.filemap.lock().remove(from, u64::MAX);
        }
        if !all && marks {
            tx.set_bits(Map::Orphans, inode.ino.0, 1, true);
        }
        tx.write_inode(inode.ino, inode.parent(), state);
        tx.commit()?;
        if !all {
            self.finish_cut(inode, state)?;
        }
        Ok(())
    }

    /// Frees what lies behind a file's end.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn finish_cut(&self, inode: &Inode, state: &mut State) -> Result<()> {
        let from = state.size.div_ceil(PAGE_BYTES);
        loop {
            let mut tx = Tx::new(self, 0)?;
            tx.belongs_to(inode.ino, state.generation);
            let all = tx.cut(&mut state.part, from, false)?;
            if all && !state.orphan {
                tx.set_bits(Map::Orphans, inode.ino.0, 1, false);
            }
            tx.write_inode(inode.ino, inode.parent(), state);
            tx.commit()?;
            if all {
                return Ok(());
            }
        }
    }

    /// The first offset from `offset` on that is data, or a hole.
    ///
    /// # Errors
    /// [`Error::NoData`]; [`Error::Corrupt`], [`Error::Io`].
    pub fn seek_file(&self, inode: &Inode, offset: u64, what: Seek) -> Result<u64> {
        regular(inode.file_type)?;
        let state = inode.state.read();
        if offset >= state.size {
            return Err(Error::NoData);
        }
        let blocks = blocks_of(offset, state.size);
        let mut block = blocks.start;
        while block < blocks.end {
            let found = self.look(inode, &state, block, blocks.end - block)?;
            let is_data = matches!(found, Blocks::Mapped(pointer, _) if pointer & UNWRITTEN == 0);
            if is_data == (what == Seek::Data) {
                return Ok(offset.max(block * PAGE_BYTES));
            }
            block += found.count();
        }
        if what == Seek::Hole { Ok(state.size) } else { Err(Error::NoData) }
    }
}

/// A range of bytes in pieces of at most as many blocks as a record maps.
fn in_chunks(offset: u64, end: u64) -> impl Iterator<Item = Range<u64>> + Clone {
    let steps = in_steps(blocks_of(offset, end));
    steps.map(move |step| offset.max(step.start * PAGE_BYTES)..end.min(step.end * PAGE_BYTES))
}

/// Blocks in pieces of at most as many as a record maps.
pub fn in_steps(blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> + Clone {
    let pieces = blocks.start / BLOCKS_PER_RECORD..blocks.end.div_ceil(BLOCKS_PER_RECORD);
    pieces.map(move |piece| {
        blocks.start.max(piece * BLOCKS_PER_RECORD)..blocks.end.min((piece + 1) * BLOCKS_PER_RECORD)
    })
}
