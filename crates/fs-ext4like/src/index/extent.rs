//! Where a file's blocks are: an extent tree, as on ext4.
//!
//! A tree is read whole when its inode is loaded: nearly always that is the four extents in the inode. In
//! memory it is a row of leaves; a change touches one leaf, which is split when it overflows. The levels
//! above, pointers to leaves packed in their order, are written anew when the row changes.

use amphi_device::BlockPort;
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::base::Base;
use crate::format::{
    BLOCK_EXTENTS, EXTENT_BLOCKS_MAX, EXTENT_DEPTH_MAX, EXTENT_MAGIC, Extent, ExtentHeader, Layout,
    ROOT_BYTES, ROOT_EXTENTS,
};
use crate::journal::buffers::{Block, Kind};
use crate::journal::handle::Handle;

/// A row of extents: a block's, or the inode's.
#[derive(Clone, Debug, Default)]
struct Leaf {
    /// Its block; 0: the inode, or none yet.
    block: u32,
    extents: Vec<Run>,
    changed: bool,
}

/// An extent in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block of the file.
    pub file_block: u32,
    /// First block on the device.
    pub start: u32,
    /// Length in blocks.
    pub len: u32,
    /// Reserved only.
    pub unwritten: bool,
}

impl Run {
    const fn end(&self) -> u32 {
        self.file_block + self.len
    }

    /// Whether `next` continues it.
    const fn meets(&self, next: &Self) -> bool {
        self.end() == next.file_block
            && self.start + self.len == next.start
            && self.unwritten as u8 == next.unwritten as u8
            && self.len + next.len <= EXTENT_BLOCKS_MAX
    }

    /// The part from `from` (inclusive) to `to` of the file.
    const fn part(&self, from: u32, to: u32) -> Self {
        Self {
            file_block: from,
            start: self.start + (from - self.file_block),
            len: to - from,
            unwritten: self.unwritten,
        }
    }
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    /// Never empty leaves, but for an empty tree.
    leaves: Vec<Leaf>,
    /// Blocks of the levels between inode and leaves.
    inner: Vec<u32>,
    /// Leaves came, went, or start elsewhere.
    row_changed: bool,
}

impl Mapping for Extents {
    fn map(&self, index: u64) -> Mapped {
        let Ok(block) = u32::try_from(index) else { return Mapped::Hole { pages: u64::MAX - index } };
        let next = match self.find(block) {
            Some((leaf, at)) => {
                let extents = &self.leaves[leaf].extents;
                let extent = extents[at];
                if block < extent.end() {
                    let Run { start, len, unwritten, .. } = extent.part(block, extent.end());
                    let (lba, pages) = (u64::from(start), u64::from(len));
                    return if unwritten {
                        Mapped::Unwritten { lba, pages }
                    } else {
                        Mapped::At { lba, pages }
                    };
                }
                extents.get(at + 1).or_else(|| self.leaves.get(leaf + 1).map(|leaf| &leaf.extents[0]))
            }
            None => self.leaves.first().map(|leaf| &leaf.extents[0]),
        };
        Mapped::Hole { pages: next.map_or(u64::MAX, |next| u64::from(next.file_block)) - index }
    }
}

impl Extents {
    /// Reads the tree whose root is in an inode.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load<D: BlockPort>(base: &Base<D>, root: &[u8; ROOT_BYTES], ino: u32) -> Result<Self> {
        let corrupt = |what: &'static str| Error::corrupt("inode", u64::from(ino), what);
        let (header, entries) =
            read_node(root, ROOT_EXTENTS).ok_or_else(|| corrupt("the extent root is damaged"))?;
        let mut tree = Self::default();
        let mut depth = header.depth.get();
        if depth > EXTENT_DEPTH_MAX {
            return Err(corrupt("the extent tree is too deep"));
        }
        let mut nodes: Vec<(u32, Vec<Extent>)> = vec![(0, entries)];
        // One level after the other; a level has no more blocks than the file system.
        while depth > 0 {
            let mut below = Vec::new();
            for (block, entries) in nodes {
                if block != 0 {
                    tree.inner.push(block);
                }
                for entry in entries {
                    let child = entry.start.get();
                    if !base.layout.is_data(child, 1) || below.len() as u32 >= base.layout.blocks {
                        return Err(corrupt("an extent block is outside of the data area"));
                    }
                    let bytes = base.block(u64::from(child), Kind::Extents)?;
                    let node = read_node(&bytes[..], BLOCK_EXTENTS)
                        .filter(|(h, e)| h.depth.get() == depth - 1 && !e.is_empty());
                    let (_, entries) = node.ok_or_else(|| corrupt("an extent block is damaged"))?;
                    below.push((child, entries));
                }
            }
            nodes = below;
            depth -= 1;
        }
        for (block, entries) in nodes {
            let extents = entries.iter().map(run).collect();
            tree.leaves.push(Leaf { block, extents, changed: false });
        }
        tree.leaves.retain(|leaf| !leaf.extents.is_empty());
        tree.check(&base.layout).map_err(corrupt)?;
        Ok(tree)
    }

    /// What is impossible about it.
    fn check(&self, layout: &Layout) -> std::result::Result<(), &'static str> {
        let mut end = 0;
        for extent in self.iter() {
            if extent.file_block < end {
                return Err("extents overlap");
            }
            let last = extent.file_block.checked_add(extent.len);
            if extent.len == 0 || extent.len > EXTENT_BLOCKS_MAX || !layout.is_data(extent.start, extent.len)
            {
                return Err("an extent is outside of the data area");
            }
            end = last.ok_or("an extent is beyond the largest file")?;
        }
        Ok(())
    }

    /// All extents in order.
    pub fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.leaves.iter().flat_map(|leaf| leaf.extents.iter().copied())
    }

    /// Blocks of the tree itself.
    pub fn node_blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.inner
            .iter()
            .copied()
            .chain(self.leaves.iter().map(|leaf| leaf.block).filter(|block| *block != 0))
    }

    /// The leaf that `block` of the file belongs to.
    fn leaf_of(&self, block: u32) -> usize {
        self.leaves.partition_point(|leaf| leaf.extents[0].file_block <= block).saturating_sub(1)
    }

    /// Leaf and index of the last extent that starts at or before `block`.
    fn find(&self, block: u32) -> Option<(usize, usize)> {
        let leaf = self.leaf_of(block);
        let extents = &self.leaves.get(leaf)?.extents;
        let index = extents.partition_point(|extent| extent.file_block <= block);
        Some((leaf, index.checked_sub(1)?))
    }

    /// Where the next block of the file should be: behind the one before it.
    pub fn goal(&self, block: u32) -> Option<u32> {
        let (leaf, index) = self.find(block)?;
        let extent = self.leaves[leaf].extents[index];
        Some(extent.start + extent.len)
    }

    /// Adds an extent where there was a hole.
    pub fn insert(&mut self, new: Run) {
        if self.leaves.is_empty() {
            self.leaves.push(Leaf { block: 0, extents: vec![new], changed: true });
            self.row_changed = true;
            return;
        }
        let at = self.leaf_of(new.file_block);
        let last_leaf = at + 1 == self.leaves.len();
        let leaf = &mut self.leaves[at];
        leaf.changed = true;
        let index = leaf.extents.partition_point(|extent| extent.file_block < new.file_block);
        let first_before = leaf.extents[0].file_block;
        if index > 0 && leaf.extents[index - 1].meets(&new) {
            leaf.extents[index - 1].len += new.len;
            if leaf.extents.get(index).is_some_and(|next| leaf.extents[index - 1].meets(next)) {
                leaf.extents[index - 1].len += leaf.extents[index].len;
                leaf.extents.remove(index);
            }
        } else if leaf.extents.get(index).is_some_and(|next| new.meets(next)) {
            let next = &mut leaf.extents[index];
            *next = Run { len: new.len + next.len, ..new };
        } else {
            leaf.extents.insert(index, new);
        }
        self.row_changed |= leaf.extents[0].file_block != first_before;
        let in_inode = leaf.block == 0;
        if leaf.extents.len() > BLOCK_EXTENTS || (in_inode && leaf.extents.len() > ROOT_EXTENTS) {
            self.row_changed = true;
        }
        if leaf.extents.len() > BLOCK_EXTENTS {
            // A file that grows at its end fills its leaves; one that grows in the middle has them halved.
            let cut =
                if last_leaf && index + 1 == leaf.extents.len() { BLOCK_EXTENTS } else { BLOCK_EXTENTS / 2 };
            let extents = leaf.extents.split_off(cut);
            self.leaves.insert(at + 1, Leaf { block: 0, extents, changed: true });
        }
    }

    /// Takes the blocks `from .. to` of the file out; what they were, in order.
    pub fn remove(&mut self, from: u32, to: u32) -> Vec<Run> {
        let mut removed = Vec::new();
        let mut put_back = Vec::new();
        let start = self.leaf_of(from);
        for leaf in self.leaves.iter_mut().skip(start) {
            if leaf.extents[0].file_block >= to {
                break;
            }
            let first_before = leaf.extents[0].file_block;
            let before = removed.len();
            leaf.extents.retain_mut(|extent| {
                if extent.end() <= from || extent.file_block >= to {
                    return true;
                }
                let whole = *extent;
                removed.push(whole.part(whole.file_block.max(from), whole.end().min(to)));
                if whole.end() > to {
                    put_back.push(whole.part(to, whole.end()));
                }
                extent.len = from.saturating_sub(whole.file_block);
                extent.len > 0
            });
            if removed.len() > before {
                leaf.changed = true;
                self.row_changed |= leaf.extents.first().is_none_or(|first| first.file_block != first_before);
            }
        }
        if self.leaves.iter().any(|leaf| leaf.extents.is_empty()) {
            // A leaf that is empty now keeps its block until the tree is written.
            let empty = self.leaves.iter().filter(|leaf| leaf.extents.is_empty() && leaf.block != 0);
            self.inner.extend(empty.map(|leaf| leaf.block));
            self.leaves.retain(|leaf| !leaf.extents.is_empty());
        }
        for rest in put_back {
            self.insert(rest);
        }
        removed
    }

    /// Makes the reserved blocks among `from .. to` written ones, or the other way round.
    pub fn mark(&mut self, from: u32, to: u32, unwritten: bool) {
        for part in self.remove(from, to) {
            self.insert(Run { unwritten, ..part });
        }
    }

    /// Brings the tree's blocks up to date and returns the root for the inode, and by how many blocks the
    /// tree has grown.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Corrupt`], [`Error::Io`].
    pub fn write<D: BlockPort>(
        &mut self,
        handle: &mut Handle<'_, D>,
        goal: u32,
    ) -> Result<([u8; ROOT_BYTES], i64)> {
        let base = handle.base;
        let mut grown = 0;
        let in_inode = self.leaves.len() <= 1
            && self.leaves.first().is_none_or(|leaf| leaf.extents.len() <= ROOT_EXTENTS);
        let mut spare = Vec::new();
        if self.row_changed || in_inode {
            spare = std::mem::take(&mut self.inner);
        }
        if in_inode {
            if let Some(leaf) = self.leaves.first_mut()
                && leaf.block != 0
            {
                spare.push(std::mem::take(&mut leaf.block));
            }
        } else {
            let node = |spare: &mut Vec<u32>, handle: &mut Handle<'_, D>, grown: &mut i64| match spare.pop() {
                Some(block) => Ok(block),
                None => {
                    *grown += 1;
                    base.groups.allocate_node(handle, goal)
                }
            };
            for leaf in &mut self.leaves {
                let fresh = leaf.block == 0;
                if fresh {
                    leaf.block = node(&mut spare, handle, &mut grown)?;
                }
                if fresh || leaf.changed {
                    let extents: Vec<Extent> = leaf.extents.iter().map(disk).collect();
                    put_node(handle, leaf.block, 0, &extents)?;
                }
            }
        }
        for leaf in &mut self.leaves {
            leaf.changed = false;
        }
        let mut depth = 0;
        let mut entries: Vec<Extent> = if in_inode {
            self.leaves.first().map_or_else(Vec::new, |leaf| leaf.extents.iter().map(disk).collect())
        } else {
            depth = 1;
            self.leaves.iter().map(|leaf| pointer(leaf.extents[0].file_block, leaf.block)).collect()
        };
        let mut level_at = 0;
        while entries.len() > ROOT_EXTENTS {
            let mut above = Vec::new();
            for part in entries.chunks(BLOCK_EXTENTS) {
                let block = if self.row_changed {
                    let block = match spare.pop() {
                        Some(block) => block,
                        None => {
                            grown += 1;
                            base.groups.allocate_node(handle, goal)?
                        }
                    };
                    self.inner.push(block);
                    put_node(handle, block, depth, part)?;
                    block
                } else {
                    let block = self.inner.get(level_at).copied();
                    level_at += 1;
                    block.ok_or_else(|| Error::corrupt("extent tree", None, "it has lost a block"))?
                };
                above.push(pointer(part[0].file_block.get(), block));
            }
            entries = above;
            depth += 1;
        }
        for block in spare {
            grown -= 1;
            base.groups.free_blocks(handle, block, 1, true)?;
        }
        self.row_changed = false;
        let mut root = [0; ROOT_BYTES];
        write_node(&mut root, ROOT_EXTENTS, depth, &entries);
        Ok((root, grown))
    }
}

fn run(extent: &Extent) -> Run {
    Run {
        file_block: extent.file_block.get(),
        start: extent.start.get(),
        len: u32::from(extent.len.get()),
        unwritten: extent.unwritten.get() != 0,
    }
}

/// An extent as the device has it.
pub fn disk(run: &Run) -> Extent {
    Extent {
        file_block: run.file_block.into(),
        len: (run.len as u16).into(),
        unwritten: u16::from(run.unwritten).into(),
        start: run.start.into(),
    }
}

fn pointer(file_block: u32, block: u32) -> Extent {
    Extent { file_block: file_block.into(), len: 0.into(), unwritten: 0.into(), start: block.into() }
}

/// Reads a root or a block of extents: header and entries.
pub fn read_node(bytes: &[u8], max: usize) -> Option<(ExtentHeader, Vec<Extent>)> {
    let (header, rest) = ExtentHeader::read_from_prefix(bytes).ok()?;
    let count = usize::from(header.entries.get());
    if header.magic.get() != EXTENT_MAGIC || count > max {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for chunk in rest.chunks_exact(size_of::<Extent>()).take(count) {
        entries.push(Extent::read_from_bytes(chunk).ok()?);
    }
    Some((header, entries))
}

/// Writes a root or a block of extents.
pub fn write_node(bytes: &mut [u8], max: usize, depth: u16, entries: &[Extent]) {
    let header = ExtentHeader {
        magic: EXTENT_MAGIC.into(),
        entries: (entries.len() as u16).into(),
        max: (max as u16).into(),
        depth: depth.into(),
        reserved: 0.into(),
    };
    bytes.fill(0);
    let (head, rest) = bytes.split_at_mut(size_of::<ExtentHeader>());
    head.copy_from_slice(header.as_bytes());
    rest[..size_of_val(entries)].copy_from_slice(entries.as_bytes());
}

fn put_node<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    block: u32,
    depth: u16,
    entries: &[Extent],
) -> Result<()> {
    let change = |bytes: &mut Block| write_node(bytes, BLOCK_EXTENTS, depth, entries);
    let lba = u64::from(block);
    // It may be one of this tree's from before, or fresh: either way its old contents do not matter.
    if handle.base.buffers.cached(lba).is_some() {
        handle.modify(lba, Kind::Extents, change)
    } else {
        handle.fill(lba, Kind::Extents, change)
    }
}
