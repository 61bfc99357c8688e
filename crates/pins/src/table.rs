//! Which ranges of which files are pinned, and where the window shows them.

use amphi_device::{Entry, EntryId, PAGE_BYTES};
use amphi_vfs::{Cred, Ino, PageRun};

/// The number of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinId(pub u32);

/// A pinned range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its number.
    pub id: PinId,
    /// The file.
    pub ino: Ino,
    /// First byte, a multiple of 4096.
    pub offset: u64,
    /// Bytes, a multiple of 4096.
    pub length: u64,
    /// Who pinned it.
    pub uid: u32,
    /// Its pieces in the order of the file, each a run of the device's pages.
    pub entries: Vec<Entry>,
}

/// A part of a range, as [`Table::split`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// So many bytes are the file system's.
    Below(u64),
    /// So many bytes lie in the window, from this byte on, under the entry.
    Window {
        /// First byte of the window.
        at: u64,
        /// How many.
        bytes: u64,
        /// The entry of the device's table.
        entry: EntryId,
    },
}

impl Pin {
    const fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Whether some of `length` bytes at `offset` of the file are pinned.
    pub const fn meets(&self, offset: u64, length: u64) -> bool {
        self.offset < offset.saturating_add(length) && offset < self.end()
    }

    /// Where byte `offset` of the file, which is pinned, lies: in the window, the bytes that follow there,
    /// and the entry.
    pub fn place(&self, offset: u64) -> Option<(u64, u64, EntryId)> {
        let mut begin = self.offset;
        for entry in &self.entries {
            if offset < begin + entry.bytes() {
                let into = offset - begin;
                return Some((entry.offset + into, entry.bytes() - into, entry.id));
            }
            begin += entry.bytes();
        }
        None
    }

    /// Whether `cred` may end it: who pinned it, and who may do everything.
    pub fn belongs_to(&self, cred: &Cred) -> bool {
        cred.uid == self.uid || cred.capabilities.has(amphi_vfs::Capabilities::FOWNER)
    }
}

/// All pins.
#[derive(Debug, Default)]
pub struct Table {
    pub pins: Vec<Pin>,
    last: u32,
}

impl Table {
    /// A number for a new pin.
    pub const fn next_id(&mut self) -> PinId {
        self.last = self.last.wrapping_add(1);
        PinId(self.last)
    }

    /// The pin of a number.
    pub fn find(&self, id: PinId) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.id == id)
    }

    /// Whether a file has any.
    pub fn has(&self, ino: Ino) -> bool {
        self.pins.iter().any(|pin| pin.ino == ino)
    }

    /// Whether some of a range of a file is pinned.
    pub fn meets(&self, ino: Ino, offset: u64, length: u64) -> bool {
        self.pins.iter().any(|pin| pin.ino == ino && pin.meets(offset, length))
    }

    /// The first part of `length` bytes, more than none, at `offset` of a file.
    pub fn split(&self, ino: Ino, offset: u64, length: u64) -> Part {
        let meets = self.pins.iter().filter(|pin| pin.ino == ino && pin.meets(offset, length));
        let Some(pin) = meets.min_by_key(|pin| pin.offset) else { return Part::Below(length) };
        if pin.offset > offset {
            return Part::Below(pin.offset - offset);
        }
        match pin.place(offset) {
            Some((at, bytes, entry)) => Part::Window { at, bytes: bytes.min(length), entry },
            None => Part::Below(length),
        }
    }
}

/// Where the window has room for `runs`, beside the entries that it has; and names that no entry has. `None`:
/// there is no such room.
pub fn places(taken: &[Entry], window_bytes: u64, runs: &[PageRun]) -> Option<Vec<Entry>> {
    let mut all = taken.to_vec();
    for run in runs {
        let bytes = run.pages * PAGE_BYTES as u64;
        // The first place that begins where the window or an entry ends.
        let ends = all.iter().map(|entry| entry.offset + entry.bytes());
        let fits = |offset: &u64| {
            offset + bytes <= window_bytes && !all.iter().any(|entry| entry.has_byte_of(*offset, bytes))
        };
        let offset = std::iter::once(0).chain(ends).filter(fits).min()?;
        let id = (0..).map(EntryId).find(|id| all.iter().all(|entry| entry.id != *id))?;
        all.push(Entry { id, offset, at: amphi_device::Lpa(run.first), pages: run.pages });
    }
    Some(all.split_off(taken.len()))
}

#[cfg(test)]
mod tests {
    use amphi_device::Lpa;

    use super::*;

    const P: u64 = PAGE_BYTES as u64;

    fn entry(id: u32, offset: u64, at: u64, pages: u64) -> Entry {
        Entry { id: EntryId(id), offset: offset * P, at: Lpa(at), pages }
    }

    fn pin(offset: u64, length: u64, entries: Vec<Entry>) -> Pin {
        Pin { id: PinId(1), ino: Ino(7), offset: offset * P, length: length * P, uid: 0, entries }
    }

    #[test]
    fn room_is_found_between_entries_and_names_are_new() {
        let taken = [entry(0, 0, 9, 2), entry(2, 4, 20, 1)];
        let runs = [PageRun { first: 50, pages: 2 }, PageRun { first: 70, pages: 3 }];
        let found = places(&taken, 8 * P, &runs).unwrap();
        assert_eq!(found, [entry(1, 2, 50, 2), entry(3, 5, 70, 3)]);
        assert_eq!(places(&taken, 7 * P, &runs), None, "the second run has no room");
    }

    #[test]
    fn a_range_is_split_at_pins_and_at_their_pieces() {
        let mut table = Table::default();
        table.pins.push(pin(2, 3, vec![entry(0, 0, 9, 1), entry(1, 5, 40, 2)]));
        let split = |offset, length| table.split(Ino(7), offset, length);
        assert_eq!(split(0, 10 * P), Part::Below(2 * P));
        assert_eq!(split(2 * P + 100, 10), Part::Window { at: 100, bytes: 10, entry: EntryId(0) });
        assert_eq!(split(2 * P + 100, 2 * P), Part::Window { at: 100, bytes: P - 100, entry: EntryId(0) });
        assert_eq!(split(3 * P, 5 * P), Part::Window { at: 5 * P, bytes: 2 * P, entry: EntryId(1) });
        assert_eq!(split(5 * P, P), Part::Below(P));
        assert_eq!(table.split(Ino(8), 2 * P, P), Part::Below(P), "another file");
    }
}
