//! Directories: linear blocks of entries and, from the second block on, an index of hashes over them, as on
//! ext4 (`index.rs`).
//!
//! A lookup reads the index and one leaf, nothing else, and lists run in the order of hashes, so that a
//! cookie means the same whatever came or went.

mod index;
mod leaf;

use amphi_device::BlockPort;
use amphi_names::{Child, FIRST_COOKIE};
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{DirEntry, DirSink, Error, FileType, Ino, Name, Result};
use smallvec::SmallVec;

use crate::base::Base;
use crate::format::{BLOCK, name_hash};
use crate::index::extent::{Extents, Run};
use crate::index::part::{Body, Part};
use crate::journal::buffers::{Block, Kind};
use crate::journal::handle::Handle;
use leaf::Entry;

/// Most blocks that an insertion adds: a leaf, an index block, a level of them.
pub const INSERT_BLOCKS: u64 = 3;
/// Most blocks that an insertion changes: those, the leaf and the index blocks above it, bitmaps and
/// descriptors, extent blocks.
pub const INSERT_CREDITS: usize = 14;

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Block of the directory.
    block: u32,
    /// Byte in it.
    at: usize,
}

/// An entry found.
pub type Found = amphi_names::Found<Slot>;

/// Where a name will go, decided before anything is changed.
pub struct Place {
    path: SmallVec<[index::Step; 2]>,
    leaf: u32,
    full: bool,
}

/// The device's block for a block of a directory.
fn lba(extents: &Extents, block: u32) -> Result<u64> {
    match extents.map(u64::from(block)) {
        Mapped::At { lba, .. } => Ok(lba),
        _ => Err(Error::corrupt("directory block", u64::from(block), "the directory has none")),
    }
}

fn hash<D: BlockPort>(base: &Base<D>, name: &[u8]) -> u64 {
    name_hash(base.superblock.hash_seed.get(), name)
}

/// The part of a hash that the index goes by.
const fn upper(hash: u64) -> u32 {
    (hash >> 31) as u32
}

fn place_of<D: BlockPort>(
    base: &Base<D>,
    part: &Part,
    hash: u64,
) -> Result<(SmallVec<[index::Step; 2]>, u32)> {
    if *part.body.dir()? { index::walk(base, &part.extents, upper(hash)) } else { Ok((SmallVec::new(), 0)) }
}

/// Finds a name.
///
/// # Errors
/// [`Error::NotDirectory`], [`Error::Corrupt`], [`Error::Io`].
pub fn find<D: BlockPort>(base: &Base<D>, part: &Part, name: Name<'_>) -> Result<Option<Found>> {
    let (_, leaf) = place_of(base, part, hash(base, name.bytes()))?;
    let block = base.block(lba(&part.extents, leaf)?, Kind::Directory)?;
    for entry in leaf::entries(&block) {
        let entry = entry?;
        if entry.name == name.bytes() {
            return found(base, leaf, &entry).map(Some);
        }
    }
    Ok(None)
}

fn found<D: BlockPort>(base: &Base<D>, block: u32, entry: &Entry<'_>) -> Result<Found> {
    let file_type = FileType::of_mode(u16::from(entry.file_type) << 12);
    match file_type.filter(|_| entry.ino < base.layout.inodes()) {
        Some(file_type) => {
            let child = Child { ino: Ino(u64::from(entry.ino)), file_type };
            Ok(Found { slot: Slot { block, at: entry.at }, child })
        }
        None => Err(Error::corrupt("directory entry", None, "its inode or type is impossible")),
    }
}

/// Decides where a name that is not there will go.
///
/// # Errors
/// [`Error::NoSpace`] if the index is full; [`Error::Corrupt`], [`Error::Io`].
pub fn place<D: BlockPort>(base: &Base<D>, part: &Part, name: Name<'_>) -> Result<Place> {
    let (path, leaf) = place_of(base, part, hash(base, name.bytes()))?;
    let block = base.block(lba(&part.extents, leaf)?, Kind::Directory)?;
    let full = !leaf::has_room(&block, name.bytes().len())?;
    if full {
        index::check_room(base, &part.extents, &path)?;
        let seed = base.superblock.hash_seed.get();
        leaf::split_point(&leaf::sorted(&block, seed)?)?;
    }
    Ok(Place { path, leaf, full })
}

/// Inserts an entry where [`place`] said; [`INSERT_BLOCKS`] blocks have been reserved, of which those taken
/// are returned. The inode is written afterwards.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn insert<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    ino: u32,
    part: &mut Part,
    place: Place,
    name: Name<'_>,
    child: Child,
) -> Result<u64> {
    let before = part.dir_blocks();
    let mut target = place.leaf;
    if place.full {
        target = index::split(handle, ino, part, &place, upper(hash(handle.base, name.bytes())))?;
    }
    let at = lba(&part.extents, target)?;
    let (child, file_type) = (child.ino.0 as u32, child.file_type);
    handle.modify(at, Kind::Directory, |block| leaf::put(block, name.bytes(), child, file_type))??;
    Ok(u64::from(part.dir_blocks() - before))
}

/// Adds a block at the end of a directory, and returns its number there and on the device.
fn add_block<D: BlockPort>(handle: &mut Handle<'_, D>, ino: u32, part: &mut Part) -> Result<(u32, u64)> {
    let number = part.dir_blocks();
    let groups = &handle.base.groups;
    let goal = part.extents.goal(number).unwrap_or_else(|| groups.goal(ino));
    let (start, _) = groups.allocate(handle, goal, 1)?;
    part.extents.insert(Run { file_block: number, start, len: 1, unwritten: false });
    part.blocks += 1;
    part.size_on_disk += BLOCK as u64;
    Ok((number, u64::from(start)))
}

/// Gives a new directory its first block, with the dots; one block has been reserved.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn begin<D: BlockPort>(handle: &mut Handle<'_, D>, ino: u32, parent: u32, part: &mut Part) -> Result<()> {
    let (_, lba) = add_block(handle, ino, part)?;
    handle.fill(lba, Kind::Directory, |block| leaf::begin(block, ino, parent))
}

/// The first block of a directory without entries, but for its checksum.
pub fn first_block(ino: u32, parent: u32) -> Block {
    let mut block = [0; BLOCK];
    leaf::begin(&mut block, ino, parent);
    block
}

/// Where an entry is that was at `slot`, before the same change inserted another name: that may have parted
/// its block.
fn now_at<D: BlockPort>(base: &Base<D>, part: &Part, slot: Slot, name: Name<'_>) -> Result<Slot> {
    let block = base.block(lba(&part.extents, slot.block)?, Kind::Directory)?;
    if leaf::holds(&block, slot.at, name.bytes()) {
        return Ok(slot);
    }
    let lost = || Error::corrupt("directory entry", None, "it has left its directory under its lock");
    Ok(find(base, part, name)?.ok_or_else(lost)?.slot)
}

/// Removes an entry.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn remove<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    part: &Part,
    slot: Slot,
    name: Name<'_>,
) -> Result<()> {
    let slot = now_at(handle.base, part, slot, name)?;
    let at = lba(&part.extents, slot.block)?;
    handle.modify(at, Kind::Directory, |block| leaf::remove(block, slot.at))?
}

/// Makes an entry point to another inode: a rename over it, or an exchange.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn replace<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    part: &Part,
    slot: Slot,
    name: Name<'_>,
    child: Child,
) -> Result<()> {
    let slot = now_at(handle.base, part, slot, name)?;
    let at = lba(&part.extents, slot.block)?;
    let ino = child.ino.0 as u32;
    handle.modify(at, Kind::Directory, |block| leaf::point(block, slot.at, ino, child.file_type))
}

/// The directory above, as `..` says.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn parent_of<D: BlockPort>(base: &Base<D>, ino: u32, extents: &Extents) -> Result<u32> {
    let block = base.block(lba(extents, 0)?, Kind::Directory)?;
    leaf::dots(&block)
        .filter(|(this, parent)| *this == ino && *parent != 0 && *parent < base.layout.inodes())
        .map(|(_, parent)| parent)
        .ok_or_else(|| Error::corrupt("directory", u64::from(ino), "it does not start with its dots"))
}

/// Changes `..`.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn set_parent<D: BlockPort>(handle: &mut Handle<'_, D>, part: &Part, parent: u32) -> Result<()> {
    let at = lba(&part.extents, 0)?;
    handle
        .modify(at, Kind::Directory, |block| leaf::point(block, leaf::DOTDOT_AT, parent, FileType::Directory))
}

/// Whether a directory has no entries but the dots. As on ext4, all its blocks are looked at.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn is_empty<D: BlockPort>(base: &Base<D>, part: &Part) -> Result<bool> {
    for number in 0..part.dir_blocks() {
        let block = base.block(lba(&part.extents, number)?, Kind::Directory)?;
        for entry in leaf::entries(&block) {
            if !entry?.is_dot() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Lists entries but the dots from `cookie` on until `sink` declines one, in the order of their hashes.
///
/// # Errors
/// [`Error::NotDirectory`], [`Error::Corrupt`], [`Error::Io`].
pub fn list<D: BlockPort>(base: &Base<D>, part: &Part, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
    let indexed = *part.body.dir()?;
    let from = cookie.saturating_sub(FIRST_COOKIE);
    let leaves = if indexed { index::leaves_from(base, &part.extents, upper(from))? } else { vec![0] };
    let seed = base.superblock.hash_seed.get();
    for number in leaves {
        let block = base.block(lba(&part.extents, number)?, Kind::Directory)?;
        for (hash, entry) in leaf::sorted(&block, seed)?.iter().filter(|(hash, _)| *hash >= from) {
            let Child { ino, file_type } = found(base, number, entry)?.child;
            let next_cookie = hash + 1 + FIRST_COOKIE;
            if !sink(DirEntry { ino, file_type, name: entry.name, next_cookie }) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Calls `visit` with every entry but the dots; for the check.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn visit_all<D: BlockPort>(
    base: &Base<D>,
    part: &Part,
    mut visit: impl FnMut(&[u8], u32, Option<FileType>),
) -> Result<()> {
    let seed = base.superblock.hash_seed.get();
    let leaves = if *part.body.dir()? { index::leaves_from(base, &part.extents, 0)? } else { vec![0] };
    for number in leaves {
        let block = base.block(lba(&part.extents, number)?, Kind::Directory)?;
        for (hash, entry) in leaf::sorted(&block, seed)? {
            let (_, due) = place_of(base, part, hash)?;
            if due != number {
                return Err(Error::corrupt(
                    "directory block",
                    u64::from(number),
                    "an entry stands in another block than its hash says",
                ));
            }
            visit(entry.name, entry.ino, FileType::of_mode(u16::from(entry.file_type) << 12));
        }
    }
    Ok(())
}

/// Makes a directory an indexed one.
const fn set_indexed(part: &mut Part) {
    if let Body::Dir(indexed) = &mut part.body {
        *indexed = true;
    }
}
