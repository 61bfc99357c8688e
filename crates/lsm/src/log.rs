//! The parallel write-ahead log on the memory area (AugeFS §V-B).
//!
//! Two halves of the data area take entries in turn, one file each. Whoever writes takes its place by a
//! compare-and-swap on the half's tail in host memory and stores its entry there, beside all others. An entry
//! is durable when [`Log::append`] returns, and counts as a whole or not at all: TxE carries a checksum of
//! it, so that one fence suffices.
//!
//! Which half is active, and whether an entry finds room in it, its owner decides under its lock.
//!
//! Every line takes the latency of the link, so what loads or zeros many of them does so in pieces, by
//! several tasks beside each other: recovery, moving a full half elsewhere, making it ready for use again.

mod recover;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use amphi_device::{BytePortExt, MemoryArea, PAGE_BYTES, Structure};
use amphi_rt::sync::Padded;
use amphi_rt::sync::atomic::AtomicU64;
use amphi_rt::task;

pub use recover::{Recovered, sealed};

use crate::format::{self, LINE, SLOTS_BYTES, Slot};
use crate::planted::{self, Bug};
use crate::{Error, Result};

const TAG: Structure = Structure::Journal;

/// One of the two halves of the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The lower addresses.
    First,
    /// The higher addresses.
    Second,
}

impl Half {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// Not this one.
    #[must_use]
    pub fn other(self) -> Self {
        if self == Self::First { Self::Second } else { Self::First }
    }
}

/// The log.
#[derive(Debug)]
pub struct Log<D> {
    device: Arc<D>,
    at: u64,
    half_bytes: u64,
    salt: u64,
    /// Bytes taken in each half.
    tails: [Padded<AtomicU64>; 2],
    /// Tasks that share what loads or zeros many lines.
    tasks: usize,
}

impl<D: MemoryArea> Log<D> {
    /// The log in `bytes` bytes at `at` of the memory area. `salt` tells its entries from those of another
    /// log.
    ///
    /// # Errors
    /// [`Error::Place`] for an area that is misaligned, shorter than two pages of data, longer than 2 GiB or
    /// not on the device.
    pub fn new(device: Arc<D>, at: u64, bytes: u64, salt: u64) -> Result<Self> {
        let promise = device.memory()?;
        let page = PAGE_BYTES as u64;
        if !at.is_multiple_of(page) || at.checked_add(bytes).is_none_or(|end| end > promise.bytes) {
            return Err(Error::Place("the log must begin at a page of the memory area and end in it"));
        }
        if !(SLOTS_BYTES + 2 * page..1 << 31).contains(&bytes) {
            return Err(Error::Place("the log must have from 12 KB to 2 GB"));
        }
        if promise.store_atomic_bytes < 8 {
            return Err(Error::Place("the memory area must store 8 bytes at once"));
        }
        let half_bytes = (bytes - SLOTS_BYTES) / 2 / page * page;
        let tails = [Padded(AtomicU64::new(0)), Padded(AtomicU64::new(0))];
        Ok(Self { device, at, half_bytes, salt, tails, tasks: 1 })
    }

    /// Has so many tasks share what loads or zeros more than a page; one of them unless told otherwise.
    #[must_use]
    pub fn shared_by(self, tasks: usize) -> Self {
        Self { tasks: tasks.max(1), ..self }
    }

    /// Bytes that a half holds.
    #[must_use]
    pub fn half_bytes(&self) -> u64 {
        self.half_bytes
    }

    /// The largest content of an entry.
    #[must_use]
    pub fn content_max(&self) -> usize {
        self.half_bytes as usize - format::ENTRY_FRAME
    }

    /// Zeros the whole log: no slot counts, and nothing is found in the data area.
    ///
    /// # Errors
    /// The device's.
    pub fn format(&self) -> Result<()> {
        self.zero(0, SLOTS_BYTES)?;
        self.zero(SLOTS_BYTES, 2 * self.half_bytes)
    }

    /// Makes a cleared half take entries.
    ///
    /// # Errors
    /// The device's.
    pub fn activate(&self, half: Half) -> Result<()> {
        if planted::has(Bug::SlotForgotten) {
            return Ok(());
        }
        self.set_slot(half, Slot { valid: true, active: true, start: self.start(half) as u32, end: 0 })
    }

    /// Stores an entry and makes it durable. Returns the bytes it took.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the half has no room left; the device's. After an error of the device the entry
    /// may or may not be found after a crash.
    pub fn append(&self, half: Half, content: &[u8]) -> Result<u64> {
        self.append_parts(half, &[content])
    }

    /// Stores an entry whose content is the parts one after the other.
    pub(crate) fn append_parts(&self, half: Half, parts: &[&[u8]]) -> Result<u64> {
        let bytes = format::entry_bytes(parts.iter().map(|part| part.len()).sum()) as u64;
        let at = self.start(half) + self.reserve(half, bytes)?;
        let entry = format::encode_entry(self.salt, at, parts);
        self.persist(SLOTS_BYTES + at, &entry)?;
        Ok(bytes)
    }

    /// Takes `bytes` bytes of a half and returns where they are in it.
    fn reserve(&self, half: Half, bytes: u64) -> Result<u64> {
        let tail = &self.tails[half as usize];
        let mut from = tail.load(Relaxed);
        loop {
            if from + bytes > self.half_bytes {
                return Err(Error::TooLarge {
                    what: "a log entry",
                    bytes: bytes as usize,
                    limit: (self.half_bytes - from) as usize,
                });
            }
            match tail.compare_exchange(from, from + bytes, Release, Relaxed) {
                Ok(_) => return Ok(from),
                Err(now) => from = now,
            }
        }
    }

    /// Ends a half's file: all its entries are complete and there will be no more. The caller has waited for
    /// its writers.
    ///
    /// # Errors
    /// The device's.
    pub fn seal(&self, half: Half) -> Result<()> {
        let start = self.start(half);
        let end = start + self.tails[half as usize].load(Acquire);
        self.set_slot(half, Slot { valid: true, active: false, start: start as u32, end: end as u32 })
    }

    /// Forgets a half's file, which nobody needs any more, and zeros its bytes for the next one.
    ///
    /// # Errors
    /// The device's.
    pub fn clear(&self, half: Half) -> Result<()> {
        let taken = self.tails[half as usize].load(Acquire);
        self.forget(half, self.start(half), taken)?;
        self.tails[half as usize].store(0, Release);
        Ok(())
    }

    /// Zeros `bytes` bytes at `start` of the data area, and the half's slot after them. A crash in between
    /// finds a slot that says so.
    fn forget(&self, half: Half, start: u64, bytes: u64) -> Result<()> {
        let end = start + bytes;
        if bytes > 0 {
            self.set_slot(half, Slot { valid: true, active: true, start: start as u32, end: end as u32 })?;
            self.zero(SLOTS_BYTES + start, bytes)?;
        }
        self.set_slot(half, Slot { valid: false, active: false, start: 0, end: 0 })
    }

    /// The bytes of a sealed half's file.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&self, half: Half) -> Result<Vec<u8>> {
        self.load(SLOTS_BYTES + self.start(half), self.tails[half as usize].load(Acquire) as usize)
    }

    /// First byte of a half, from the start of the data area.
    #[must_use]
    pub fn start(&self, half: Half) -> u64 {
        half as u64 * self.half_bytes
    }

    fn set_slot(&self, half: Half, slot: Slot) -> Result<()> {
        self.persist(half as u64 * 8, &slot.encode())
    }

    fn load(&self, from: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut loaded = vec![0; bytes];
        let piece = self.piece_bytes(bytes);
        let mut pieces: Vec<_> = (from..).step_by(piece).zip(loaded.chunks_mut(piece)).collect();
        if planted::has(Bug::PieceForgotten) && pieces.len() > 1 {
            pieces.remove(0);
        }
        beside(pieces, |(from, into)| Ok(self.device.load_many(self.at + from, into, TAG)?))?;
        Ok(loaded)
    }

    fn zero(&self, from: u64, bytes: u64) -> Result<()> {
        let end = from + bytes;
        let piece = self.piece_bytes(bytes as usize);
        let pieces = (from..end).step_by(piece).map(|from| from..end.min(from + piece as u64)).collect();
        beside(pieces, |piece| self.zero_piece(piece))
    }

    /// Bytes of a piece, whole pages, if the tasks share so many.
    fn piece_bytes(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.tasks).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES)
    }

    /// Zeros a piece and waits until that is durable: each task settles what it has stored itself.
    fn zero_piece(&self, piece: Range<u64>) -> Result<()> {
        const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        let (mut at, end) = (self.at + piece.start, self.at + piece.end);
        while at < end {
            let bytes = in_page(at, (end - at) as usize);
            self.device.store(at, &ZEROS[..bytes], None, TAG)?;
            self.device.flush_lines(at, bytes);
            at += bytes as u64;
        }
        self.settle()
    }

    fn persist(&self, from: u64, mut data: &[u8]) -> Result<()> {
        let mut at = self.at + from;
        while !data.is_empty() {
            let (piece, rest) = data.split_at(in_page(at, data.len()));
            self.device.store(at, piece, None, TAG)?;
            if !planted::has(Bug::LogNotFlushed) {
                self.device.flush_lines(at, piece.len());
            }
            at += piece.len() as u64;
            data = rest;
        }
        self.settle()
    }

    /// Waits until what this task has stored and flushed is durable.
    fn settle(&self) -> Result<()> {
        self.device.fence();
        if !planted::has(Bug::LogNotVerified) {
            self.device.verify_read()?;
        }
        Ok(())
    }
}

/// Does all pieces of some work, each in a task of its own; one alone in this one. All have ended when a
/// failure is told.
fn beside<T: Send>(mut pieces: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let Some(last) = pieces.pop() else { return Ok(()) };
    let work = &work;
    task::scope(|scope| {
        let others: Vec<_> =
            pieces.into_iter().map(|piece| scope.spawn("lsm-log", move || work(piece))).collect();
        others.into_iter().fold(work(last), |outcome, other| outcome.and(other.join()))
    })
}

/// How many of `len` bytes at `at` one store may take: none crosses a page.
fn in_page(at: u64, len: usize) -> usize {
    len.min(PAGE_BYTES - (at % PAGE_BYTES as u64) as usize)
}

const _: () = assert!(PAGE_BYTES.is_multiple_of(LINE) && PAGE_BYTES == format::PAGE);
