//! The two log regions as storage: reserving room at the tail, writing entries, reading them, scanning them
//! after a crash.
//!
//! Entries are written by several tasks at once, so a crash can leave a gap below the tail. Each entry's
//! checksum is salted with its region's epoch: a scan skips gaps line by line and takes no stale entry, nor
//! data that looks like one.
//!
//! Since gaps do no harm, each processor takes room at the tail for many stores at once: the tail lies on a
//! line that all of them would otherwise pass around at each store. Which of two entries is newer their
//! numbers say, not their places.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{Error, Result};
use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};
use zerocopy::IntoBytes;

use crate::dice::mix;
use crate::format::{ENTRY_HEADER, EntryHeader, LINE, PAGE, control};
use crate::log::Log;

const REGION_BIT: u32 = 1 << 31;
/// How far ahead of the tail the host's disk is asked for room.
const ROOM_STEP: u64 = 4 << 20;

/// The place of an entry: region and line.
pub(crate) const fn place(region: usize, at: u64) -> u32 {
    (at / LINE) as u32 | if region == 1 { REGION_BIT } else { 0 }
}

/// The region of a place.
pub(crate) const fn region_of(place: u32) -> usize {
    (place >> 31) as usize
}

/// The byte offset of a place in its region.
const fn offset_of(place: u32) -> u64 {
    (place & !REGION_BIT) as u64 * LINE
}

/// Lines that a processor takes at a time.
const PIECE_LINES: u64 = 64;
/// Most lines of an entry that goes into a piece; a larger one would leave too much of it empty.
const IN_PIECE_LINES: u64 = PIECE_LINES / 8;

/// What the regions need besides their bytes.
#[derive(Debug)]
pub(crate) struct LogSpace {
    /// Bytes of each region that the host's disk has room for.
    room: [AtomicU64; 2],
    extending: Mutex<()>,
    phase: Padded<Phase>,
    /// Each processor's piece of the active region, as a [`Piece`].
    pieces: Box<[Padded<AtomicU64>]>,
}

/// What each store asks of the words in device memory, which lie beside the clock: on a line that changes
/// only with them.
#[derive(Debug, Default)]
struct Phase {
    active: AtomicU64,
    salts: [AtomicU64; 2],
}

/// The rest of what a processor has taken: none, or lines from `place` on.
#[derive(Clone, Copy)]
struct Piece {
    place: u32,
    lines: u32,
}

impl Piece {
    const fn of(word: u64) -> Self {
        Self { place: (word >> 32) as u32, lines: word as u32 }
    }

    const fn word(self) -> u64 {
        (self.place as u64) << 32 | self.lines as u64
    }

    /// Without its first lines.
    const fn behind(self, lines: u32) -> Self {
        Self { place: self.place + lines, lines: self.lines - lines }
    }
}

impl Default for LogSpace {
    fn default() -> Self {
        Self {
            room: Default::default(),
            extending: Mutex::default(),
            phase: Padded::default(),
            pieces: (0..cpu::count()).map(|_| Padded::default()).collect(),
        }
    }
}

impl Log {
    /// The region that takes appends.
    pub(crate) fn active_region(&self) -> usize {
        self.space.phase.active.load(Ordering::Acquire) as usize
    }

    /// Lets the other region take appends from now on. Who has found the old one active under a partition's
    /// lock may still append to it until he lets go.
    pub(crate) fn switch_region(&self) {
        let to = 1 - self.active_region() as u64;
        self.image.word(control!(active)).store(to, Ordering::Release);
        self.space.phase.active.store(to, Ordering::Release);
    }

    /// Bytes in use in a region.
    pub(crate) fn log_tail(&self, region: usize) -> u64 {
        self.image.word(control!(tail[region])).load(Ordering::Acquire).min(self.layout.region_bytes)
    }

    fn salt(&self, region: usize) -> u64 {
        self.space.phase.salts[region].load(Ordering::Acquire)
    }

    /// Notes a region's epoch, which has changed.
    fn note_epoch(&self, region: usize) {
        let epoch = self.image.word(control!(epoch[region])).load(Ordering::Acquire);
        let salt = mix(self.image_id ^ mix(epoch.wrapping_mul(2) ^ region as u64));
        self.space.phase.salts[region].store(salt, Ordering::Release);
    }

    /// As [`reserve`](Self::reserve), from what this processor has taken before, if it can be. The region is
    /// the active one, and the caller holds a partition.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn reserve_near(&self, region: usize, bytes: u64, limit: u64) -> Result<Option<u64>> {
        let lines = (bytes / LINE) as u32;
        if u64::from(lines) > IN_PIECE_LINES {
            return self.reserve(region, bytes, limit);
        }
        let mine = &self.space.pieces[cpu::current() % self.space.pieces.len()];
        let mut word = mine.load(Ordering::Relaxed);
        loop {
            let piece = Piece::of(word);
            if piece.lines < lines || region_of(piece.place) != region {
                break;
            }
            match mine.compare_exchange_weak(
                word,
                piece.behind(lines).word(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(Some(offset_of(piece.place))),
                Err(now) => word = now,
            }
        }
        let Some(at) = self.reserve(region, PIECE_LINES * LINE, limit)? else {
            return self.reserve(region, bytes, limit);
        };
        let piece = Piece { place: place(region, at), lines: PIECE_LINES as u32 };
        mine.store(piece.behind(lines).word(), Ordering::Release);
        Ok(Some(at))
    }

    /// Takes `bytes` at the tail of a region, none of them beyond `limit`. Answers where they start, or
    /// nothing if they do not fit.
    ///
    /// # Errors
    /// The host's disk is full.
    pub(crate) fn reserve(&self, region: usize, bytes: u64, limit: u64) -> Result<Option<u64>> {
        let tail = self.image.word(control!(tail[region]));
        let mut at = tail.load(Ordering::Relaxed);
        loop {
            let end = at + bytes;
            if end > limit {
                return Ok(None);
            }
            if end > self.space.room[region].load(Ordering::Acquire) {
                self.extend(region, end)?;
            }
            match tail.compare_exchange_weak(at, end, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(Some(at)),
                Err(now) => at = now,
            }
        }
    }

    fn extend(&self, region: usize, to: u64) -> Result<()> {
        let _extending = self.space.extending.lock();
        let room = &self.space.room[region];
        let from = room.load(Ordering::Relaxed);
        if to <= from {
            return Ok(());
        }
        let to = (to + ROOM_STEP).next_multiple_of(PAGE).min(self.layout.region_bytes);
        self.image.allocate(self.layout.log[region] + from, to - from)?;
        room.store(to, Ordering::Release);
        Ok(())
    }

    /// Writes an entry into reserved room. The header, last, makes it exist.
    pub(crate) fn write_entry(&self, region: usize, at: u64, header: &mut EntryHeader, data: &[u8]) {
        header.crc.set(header.checksum(self.salt(region)));
        let base = self.layout.log[region] + at;
        self.image.write(base + ENTRY_HEADER, data);
        std::sync::atomic::fence(Ordering::Release);
        self.image.write(base, header.as_bytes());
    }

    /// The header of an indexed entry.
    pub(crate) fn entry(&self, place: u32) -> EntryHeader {
        self.image.read_struct(self.layout.log[region_of(place)] + offset_of(place))
    }

    /// Copies bytes `from..` of an indexed entry's data.
    pub(crate) fn entry_data(&self, place: u32, from: usize, into: &mut [u8]) {
        let at = self.layout.log[region_of(place)] + offset_of(place) + ENTRY_HEADER;
        self.image.read(at + from as u64, into);
    }

    /// Copies an entry to the active region, number and all. Answers its new place, or nothing if there is no
    /// room.
    ///
    /// # Errors
    /// The host's disk is full, or power was lost.
    pub(crate) fn carry_entry(&self, from: u32, buffer: &mut [u8]) -> Result<Option<u32>> {
        let mut header = self.entry(from);
        let region = self.active_region();
        debug_assert_ne!(region, region_of(from));
        let bytes = EntryHeader::entry_bytes(u64::from(header.len.get()));
        let Some(at) = self.reserve(region, bytes, self.layout.region_bytes)? else { return Ok(None) };
        let data = &mut buffer[..usize::from(header.len.get())];
        self.entry_data(from, 0, data);
        self.power.step()?;
        self.write_entry(region, at, &mut header, data);
        Ok(Some(place(region, at)))
    }

    /// Calls `found` with every whole entry of a region, oldest first. Bytes that are no entry of this device
    /// are skipped.
    ///
    /// # Errors
    /// What `found` answers.
    pub(crate) fn scan_region(
        &self,
        region: usize,
        mut found: impl FnMut(u32, &EntryHeader) -> Result<()>,
    ) -> Result<()> {
        let tail = self.log_tail(region);
        let salt = self.salt(region);
        let base = self.layout.log[region];
        let mut data = [0; PAGE as usize];
        let mut at = 0;
        while at + LINE <= tail {
            let header: EntryHeader = self.image.read_struct(base + at);
            let (offset, len) = (u64::from(header.offset.get()), u64::from(header.len.get()));
            let bytes = EntryHeader::entry_bytes(len);
            let plausible = len > 0
                && offset + len <= PAGE
                && at + bytes <= tail
                && u64::from(header.lpa.get()) < self.layout.capacity_pages
                && header.crc.get() == header.checksum(salt);
            if plausible {
                let data = &mut data[..len as usize];
                self.image.read(base + at + ENTRY_HEADER, data);
                if header.data_crc.get() == crc32c::crc32c(data) {
                    found(place(region, at), &header)?;
                    at += bytes;
                    continue;
                }
            }
            at += LINE;
        }
        Ok(())
    }

    /// Empties a region and gives it a new epoch, so that nothing in it is ever taken for an entry again.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn clear_region(&self, region: usize) -> Result<()> {
        self.power.step()?;
        // An unflushed write that is reverted uncovers log entries: they must be there.
        self.flush_cache();
        self.image.word(control!(tail[region])).store(0, Ordering::Release);
        // What is left of pieces is behind the tail now. Nobody has begun a store there since the last of it
        // was cleaned.
        self.space.pieces.iter().for_each(|piece| piece.store(0, Ordering::Release));
        self.power.step()?;
        self.image.word(control!(epoch[region])).fetch_add(1, Ordering::AcqRel);
        self.note_epoch(region);
        Ok(())
    }

    /// At power-up, before anything else asks for the regions: one emptied without having got its new epoch
    /// gets it now.
    ///
    /// # Errors
    /// A tail lies outside its region.
    pub(crate) fn check_regions(&self) -> Result<()> {
        let clock = self.image.word(control!(clock)).load(Ordering::Relaxed);
        if clock >= 1 << 62 {
            return Err(Error::Image(format!("the sequence clock shows {clock}, which no device reaches")));
        }
        for region in 0..2 {
            let tail = self.image.word(control!(tail[region])).load(Ordering::Relaxed);
            if tail > self.layout.region_bytes || !tail.is_multiple_of(LINE) {
                return Err(Error::Image(format!(
                    "the tail of log region {region}, {tail}, is outside its {} bytes or not on a line",
                    self.layout.region_bytes
                )));
            }
            if tail == 0 {
                self.image.word(control!(epoch[region])).fetch_add(1, Ordering::AcqRel);
            }
            self.note_epoch(region);
        }
        let active = self.image.word(control!(active)).load(Ordering::Relaxed) & 1;
        self.space.phase.active.store(active, Ordering::Release);
        Ok(())
    }
}
