//! Writes that need not be durable when they return (RO-10, `-o data=lazy`). They stay in host memory until
//! `fsync`, `sync`, the background task or a full budget brings them to the device; each piece is then a
//! dual-path transaction like any write, so that of what is written back nothing is torn. Metadata are
//! durable at once all the same, and name a file's size without what is buffered.
//!
//! Space is not reserved but kept free: a write for which there might be none goes to the device at once, and
//! meets the error there.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{note_write, shed_capability, with_room};
use amphi_vfs::{Cred, Error, Ino, Result};

use crate::buffer::Buffer;
use crate::core::Core;
use crate::format::Map;
use crate::options::Data;
use crate::part::Inode;
use crate::write::write_back;

/// Data blocks that stay free for what has no piece of its own: the ends of pieces, other files' logs.
const BLOCKS_KEPT_FREE: u64 = 8;

impl<D: BlockPort + MemoryArea> Core<D> {
    /// Whether writes are buffered.
    pub fn is_lazy(&self) -> bool {
        self.options.data == Data::Lazy
    }

    /// Buffered bytes from which on writers write back themselves.
    fn buffer_limit(&self) -> u64 {
        (self.options.page_cache_pages / 4 * 4096) as u64
    }

    /// Whether all that is buffered would find data blocks if `bytes` more were.
    fn has_room_for(&self, bytes: u64) -> bool {
        let blocks = |bytes: u64| bytes.div_ceil(self.block_bytes());
        let pieces = self.lazy.tally.pieces() + 1;
        let wanted = blocks(self.lazy.tally.bytes()) + blocks(bytes) + 2 * pieces + BLOCKS_KEPT_FREE;
        self.pool(Map::Blocks).free() >= wanted
    }
}

/// Buffers a write. False: there might be no room for it, and it must go to the device at once.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::Stale`]; [`Error::Io`].
pub fn write<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    data: &[u8],
    append: bool,
    cred: &Cred,
) -> Result<bool> {
    if !core.has_room_for(data.len() as u64) {
        return Ok(false);
    }
    loop {
        let mut state = inode.state.write();
        if state.gone {
            return Err(Error::Stale(inode.ino));
        }
        let offset = if append { state.size } else { offset };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= core.layout.file_bytes_max());
        let end = end.ok_or(Error::TooLarge)?;
        let block = core.block_bytes();
        let blocks = offset / block..if append { u64::MAX } else { end.div_ceil(block) };
        if !inode.beside.may_buffer(&blocks) {
            drop(state);
            inode.beside.ranges.wait_for(&blocks, false);
            continue;
        }
        if state.part.buffer.as_ref().is_some_and(|held| held.leaves_gap_before_end(offset..end, state.size))
        {
            drop(state);
            flush(core, inode)?;
            continue;
        }
        shed_capability(core, inode, &mut state)?;
        let size = state.size;
        let buffer = state.part.buffer.get_or_insert_with(|| {
            core.lazy.files.lock().insert(inode.ino);
            Box::new(Buffer::new(size, Arc::clone(&core.lazy.tally)))
        });
        buffer.put(offset, data);
        state.size = size.max(end);
        note_write(core, &mut state, cred);
        break;
    }
    let buffered = core.lazy.tally.bytes();
    if buffered > core.buffer_limit() / 2 {
        core.background.call();
    }
    if buffered > core.buffer_limit() {
        flush(core, inode)?;
    }
    Ok(true)
}

/// Makes durable what is buffered of a file. What comes meanwhile may stay.
///
/// # Errors
/// [`Error::NoSpace`]; it stays buffered then. [`Error::Io`].
pub fn flush<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode) -> Result<()> {
    if !core.is_lazy() {
        // Nobody waits for an inode to learn that there is nothing.
        return Ok(());
    }
    let end = {
        let state = inode.state.read();
        if state.part.buffer.is_none() {
            return Ok(());
        }
        state.size
    };
    loop {
        let mut from = 0;
        while let Some(next) = with_room(core, || flush_one(core, inode, from..end))? {
            from = next;
        }
        let mut state = inode.state.write();
        let gone = state.gone;
        match &state.part.buffer {
            // Somebody else's flush has taken a piece, which may come back.
            Some(buffer) if buffer.has_in_flight() && !gone => {}
            Some(buffer) if buffer.is_empty() || gone => {
                state.part.buffer = None;
                core.lazy.files.lock().remove(&inode.ino);
                return Ok(());
            }
            _ => return Ok(()),
        }
        drop(state);
        inode.beside.ranges.wait_for(&(0..u64::MAX), true);
    }
}

/// Writes back the first piece that begins in `within`. Returns where it ended; none if there is none.
fn flush_one<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    within: Range<u64>,
) -> Result<Option<u64>> {
    let (held, piece, bytes) = loop {
        let mut state = inode.state.write();
        let gone = state.gone;
        let Some(buffer) = state.part.buffer.as_mut().filter(|_| !gone) else { return Ok(None) };
        let Some(piece) = buffer.first(within.clone()) else { return Ok(None) };
        let moves_end = piece.end > buffer.stored_size;
        let last = if moves_end { u64::MAX } else { piece.end.div_ceil(core.block_bytes()) };
        let blocks = piece.start / core.block_bytes()..last;
        if let Some(held) = inode.beside.ranges.try_take(blocks.clone(), true)
            && let Some(bytes) = buffer.take(piece.start)
        {
            // Who reads it waits for the range.
            break (held, piece, bytes);
        }
        drop(state);
        inode.beside.ranges.wait_for(&blocks, true);
    };
    let written = write_back(core, inode, piece.start, &bytes);
    if let Some(buffer) = inode.state.write().part.buffer.as_mut() {
        buffer.arrived(piece.start, &bytes, written.is_ok());
    }
    drop(held);
    match written {
        // Somebody has deleted it.
        Err(Error::Stale(_)) => Ok(None),
        written => written.map(|()| Some(piece.end)),
    }
}

/// Makes durable what is buffered of all files.
///
/// # Errors
/// The first failure; the others are tried all the same.
pub fn flush_all<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    if !core.is_lazy() {
        return Ok(());
    }
    let files: Vec<Ino> = core.lazy.files.lock().iter().copied().collect();
    let mut outcome = Ok(());
    for ino in files {
        if let Some(inode) = core.names.cache.get(ino) {
            outcome = outcome.and(flush(core, &inode));
            continue;
        }
        // It was deleted with what it had. Asked again, because the number may be another file's by now.
        let mut listed = core.lazy.files.lock();
        if core.names.cache.get(ino).is_none() {
            listed.remove(&ino);
        }
    }
    outcome
}
