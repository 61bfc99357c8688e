//! Logs of programs that know nothing of pins (2B-SSD §IV-B): the part of a log file that is being written is
//! pinned, so that making it durable stores the new bytes and issues `BA_SYNC`, and touches no flash.
//!
//! A file that a rule is about becomes a log when it has been synced often enough. The part behind
//! its last write is then pinned, half a window's share long; what is written there goes to a copy in host
//! memory (loads from the window are slow), and a sync stores what is new. When the program is past the
//! first quarter of a part, a task pins the part behind it, then flushes those before by one `BA_FLUSH` each.
//!
//! Pages behind the file's end are reserved in the file system, and said to be written there when a part has
//! been flushed. Until then the size and the parts are in the register, which recovery reads: no
//! sync waits for the journal.
//!
//! Locks: the table of pins → a log → room in the window → the file system below.

mod file;
mod register;
mod rules;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_device::{BaBuffer, Entry, PAGE_BYTES};
use amphi_rt::sync::atomic::{AtomicBool, AtomicU64};
use amphi_rt::sync::{Mutex, Receiver, RwLock};
use amphi_rt::task::JoinHandle;
use amphi_vfs::{Error, Extents, Ino, Result};
use amphi_volume::io_error;

pub use rules::{BUILT_IN, Rule};

use register::Register;
use rules::Rules;

const PAGE: u64 = PAGE_BYTES as u64;
/// A log's part takes this share of the window.
const SHARE_OF_WINDOW: u64 = 16;

/// Which files are logs, and how they are kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rules about their names. Without any, no file is one.
    pub rules: Vec<Rule>,
    /// Bytes of a pinned part, a multiple of 4096; a share of the window unless given.
    pub part_bytes: Option<u64>,
    /// A file is a log from this sync on.
    pub after_syncs: u32,
}

impl Default for Options {
    /// No rules; who syncs a file twice is taken to keep a log in it.
    fn default() -> Self {
        Self { rules: Vec::new(), part_bytes: None, after_syncs: 2 }
    }
}

impl Options {
    /// With the rules for programs that are known.
    ///
    /// # Panics
    /// Never: they are rules.
    #[must_use]
    pub fn built_in() -> Self {
        let rules = BUILT_IN.iter().map(|rule| Rule::parse(rule).expect("a rule")).collect();
        Self { rules, ..Self::default() }
    }
}

/// What a part of a log takes of the device.
#[derive(Clone, Copy)]
struct Hold {
    /// First byte in the file.
    offset: u64,
    entry: Entry,
    /// Its line of the register.
    slot: usize,
    /// The entry is gone, and the pages have what was in it, but the file system below could not be told: the
    /// window may be another's.
    is_flushed: bool,
}

impl Hold {
    fn end(&self) -> u64 {
        self.offset + self.entry.bytes()
    }
}

/// A pinned part of a log.
struct Part {
    hold: Hold,
    /// What the program sees.
    shadow: Vec<u8>,
    /// Bytes from here to there, of the file, are not in the window yet.
    dirty: std::ops::Range<u64>,
    /// A task is flushing it.
    is_leaving: bool,
}

impl Part {
    fn has(&self, at: u64) -> bool {
        (self.hold.offset..self.hold.end()).contains(&at)
    }
}

/// A task that pins the next part and flushes those behind.
struct Turning {
    /// Which of the parts that leave have not, and what the first of them met.
    task: JoinHandle<(Vec<Hold>, Result<()>)>,
    /// The next part, as soon as it is there.
    next: Receiver<Part>,
    /// What it pins, in the file.
    pins: std::ops::Range<u64>,
}

/// What is known of a log.
#[derive(Default)]
struct State {
    /// Bytes of the file, while parts are pinned.
    size: u64,
    /// As many of them are known to be durable.
    durable: u64,
    /// The file has grown since its first part was pinned.
    has_grown: bool,
    /// In the file's order.
    parts: Vec<Part>,
    turning: Option<Turning>,
    /// Something was written below and not synced.
    below_is_dirty: bool,
    /// The modification time is due.
    is_touched: bool,
    syncs: u32,
    /// Where the last write that met no part began.
    outside: Option<u64>,
    /// A sync before this one does not try to pin.
    retry_at: u32,
}

impl State {
    const fn is_pinned(&self) -> bool {
        !self.parts.is_empty()
    }
}

/// A file that a rule is about.
struct LogFile {
    ino: Ino,
    /// When it was synced last, by the count of all syncs.
    used: AtomicU64,
    state: Mutex<State>,
}

/// All logs of a file system.
pub struct Logs<F: Extents, D: BaBuffer> {
    below: Arc<F>,
    device: Arc<D>,
    register: Register<D>,
    /// Who looks for room in the window and takes it.
    pub(crate) room: Mutex<()>,
    rules: RwLock<Rules>,
    has_rules: AtomicBool,
    files: RwLock<BTreeMap<Ino, Arc<LogFile>>>,
    part_bytes: u64,
    after_syncs: u32,
    syncs: AtomicU64,
}

/// Bytes of the window that pins may take.
pub fn window_bytes<D: BaBuffer>(device: &D) -> amphi_device::Result<u64> {
    Ok(device.ba_buffer()?.bytes.saturating_sub(PAGE))
}

impl<F: Extents + 'static, D: BaBuffer> Logs<F, D> {
    /// Opens the register and gives the file system what a crash has left in it. All entries have been
    /// flushed.
    pub fn recover(below: &Arc<F>, device: &Arc<D>, options: &Options) -> Result<Arc<Self>> {
        let register = Register::of(device, below.identity()).map_err(io_error)?;
        let mut is_kept = false;
        for line in register.left().map_err(io_error)? {
            let (ino, offset, size) = (Ino(line.ino.get()), line.offset.get(), line.size.get());
            let length = u64::from(line.pages.get()) * PAGE;
            let due = amphi_vfs::PageRun { first: line.at.get(), pages: line.pages.get().into() };
            // The file may be gone, or have other pages by now: then the part had been given up before.
            match below.place(ino, offset, length) {
                Ok(runs) if runs == [due] && size > offset => {
                    let written = size.next_multiple_of(PAGE).min(offset + length) - offset;
                    below.landed(ino, offset, written, size)?;
                }
                Err(Error::ReadOnly) => is_kept = true,
                Err(error @ (Error::Io(_) | Error::Corrupt(_) | Error::Unsupported(_))) => return Err(error),
                _ => {}
            }
        }
        if !is_kept {
            register.begin().map_err(io_error)?;
        }
        let window = window_bytes(&**device).map_err(io_error)?;
        let share = (window / SHARE_OF_WINDOW).max(PAGE) / PAGE * PAGE;
        let mut rules = Rules::default();
        options.rules.iter().cloned().for_each(|rule| rules.add(rule));
        Ok(Arc::new(Self {
            below: Arc::clone(below),
            device: Arc::clone(device),
            register,
            room: Mutex::default(),
            has_rules: AtomicBool::new(!rules.is_empty()),
            rules: RwLock::new(rules),
            files: RwLock::default(),
            part_bytes: options.part_bytes.unwrap_or(share),
            after_syncs: options.after_syncs,
            syncs: AtomicU64::new(0),
        }))
    }
}
