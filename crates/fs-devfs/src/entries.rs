//! A directory's entries, brought into device memory, looked up, listed and given away.

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{FIRST_COOKIE, Found};
use amphi_vfs::{DirEntry, DirSink, Error, Ino, Result};

use crate::away::Away;
use crate::controller::Controller;
use crate::dir::{Dir, Place, entry_in};
use crate::format::{BODY, UNIT, UNITS};
use crate::part::{Inode, State};

fn damaged(dir: Ino) -> Error {
    Error::corrupt("directory", dir.0, "an entry makes no sense")
}

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// Brings a directory's entries into device memory: from host memory if they are there, else from flash.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open_directory(&self, dir: &Inode, state: &mut State) -> Result<()> {
        if state.part.dir.is_none() {
            let kept = self.away.take(Away::Dir, dir.ino, &self.counters);
            let kept = kept.and_then(|bytes| Dir::of_bytes(&self.memory, &self.hash, &bytes));
            let open = match kept {
                Some(open) => open,
                None => self.read_directory(dir.ino, state)?,
            };
            state.part.dir = Some(Box::new(open));
        }
        Ok(())
    }

    /// Reads a directory's entries from its pages.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn read_directory(&self, ino: Ino, state: &State) -> Result<Dir> {
        let mut open = Dir::new(&self.memory, &self.hash);
        let pages = state.size.div_ceil(amphi_device::PAGE_BYTES as u64);
        for index in 0..pages {
            let number = self.block(&state.part, index)?;
            if number == 0 {
                return Err(damaged(ino));
            }
            open.add_page(number);
            let bytes = self.meta.with(number.into(), |bytes: &[u8; BODY]| *bytes)?;
            let mut unit = 0;
            while unit < UNITS {
                let rest = &bytes[unit * UNIT..UNITS * UNIT];
                if rest[..8] == [0; 8] {
                    unit += 1;
                    continue;
                }
                let (_, name, units) = entry_in(rest).ok_or_else(|| damaged(ino))?;
                open.note(Place { page: index as u32, unit: unit as u8, grows: false }, name);
                unit += units;
            }
        }
        Ok(open)
    }

    /// Finds a name.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn find_name(&self, dir: &Dir, name: &[u8]) -> Result<Option<Found<u32>>> {
        if dir.lean {
            return self.find_in_pages(dir, name);
        }
        for unit in dir.units_of(name) {
            let (page, at) = dir.address(unit);
            let child = self.meta.with(page, |bytes| {
                entry_in(&bytes[at..]).filter(|(_, there, _)| *there == name).map(|(child, ..)| child)
            })?;
            if let Some(child) = child {
                return Ok(Some(Found { slot: unit, child }));
            }
        }
        Ok(None)
    }

    fn find_in_pages(&self, dir: &Dir, name: &[u8]) -> Result<Option<Found<u32>>> {
        for (number, page) in dir.pages.iter().enumerate() {
            let found = self.meta.with(page.number.into(), |bytes| {
                let mut starts = page.starts;
                while starts != 0 {
                    let unit = starts.trailing_zeros();
                    starts &= starts - 1;
                    let entry = entry_in(&bytes[unit as usize * UNIT..]);
                    if let Some((child, ..)) = entry.filter(|(_, there, _)| *there == name) {
                        return Some(Found { slot: (number * UNITS) as u32 + unit, child });
                    }
                }
                None
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Whether a directory has to stay in device memory: once a change has failed half way, memory may have
    /// more of it than flash, where its names could not be found then.
    pub fn has_to_stay(&self, state: &State) -> bool {
        state.part.has_changed && self.names.health.has_failed()
    }

    /// Gives a directory's entries away, unless they have to stay.
    pub fn give_entries(&self, ino: Ino, state: &mut State) {
        if self.has_to_stay(state) {
            return;
        }
        if let Some(bytes) = state.part.dir.take().and_then(|dir| dir.to_bytes()) {
            self.away.give(Away::Dir, ino, bytes, &self.counters);
        }
    }

    /// Lists entries from a cookie on.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn list_names(&self, ino: Ino, dir: &Dir, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let from = cookie - FIRST_COOKIE;
        let first = (from / UNITS as u64) as usize;
        for (number, page) in dir.pages.iter().enumerate().skip(first) {
            let skipped = if number == first { from % UNITS as u64 } else { 0 };
            let mut starts = page.starts & (u64::MAX << skipped);
            if starts == 0 {
                continue;
            }
            let bytes = self.meta.with(page.number.into(), |bytes: &[u8; BODY]| *bytes)?;
            while starts != 0 {
                let unit = starts.trailing_zeros() as usize;
                starts &= starts - 1;
                let (child, name, _) = entry_in(&bytes[unit * UNIT..]).ok_or_else(|| damaged(ino))?;
                let next_cookie = FIRST_COOKIE + (number * UNITS + unit + 1) as u64;
                if !sink(DirEntry { ino: child.ino, file_type: child.file_type, name, next_cookie }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
