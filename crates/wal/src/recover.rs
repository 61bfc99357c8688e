//! Reading a log after whatever ended its last use.
//!
//! The log ends at the first record that is not whole. What lies behind that may be whole all the same, since
//! stores arrive in any order. A record therefore says how often the log had been opened when it was written,
//! each opening is durable before the first append, and the numbers never go down from one record to the
//! next: what a crash left behind the end can never be taken for the continuation of newer records.

use std::sync::Arc;

use amphi_device::{BaBuffer, Structure};

use crate::error::{Error, Result};
use crate::format::{Header, PAGE, RECORD_HEAD, RECORD_MAX, RecordHead};
use crate::halves;
use crate::header::{flush_if_volatile, write_header};
use crate::log::{End, Log};
use crate::place::{Options, Place};
use crate::planted::{self, Bug};

/// Pages read at once.
const READ_PAGES: u64 = 64;

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number: one more than its predecessor's, also over truncations. The first is 1.
    pub sequence: u64,
    /// What was appended.
    pub content: Vec<u8>,
}

/// A log that is being opened: an iterator over its records, then the [`Log`].
///
/// All that it returns is durable. The log must not be open elsewhere.
pub struct Recovery<D: BaBuffer> {
    device: Arc<D>,
    place: Place,
    options: Options,
    header: Header,
    /// Where the next record begins.
    at: u64,
    /// Its number.
    next: u64,
    /// The number of openings in the last record.
    opened: u64,
    is_at_end: bool,
    /// Bytes that were read, from byte `read_at` on.
    read: Vec<u8>,
    read_at: u64,
}

impl<D: BaBuffer> Recovery<D> {
    /// Begins: what the BA-buffer holds of the log goes to its pages.
    ///
    /// # Errors
    /// There is no log, or another one; [`Error::Damaged`]; [`Error::ForeignEntry`]; [`Error::Place`]. The
    /// device's.
    pub fn begin(device: Arc<D>, place: Place, options: Options) -> Result<Self> {
        place.check(&*device)?;
        options.check(&*device)?;
        halves::release(&*device, &place, &options)?;
        flush_if_volatile(&*device)?;
        let mut page = [0; PAGE];
        device.read(place.at, &mut page, Structure::Journal)?;
        let header = Header::decode(&page).map_err(|what| Error::Damaged { what, at: 0 })?;
        if header.pages.get() != place.pages {
            return Err(Error::Pages { found: header.pages.get(), given: place.pages });
        }
        let (next, opened) = (header.first.get(), header.since.get());
        let (read, read_at) = (Vec::new(), 0);
        Ok(Self { device, place, options, header, at: 0, next, opened, is_at_end: false, read, read_at })
    }

    /// Reads on until the next `bytes` bytes are there. `None`: the log has fewer.
    fn fetch(&mut self, bytes: u64) -> Result<Option<&[u8]>> {
        if bytes > self.place.capacity() - self.at {
            return Ok(None);
        }
        self.read.drain(..(self.at - self.read_at) as usize);
        self.read_at = self.at;
        while (self.read.len() as u64) < bytes {
            let from = self.read_at + self.read.len() as u64;
            let first = from / PAGE as u64;
            let pages = (self.place.pages - 1 - first).min(READ_PAGES);
            let mut part = vec![0; pages as usize * PAGE];
            self.device.read(self.place.page_of(from), &mut part, Structure::Journal)?;
            self.read.extend_from_slice(&part[(from % PAGE as u64) as usize..]);
        }
        Ok(Some(&self.read[..bytes as usize]))
    }

    /// The next record; `None` at the log's end.
    fn step(&mut self) -> Result<Option<Record>> {
        let (at, salt) = (self.at, self.header.salt.get());
        let Some(bytes) = self.fetch(RECORD_HEAD as u64)? else { return Ok(None) };
        let head = RecordHead::decode(bytes.try_into().expect("as many"));
        let length = head.length.get() as usize;
        if length > RECORD_MAX || head.sequence.get() == 0 {
            return Ok(None);
        }
        let Some(bytes) = self.fetch((RECORD_HEAD + length) as u64)? else { return Ok(None) };
        let content = bytes[RECORD_HEAD..].to_vec();
        if head.crc.get() != head.checksum(salt, at, &content) && !planted::has(Bug::TornRecordTaken) {
            return Ok(None);
        }
        if head.opened.get() < self.opened && !planted::has(Bug::StaleRecordTaken) {
            return Ok(None);
        }
        // No crash leaves this: whoever wrote such a record was not a log.
        let damaged = |what| Err(Error::Damaged { what, at: PAGE as u64 + at });
        if head.opened > self.header.opened {
            return damaged("a record is newer than the header");
        }
        if head.sequence.get() != self.next {
            return damaged("a record has another number than the next one");
        }
        let Some(next) = self.next.checked_add(1) else { return damaged("the numbers have come to an end") };
        (self.at, self.next, self.opened) = (at + (RECORD_HEAD + length) as u64, next, head.opened.get());
        Ok(Some(Record { sequence: head.sequence.get(), content }))
    }

    /// Skips the records that were not asked for, and opens the log for what comes behind them.
    ///
    /// # Errors
    /// As for the iterator. The device's.
    pub fn open(mut self) -> Result<Log<D>> {
        for record in self.by_ref() {
            record?;
        }
        let header = self.header;
        let opened = header.opened.get().checked_add(1);
        let opened = opened.ok_or(Error::Damaged { what: "the openings have come to an end", at: 0 })?;
        let opened = opened - u64::from(planted::has(Bug::OpeningNotCounted));
        let (since, first) = (header.since.get(), header.first.get());
        let header = Header::new(header.salt.get(), self.place.pages, opened, since, first);
        write_header(&*self.device, &self.place, &header)?;
        let mut page = vec![0; PAGE];
        let within = (self.at % PAGE as u64) as usize;
        if within > 0 {
            self.device.read(self.place.page_of(self.at), &mut page, Structure::Journal)?;
        }
        page.truncate(within);
        let end = End { at: self.at, next: self.next, page };
        Ok(Log::new(self.device, self.place, self.options, header, end))
    }
}

impl<D: BaBuffer> Iterator for Recovery<D> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end {
            return None;
        }
        match self.step() {
            Ok(None) => {
                self.is_at_end = true;
                None
            }
            // An error comes again: who goes on behind it must not take it for the end.
            outcome => outcome.transpose(),
        }
    }
}
