//! Where a file's data blocks are (RO-5): the slots of the first eight in the inode, the others in a radix
//! tree of metadata pages. The lowest pages have 256 slots; those above point to 1,024 pages. The tree is
//! read in the metadata that host memory has.

use std::ops::{ControlFlow, Range};

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, Result};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::core::Core;
use crate::format::{DEPTH_MAX, INLINE_SLOTS, Map, PAGE, PAGE_POINTERS, PAGE_SLOTS, Slot};
use crate::mapping::Mapping;
use crate::tx::Tx;

/// Most pages that [`grow`] takes.
pub const GROWTH_PAGES_MAX: usize = 2 * DEPTH_MAX as usize;

/// Slots below pages of so many levels.
const fn slots_below(depth: u8) -> u64 {
    if depth == 0 { 0 } else { PAGE_SLOTS * PAGE_POINTERS.pow(depth as u32 - 1) }
}

impl<D: BlockPort + MemoryArea> Core<D> {
    /// The page that an entry of a mapping page names.
    fn named_page(&self, number: u32) -> Result<Option<u64>> {
        let Some(page) = number.checked_sub(1) else { return Ok(None) };
        if u64::from(page) >= self.layout.plan.pages {
            return Err(Error::corrupt(
                "page",
                u64::from(page),
                "a mapping page names it, and it does not exist",
            ));
        }
        Ok(Some(self.layout.page(page)))
    }

    /// The address of a slot behind the first eight; none if it has no page.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn slot_address(&self, mapping: &Mapping, index: u64) -> Result<Option<u64>> {
        let mut rest = index - INLINE_SLOTS;
        if rest >= slots_below(mapping.depth) {
            return Ok(None);
        }
        let mut page = self.named_page(mapping.root)?;
        for level in (1..mapping.depth).rev() {
            let Some(at) = page else { return Ok(None) };
            let below = slots_below(level);
            let pointer: U32 = self.meta.read(at + rest / below * 4)?;
            rest %= below;
            page = self.named_page(pointer.get())?;
        }
        Ok(page.map(|at| at + rest * size_of::<Slot>() as u64))
    }

    /// A slot.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn slot(&self, mapping: &Mapping, index: u64) -> Result<Slot> {
        if index < INLINE_SLOTS {
            return Ok(mapping.slots[index as usize]);
        }
        let slot = match self.slot_address(mapping, index)? {
            Some(at) => self.meta.read(at)?,
            None => Slot::default(),
        };
        self.check_slot(slot)
    }

    /// What is read of a slot, if it can be.
    fn check_slot(&self, slot: Slot) -> Result<Slot> {
        let plan = &self.layout.plan;
        // A directory's slots name pages, of which there are fewer or more.
        let named = u64::from(slot.block.get()) <= plan.blocks.max(plan.pages)
            && u64::from(slot.leaf.get()) <= plan.leaves
            && u64::from(slot.valid.get()) <= plan.block_bytes;
        if named {
            Ok(slot)
        } else {
            Err(Error::corrupt(
                "block",
                u64::from(slot.block.get()),
                "a slot names it, its leaf or its end beyond what exists",
            ))
        }
    }

    /// Calls `body` with the slots of `range` that hold something, in order, until it breaks.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn visit_slots(
        &self,
        mapping: &Mapping,
        range: Range<u64>,
        mut body: impl FnMut(u64, Slot) -> ControlFlow<()>,
    ) -> Result<()> {
        for index in range.start..range.end.min(INLINE_SLOTS) {
            let slot = mapping.slots[index as usize];
            if !slot.is_empty() && body(index, self.check_slot(slot)?).is_break() {
                return Ok(());
            }
        }
        let shift = |index: u64| index.saturating_sub(INLINE_SLOTS);
        let range = shift(range.start)..shift(range.end).min(slots_below(mapping.depth));
        if let Some(root) = self.named_page(mapping.root)?
            && !range.is_empty()
        {
            let _ended = self.visit_page(root, mapping.depth, 0, &range, &mut body)?;
        }
        Ok(())
    }

    fn visit_page(
        &self,
        page: u64,
        level: u8,
        base: u64,
        range: &Range<u64>,
        body: &mut impl FnMut(u64, Slot) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let below = if level == 1 { 1 } else { slots_below(level - 1) };
        let first = range.start.saturating_sub(base) / below;
        let last = (range.end - base).div_ceil(below).min(slots_below(level) / below);
        for number in first..last {
            let flow = if level == 1 {
                let slot: Slot = self.meta.read(page + number * size_of::<Slot>() as u64)?;
                if slot.is_empty() {
                    continue;
                }
                body(INLINE_SLOTS + base + number, self.check_slot(slot)?)
            } else {
                let pointer: U32 = self.meta.read(page + number * 4)?;
                let Some(page) = self.named_page(pointer.get())? else { continue };
                self.visit_page(page, level - 1, base + number * below, range, body)?
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The mapping pages, highest first.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn mapping_pages(&self, mapping: &Mapping) -> Result<Vec<u32>> {
        let mut pages = Vec::new();
        if let Some(root) = mapping.root.checked_sub(1) {
            self.named_page(mapping.root)?;
            pages.push(root);
        }
        let mut level_start = 0;
        for _ in 1..mapping.depth {
            let level_end = pages.len();
            for number in level_start..level_end {
                let at = self.layout.page(pages[number]);
                for pointer in 0..PAGE_POINTERS {
                    let pointer: U32 = self.meta.read(at + pointer * 4)?;
                    if self.named_page(pointer.get())?.is_some() {
                        pages.push(pointer.get() - 1);
                    }
                }
            }
            level_start = level_end;
        }
        Ok(pages)
    }
}

/// Sees to it that a slot has a page, by one transaction that grows only there. Returns the slot's address,
/// none for one in the inode.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn grow<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    mapping: &mut Mapping,
    index: u64,
) -> Result<Option<u64>> {
    let Some(index) = index.checked_sub(INLINE_SLOTS) else { return Ok(None) };
    let core = tx.core;
    // Pages of this transaction are not in the metadata yet, and hold nothing where we go.
    let mut fresh = false;
    while index >= slots_below(mapping.depth) {
        let page = tx.page(true)?;
        if mapping.root != 0 {
            tx.ops.bytes(core.layout.page(page), U32::new(mapping.root).as_bytes());
            mapping.depth += 1;
        } else {
            mapping.depth =
                (1..=DEPTH_MAX).find(|depth| index < slots_below(*depth)).ok_or(Error::TooLarge)?;
        }
        mapping.root = page + 1;
        fresh = true;
    }
    let mut rest = index;
    let mut page = mapping.root - 1;
    for level in (1..mapping.depth).rev() {
        let below = slots_below(level);
        let at = core.layout.page(page) + rest / below * 4;
        rest %= below;
        let pointer = if fresh { 0 } else { core.meta.read::<U32>(at)?.get() };
        page = match pointer.checked_sub(1) {
            Some(page) => page,
            None => {
                fresh = true;
                let page = tx.page(true)?;
                tx.ops.bytes(at, U32::new(page + 1).as_bytes());
                page
            }
        };
    }
    Ok(Some(core.layout.page(page) + rest * size_of::<Slot>() as u64))
}

/// Frees the mapping pages of a file that has nothing left.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn free_pages<D: BlockPort + MemoryArea>(tx: &mut Tx<'_, D>, mapping: &mut Mapping) -> Result<()> {
    for page in tx.core.mapping_pages(mapping)? {
        tx.free(Map::Pages, page.into(), 1);
    }
    (mapping.root, mapping.depth) = (0, 0);
    Ok(())
}

const _: () = assert!(PAGE_SLOTS as usize * size_of::<Slot>() == PAGE);
