//! Operations on the contents of files: what is loaded is copied from where it lies; what is written, the
//! file system knows.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::Structure;
use amphi_names::{Inode, State, note_read, read_moves_atime, regular, shed_capability};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Allocate, Cred, Error, Ino, NAME_BYTES_MAX, Result, Seek, StatFs, WriteMode};
use amphi_volume::{Discard, decode_attributes};

use crate::format::{FILE_BLOCKS_MAX, PAGE};
use crate::ground::{DirectAccess, Layout};

/// Longest file in bytes.
const FILE_BYTES_MAX: u64 = FILE_BLOCKS_MAX * PAGE;

/// The blocks that hold a range of bytes.
#[must_use]
pub const fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}

/// Where a block's own bytes are in `range`, from the block's start.
#[must_use]
pub fn within(block: u64, range: &Range<u64>) -> Range<usize> {
    let start = block * PAGE;
    range.start.saturating_sub(start) as usize..range.end.saturating_sub(start).min(PAGE) as usize
}

/// The runs of `blocks` that have no pages.
pub fn holes<F: DirectAccess>(part: &F::Part, blocks: Range<u64>) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut from = blocks.start;
    while from < blocks.end {
        let next = F::next_block(part, from).map_or(blocks.end, |block| block.min(blocks.end));
        if next > from {
            holes.push(from..next);
        }
        from = next + 1;
    }
    holes
}

/// Does what cannot fail any more without something having changed.
///
/// # Errors
/// As `body`; the file system is read-only then.
pub fn in_change<F: DirectAccess, T>(fs: &F, body: impl FnOnce() -> Result<T>) -> Result<T> {
    body().inspect_err(|error| fs.ground().names.health.fail(error))
}

fn file<F: DirectAccess>(fs: &F, ino: Ino) -> Result<Arc<Inode<F::Part>>> {
    let inode = amphi_names::inode(fs, ino)?;
    regular(inode.file_type)?;
    Ok(inode)
}

/// See [`amphi_vfs::FileSystem::read`].
///
/// # Errors
/// As there.
pub fn read<F: DirectAccess>(fs: &F, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
    let inode = file(fs, ino)?;
    let state = inode.state.read();
    if state.gone {
        return Err(Error::Stale(ino));
    }
    fs.ground().names.health.known(ino)?;
    let read = copy(fs, &state, offset, into)?;
    let moves = read_moves_atime(fs, &state);
    drop(state);
    if moves {
        note_read(fs, &inode);
    }
    Ok(read)
}

/// Copies what is there of a file. Returns how many bytes that is.
fn copy<F: DirectAccess>(fs: &F, state: &State<F::Part>, offset: u64, into: &mut [u8]) -> Result<usize> {
    let len = state.size.saturating_sub(offset).min(into.len() as u64);
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let (block, skipped) = (at / PAGE, at % PAGE);
        let first = F::page(&state.part, block);
        // As many blocks as lie behind each other, or are holes.
        let mut count = 1;
        while (block + count) * PAGE < end
            && F::page(&state.part, block + count) == first.map(|first| first + count)
        {
            count += 1;
        }
        let to = end.min((block + count) * PAGE);
        let part = &mut into[(at - offset) as usize..(to - offset) as usize];
        match first {
            Some(page) => fs.ground().medium.load(page * PAGE + skipped, part, Structure::Data)?,
            None => part.fill(0),
        }
        at = to;
    }
    Ok(len as usize)
}

/// See [`amphi_vfs::FileSystem::write`].
///
/// # Errors
/// As there.
pub fn write<F: DirectAccess>(
    fs: &F,
    ino: Ino,
    offset: u64,
    data: &[u8],
    mode: WriteMode,
    cred: &Cred,
) -> Result<usize> {
    let inode = file(fs, ino)?;
    fs.ground().names.health.writable()?;
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(ino));
    }
    if !data.is_empty() {
        let offset = if mode.append { state.size } else { offset };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        shed_capability(fs, &inode, &mut state)?;
        let written = fs.write_range(&inode, &mut state, offset..end, data, cred);
        // New pages may hold what somebody else wrote.
        fs.ground().names.health.judge_written(ino, written)?;
    }
    Ok(data.len())
}

/// See [`amphi_vfs::FileSystem::allocate`].
///
/// # Errors
/// As there.
pub fn allocate<F: DirectAccess>(
    fs: &F,
    ino: Ino,
    offset: u64,
    length: u64,
    what: Allocate,
    cred: &Cred,
) -> Result<()> {
    let inode = file(fs, ino)?;
    fs.ground().names.health.writable()?;
    if length == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(ino));
    }
    let end = offset.saturating_add(length);
    if what != Allocate::PunchHole && end > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    shed_capability(fs, &inode, &mut state)?;
    let range = offset.min(FILE_BYTES_MAX)..end.min(FILE_BYTES_MAX);
    let allocated = fs.allocate_range(&inode, &mut state, range, what, cred);
    fs.ground().names.health.judge_written(ino, allocated)
}

/// See [`amphi_vfs::FileSystem::seek`].
///
/// # Errors
/// As there.
pub fn seek<F: DirectAccess>(fs: &F, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
    let inode = file(fs, ino)?;
    let state = inode.state.read();
    if offset >= state.size {
        return Err(Error::NoData);
    }
    let mut block = offset / PAGE;
    let found = match what {
        Seek::Data => F::next_block(&state.part, block).map(|block| block * PAGE),
        Seek::Hole => {
            while F::page(&state.part, block).is_some() {
                block += 1;
            }
            Some((block * PAGE).min(state.size))
        }
    };
    let found = found.filter(|at| what == Seek::Hole || *at < state.size).ok_or(Error::NoData)?;
    Ok(found.max(offset))
}

/// See [`amphi_vfs::FileSystem::fsync`]: every call is durable when it returns.
///
/// # Errors
/// As there.
pub fn fsync<F: DirectAccess>(fs: &F, ino: Ino) -> Result<()> {
    amphi_names::inode(fs, ino).map(drop)
}

/// See [`amphi_vfs::FileSystem::discard_free`].
///
/// # Errors
/// As there.
pub fn discard_free<F: DirectAccess>(fs: &F, range: Range<u64>, shortest: u64) -> Result<u64> {
    let ground = fs.ground();
    ground.names.health.writable()?;
    let (pages, ..) = ground.layout.numbers();
    let mut discard = Discard::new(&*ground.medium.device, range, shortest, pages)?;
    ground.space.each_free(|run| discard.free_run(run))?;
    Ok(discard.bytes())
}

/// See [`amphi_vfs::FileSystem::statfs`].
pub fn statfs<F: DirectAccess>(fs: &F) -> StatFs {
    let ground = fs.ground();
    let (free, (_, inodes, _)) = (ground.space.available(), ground.layout.numbers());
    let beyond = inodes + 1 - F::numbers_end(&ground.layout, &ground.table);
    StatFs {
        block_bytes: PAGE as u32,
        blocks: ground.space.total(),
        blocks_free: free,
        blocks_available: free,
        inodes,
        inodes_free: ground.numbers.free() + beyond,
        name_bytes_max: NAME_BYTES_MAX as u32,
    }
}

/// See [`amphi_names::Store::attributes`].
///
/// # Errors
/// As there.
pub fn attributes<F: DirectAccess>(fs: &F, ino: Ino, part: &F::Part) -> Result<Attributes> {
    let (page, bytes) = F::attributes_at(part);
    if page == 0 {
        return Ok(Attributes::new());
    }
    let mut bytes = vec![0; bytes];
    fs.ground().medium.load(page * PAGE, &mut bytes, Structure::Inode)?;
    let damaged = || Error::corrupt("inode", ino.0, "its extended attributes make no sense");
    decode_attributes(&bytes).ok_or_else(damaged)
}
