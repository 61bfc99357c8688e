//! The first half of a repair: what inodes refer to. Whatever cannot be, or belongs to an inode that came
//! before, is let go of, and everything else stays as it is.

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::core::Core;
use crate::dir;
use crate::format::{
    INLINE_SLOTS, INLINE_TARGET_BYTES, INODE_BYTES, INODE_HEAD_BYTES, InodeHead, LeafHead, Map, PAGE,
    PAGE_POINTERS, PAGE_SLOTS, PAGE_UNITS, Slot, TYPES, UNIT,
};
use crate::logs;
use crate::mapping::Mapping;
use crate::ops::Ops;
use crate::tree::Leaf;
use crate::xattr;

/// Bytes of operations that go to the journal as one transaction.
const TRANSACTION_BYTES: usize = 8 << 10;

/// Who refers to what, so far.
pub struct Mender<'a, D: BlockPort + MemoryArea + 'static> {
    core: &'a Core<D>,
    ops: Ops,
    owned: [Vec<u64>; Map::ALL.len()],
}

/// What an inode has by its slots.
#[derive(Default)]
struct Counts {
    blocks: u64,
    logs: u64,
    /// One behind the last slot that holds something.
    end: u64,
    /// A directory's pages, as long as none is missing.
    pages: Vec<u32>,
}

impl<'a, D: BlockPort + MemoryArea> Mender<'a, D> {
    /// Nobody refers to anything yet.
    pub fn new(core: &'a Core<D>) -> Self {
        let owned = Map::ALL.map(|map| vec![0; core.layout.bits(map).div_ceil(64) as usize]);
        Self { core, ops: Ops::default(), owned }
    }

    /// Mends every inode.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn run(mut self) -> Result<()> {
        for ino in 1..self.core.layout.plan.inodes {
            self.inode(ino)?;
            self.flush(TRANSACTION_BYTES)?;
        }
        self.flush(0)
    }

    /// Makes what has come together count, if it is more than `bytes`.
    fn flush(&mut self, bytes: usize) -> Result<()> {
        if self.ops.as_bytes().len() > bytes {
            let ops = std::mem::take(&mut self.ops);
            self.core.journal.append(&self.core.meta, &ops)?;
        }
        Ok(())
    }

    /// Notes a reference to number `stored - 1`, which must exist and have no other. False if it cannot stay.
    fn take(&mut self, map: Map, stored: u32) -> bool {
        let Some(number) = stored.checked_sub(1).map(u64::from) else { return true };
        if number >= self.core.layout.bits(map) {
            return false;
        }
        let word = &mut self.owned[map as usize][(number / 64) as usize];
        let free = *word >> (number % 64) & 1 == 0;
        *word |= 1 << (number % 64);
        free
    }

    fn inode(&mut self, ino: u64) -> Result<()> {
        let at = self.core.layout.inode(ino);
        let mut head: InodeHead = self.core.meta.read(at)?;
        let Some(file_type) = TYPES.file_type(head.kind) else {
            if head.kind != 0 {
                self.ops.zeros(at, INODE_BYTES);
            }
            return Ok(());
        };
        let before = head;
        // A file's are counted below; of others they mean nothing, and must not be impossible.
        (head.blocks, head.logs) = (0.into(), 0.into());
        if file_type != FileType::Directory {
            head.entries = 0.into();
        }
        let is_sound = self.take(Map::Pages, head.attributes.get())
            && match head.attributes.get().checked_sub(1) {
                Some(page) => xattr::is_sound(self.core, page)?,
                None => true,
            };
        if !is_sound {
            head.attributes = 0.into();
        }
        if file_type == FileType::Symlink {
            let is_long = head.size.get() > INLINE_TARGET_BYTES as u64;
            let counts_are_sound = before.as_bytes() == head.as_bytes();
            let is_there = match self.core.load_inode(Ino(ino)) {
                Err(Error::Corrupt(_)) => !counts_are_sound,
                loaded => loaded.map(|_| true)?,
            };
            if !is_there || is_long && !self.take(Map::Pages, head.root.get()) {
                self.ops.zeros(at, INODE_BYTES);
                return Ok(());
            }
        } else {
            self.contents(ino, file_type, &mut head)?;
        }
        if head.as_bytes() != before.as_bytes() {
            self.ops.bytes(at, head.as_bytes());
        }
        Ok(())
    }

    /// Mends what an inode has by its slots, and what its head says of that.
    fn contents(&mut self, ino: u64, file_type: FileType, head: &mut InodeHead) -> Result<()> {
        let at = self.core.layout.inode(ino) + INODE_HEAD_BYTES as u64;
        let slots: [Slot; INLINE_SLOTS as usize] = self.core.meta.read(at)?;
        let mapping = Mapping { slots, root: head.root.get(), depth: head.depth };
        let has_slots = matches!(file_type, FileType::Regular | FileType::Directory);
        let is_sound = has_slots && mapping.check(&self.core.layout).is_ok();
        if !is_sound || !self.take(Map::Pages, mapping.root) {
            (head.root, head.depth) = (0.into(), 0);
        }
        let mut counts = Counts::default();
        if has_slots {
            let is_dir = file_type == FileType::Directory;
            for index in 0..INLINE_SLOTS {
                self.slot((ino, is_dir), index, at + index * size_of::<Slot>() as u64, &mut counts)?;
            }
            if let Some(root) = head.root.get().checked_sub(1) {
                self.page((ino, is_dir), root, head.depth, INLINE_SLOTS, &mut counts)?;
            }
        }
        if head.size.get() > self.core.layout.file_bytes_max() {
            head.size = (counts.end * self.core.block_bytes()).into();
        }
        (head.blocks, head.logs) = (counts.blocks.into(), counts.logs.into());
        if file_type == FileType::Directory {
            head.size = (counts.blocks * PAGE as u64).into();
            let most = counts.blocks * PAGE_UNITS as u64;
            head.entries = head.entries.get().min(most).into();
            self.flush(0)?;
            for page in counts.pages {
                self.entries(page)?;
            }
        }
        Ok(())
    }

    /// Mends a mapping page, whose first slot is `base`.
    fn page(&mut self, of: (u64, bool), page: u32, level: u8, base: u64, counts: &mut Counts) -> Result<()> {
        let at = self.core.layout.page(page);
        if level == 1 {
            for number in 0..PAGE_SLOTS {
                self.slot(of, base + number, at + number * size_of::<Slot>() as u64, counts)?;
            }
            return self.flush(TRANSACTION_BYTES);
        }
        let below = PAGE_SLOTS * PAGE_POINTERS.pow(u32::from(level) - 2);
        for number in 0..PAGE_POINTERS {
            let pointer: U32 = self.core.meta.read(at + number * 4)?;
            if pointer.get() == 0 {
                continue;
            }
            if self.take(Map::Pages, pointer.get()) {
                self.page(of, pointer.get() - 1, level - 1, base + number * below, counts)?;
            } else {
                self.ops.zeros(at + number * 4, 4);
            }
        }
        Ok(())
    }

    fn slot(&mut self, (ino, is_dir): (u64, bool), index: u64, at: u64, counts: &mut Counts) -> Result<()> {
        let before: Slot = self.core.meta.read(at)?;
        if before.is_empty() {
            return Ok(());
        }
        let mut slot = Slot { reserved: 0.into(), ..before };
        if !self.take(if is_dir { Map::Pages } else { Map::Blocks }, slot.block.get()) {
            (slot.block, slot.valid) = (0.into(), 0.into());
        }
        let block_bytes = self.core.block_bytes() as u32;
        slot.valid = slot.valid.get().min(if slot.block().is_some() { block_bytes } else { 0 }).into();
        if is_dir {
            (slot.valid, slot.leaf) = (0.into(), 0.into());
            if slot.block().is_some() && counts.pages.len() as u64 != index {
                // Its entries are not where their cookies say.
                slot.block = 0.into();
            }
            counts.pages.extend(slot.block());
        } else if let Some(leaf) = slot.leaf() {
            match self.leaf(ino, index, leaf)? {
                Some(logs) => counts.logs += logs,
                None => slot.leaf = 0.into(),
            }
        }
        counts.blocks += u64::from(slot.block().is_some());
        if !slot.is_empty() {
            counts.end = index + 1;
        }
        if slot != before {
            self.ops.bytes(at, slot.as_bytes());
        }
        Ok(())
    }

    /// Mends a leaf. Returns how many logs it has; none if it cannot stay.
    fn leaf(&mut self, ino: u64, block: u64, number: u32) -> Result<Option<u64>> {
        if u64::from(number) >= self.core.layout.plan.leaves {
            return Ok(None);
        }
        let head: LeafHead = self.core.meta.read(self.core.layout.leaf(number))?;
        if (head.ino.get(), head.block.get()) != (ino, block) {
            return Ok(None);
        }
        let mut logs = match logs::read_leaf(self.core, number) {
            Ok((_, logs)) => logs,
            Err(error @ Error::Io(_)) => return Err(error),
            Err(_) => return Ok(None),
        };
        if !self.take(Map::Leaves, number + 1) {
            return Ok(None);
        }
        let before = logs.len();
        logs.retain(|log| self.take(Map::Logs, log.page + 1));
        let there = logs.len();
        if there < before {
            logs::store_entries(&mut self.ops, self.core, &Leaf { number, logs }, before);
        }
        Ok(Some(there as u64))
    }

    /// Clears the units of a directory's page that are no entries.
    fn entries(&mut self, page: u32) -> Result<()> {
        let at = self.core.layout.page(page);
        let bytes = self.core.meta.with(at, PAGE, <[u8]>::to_vec)?;
        let mut unit = 0;
        while unit < PAGE_UNITS {
            let rest = &bytes[unit * UNIT..];
            let units = dir::units_of(rest);
            if units.is_none() {
                self.ops.zeros(at + (unit * UNIT) as u64, UNIT as u64);
            }
            unit += units.unwrap_or(1);
        }
        self.flush(TRANSACTION_BYTES)
    }
}
