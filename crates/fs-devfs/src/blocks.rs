//! Which blocks a file has: pointer pages in levels, as PMFS keeps them (§4.1), and how they come and go. A
//! directory's blocks are metadata pages.

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, Result};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U32;

use crate::controller::Controller;
use crate::format::{LEVELS_MAX, POINTERS, UNWRITTEN};
use crate::part::Part;
use crate::planted::{self, Bug};
use crate::tx::Tx;

/// Bytes of a record that freeing blocks leaves to the inode and what else the change has.
const RECORD_REST: usize = 900;

/// Leaves that a file with so many levels can have.
pub const fn leaves(levels: u8) -> u64 {
    if levels == 0 { 0 } else { POINTERS.pow(levels as u32 - 1) }
}

/// Pointer pages that mapping `count` blocks from `first` on can take at most.
pub const fn pages_needed(first: u64, count: u64) -> u64 {
    let leaves = (first + count).div_ceil(POINTERS) - first / POINTERS;
    leaves + leaves / POINTERS + 2 * LEVELS_MAX as u64
}

/// Where the pointers of a leaf's blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// In this page.
    At(u32),
    /// Nowhere: up to this leaf, all are holes.
    HoleUpTo(u64),
}

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// A pointer of a pointer page.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn pointer(&self, page: u32, index: u64) -> Result<u32> {
        Ok(self.meta.read::<U32>(page.into(), index as usize * 4)?.get())
    }

    /// The leaf of a file's pointer pages.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn leaf(&self, part: &Part, leaf: u64) -> Result<Leaf> {
        if part.root == 0 || leaf >= leaves(part.levels) {
            return Ok(Leaf::HoleUpTo(u64::MAX / POINTERS));
        }
        let mut page = part.root;
        for level in (1..part.levels).rev() {
            let below = leaves(level);
            page = self.checked_page(self.pointer(page, leaf / below % POINTERS)?)?;
            if page == 0 {
                return Ok(Leaf::HoleUpTo((leaf / below + 1) * below));
            }
        }
        Ok(Leaf::At(page))
    }

    /// Refuses a pointer that leads out of the blocks.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn checked(&self, pointer: u32) -> Result<u32> {
        if pointer == 0 || self.layout.is_block(u64::from(pointer & !UNWRITTEN)) {
            return Ok(pointer);
        }
        Err(Error::corrupt(
            "page",
            u64::from(pointer & !UNWRITTEN),
            "a pointer leads there, and it is no block",
        ))
    }

    /// Refuses a number that is no block's; 0 stands for none.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn checked_page(&self, page: u32) -> Result<u32> {
        if page == 0 || self.layout.is_block(page.into()) {
            return Ok(page);
        }
        Err(Error::corrupt("page", u64::from(page), "it is referred to, and is no block"))
    }

    /// The pointer of a block; 0: a hole.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn block(&self, part: &Part, block: u64) -> Result<u32> {
        match self.leaf(part, block / POINTERS)? {
            Leaf::At(leaf) => self.checked(self.pointer(leaf, block % POINTERS)?),
            Leaf::HoleUpTo(_) => Ok(0),
        }
    }

    /// The pointers of a pointer page.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn pointers_in(&self, page: u32) -> Result<Vec<u32>> {
        let read = self.meta.with(page.into(), |bytes| -> Vec<u32> {
            bytes.as_chunks::<4>().0.iter().map(|pointer| u32::from_le_bytes(*pointer)).collect()
        })?;
        read.into_iter().map(|pointer| self.checked(pointer)).collect()
    }
}

impl<D: BlockPort + MemoryArea + 'static> Tx<'_, D> {
    /// A leaf, which is made if it is not there.
    fn leaf_to_set(&mut self, part: &mut Part, leaf: u64) -> Result<u32> {
        if part.root == 0 {
            let enough = (1..).find(|levels| leaf < leaves(*levels));
            // Together: an inode whose change fails between them is read again all the same.
            part.root = self.pointer_page(part)?;
            part.levels = enough.unwrap_or_else(|| unreachable!("a file's last leaf has its levels"));
        }
        while leaf >= leaves(part.levels) {
            let above = self.pointer_page(part)?;
            self.set_pointer(above, 0, part.root);
            part.root = above;
            part.levels += 1;
        }
        let mut page = part.root;
        for level in (1..part.levels).rev() {
            let index = leaf / leaves(level) % POINTERS;
            let below = self.fs.checked_page(self.pointer(page, index)?)?;
            page = if below == 0 {
                let made = self.pointer_page(part)?;
                self.set_pointer(page, index, made);
                made
            } else {
                below
            };
        }
        Ok(page)
    }

    fn pointer_page(&mut self, part: &mut Part) -> Result<u32> {
        let page = self.take_page()?;
        part.blocks += 1;
        Ok(page as u32)
    }

    /// Sets the pointers of blocks that lie one after the other.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn set_pointers(&mut self, part: &mut Part, first: u64, pointers: &[u32]) -> Result<()> {
        let mut done = 0;
        while done < pointers.len() {
            let block = first + done as u64;
            let count = ((POINTERS - block % POINTERS) as usize).min(pointers.len() - done);
            let leaf = self.leaf_to_set(part, block / POINTERS)?;
            let bytes: Vec<U32> =
                pointers[done..done + count].iter().map(|pointer| (*pointer).into()).collect();
            self.parts.bytes(leaf.into(), (block % POINTERS) as usize * 4, bytes.as_bytes());
            done += count;
        }
        Ok(())
    }

    /// Frees the blocks of a file from `from` on, the last first, as many as the record has room for. Returns
    /// whether those were all. `metadata`: they are metadata pages.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn cut(&mut self, part: &mut Part, from: u64, metadata: bool) -> Result<bool> {
        if part.root == 0 {
            return Ok(true);
        }
        let (root, levels) = (part.root, part.levels);
        let (all, empty) = self.cut_below(part, (root, levels, 0), from, metadata)?;
        if empty {
            self.free_page(root.into());
            part.give_up(1)?;
            (part.root, part.levels) = (0, 0);
        }
        Ok(all)
    }

    /// As [`cut`](Self::cut) below one pointer page: whether those were all, and whether nothing is left in
    /// the page.
    fn cut_below(
        &mut self,
        part: &mut Part,
        (page, level, first_leaf): (u32, u8, u64),
        from: u64,
        metadata: bool,
    ) -> Result<(bool, bool)> {
        if level == 1 {
            return self.cut_leaf(part, page, from.saturating_sub(first_leaf * POINTERS), metadata);
        }
        let below = leaves(level - 1);
        // What lies before `from` and what it lies in stay.
        let kept = ((from / POINTERS).saturating_sub(first_leaf) / below).min(POINTERS);
        for index in (kept..POINTERS).rev() {
            let child = self.fs.checked_page(self.pointer(page, index)?)?;
            if child == 0 {
                continue;
            }
            let at = (child, level - 1, first_leaf + index * below);
            let (all, empty) = self.cut_below(part, at, from, metadata)?;
            if empty {
                self.free_page(child.into());
                part.give_up(1)?;
                self.set_pointer(page, index, 0);
            }
            if !all || !self.has_room(RECORD_REST) {
                return Ok((false, false));
            }
        }
        let mut before = 0..kept;
        let left =
            before.try_fold(false, |left, index| Ok::<_, Error>(left || self.pointer(page, index)? != 0))?;
        // What lies in `kept` itself may still be there.
        let empty = !left && self.pointer(page, kept.min(POINTERS - 1))? == 0;
        Ok((true, empty))
    }

    fn cut_leaf(&mut self, part: &mut Part, page: u32, from: u64, metadata: bool) -> Result<(bool, bool)> {
        let pointers = self.fs.pointers_in(page)?;
        let from = from.min(POINTERS) as usize;
        let mut end = pointers.len();
        while end > from && self.has_room(RECORD_REST) {
            let pointer = pointers[end - 1];
            if pointer == 0 {
                end -= 1;
                continue;
            }
            // A run that ends here.
            let block = pointer & !UNWRITTEN;
            let mut count = 1;
            while !metadata
                && end - count > from
                && u64::from(pointers[end - count - 1] & !UNWRITTEN) + count as u64 == u64::from(block)
            {
                count += 1;
            }
            let first = u64::from(block) + 1 - count as u64;
            if !self.fs.layout.is_block(first) {
                return Err(Error::corrupt("pointer page", u64::from(page), "it leads out of the blocks"));
            }
            if metadata {
                (first..first + count as u64).for_each(|page| self.free_page(page));
            } else {
                self.free_blocks(first, count as u64);
            }
            part.give_up(count as u64)?;
            end -= count;
        }
        let clears = pointers[end..].iter().any(|pointer| *pointer != 0);
        if clears && !planted::has(Bug::PointersStay) {
            self.parts.zeros(page.into(), end * 4, (pointers.len() - end) * 4);
        }
        let all = end <= from;
        Ok((all, all && pointers[..end].iter().all(|pointer| *pointer == 0)))
    }
}
