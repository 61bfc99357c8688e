//! Parts of a log that come and go: pinned ahead of the program, flushed behind it, and all given up when
//! something other than reading, writing and syncing is done with the file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BaBuffer, BytePortExt, Entry, Lpa, PAGE_BYTES, Structure};
use amphi_rt::sync::channel;
use amphi_rt::task;
use amphi_vfs::{Allocate, Cred, Error, Extents, Ino, OpenFlags, Result, SetAttr, SetTime};

use super::{Hold, LogFile, Logs, PAGE, Part, State, Turning, io_error, window_bytes};
use crate::entry;
use crate::planted::{self, Bug};
use crate::table::places;

/// A log that found no room does not ask again before so many syncs.
const PATIENCE: u32 = 64;

impl<F: Extents + 'static, D: BaBuffer> Logs<F, D> {
    /// Stores what is new of a part, and issues `BA_SYNC`.
    fn store(&self, part: &mut Part) -> Result<()> {
        if part.dirty.is_empty() {
            return Ok(());
        }
        let Hold { offset, entry, is_flushed, .. } = part.hold;
        assert!(!is_flushed, "what is written to a part that has left is nobody's");
        let mut at = part.dirty.start - offset;
        let end = part.dirty.end - offset;
        while at < end {
            let to = end.min((at / PAGE + 1) * PAGE);
            let bytes = &part.shadow[at as usize..to as usize];
            self.device.store(entry.offset + at, bytes, None, Structure::Data).map_err(io_error)?;
            at = to;
        }
        if !planted::has(Bug::LogNotSynced) {
            self.device.sync_entry(entry.id).map_err(io_error)?;
        }
        part.dirty = 0..0;
        Ok(())
    }

    /// Makes all that was written to pinned parts durable, and the size that it needs.
    pub(super) fn sync_parts(&self, state: &mut State) -> Result<()> {
        state.parts.iter_mut().filter(|part| !part.is_leaving).try_for_each(|part| self.store(part))?;
        let (durable, size) = (state.durable, state.size);
        if size > durable && !planted::has(Bug::LogSizeForgotten) {
            // Each part that has some of what is new says how far, since recovery takes no page for written
            // that its part's line does not reach. One that is leaving has said so when it began to.
            let has_new =
                |part: &&Part| !part.is_leaving && part.hold.offset < size && durable < part.hold.end();
            for part in state.parts.iter().filter(has_new) {
                self.register.set_size(part.hold.slot, size.min(part.hold.end())).map_err(io_error)?;
            }
            state.durable = size;
        }
        Ok(())
    }

    /// Pins the part of a log that begins with the page of `from`. `size` is the file's.
    fn pin_part(&self, ino: Ino, from: u64, size: u64) -> Result<Part> {
        let offset = from / PAGE * PAGE;
        let inside = size.next_multiple_of(PAGE).saturating_sub(offset);
        let length = if inside > PAGE { inside.min(self.part_bytes) } else { self.part_bytes };
        let _room = self.room.lock();
        let promise = self.device.ba_buffer().map_err(io_error)?;
        let taken = self.device.entries().map_err(io_error)?;
        if taken.len() >= promise.entries as usize {
            return Err(Error::NoSpace);
        }
        let runs = match self.below.place(ino, offset, length) {
            // Pages that the file does not have yet. A file that is written again has them all, and needs no
            // journal.
            Err(Error::Invalid(_)) => {
                let reserve = Allocate::Reserve { keep_size: true };
                self.below.allocate_unnoticed(ino, offset, length, reserve)?;
                self.below.place(ino, offset, length)?
            }
            runs => runs?,
        };
        let run = *runs.first().ok_or(Error::NoSpace)?;
        let window = window_bytes(&*self.device).map_err(io_error)?;
        let entry = *places(&taken, window, &[run])
            .and_then(|found| found.first().copied())
            .as_ref()
            .ok_or(Error::NoSpace)?;
        self.fill_reserved(ino, offset, inside.min(entry.bytes()), entry.at)?;
        let slot = self.register.claim(ino, offset, &entry).map_err(io_error)?.ok_or(Error::NoSpace)?;
        let written = size.saturating_sub(offset).min(entry.bytes()) as usize;
        let shadow = entry::pin(&*self.device, &entry).and_then(|()| {
            let shadow = self.shadow(&entry, written);
            if shadow.is_err() {
                entry::flush(&*self.device, &entry)?;
            }
            shadow
        });
        match shadow {
            Ok(shadow) => {
                let hold = Hold { offset, entry, slot, is_flushed: false };
                Ok(Part { hold, shadow, dirty: 0..0, is_leaving: false })
            }
            Err(error) => {
                self.register.clear(slot).map_err(io_error)?;
                Err(io_error(error))
            }
        }
    }

    /// What a program sees of an entry whose first bytes, so many, are written.
    fn shadow(&self, entry: &Entry, written: usize) -> amphi_device::Result<Vec<u8>> {
        let mut shadow = vec![0; entry.bytes() as usize];
        if written > 0 {
            let whole = &mut shadow[..written.next_multiple_of(PAGE_BYTES)];
            // Not each profile with a BA-buffer has an engine for reads of its window.
            self.device.load_many(entry.offset, whole, Structure::Data)?;
            shadow[written..].fill(0);
        }
        Ok(shadow)
    }

    /// Has the pages hold zeros that lie inside of the file and were never written: the window would show
    /// what somebody else has left there. The file's page at `offset` is the device's page `first`.
    fn fill_reserved(&self, ino: Ino, offset: u64, inside: u64, first: Lpa) -> Result<()> {
        if inside == 0 || self.below.settle(ino, offset, inside).is_ok() {
            return Ok(());
        }
        let is_written = |page: u64| match self.below.settle(ino, offset + page * PAGE, PAGE) {
            Err(Error::Invalid(_)) => Ok(false),
            other => other.map(|_| true),
        };
        let (mut page, pages) = (0, inside / PAGE);
        while page < pages {
            let start = page;
            while page < pages && !is_written(page)? {
                page += 1;
            }
            if start < page {
                let zeros = vec![0; ((page - start) * PAGE) as usize];
                self.device.write(first.plus(start), &zeros, Structure::Data).map_err(io_error)?;
                self.below.landed(ino, offset + start * PAGE, zeros.len() as u64, 0)?;
            }
            // The one that was written, if any.
            page += 1;
        }
        Ok(())
    }

    /// Flushes a part, tells the file system what is written there, and gives its line back.
    pub(super) fn leave(&self, ino: Ino, hold: &mut Hold, size: u64) -> Result<()> {
        if !hold.is_flushed {
            entry::flush(&*self.device, &hold.entry).map_err(io_error)?;
            hold.is_flushed = true;
        }
        let written = size.next_multiple_of(PAGE).min(hold.end()).saturating_sub(hold.offset);
        if written > 0 {
            self.below.landed(ino, hold.offset, written, size.min(hold.end()))?;
        }
        self.register.clear(hold.slot).map_err(io_error)
    }

    /// Frees an entry and room in the window: the log that was synced longest ago gives up its parts. A task
    /// that turns parts waits for no other: each could be what the other one waits for.
    fn evict(&self, but: Ino, is_task: bool) -> bool {
        let mut others: Vec<_> = self.files.read().values().filter(|log| log.ino != but).cloned().collect();
        // Each is asked once: others sync meanwhile.
        others.sort_by_cached_key(|log| log.used.load(Ordering::Relaxed));
        others.iter().any(|log| {
            log.state.try_lock().is_some_and(|mut state| {
                let would_wait = state.turning.as_ref().is_some_and(|turning| !turning.task.is_finished());
                state.is_pinned() && !(is_task && would_wait) && self.give_up(log.ino, &mut state).is_ok()
            })
        })
    }

    fn pin_or_evict(&self, ino: Ino, from: u64, size: u64, is_task: bool) -> Result<Part> {
        match self.pin_part(ino, from, size) {
            Err(Error::NoSpace) if self.evict(ino, is_task) => self.pin_part(ino, from, size),
            outcome => outcome,
        }
    }

    /// Pins the part that the last write outside began in, if the file has been synced often enough. A log
    /// that finds no room goes on as an ordinary file.
    pub(super) fn pin_first(&self, log: &LogFile, state: &mut State) -> Result<()> {
        let Some(from) = state.outside.take() else { return Ok(()) };
        if state.syncs < self.after_syncs || state.syncs < state.retry_at {
            return Ok(());
        }
        self.give_up(log.ino, state)?;
        let attr = self.below.getattr(log.ino)?;
        let has_rights = self.below.getxattr(log.ino, b"security.capability").is_ok();
        // Who cut the file since writes on at its end.
        let is_behind_end = from > attr.size;
        if attr.mode & 0o6000 != 0 || attr.nlink == 0 || has_rights || is_behind_end {
            return Ok(());
        }
        // The log's own, which keeps the blocks although the last name goes.
        self.below.open(log.ino, OpenFlags { write: true, ..OpenFlags::default() })?;
        match self.pin_or_evict(log.ino, from, attr.size, false) {
            Ok(part) => {
                (state.size, state.durable, state.has_grown) = (attr.size, attr.size, false);
                state.parts.push(part);
            }
            Err(_) => {
                self.below.release(log.ino);
                state.retry_at = state.syncs.saturating_add(PATIENCE);
            }
        }
        Ok(())
    }

    /// Waits for the task that turns parts, and takes over what it has done.
    pub(super) fn settle(&self, state: &mut State) -> Result<()> {
        let Some(turning) = state.turning.take() else { return Ok(()) };
        let (rest, outcome) = turning.task.join();
        state.parts.retain_mut(|part| {
            // One that could not leave stays, and whoever needs its room tries again.
            let stays = rest.iter().find(|hold| hold.offset == part.hold.offset);
            part.hold = *stays.unwrap_or(&part.hold);
            !std::mem::take(&mut part.is_leaving) || stays.is_some()
        });
        state.parts.extend(turning.next.try_receive());
        outcome
    }

    /// Takes over what the task that turns parts has done so far.
    pub(super) fn look(&self, state: &mut State) -> Result<()> {
        match &state.turning {
            Some(turning) if turning.task.is_finished() => self.settle(state),
            Some(turning) => {
                state.parts.extend(turning.next.try_receive());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Has a task pin the part behind the last one and flush those before it, once the program is past the
    /// last one's first quarter: not at once, since it may write again a block that began in the one before.
    pub(super) fn turn(self: &Arc<Self>, log: &LogFile, state: &mut State, at: u64) -> Result<()> {
        match state.parts.last() {
            Some(Part { hold, .. }) if at > hold.offset + hold.entry.bytes() / 4 && at <= hold.end() => {
                self.begin_turn(log, state)
            }
            _ => Ok(()),
        }
    }

    fn begin_turn(self: &Arc<Self>, log: &LogFile, state: &mut State) -> Result<()> {
        let Some(from) = state.parts.last().map(|last| last.hold.end()) else { return Ok(()) };
        let goes_on = state.has_grown || from < state.size;
        let before = state.parts.len() - 1;
        if state.turning.is_some() || before == 0 && !goes_on {
            return Ok(());
        }
        let mut leaving = Vec::new();
        for part in &mut state.parts[..before] {
            self.store(part)?;
            self.register.set_size(part.hold.slot, part.hold.end()).map_err(io_error)?;
            part.is_leaving = true;
            leaving.push(part.hold);
        }
        let (logs, ino, size) = (Arc::clone(self), log.ino, state.size);
        let (pinned, next) = channel(1);
        let task = task::spawn("log part", move || {
            // First, if there is room for one more: the program waits for it, and not for what is behind.
            let early = if goes_on { logs.pin_part(ino, from, size).ok() } else { None };
            let is_late = goes_on && early.is_none();
            let hand_over = |part: Option<Part>| {
                // Who does not want it any more waits for the end of this task, and takes it then.
                let _taken = part.map(|part| pinned.try_send(part));
            };
            hand_over(early);
            for left in 0..leaving.len() {
                if let Err(error) = logs.leave(ino, &mut leaving[left], size) {
                    return (leaving.split_off(left), Err(error));
                }
            }
            if is_late {
                // Without room the program goes on below.
                hand_over(logs.pin_or_evict(ino, from, size, true).ok());
            }
            (Vec::new(), Ok(()))
        });
        state.turning = Some(Turning { task, next, pins: from..from + self.part_bytes });
        Ok(())
    }

    /// The program is behind all parts: pins the one that it is in, and flushes the others. False: there is
    /// no room.
    pub(super) fn advance(self: &Arc<Self>, log: &LogFile, state: &mut State, at: u64) -> Result<bool> {
        let is_there = |state: &State| state.parts.iter().any(|part| part.has(at));
        for may_begin in [true, false] {
            if let Some(turning) = &state.turning {
                // It comes before what is behind has been flushed, or the task has ended without one.
                state.parts.extend(turning.next.receive());
            }
            if is_there(state) {
                return Ok(true);
            }
            self.settle(state)?;
            if may_begin && state.parts.last().is_some_and(|last| last.hold.end() == at) {
                self.begin_turn(log, state)?;
            }
        }
        self.leave_all(log.ino, state)?;
        match self.pin_or_evict(log.ino, at, state.size, false) {
            Ok(part) => {
                state.parts.push(part);
                Ok(true)
            }
            Err(_) => {
                self.end(log.ino, state)?;
                Ok(false)
            }
        }
    }

    fn leave_all(&self, ino: Ino, state: &mut State) -> Result<()> {
        let size = state.size;
        for part in &mut state.parts {
            if part.has(size) && !part.hold.is_flushed {
                // What lies behind the end in its page is somebody's whom the pages belonged to before.
                let from = if part.dirty.is_empty() { size } else { part.dirty.start.min(size) };
                part.dirty = from..size.next_multiple_of(PAGE).max(part.dirty.end);
            }
        }
        state.parts.iter_mut().try_for_each(|part| self.store(part))?;
        while let Some(part) = state.parts.first_mut() {
            self.leave(ino, &mut part.hold, size)?;
            state.parts.remove(0);
        }
        Ok(())
    }

    /// Nothing is pinned any more: the file is one as others are.
    fn end(&self, ino: Ino, state: &mut State) -> Result<()> {
        let shown = self.show_time(ino, state);
        // What was reserved behind the end is the file's no longer; if it stays, it is only room.
        let behind = state.size.next_multiple_of(PAGE);
        let hole = Allocate::PunchHole;
        let _stays = self.below.allocate_unnoticed(ino, behind, 2 * self.part_bytes, hole);
        self.below.release(ino);
        state.outside = None;
        shown
    }

    /// Flushes all parts of a log; the file is one as others are, and all that was written is in it.
    pub(super) fn give_up(&self, ino: Ino, state: &mut State) -> Result<()> {
        self.settle(state)?;
        if !state.is_pinned() {
            return Ok(());
        }
        self.leave_all(ino, state)?;
        self.end(ino, state)
    }

    /// Moves the modification time if that is due.
    pub(super) fn show_time(&self, ino: Ino, state: &mut State) -> Result<()> {
        if std::mem::take(&mut state.is_touched) {
            let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
            self.below.setattr(ino, &now, &Cred::ROOT)?;
        }
        Ok(())
    }

    /// Waits for all tasks: nobody uses the device afterwards.
    pub fn stop(&self) {
        for log in self.files.read().values() {
            // What a task met, the next mount sees.
            let _ended = self.settle(&mut log.state.lock());
        }
    }
}
