//! The open log: append, commit, truncate.
//!
//! Appended records gather in memory until somebody commits; he then brings all of them to the device, his
//! own and others'. `BA_SYNC` covers stores of the calling task only, so a commit that relied on what other
//! tasks had stored could be acknowledged while a record before it is on its way.
//!
//! Locks: background → device → gathered. Records are appended under the last one alone, while others are
//! being written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BaBuffer, Structure};
use amphi_rt::sync::Mutex;
use amphi_rt::sync::atomic::AtomicU64;
use amphi_rt::task::{self, JoinHandle};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::format::{Header, PAGE, RECORD_HEAD, RECORD_MAX, RecordHead};
use crate::halves::{self, Halves};
use crate::header::{flush_if_volatile, write_header};
use crate::place::{Mode, Options, Place};
use crate::planted::{self, Bug};

/// Where recovery found the end.
pub(crate) struct End {
    /// Bytes of records.
    pub at: u64,
    /// Number of the next one.
    pub next: u64,
    /// The bytes of the last page, if it is not full.
    pub page: Vec<u8>,
}

/// A log that takes records. Tasks may share it.
///
/// Dropping it commits nothing, and leaves in the BA-buffer what is there: the next opening finds it.
pub struct Log<D: BaBuffer> {
    shared: Arc<Shared<D>>,
}

struct Shared<D: BaBuffer> {
    device: Arc<D>,
    place: Place,
    options: Options,
    /// The number of the last record that is durable.
    durable: AtomicU64,
    background: Mutex<Background>,
    writer: Mutex<Writer>,
    gathered: Mutex<Gathered>,
}

/// The task of [`Mode::Async`].
#[derive(Default)]
struct Background {
    task: Option<JoinHandle<()>>,
    is_running: bool,
    /// What it met, until a commit reports it.
    failure: Option<Error>,
}

/// What writes to the device.
struct Writer {
    halves: Halves,
    /// The bytes of the last page, if it is not full. Kept for block writes only.
    page: Vec<u8>,
}

/// Records that are not on the device yet.
struct Gathered {
    bytes: Vec<u8>,
    /// Where they begin.
    at: u64,
    /// Number of the next record.
    next: u64,
    header: Header,
    /// A truncation failed.
    is_broken: bool,
}

impl<D: BaBuffer> Log<D> {
    pub(crate) fn new(device: Arc<D>, place: Place, options: Options, header: Header, end: End) -> Self {
        let mut halves = Halves::default();
        if options.mode == Mode::Ba {
            let segment = end.at / options.half_bytes;
            halves.begin_turn(&device, &place, &options, segment);
            halves.begin_turn(&device, &place, &options, segment + 1);
        }
        let gathered = Gathered { bytes: Vec::new(), at: end.at, next: end.next, header, is_broken: false };
        let shared = Shared {
            device,
            place,
            options,
            durable: AtomicU64::new(end.next - 1),
            background: Mutex::default(),
            writer: Mutex::new(Writer { halves, page: end.page }),
            gathered: Mutex::new(gathered),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Appends a record and answers its number. It is in memory until a commit.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Full`], [`Error::OpenAgain`]. What a write of records that were gathered
    /// before met. The record is not appended then.
    pub fn append(&self, content: &[u8]) -> Result<u64> {
        if content.len() > RECORD_MAX {
            return Err(Error::TooLarge { bytes: content.len(), most: RECORD_MAX });
        }
        if self.shared.gathered.lock().bytes.len() as u64 >= self.shared.options.half_bytes {
            self.shared.write_gathered()?;
        }
        self.shared.gathered.lock().append(content, self.shared.place.capacity())
    }

    /// Commits all records appended before, by whichever task: on return they are durable, or, with
    /// [`Mode::Async`], on their way.
    ///
    /// # Errors
    /// [`Error::OpenAgain`]. The device's; the records stay appended, and the next commit tries again.
    pub fn commit(&self) -> Result<()> {
        if self.shared.options.mode == Mode::Async {
            return Shared::write_in_background(&self.shared);
        }
        self.shared.write_gathered()
    }

    /// The number of the last durable record.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// The number that the next record gets, if nobody appends before.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.shared.gathered.lock().next
    }

    /// Drops all records, committed or not. The next one has the next number, and all the log's room.
    ///
    /// # Errors
    /// The device's. The log then has to be opened again, with all its committed records or none.
    pub fn truncate(&self) -> Result<()> {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock();
        let mut gathered = shared.gathered.lock();
        gathered.check()?;
        let old = gathered.header;
        let opened = old.opened.get().checked_add(1);
        let opened = opened.ok_or(Error::Damaged { what: "the openings have come to an end", at: 0 })?;
        let since = if planted::has(Bug::TruncationForgotten) { old.since.get() } else { opened };
        let header = Header::new(old.salt.get(), shared.place.pages, opened, since, gathered.next);
        // Until it is known which header the device has, a record could be one of the wrong log.
        gathered.is_broken = true;
        write_header(&*shared.device, &shared.place, &header)?;
        let next = gathered.next;
        *gathered = Gathered { bytes: Vec::new(), at: 0, next, header, is_broken: false };
        shared.durable.store(next - 1, Ordering::Release);
        writer.page.clear();
        if shared.options.mode == Mode::Ba {
            for segment in 0..2 {
                writer.halves.begin_turn(&shared.device, &shared.place, &shared.options, segment);
            }
        }
        Ok(())
    }

    /// Commits, brings everything to flash, and gives the log's part of the BA-buffer back.
    ///
    /// # Errors
    /// As [`commit`](Self::commit). What was committed is found by the next opening all the same.
    pub fn close(self) -> Result<()> {
        self.shared.write_gathered()?;
        self.shared.writer.lock().halves.settle();
        halves::release(&*self.shared.device, &self.shared.place, &self.shared.options)
    }
}

impl<D: BaBuffer> Drop for Log<D> {
    /// No task of the log uses the device afterwards.
    fn drop(&mut self) {
        let task = self.shared.background.lock().task.take();
        if let Some(task) = task {
            task.join();
        }
        self.shared.writer.lock().halves.settle();
    }
}

impl Gathered {
    fn check(&self) -> Result<()> {
        if self.is_broken { Err(Error::OpenAgain) } else { Ok(()) }
    }

    fn append(&mut self, content: &[u8], capacity: u64) -> Result<u64> {
        self.check()?;
        let at = self.at + self.bytes.len() as u64;
        let (needed, left) = ((RECORD_HEAD + content.len()) as u64, capacity - at);
        if needed > left {
            return Err(Error::Full { needed, left });
        }
        let sequence = self.next;
        let next = sequence.checked_add(1);
        self.next = next.ok_or(Error::Damaged { what: "the numbers have come to an end", at: 0 })?;
        let (salt, opened) = (self.header.salt.get(), self.header.opened.get());
        self.bytes.extend_from_slice(RecordHead::new(salt, at, sequence, opened, content).as_bytes());
        self.bytes.extend_from_slice(content);
        Ok(sequence)
    }
}

impl<D: BaBuffer> Shared<D> {
    /// Brings all gathered records to the device. On return they are durable.
    fn write_gathered(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        let (bytes, at, last) = {
            let mut gathered = self.gathered.lock();
            gathered.check()?;
            let bytes = std::mem::take(&mut gathered.bytes);
            let at = gathered.at;
            gathered.at += bytes.len() as u64;
            (bytes, at, gathered.next - 1)
        };
        if bytes.is_empty() {
            return Ok(());
        }
        let outcome = match self.options.mode {
            Mode::Ba => writer.halves.store(&self.device, &self.place, &self.options, at, &bytes),
            Mode::Sync | Mode::Async => self.write_pages(&mut writer.page, at, &bytes),
        };
        if outcome.is_err() {
            // They keep their places: records that were appended meanwhile come behind them.
            let mut gathered = self.gathered.lock();
            gathered.at = at;
            gathered.bytes.splice(..0, bytes);
        } else {
            self.durable.store(last, Ordering::Release);
        }
        outcome
    }

    /// Writes whole pages by block, the last page's older bytes with them.
    fn write_pages(&self, page: &mut Vec<u8>, at: u64, bytes: &[u8]) -> Result<()> {
        let mut pages = [page.as_slice(), bytes].concat();
        let partial = pages.len() / PAGE * PAGE..pages.len();
        pages.resize(pages.len().next_multiple_of(PAGE), 0);
        self.device.write(self.place.page_of(at), &pages, Structure::Journal)?;
        flush_if_volatile(&*self.device)?;
        *page = pages[partial].to_vec();
        Ok(())
    }

    /// Has a task write what is gathered, unless one does. Reports what the last one met.
    fn write_in_background(this: &Arc<Self>) -> Result<()> {
        let mut background = this.background.lock();
        if let Some(failure) = background.failure.take() {
            return Err(failure);
        }
        this.gathered.lock().check()?;
        if background.is_running {
            return Ok(());
        }
        background.is_running = true;
        let shared = Arc::clone(this);
        background.task = Some(task::spawn("log writer", move || shared.write_until_empty()));
        Ok(())
    }

    fn write_until_empty(&self) {
        loop {
            let outcome = self.write_gathered();
            let mut background = self.background.lock();
            // Looked at under the lock: who appends after this starts another task.
            if outcome.is_err() || self.gathered.lock().bytes.is_empty() {
                background.failure = outcome.err();
                background.is_running = false;
                return;
            }
        }
    }
}
