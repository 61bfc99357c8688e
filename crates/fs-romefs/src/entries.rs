//! A directory's entries, read from the metadata.

use std::ops::ControlFlow;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{FIRST_COOKIE, Found};
use amphi_vfs::{DirEntry, DirSink, Ino, Result};

use crate::core::Core;
use crate::dir::{Dir, Place, damaged, entry_in};
use crate::format::{PAGE, PAGE_UNITS, UNIT, entry_units};
use crate::part::{Inode, State};

/// Reads a directory's entries.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn read<D: BlockPort + MemoryArea>(core: &Core<D>, dir: &Inode, state: &State) -> Result<Dir> {
    let mut open = Dir::default();
    let mut numbers = Vec::new();
    core.visit_slots(&state.part.mapping, 0..state.part.blocks, |index, slot| {
        if index == numbers.len() as u64 {
            numbers.extend(slot.block().filter(|page| u64::from(*page) < core.layout.plan.pages));
        }
        ControlFlow::Continue(())
    })?;
    if numbers.len() as u64 != state.part.blocks {
        return Err(damaged(dir.ino));
    }
    for number in numbers {
        open.add_page(number);
        let page = open.pages.len() - 1;
        let bytes = core.meta.with(core.layout.page(number), PAGE, <[u8]>::to_vec)?;
        let mut unit = 0;
        while unit < PAGE_UNITS {
            let rest = &bytes[unit * UNIT..];
            if rest[..4] == [0; 4] {
                unit += 1;
                continue;
            }
            let (_, name, units) = entry_in(rest).ok_or_else(|| damaged(dir.ino))?;
            open.insert(&core.layout, Place { page: page as u32, unit: unit as u8, grows: false }, name);
            unit += units;
        }
    }
    Ok(open)
}

/// Finds a name.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn find<D: BlockPort + MemoryArea>(core: &Core<D>, dir: &Dir, name: &[u8]) -> Result<Option<Found<u32>>> {
    let hash = dir.hash_of(name);
    let mut outcome = Ok(None);
    dir.names.find(hash.into(), |(other, unit)| {
        if *other != hash {
            return false;
        }
        let at = dir.address(&core.layout, *unit);
        let bytes = entry_units(name.len()) * UNIT;
        let bytes = bytes.min(PAGE - at as usize % PAGE);
        let found = core.meta.with(at, bytes, |bytes| {
            entry_in(bytes).filter(|(_, there, _)| *there == name).map(|(child, ..)| child)
        });
        match found {
            Ok(Some(child)) => outcome = Ok(Some(Found { slot: *unit, child })),
            Ok(None) => return false,
            Err(error) => outcome = Err(error),
        }
        true
    });
    outcome
}

/// Lists entries from `cookie` on.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn list<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    (ino, dir): (Ino, &Dir),
    cookie: u64,
    sink: &mut DirSink<'_>,
) -> Result<()> {
    let from = cookie - FIRST_COOKIE;
    let first = (from / PAGE_UNITS as u64) as usize;
    for (number, page) in dir.pages.iter().enumerate().skip(first) {
        let skipped = if number == first { from % PAGE_UNITS as u64 } else { 0 };
        let mut starts = page.starts & (u128::MAX << skipped);
        let mut bytes = [0; PAGE];
        if starts != 0 {
            core.meta.with(core.layout.page(page.number), PAGE, |page| bytes.copy_from_slice(page))?;
        }
        while starts != 0 {
            let unit = starts.trailing_zeros() as usize;
            starts &= starts - 1;
            let (child, name, _) = entry_in(&bytes[unit * UNIT..]).ok_or_else(|| damaged(ino))?;
            let next_cookie = FIRST_COOKIE + (number * PAGE_UNITS + unit + 1) as u64;
            if !sink(DirEntry { ino: child.ino, file_type: child.file_type, name, next_cookie }) {
                return Ok(());
            }
        }
    }
    Ok(())
}
