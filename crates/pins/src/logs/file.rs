//! What is done with a file that may be a log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::BaBuffer;
use amphi_vfs::{Attr, Cred, Error, Extents, FileType, Ino, Result, WriteMode};

use super::rules::Rule;
use super::{LogFile, Logs, Part, State};

impl<F: Extents + 'static, D: BaBuffer> Logs<F, D> {
    /// Adds a rule about names. Files are seen by it from their next look-up on.
    pub fn add_rule(&self, rule: Rule) {
        self.rules.write().add(rule);
        self.has_rules.store(true, Ordering::Release);
    }

    /// Notes what a name in a directory is.
    pub fn named(&self, dir: Ino, name: &[u8], attr: &Attr) {
        if !self.has_rules.load(Ordering::Acquire) {
            return;
        }
        let is_dir = attr.file_type == FileType::Directory;
        if is_dir || attr.file_type == FileType::Regular {
            self.rules.write().note(dir, name, attr.ino, is_dir);
        }
    }

    /// The log that a file is, if a rule is about it.
    fn find(&self, ino: Ino) -> Option<Arc<LogFile>> {
        if !self.has_rules.load(Ordering::Acquire) {
            return None;
        }
        if let Some(log) = self.files.read().get(&ino) {
            return Some(Arc::clone(log));
        }
        if !self.rules.read().is_log(ino) {
            return None;
        }
        let new = || Arc::new(LogFile { ino, used: Default::default(), state: Default::default() });
        Some(Arc::clone(self.files.write().entry(ino).or_insert_with(new)))
    }

    /// The log, if it is one that has been used as one.
    fn known(&self, ino: Ino) -> Option<Arc<LogFile>> {
        if !self.has_rules.load(Ordering::Acquire) {
            return None;
        }
        self.files.read().get(&ino).cloned()
    }

    /// Gives a file's pinned parts up, if it has any: something else is going to be done with it.
    pub fn step_aside(&self, ino: Ino) -> Result<()> {
        self.known(ino).map_or(Ok(()), |log| self.give_up(ino, &mut log.state.lock()))
    }

    /// Does something else with a file, which has nothing pinned meanwhile.
    pub fn aside<T>(&self, ino: Ino, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let log = self.find(ino);
        let mut state = log.as_ref().map(|log| log.state.lock());
        if let Some(state) = &mut state {
            self.give_up(ino, state)?;
        }
        body()
    }

    /// Gives all logs' parts up.
    pub fn step_aside_all(&self) -> Result<()> {
        let all: Vec<_> = self.files.read().values().cloned().collect();
        all.iter().try_for_each(|log| self.give_up(log.ino, &mut log.state.lock()))
    }

    /// A file has lost its last name.
    pub fn unnamed(&self, ino: Ino) -> Result<()> {
        if !self.has_rules.load(Ordering::Acquire) {
            return Ok(());
        }
        self.rules.write().forget(ino);
        // While something is pinned, its pages must stay the file's.
        self.step_aside(ino)?;
        // The number may be another file's by now, and what is known here used for that one.
        let is_unused = |log: &Arc<LogFile>| log.state.try_lock().is_some_and(|state| !state.is_pinned());
        let mut files = self.files.write();
        if files.get(&ino).is_some_and(|log| Arc::strong_count(log) == 1 && is_unused(log)) {
            files.remove(&ino);
        }
        Ok(())
    }

    /// Whether a file may have attributes that only its log knows.
    pub fn is_known(&self, ino: Ino) -> bool {
        self.known(ino).is_some()
    }

    /// A file's attributes, which `below` gets from the file system below, while nothing of the log changes.
    /// It may come upon another file, under the same name.
    pub fn shown(&self, ino: Ino, below: impl FnOnce() -> Result<Attr>) -> Result<Attr> {
        let Some(log) = self.known(ino) else { return below() };
        let mut state = log.state.lock();
        if !state.is_pinned() {
            return below();
        }
        if state.is_touched {
            match self.show_time(log.ino, &mut state) {
                // Its time can move no more; all else is as it was.
                Err(Error::ReadOnly) | Ok(()) => {}
                failed => failed?,
            }
        }
        let attr = below()?;
        let size = if attr.ino == ino { attr.size.max(state.size) } else { attr.size };
        Ok(Attr { size, ..attr })
    }

    /// Makes what all logs have durable, as `sync` does.
    pub fn sync(&self) -> Result<()> {
        let all: Vec<_> = self.files.read().values().cloned().collect();
        for log in all {
            let mut state = log.state.lock();
            self.look(&mut state)?;
            self.sync_parts(&mut state)?;
            // The file system below is synced next.
            self.show_time(log.ino, &mut state)?;
        }
        Ok(())
    }

    /// Reads a file that may be a log; `None`: it is none.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Option<Result<usize>> {
        let log = self.known(ino)?;
        let mut state = log.state.lock();
        if !state.is_pinned() && state.turning.is_none() {
            return Some(self.below.read(ino, offset, into, direct));
        }
        Some(self.read_parts(ino, &mut state, offset, into))
    }

    fn read_parts(&self, ino: Ino, state: &mut State, offset: u64, into: &mut [u8]) -> Result<usize> {
        // What could not be flushed stays, and is read: whoever needs its room meets the failure.
        let _left_to_writers = self.look(state);
        let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            if let Some(part) = state.parts.iter().find(|part| part.has(at)) {
                let bytes = (part.hold.end() - at).min((len - done) as u64) as usize;
                let from = (at - part.hold.offset) as usize;
                into[done..done + bytes].copy_from_slice(&part.shadow[from..from + bytes]);
                done += bytes;
                continue;
            }
            let bytes = until_part(state, at).min((len - done) as u64);
            if state.turning.as_ref().is_some_and(|turning| turning.pins.start < at + bytes) {
                let _left_to_writers = self.settle(state);
                continue;
            }
            // Past the page cache: what is read ahead could be pinned.
            let got = self.below.read(ino, at, &mut into[done..done + bytes as usize], true)?;
            if got == 0 {
                break;
            }
            done += got;
        }
        Ok(done)
    }

    /// Writes a file that may be a log; `None`: it is none.
    pub fn write(
        self: &Arc<Self>,
        ino: Ino,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        cred: &Cred,
    ) -> Option<Result<usize>> {
        let log = self.find(ino)?;
        let mut state = log.state.lock();
        Some(self.write_log(&log, &mut state, offset, data, mode, cred))
    }

    fn write_below(
        &self,
        ino: Ino,
        state: &mut State,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        cred: &Cred,
    ) -> Result<usize> {
        let offset = if mode.append { self.below.getattr(ino)?.size } else { offset };
        let written = self.below.write(ino, offset, data, WriteMode { append: false, ..mode }, cred)?;
        if written > 0 {
            state.below_is_dirty = true;
            state.outside = Some(offset);
        }
        Ok(written)
    }

    fn write_log(
        self: &Arc<Self>,
        log: &LogFile,
        state: &mut State,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        cred: &Cred,
    ) -> Result<usize> {
        let ino = log.ino;
        self.look(state)?;
        if !state.is_pinned() || data.is_empty() {
            return self.write_below(ino, state, offset, data, mode, cred);
        }
        let offset = if mode.append { state.size } else { offset };
        let plain = WriteMode { append: false, ..mode };
        let end = offset.checked_add(data.len() as u64).ok_or(Error::TooLarge)?;
        if offset > state.size {
            // A hole: its zeros are the file system's to make.
            self.give_up(ino, state)?;
            return self.write_below(ino, state, offset, data, plain, cred);
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let rest = &data[done..];
            if let Some(index) = state.parts.iter().position(|part| part.has(at)) {
                if state.parts[index].is_leaving {
                    self.settle(state)?;
                    continue;
                }
                let part = &mut state.parts[index];
                if part.hold.is_flushed {
                    self.leave(ino, &mut part.hold, state.size)?;
                    state.parts.remove(index);
                    continue;
                }
                let bytes = (part.hold.end() - at).min(rest.len() as u64) as usize;
                put(part, at, &rest[..bytes], state.size);
                done += bytes;
                let reached = at + bytes as u64;
                state.has_grown |= reached > state.size;
                state.size = state.size.max(reached);
                state.is_touched = true;
                continue;
            }
            let bytes = until_part(state, at).min(rest.len() as u64);
            if state.parts.last().is_some_and(|last| at < last.hold.offset) {
                // Behind the program.
                let written = self.write_below(ino, state, at, &rest[..bytes as usize], plain, cred)?;
                state.size = state.size.max(at + written as u64);
                done += written;
                continue;
            }
            if !self.advance(log, state, at)? {
                done += self.write_below(ino, state, at, rest, plain, cred)?;
            }
        }
        self.turn(log, state, end)?;
        if mode.sync_data || mode.sync_metadata {
            self.sync_log(log, state, !mode.sync_metadata)?;
        }
        Ok(data.len())
    }

    /// Syncs a file that may be a log; `None`: it is none. Nothing is pinned first unless it `may_pin`.
    pub fn fsync(&self, ino: Ino, data_only: bool, may_pin: bool) -> Option<Result<()>> {
        let log = self.known(ino)?;
        let mut state = log.state.lock();
        let outcome = self.sync_log(&log, &mut state, data_only);
        Some(outcome.and_then(|()| if may_pin { self.pin_first(&log, &mut state) } else { Ok(()) }))
    }

    fn sync_log(&self, log: &LogFile, state: &mut State, data_only: bool) -> Result<()> {
        self.look(state)?;
        if state.below_is_dirty || !state.is_pinned() || !data_only {
            self.below.fsync(log.ino, data_only)?;
            state.below_is_dirty = false;
        }
        self.sync_parts(state)?;
        state.syncs = state.syncs.saturating_add(1);
        log.used.store(self.syncs.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }
}

/// Bytes from `at`, which is in no part, to the next part.
fn until_part(state: &State, at: u64) -> u64 {
    let next = state.parts.iter().map(|part| part.hold.offset).filter(|offset| *offset > at).min();
    next.map_or(u64::MAX, |next| next - at)
}

/// Puts bytes into a part, and notes which of them are new: programs write whole pages of which little has
/// changed. Those from `size` on are new whatever they are.
fn put(part: &mut Part, at: u64, data: &[u8], size: u64) {
    let from = (at - part.hold.offset) as usize;
    let old = &mut part.shadow[from..from + data.len()];
    let known = size.saturating_sub(at).min(data.len() as u64) as usize;
    let first = old[..known].iter().zip(data).position(|(old, new)| old != new);
    let last = old[..known].iter().zip(data).rposition(|(old, new)| old != new);
    let first = first.unwrap_or(known) as u64;
    let last = if known < data.len() { data.len() } else { last.map_or(0, |last| last + 1) } as u64;
    old.copy_from_slice(data);
    if first < last {
        let new = at + first..at + last;
        part.dirty = if part.dirty.is_empty() {
            new
        } else {
            part.dirty.start.min(new.start)..part.dirty.end.max(new.end)
        };
    }
}
