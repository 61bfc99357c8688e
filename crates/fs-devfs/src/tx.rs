//! A change of the file system under construction: parts of metadata pages, which become one record in the
//! journal of the file that the change begins with (§4.2). When the record is in protected memory, the change
//! counts.

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_vfs::{Error, Ino, Result};
use smallvec::SmallVec;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U32;

use crate::controller::Controller;
use crate::format::{self, BITS, Map, PAGE, RECORD_MAX, Use};
use crate::part::State;
use crate::parts::{self, Parts};
use crate::planted::{self, Bug};
use crate::slots::{Owner, Slots};

/// A change.
pub struct Tx<'a, D: BlockPort + MemoryArea + 'static> {
    pub fs: &'a Controller<D>,
    pub parts: Parts,
    /// Number and generation of the file whose journal gets the record.
    owner: Option<(Ino, u32)>,
    /// Pointers that the parts set: page, index, pointer.
    pointers: SmallVec<[(u32, u16, u32); 8]>,
    /// Blocks that are promised and not taken yet.
    reserved: u64,
    taken: SmallVec<[(u64, u64); 4]>,
    freed: Vec<(u64, u64)>,
    freed_metadata: Vec<u64>,
    /// An inode's number is promised and not taken yet.
    pub ino_reserved: bool,
    ino_taken: Option<Ino>,
    ino_freed: Option<Ino>,
    /// A file whose contents nobody will see any more.
    queue_void: Option<(Ino, u32)>,
}

impl<'a, D: BlockPort + MemoryArea + 'static> Tx<'a, D> {
    /// A change that takes at most `blocks` blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn new(fs: &'a Controller<D>, blocks: u64) -> Result<Self> {
        if !fs.blocks.reserve(blocks) {
            return Err(Error::NoSpace);
        }
        Ok(Self::promised(fs, blocks))
    }

    /// As [`new`](Self::new), of blocks that were promised to the caller.
    pub fn promised(fs: &'a Controller<D>, blocks: u64) -> Self {
        Self {
            fs,
            parts: Parts::default(),
            owner: None,
            pointers: SmallVec::new(),
            reserved: blocks,
            taken: SmallVec::new(),
            freed: Vec::new(),
            freed_metadata: Vec::new(),
            ino_reserved: false,
            ino_taken: None,
            ino_freed: None,
            queue_void: None,
        }
    }

    /// The first file that is named gets the record.
    pub fn belongs_to(&mut self, ino: Ino, generation: u32) {
        self.owner.get_or_insert((ino, generation));
    }

    /// Whether the record has room for so many bytes more.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.parts.bytes.len() + bytes <= RECORD_MAX
    }

    /// Sets or clears bits of a bitmap.
    pub fn set_bits(&mut self, map: Map, first: u64, count: u64, on: bool) {
        let (mut bit, end) = (first, first + count);
        while bit < end {
            let within = bit % BITS;
            let part = (BITS - within).min(end - bit);
            let page = self.fs.layout.map(map) + bit / BITS;
            self.parts.bits(page, within as usize, part as usize, on);
            bit += part;
        }
    }

    /// Asks for one block, unless one is promised already.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn ensure_reserved(&mut self) -> Result<()> {
        if self.reserved == 0 {
            if !self.fs.blocks.reserve(1) {
                return Err(Error::NoSpace);
            }
            self.reserved = 1;
        }
        Ok(())
    }

    /// Takes at most `most` blocks that lie one after the other: first and count.
    pub fn take_blocks(&mut self, most: u64) -> (u64, u64) {
        debug_assert!(self.reserved > 0, "a change asks for its blocks when it begins");
        let (first, count) = self.fs.blocks.take(most.min(self.reserved));
        self.reserved -= count;
        self.taken.push((first, count));
        if !planted::has(Bug::BlockNotMarked) {
            self.set_bits(Map::Blocks, first, count, true);
        }
        (first, count)
    }

    /// Takes a block for metadata, and makes it an empty page.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn take_page(&mut self) -> Result<u64> {
        let (page, _) = self.take_blocks(1);
        self.fs.meta.begin_page(page, self.fs.slots.stamp())?;
        Ok(page)
    }

    /// Once the change counts, what the file's queue holds comes in place no more: nobody can see the file.
    pub const fn void_queue(&mut self, ino: Ino, generation: u32) {
        self.queue_void = Some((ino, generation));
    }

    /// Frees blocks of data.
    pub fn free_blocks(&mut self, first: u64, count: u64) {
        self.freed.push((first, count));
        if !planted::has(Bug::BlockStaysMarked) {
            self.set_bits(Map::Blocks, first, count, false);
        }
    }

    /// Frees a metadata page. Nobody takes it before all journals are empty, since one may have records for
    /// it.
    pub fn free_page(&mut self, page: u64) {
        self.freed_metadata.push(page);
        self.set_bits(Map::Blocks, page, 1, false);
    }

    /// Writes a block that nobody refers to yet, and returns its number.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_block(&mut self, bytes: &[u8; PAGE]) -> Result<u64> {
        let (block, _) = self.take_blocks(1);
        self.fs.media.write(block, bytes, Structure::Other)?;
        Ok(block)
    }

    /// A pointer of a pointer page as this change leaves it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn pointer(&self, page: u32, index: u64) -> Result<u32> {
        let set = self.pointers.iter().rev().find(|(of, at, _)| *of == page && u64::from(*at) == index);
        match set {
            Some((.., pointer)) => Ok(*pointer),
            None => self.fs.pointer(page, index),
        }
    }

    /// Sets a pointer to a pointer page.
    pub fn set_pointer(&mut self, page: u32, index: u64, pointer: u32) {
        self.parts.bytes(page.into(), index as usize * 4, U32::from(pointer).as_bytes());
        self.pointers.push((page, index as u16, pointer));
    }

    /// Takes an inode's number, which was promised to the caller.
    pub fn take_ino(&mut self) -> Ino {
        let (ino, _) = self.fs.inodes.take(1);
        self.ino_reserved = false;
        self.ino_taken = Some(Ino(ino));
        self.set_bits(Map::Inodes, ino, 1, true);
        Ino(ino)
    }

    /// Frees an inode's number, and with it the inode.
    pub fn free_ino(&mut self, ino: Ino) {
        self.ino_freed = Some(ino);
        let (page, at) = self.fs.layout.inode(ino.0);
        self.parts.zeros(page, at, size_of::<format::Inode>());
        if !planted::has(Bug::NumberStaysTaken) {
            self.set_bits(Map::Inodes, ino.0, 1, false);
        }
        self.set_bits(Map::Orphans, ino.0, 1, false);
    }

    /// Writes an inode.
    pub fn write_inode(&mut self, ino: Ino, parent: Ino, state: &State) {
        self.belongs_to(ino, state.generation);
        let inode = crate::inode::encode(parent, state);
        let (page, at) = self.fs.layout.inode(ino.0);
        self.parts.bytes(page, at, inode.as_bytes());
    }

    /// Writes an inode's access time alone: many of them share a record.
    pub fn write_atime(&mut self, ino: Ino, state: &State) {
        self.belongs_to(ino, state.generation);
        let (page, at) = self.fs.layout.inode(ino.0);
        let at = at + std::mem::offset_of!(format::Inode, atime);
        self.parts.bytes(page, at, &state.atime.to_le_bytes());
    }

    /// Makes the change count.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; the file system is read-only from then on.
    pub fn commit(mut self) -> Result<()> {
        let fs = self.fs;
        let health = &fs.names.health;
        let recorded = health.judge(self.record());
        // What was taken belongs to what it was taken for or, after a failure, to no one who may still write.
        self.taken.clear();
        self.ino_taken = None;
        recorded?;
        // Before anybody else can have the blocks: a queue that is committed later would write into them.
        if let Some((ino, generation)) = self.queue_void {
            let queue = Owner { ino: ino.0, generation, purpose: Use::Queue };
            health.judge(fs.slots.discard(queue))?;
        }
        self.put_freed();
        if !self.freed_metadata.is_empty() {
            self.fs.freed_pages.lock().append(&mut self.freed_metadata);
        }
        if let Some(ino) = self.ino_freed.take() {
            // Only when no queue is left that a loss of power would bring in place.
            self.fs.inodes.put(ino.0, 1);
        }
        Ok(())
    }

    fn put_freed(&mut self) {
        for (first, count) in std::mem::take(&mut self.freed) {
            self.fs.blocks.put(first, count);
        }
    }

    /// Puts the record into the journal, and its parts into the pages.
    fn record(&mut self) -> Result<()> {
        let body = std::mem::take(&mut self.parts.bytes);
        if body.is_empty() {
            return Ok(());
        }
        assert!(body.len() <= RECORD_MAX, "a change fits a record");
        let (ino, generation) = self.owner.unwrap_or((Ino::ROOT, 0));
        let owner = Owner { ino: ino.0, generation, purpose: Use::Journal };
        let (meta, slots) = (&self.fs.meta, &self.fs.slots);
        let mut slot = slots.acquire(meta, owner, body.len())?;
        let mut numbers = std::mem::take(&mut self.parts.pages);
        numbers.sort_unstable();
        let pages = numbers.iter().map(|number| meta.page((*number).into())).collect::<Result<Vec<_>>>()?;
        // All pages at once, so that stamps are in the order in which pages change.
        let mut frames: SmallVec<[_; 8]> = pages.iter().map(|page| page.write()).collect();
        frames.iter().try_for_each(|frame| frame.sound())?;
        // What one that has failed meanwhile has changed in memory must not count with this.
        if !planted::has(Bug::DoubtForgotten) {
            self.fs.names.health.sound()?;
        }
        let stamp = slots.stamp();
        slots
            .append(&mut slot, stamp, 0, false, &body)
            .inspect_err(|_| frames.iter_mut().for_each(|frame| frame.is_in_doubt = true))?;
        for (number, part) in parts::decode(&body).flatten() {
            let index =
                numbers.binary_search(&number).unwrap_or_else(|_| unreachable!("its pages are known"));
            part.apply(&mut frames[index].bytes);
        }
        for (frame, number) in frames.iter_mut().zip(&numbers) {
            frame.stamp = stamp;
            if !planted::has(Bug::PageNotNoted) {
                Slots::<D>::note_page(&mut slot, (*number).into(), stamp);
            }
        }
        Ok(())
    }
}

impl<D: BlockPort + MemoryArea + 'static> Drop for Tx<'_, D> {
    fn drop(&mut self) {
        self.fs.blocks.unreserve(self.reserved);
        for (first, count) in &self.taken {
            self.fs.blocks.put(*first, *count);
        }
        self.fs.inodes.unreserve(self.ino_reserved.into());
        if let Some(ino) = self.ino_taken {
            self.fs.inodes.put(ino.0, 1);
        }
    }
}
