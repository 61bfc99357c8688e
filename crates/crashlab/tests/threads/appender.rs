//! A thread that keeps a log: it appends to a file, syncs it, and begins it anew when it is long.

use amphi_rt::random::Generator;
use amphi_vfs::{Allocate, Cred, Error, FileSystem, FileType, Ino, Result, SetAttr, WriteMode};

use crate::writer::{Stop, name, with};

/// A log that is longer is begun anew.
const LONGEST: usize = 24_000;
const LONGEST_RECORD: u64 = 4000;
const RESERVED: u64 = 16_384;

/// A log and what it may hold.
pub struct Appender {
    number: u64,
    ino: Ino,
    /// How often it was begun anew.
    generation: u64,
    /// Bytes that were synced, that were written, and that were begun to be written.
    synced: usize,
    written: usize,
    begun: usize,
    /// Bytes of the generation before that may still be there.
    old: usize,
    /// Something has been begun that has not come to its end.
    is_busy: bool,
}

/// What a byte of a log is, never 0.
const fn content(number: u64, generation: u64, at: usize) -> u8 {
    let mixed = (at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ ((number << 32 | generation) * 2));
    (mixed >> 40) as u8 | 1
}

impl Appender {
    pub const fn new(number: u64) -> Self {
        let (generation, synced, written, begun) = (0, 0, 0, 0);
        Self { number, ino: Ino::ROOT, generation, synced, written, begun, old: 0, is_busy: false }
    }

    fn name(&self) -> String {
        format!("log-of-{}", self.number)
    }

    fn due(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        range.map(|at| content(self.number, self.generation, at)).collect()
    }

    /// Makes the log.
    pub fn make(&self, fs: &dyn FileSystem) -> Result<()> {
        let made = fs.create(Ino::ROOT, name(&self.name()), FileType::Regular, 0o644, 0, &Cred::ROOT)?;
        with(fs, made, |_| fs.sync())
    }

    /// Looks for it after a mount.
    pub fn find(&mut self, fs: &dyn FileSystem) -> Result<()> {
        self.ino = fs.lookup(Ino::ROOT, name(&self.name()))?.attr.ino;
        Ok(())
    }

    fn cut(&mut self, fs: &dyn FileSystem, to: usize) -> Result<()> {
        fs.setattr(self.ino, &SetAttr { size: Some(to as u64), ..SetAttr::default() }, &Cred::ROOT)?;
        fs.fsync(self.ino, false)
    }

    pub fn step(&mut self, fs: &dyn FileSystem, dice: &mut Generator) -> std::result::Result<(), Stop> {
        self.is_busy = true;
        if self.written > LONGEST {
            (self.old, self.generation) = (self.written, self.generation + 1);
            (self.synced, self.written, self.begun) = (0, 0, 0);
            self.cut(fs, 0)?;
            self.old = 0;
        }
        match dice.below(16) {
            0 => {
                let reserve = Allocate::Reserve { keep_size: true };
                match fs.allocate(self.ino, self.written as u64, RESERVED, reserve, &Cred::ROOT) {
                    Err(Error::Unsupported(_)) => {}
                    reserved => reserved?,
                }
            }
            1..4 => {
                let from = self.written.saturating_sub(dice.below(6000) as usize);
                self.read(fs, from)?.map_err(Stop::Wrong)?;
            }
            4..9 => {
                fs.fsync(self.ino, dice.below(2) == 0)?;
                self.synced = self.written;
            }
            _ => {
                let bytes = 1 + dice.below(LONGEST_RECORD) as usize;
                let mode = WriteMode { append: true, sync_data: dice.below(4) == 0, ..WriteMode::default() };
                self.begun += bytes;
                let record = self.due(self.written..self.begun);
                let written = fs.write(self.ino, 0, &record, mode, &Cred::ROOT)?;
                assert_eq!(written, bytes, "a write is whole");
                self.written = self.begun;
                if mode.sync_data || fs.promise().data_durable_on_return {
                    self.synced = self.written;
                }
            }
        }
        self.is_busy = false;
        Ok(())
    }

    /// Reads from here to the end.
    fn read(&self, fs: &dyn FileSystem, from: usize) -> Result<std::result::Result<(), String>> {
        let mut found = vec![0; self.written - from + 10];
        let bytes = fs.read(self.ino, from as u64, &mut found, false)?;
        let due = self.due(from..self.written);
        if bytes != due.len() {
            return Ok(Err(self.says(&format!("ends at {} and not at {}", from + bytes, self.written))));
        }
        let wrong = found.iter().zip(&due).position(|(found, due)| found != due);
        Ok(wrong.map_or(Ok(()), |at| Err(self.says(&format!("byte {} is wrong", from + at)))))
    }

    /// Reads all of it while nobody does anything to it, unless something had been begun.
    pub fn judge_reader(&self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        if self.is_busy {
            return Ok(());
        }
        self.read(fs, 0).map_err(|error| self.says(&error.to_string()))?
    }

    /// Compares what a crash has left, and goes on behind what is whole of it, as programs do.
    pub fn judge(&mut self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        let mut found = vec![0; self.begun.max(self.old) + 10];
        let bytes = fs.read(self.ino, 0, &mut found, false).map_err(|error| self.says(&error.to_string()))?;
        found.truncate(bytes);
        let most = self.begun.max(self.old);
        if !(self.synced..=most).contains(&bytes) {
            return Err(self.says(&format!("has {bytes} bytes and should have {} to {most}", self.synced)));
        }
        let is_due = |at: usize| content(self.number, self.generation, at);
        let is_old = |at: usize| at < self.old && content(self.number, self.generation - 1, at) == found[at];
        let is_legal =
            |at: usize| found[at] == is_due(at) || at >= self.synced && (found[at] == 0 || is_old(at));
        if let Some(at) = (0..bytes).find(|at| !is_legal(*at)) {
            return Err(
                self.says(&format!("byte {at} of {bytes} is {:#x}; {} were synced", found[at], self.synced))
            );
        }
        let whole = (0..bytes).find(|at| found[*at] != is_due(*at)).unwrap_or(bytes);
        self.cut(fs, whole).map_err(|error| self.says(&error.to_string()))?;
        (self.synced, self.written, self.begun) = (whole, whole, whole);
        (self.old, self.is_busy) = (0, false);
        Ok(())
    }

    fn says(&self, what: &str) -> String {
        format!("log {}, generation {}: {what}", self.number, self.generation)
    }
}
