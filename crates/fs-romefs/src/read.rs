//! Reading along both paths (RO-9): what `lookup` has found in data blocks and not in host memory is on its
//! way while the caller's task loads the logs.

use std::ops::Range;

use amphi_device::{BlockPort, Completion, MemoryArea, PAGE_BYTES, Structure};
use amphi_rt::sync::RangeGuard;
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;
use smallvec::SmallVec;

use crate::buffer::Gaps;
use crate::core::Core;
use crate::format::PAGE;
use crate::lookup::{self, Piece, Pieces, Source};
use crate::part::{Inode, State};
use crate::planted::{self, Bug};
use crate::{lazy, logs};

/// Reads at `offset`. Returns the number of bytes.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::read`].
pub fn read<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    into: &mut [u8],
    direct: bool,
) -> Result<usize> {
    amphi_names::regular(inode.file_type)?;
    if direct && core.is_lazy() {
        lazy::flush(core, inode)?;
    }
    let cached = if direct { None } else { read_cached(core, inode, offset, into)? };
    let (len, moves_atime) = match cached {
        Some(read) => read,
        None => {
            let Located { held: _held, pieces, len, moves_atime } = locate(core, inode, offset, into)?;
            fetch(core, pieces, &mut into[..len], direct)?;
            (len, moves_atime)
        }
    };
    if moves_atime {
        amphi_names::note_read(core, inode);
    }
    Ok(len)
}

/// Reads what is in cached data blocks and in no log. Returns the number of bytes, and whether reading moves
/// the access time. None, and `into` holds anything, if it is not all so.
///
/// It takes no range: a data block is nobody else's while the inode still has it, and nothing is waited for.
fn read_cached<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    into: &mut [u8],
) -> Result<Option<(usize, bool)>> {
    let state = inode.state.read();
    let (Some(logs), None) = (logs::known(&state), &state.part.buffer) else { return Ok(None) };
    let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
    let (mut at, mut rest) = (offset, &mut into[..len]);
    while !rest.is_empty() {
        let (block, within) = (at / core.block_bytes(), at % core.block_bytes());
        let (part, behind) = rest.split_at_mut((core.block_bytes() - within).min(rest.len() as u64) as usize);
        let end = within + part.len() as u64;
        if logs.get(block).is_some_and(|leaf| leaf.logs.iter().any(|log| log.meets(&(within..end)))) {
            return Ok(None);
        }
        let slot = core.slot(&state.part.mapping, block)?;
        let Some(device) = slot.block().filter(|_| end <= slot.valid.get().into()) else { return Ok(None) };
        if !core.cache.copy(core.lpa(device, 0), within, part) {
            return Ok(None);
        }
        at += part.len() as u64;
        rest = behind;
    }
    Ok(Some((len, amphi_names::read_moves_atime(core, &state))))
}

/// What is read of a file, with what is buffered of it copied already.
struct Located<'a> {
    /// The data blocks that are still to be read.
    held: Option<RangeGuard<'a>>,
    /// Where their bytes are.
    pieces: Pieces,
    /// Bytes; none at the end of the file.
    len: usize,
    /// Whether reading moves the access time.
    moves_atime: bool,
}

/// Copies what is buffered, holds the data blocks of the rest and finds its bytes.
fn locate<'a, D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &'a Inode,
    offset: u64,
    into: &mut [u8],
) -> Result<Located<'a>> {
    loop {
        let state = inode.state.read();
        if logs::known(&state).is_none() {
            drop(state);
            logs::open(core, inode, &mut inode.state.write())?;
            continue;
        }
        let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let moves_atime = amphi_names::read_moves_atime(core, &state);
        let gaps = match &state.part.buffer {
            Some(buffer) => buffer.copy_out(offset, &mut into[..len]),
            None if len > 0 => std::iter::once(offset..offset + len as u64).collect(),
            None => Gaps::new(),
        };
        let (Some(first), Some(last)) = (gaps.first(), gaps.last()) else {
            return Ok(Located { held: None, pieces: Pieces::new(), len, moves_atime });
        };
        let range = first.start / core.block_bytes()..last.end.div_ceil(core.block_bytes());
        let Some(held) = inode.beside.ranges.try_take(range.clone(), false) else {
            drop(state);
            inode.beside.ranges.wait_for(&range, false);
            continue;
        };
        let mut pieces = Pieces::new();
        for gap in gaps {
            let at = (gap.start - offset) as usize;
            lookup::find(core, &state, gap, at, &mut pieces)?;
        }
        return Ok(Located { held: Some(held), pieces, len, moves_atime });
    }
}

/// What the cache has not.
struct Missing<'a> {
    /// Where it goes.
    into: &'a mut [u8],
    block: u32,
    /// Its first byte in the device's block.
    at: u64,
    /// Whole pages around it; empty if it consists of whole pages, which are read where they go.
    around: Vec<u8>,
}

impl<'a> Missing<'a> {
    fn new(into: &'a mut [u8], block: u32, at: u64) -> Self {
        let first = at / PAGE as u64 * PAGE as u64;
        let len = ((at + into.len() as u64).next_multiple_of(PAGE as u64) - first) as usize;
        let around = if len == into.len() { Vec::new() } else { vec![0; len] };
        Self { into, block, at, around }
    }

    const fn pages(&mut self) -> &mut [u8] {
        if self.around.is_empty() { self.into } else { self.around.as_mut_slice() }
    }
}

/// Brings the pieces, those of data blocks and those of logs at the same time.
fn fetch<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    mut pieces: Pieces,
    into: &mut [u8],
    direct: bool,
) -> Result<()> {
    pieces.sort_unstable_by_key(|piece| piece.into.start);
    let mut missing: SmallVec<[Missing<'_>; 2]> = SmallVec::new();
    let mut others: SmallVec<[(&mut [u8], Source); 8]> = SmallVec::new();
    let (mut rest, mut begins) = (into, 0);
    for Piece { into: range, source } in pieces {
        let (part, behind) = rest[range.start - begins..].split_at_mut(range.len());
        (rest, begins) = (behind, range.end);
        match source {
            Source::Block(block, at) if direct || !core.cache.copy(core.lpa(block, 0), at, part) => {
                missing.push(Missing::new(part, block, at));
            }
            Source::Block(..) => {}
            source => others.push((part, source)),
        }
    }
    let mut tickets: SmallVec<[D::Ticket<'_>; 2]> = SmallVec::new();
    for one in &mut missing {
        let lpa = core.lpa(one.block, one.at);
        tickets.push(core.device.submit_read(lpa, one.pages(), Structure::Data).map_err(io_error)?);
    }
    for (part, source) in others {
        match source {
            Source::Log(at) => core.memory.load(at, part, Structure::Data)?,
            _ => part.fill(0),
        }
    }
    for ticket in tickets {
        ticket.wait().map_err(io_error)?;
    }
    for mut one in missing {
        if !direct && !planted::has(Bug::CacheForgotten) {
            core.cache.keep(core.lpa(one.block, one.at), one.pages(), PAGE_BYTES);
        }
        if !one.around.is_empty() {
            let within = (one.at % PAGE as u64) as usize;
            one.into.copy_from_slice(&one.around[within..within + one.into.len()]);
        }
    }
    Ok(())
}

/// For `seek`: whether a data block has anything in `within`, and where the first such byte is, or the first
/// that has nothing.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn first_in_block<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    state: &State,
    block: u64,
    from: u64,
    data: bool,
) -> Result<Option<u64>> {
    let slot = core.slot(&state.part.mapping, block)?;
    let mut covered: SmallVec<[Range<u64>; 17]> = SmallVec::new();
    if slot.block().is_some() && slot.valid.get() > 0 {
        covered.push(0..u64::from(slot.valid.get()));
    }
    let leaf = logs::known(state).ok_or(Error::Invalid("not a regular file"))?.get(block);
    covered.extend(leaf.into_iter().flat_map(|leaf| leaf.logs.iter().map(|log| log.range())));
    covered.sort_unstable_by_key(|range| range.start);
    let mut at = from;
    if data {
        let next = covered.iter().filter(|range| range.end > at).map(|range| range.start.max(at)).min();
        return Ok(next);
    }
    for range in covered {
        if range.start > at {
            break;
        }
        at = at.max(range.end);
    }
    Ok((at < core.block_bytes()).then_some(at))
}
