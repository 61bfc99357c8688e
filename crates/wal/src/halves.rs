//! The two halves of the log's part of the window (double buffering).
//!
//! The records' bytes are divided into segments as long as a half. Segment n is pinned onto half n % 2. When
//! a segment is full, a task flushes it with one `BA_FLUSH` and pins the segment after next in its place,
//! while records go to the other half. What is pinned is asked of the device each time: a step that failed or
//! was overtaken by a crash is simply taken again.

use std::sync::Arc;

use amphi_device::{BaBuffer, PAGE_BYTES, PinError, Structure};
use amphi_rt::task::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::place::{Mode, Options, Place};
use crate::planted::{self, Bug};

/// What a half is for.
#[derive(Clone, Copy)]
struct Half<'a, D> {
    device: &'a D,
    place: &'a Place,
    options: &'a Options,
    /// 0 or 1.
    number: usize,
}

impl<D: BaBuffer> Half<'_, D> {
    /// Has the half show this segment, or, past the end of the log, nothing.
    fn turn(&self, segment: u64) -> Result<()> {
        let id = self.options.entries[self.number];
        let from = segment.saturating_mul(self.options.half_bytes);
        let bytes = self.place.capacity().saturating_sub(from).min(self.options.half_bytes);
        match self.device.entry_info(id) {
            Ok(entry) if bytes > 0 && entry.at == self.place.page_of(from) && entry.bytes() == bytes => {
                return Ok(());
            }
            Ok(_) => self.device.flush_entry(id)?,
            Err(amphi_device::Error::Pin(PinError::NoSuchEntry(_))) => {}
            Err(cause) => return Err(cause.into()),
        }
        if bytes > 0 {
            self.device.pin(id, self.offset(), self.place.page_of(from), bytes)?;
        }
        Ok(())
    }

    /// Where it begins in the window.
    const fn offset(&self) -> u64 {
        self.options.window + self.number as u64 * self.options.half_bytes
    }
}

/// Both halves, and the tasks that turn them.
#[derive(Default)]
pub struct Halves {
    halves: [State; 2],
}

#[derive(Default)]
struct State {
    /// The segment it shows.
    shows: Option<u64>,
    /// The task that turns it, and to which segment.
    turning: Option<(u64, JoinHandle<Result<()>>)>,
}

impl State {
    /// Waits for the task. If it failed, whoever needs the half turns it himself and gets the error.
    fn settle(&mut self) {
        if let Some((segment, task)) = self.turning.take() {
            self.shows = task.join().is_ok().then_some(segment);
        }
    }
}

impl Halves {
    /// Begins to turn a segment's half to this segment, in the background.
    pub fn begin_turn<D: BaBuffer>(
        &mut self,
        device: &Arc<D>,
        place: &Place,
        options: &Options,
        segment: u64,
    ) {
        let number = (segment % 2) as usize;
        let state = &mut self.halves[number];
        state.settle();
        state.shows = None;
        let (device, place, options) = (Arc::clone(device), *place, *options);
        let turn = move || Half { device: &*device, place: &place, options: &options, number }.turn(segment);
        state.turning = Some((segment, task::spawn("log half", turn)));
    }

    /// Stores `bytes` at byte `at` of the records and returns when they are durable. No store is under way
    /// afterwards: a pin over one would lose what it loads.
    ///
    /// # Errors
    /// The device's. The call may be repeated.
    pub fn store<D: BaBuffer>(
        &mut self,
        device: &Arc<D>,
        place: &Place,
        options: &Options,
        mut at: u64,
        mut bytes: &[u8],
    ) -> Result<()> {
        while !bytes.is_empty() {
            let (segment, within) = (at / options.half_bytes, at % options.half_bytes);
            let number = (segment % 2) as usize;
            let half = Half { device: &**device, place, options, number };
            let (part, rest) = bytes.split_at(bytes.len().min((options.half_bytes - within) as usize));
            let state = &mut self.halves[number];
            state.settle();
            if state.shows != Some(segment) {
                state.shows = None;
                half.turn(segment)?;
                state.shows = Some(segment);
            }
            let stored = Self::store_part(&half, within, part, rest.is_empty());
            if stored.is_err() {
                // Somebody may have taken the entry away: the next call looks.
                state.shows = None;
            }
            stored?;
            if within + part.len() as u64 == options.half_bytes {
                self.begin_turn(device, place, options, segment + 2);
            }
            (at, bytes) = (at + part.len() as u64, rest);
        }
        Ok(())
    }

    /// Stores within one half. A store must not cross a page's end.
    fn store_part<D: BaBuffer>(half: &Half<'_, D>, within: u64, part: &[u8], is_last: bool) -> Result<()> {
        let mut at = half.offset() + within;
        let mut part = part;
        while !part.is_empty() {
            let room = PAGE_BYTES - (at % PAGE_BYTES as u64) as usize;
            let (piece, rest) = part.split_at(part.len().min(room));
            half.device.store(at, piece, None, Structure::Journal)?;
            (at, part) = (at + piece.len() as u64, rest);
        }
        if planted::has(Bug::SyncForgotten) || (planted::has(Bug::FirstHalfNotSynced) && !is_last) {
            return Ok(());
        }
        Ok(half.device.sync_entry(half.options.entries[half.number])?)
    }

    /// Waits for the tasks.
    pub fn settle(&mut self) {
        self.halves.iter_mut().for_each(State::settle);
    }
}

/// Brings what the log's entries hold to its pages, and takes them out of the table.
///
/// # Errors
/// Somebody else's entry pins pages of the log, or has a name of its entries. The device's.
pub fn release<D: BaBuffer>(device: &D, place: &Place, options: &Options) -> Result<()> {
    let entries = match device.entries() {
        // Other firmware pins nothing.
        Err(amphi_device::Error::Unsupported(_)) => return Ok(()),
        entries => entries?,
    };
    for entry in &entries {
        let is_named = options.entries.contains(&entry.id);
        let inside = place.at <= entry.at && entry.at.0 + entry.pages <= place.at.0 + place.pages;
        // Names matter only to who is going to pin.
        let is_in_the_way = !inside && is_named && options.mode == Mode::Ba;
        if is_in_the_way || (!(inside && is_named) && entry.has_page_of(place.at, place.pages)) {
            return Err(Error::ForeignEntry(entry.id));
        }
    }
    for entry in entries.iter().filter(|entry| entry.has_page_of(place.at, place.pages)) {
        device.flush_entry(entry.id)?;
    }
    Ok(())
}
