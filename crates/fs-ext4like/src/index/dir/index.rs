//! The index of a directory: block 0 holds pairs of a hash and a block, in ascending order; with more leaves
//! than fit there, they point to index blocks that point to leaves.

use amphi_device::BlockPort;
use amphi_vfs::{Error, Result};
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use super::{Place, add_block, lba, leaf, set_indexed};
use crate::base::Base;
use crate::format::{
    DX_ENTRIES_AT, DX_NODE_ENTRIES_AT, DX_NODE_ENTRIES_MAX, DX_ROOT_ENTRIES_MAX, DxCount, DxEntry, DxRootInfo,
};
use crate::index::extent::Extents;
use crate::index::part::Part;
use crate::journal::buffers::{Block, Kind};
use crate::journal::handle::Handle;

/// A step of the way from block 0 to a leaf: an index block and the entry taken there.
#[derive(Clone, Copy)]
pub struct Step {
    block: u32,
    entry: usize,
}

fn damaged() -> Error {
    Error::corrupt("directory index", None, "it is impossible")
}

/// Where the entries of an index block start, and how many fit.
const fn shape(block: u32) -> (usize, usize) {
    if block == 0 { (DX_ENTRIES_AT, DX_ROOT_ENTRIES_MAX) } else { (DX_NODE_ENTRIES_AT, DX_NODE_ENTRIES_MAX) }
}

/// The entries of an index block.
fn read(bytes: &Block, block: u32) -> Result<Vec<DxEntry>> {
    let (at, max) = shape(block);
    let (count, rest) = DxCount::read_from_prefix(&bytes[at..]).map_err(|_| damaged())?;
    let count = usize::from(count.count.get());
    if count == 0 || count > max {
        return Err(damaged());
    }
    let (entries, _) = <[DxEntry]>::ref_from_prefix_with_elems(rest, count).map_err(|_| damaged())?;
    if !entries[1..].is_sorted_by_key(|entry| entry.hash.get()) {
        return Err(damaged());
    }
    Ok(entries.to_vec())
}

fn write(bytes: &mut Block, block: u32, entries: &[DxEntry]) {
    let (at, max) = shape(block);
    if block != 0 {
        leaf::begin_empty(bytes);
    }
    let count = DxCount { limit: (max as u16).into(), count: (entries.len() as u16).into() };
    bytes[at..at + 4].copy_from_slice(count.as_bytes());
    bytes[at + 4..at + 4 + size_of_val(entries)].copy_from_slice(entries.as_bytes());
}

/// Index levels below block 0.
fn levels(root: &Block) -> Result<u8> {
    let (info, _) = DxRootInfo::read_from_prefix(&root[24..]).map_err(|_| damaged())?;
    let sound =
        info.hash_version == 1 && usize::from(info.info_bytes) == size_of::<DxRootInfo>() && info.levels <= 1;
    if sound { Ok(info.levels) } else { Err(damaged()) }
}

fn set_levels(root: &mut Block, levels: u8) {
    let info = DxRootInfo {
        reserved: 0.into(),
        hash_version: 1,
        info_bytes: size_of::<DxRootInfo>() as u8,
        levels,
        flags: 0,
    };
    root[24..24 + size_of::<DxRootInfo>()].copy_from_slice(info.as_bytes());
}

/// The way to the leaf for a hash, and the leaf.
pub fn walk<D: BlockPort>(
    base: &Base<D>,
    extents: &Extents,
    hash: u32,
) -> Result<(SmallVec<[Step; 2]>, u32)> {
    let mut path = SmallVec::new();
    let mut block = 0;
    let mut below = 0;
    loop {
        let bytes = base.block(lba(extents, block)?, Kind::Directory)?;
        if block == 0 {
            below = levels(&bytes)?;
        }
        let entries = read(&bytes, block)?;
        let entry = entries[1..].partition_point(|entry| entry.hash.get() <= hash);
        path.push(Step { block, entry });
        block = entries[entry].block.get();
        if block == 0 {
            return Err(damaged());
        }
        if path.len() > usize::from(below) {
            return Ok((path, block));
        }
    }
}

/// All leaves from the one for a hash on.
pub fn leaves_from<D: BlockPort>(base: &Base<D>, extents: &Extents, hash: u32) -> Result<Vec<u32>> {
    let (path, _) = walk(base, extents, hash)?;
    let root = base.block(lba(extents, 0)?, Kind::Directory)?;
    let top = read(&root, 0)?;
    let Some(&second) = path.get(1) else {
        return Ok(top[path[0].entry..].iter().map(|entry| entry.block.get()).collect());
    };
    let mut leaves = Vec::new();
    for (index, node) in top.iter().enumerate().skip(path[0].entry) {
        let number = node.block.get();
        let bytes = base.block(lba(extents, number)?, Kind::Directory)?;
        let from = if index == path[0].entry { second.entry } else { 0 };
        leaves.extend(read(&bytes, number)?.iter().skip(from).map(|entry| entry.block.get()));
    }
    Ok(leaves)
}

/// Whether the index can take one more leaf on this way.
///
/// # Errors
/// [`Error::NoSpace`].
pub fn check_room<D: BlockPort>(base: &Base<D>, extents: &Extents, path: &[Step]) -> Result<()> {
    let &[top, node] = path else { return Ok(()) };
    for step in [node, top] {
        let entries = read(&*base.block(lba(extents, step.block)?, Kind::Directory)?, step.block)?;
        if entries.len() < shape(step.block).1 {
            return Ok(());
        }
    }
    Err(Error::NoSpace)
}

/// Parts a full leaf in two and returns the one that a hash belongs to.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn split<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    ino: u32,
    part: &mut Part,
    place: &Place,
    hash: u32,
) -> Result<u32> {
    let old = handle.base.block(lba(&part.extents, place.leaf)?, Kind::Directory)?;
    let all = leaf::sorted(&old, handle.base.superblock.hash_seed.get())?;
    let at = leaf::split_point(&all)?;
    let bound = super::upper(all[at].0);
    let lower = if place.path.is_empty() {
        // The only block becomes the index over two leaves.
        let (lower, lower_lba) = add_block(handle, ino, part)?;
        handle.fill(lower_lba, Kind::Directory, |block| leaf::fill(block, &all[..at]))??;
        lower
    } else {
        let lower_lba = lba(&part.extents, place.leaf)?;
        handle.modify(lower_lba, Kind::Directory, |block| leaf::fill(block, &all[..at]))??;
        place.leaf
    };
    let (higher, higher_lba) = add_block(handle, ino, part)?;
    handle.fill(higher_lba, Kind::Directory, |block| leaf::fill(block, &all[at..]))??;
    let new = DxEntry { hash: bound.into(), block: higher.into() };
    if place.path.is_empty() {
        let (this, parent) = leaf::dots(&old).ok_or_else(damaged)?;
        handle.modify(lba(&part.extents, 0)?, Kind::Directory, |block| {
            block.fill(0);
            leaf::begin(block, this, parent);
            set_levels(block, 0);
            write(block, 0, &[DxEntry { hash: 0.into(), block: lower.into() }, new]);
        })?;
        set_indexed(part);
    } else {
        add_leaf(handle, ino, part, &place.path, new)?;
    }
    Ok(if hash < bound { lower } else { higher })
}

fn change<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    part: &Part,
    block: u32,
    entries: &[DxEntry],
) -> Result<()> {
    handle.modify(lba(&part.extents, block)?, Kind::Directory, |bytes| write(bytes, block, entries))
}

/// Adds a leaf to the index, behind the entry that the way took.
fn add_leaf<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    ino: u32,
    part: &mut Part,
    path: &[Step],
    new: DxEntry,
) -> Result<()> {
    let base = handle.base;
    let read_at =
        |part: &Part, block: u32| read(&*base.block(lba(&part.extents, block)?, Kind::Directory)?, block);
    let last = path[path.len() - 1];
    let mut entries = read_at(part, last.block)?;
    entries.insert(last.entry + 1, new);
    if entries.len() <= shape(last.block).1 {
        return change(handle, part, last.block, &entries);
    }
    if path.len() == 1 {
        // Block 0 is full: all of it moves down into an index block.
        let (node, node_lba) = add_block(handle, ino, part)?;
        handle.fill(node_lba, Kind::Directory, |bytes| write(bytes, node, &entries))?;
        return handle.modify(lba(&part.extents, 0)?, Kind::Directory, |bytes| {
            set_levels(bytes, 1);
            write(bytes, 0, &[DxEntry { hash: 0.into(), block: node.into() }]);
        });
    }
    let upper = entries.split_off(entries.len() / 2);
    let (node, node_lba) = add_block(handle, ino, part)?;
    handle.fill(node_lba, Kind::Directory, |bytes| write(bytes, node, &upper))?;
    change(handle, part, last.block, &entries)?;
    let mut top = read_at(part, 0)?;
    top.insert(path[0].entry + 1, DxEntry { hash: upper[0].hash, block: node.into() });
    change(handle, part, 0, &top)
}
