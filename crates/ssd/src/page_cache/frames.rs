//! The cache's frames: which page each holds, which are dirty, and which was used longest ago.
//!
//! Frames are found by one array read under the page's partition lock. Order of use is a stamp on each frame;
//! the oldest ones are gathered by one scan for many evictions, and a frame used since then is passed over,
//! so that the order is that of a list without a list's lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use amphi_rt::sync::{Mutex, OnceCell};

use crate::format::Layout;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// Empty, or in the hands of a task that is about to fill it.
    Empty = 0,
    /// Holds what flash holds.
    Clean = 1,
    /// Holds what flash does not: it has a record in the image.
    Dirty = 2,
}

/// What the controller knows of a frame.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    lpa: AtomicU32,
    state: AtomicU32,
    /// When it was last used, by the cache's own count.
    used: AtomicU64,
    /// Stores into it, so that a write-back notices one that came in between.
    changes: AtomicU64,
    /// When its page has come from flash.
    ready_at: AtomicU64,
}

impl Frame {
    /// The logical page in it.
    pub(crate) fn lpa(&self) -> u64 {
        u64::from(self.lpa.load(Ordering::Acquire))
    }

    /// What it is.
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Empty,
            1 => State::Clean,
            _ => State::Dirty,
        }
    }

    /// Counts stores into it.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Notes a store into it.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// When its page has come from flash.
    pub(crate) fn ready_at(&self) -> u64 {
        self.ready_at.load(Ordering::Relaxed)
    }
}

/// The cache as the controller sees it.
#[derive(Debug)]
pub(crate) struct Frames {
    frames: Box<[Frame]>,
    /// Per partition, the frame of each of its pages, plus one.
    places: Box<[OnceCell<Box<[AtomicU32]>>]>,
    partition_pages: u64,
    free: Mutex<Vec<u32>>,
    /// Frames in the order of their last use when they were gathered, with that use.
    oldest: Mutex<VecDeque<(u64, u32)>>,
    uses: AtomicU64,
    dirty: AtomicU64,
    /// Dirty frames above which they are written back in the background.
    pub(crate) dirty_limit: u64,
    /// Frames that the host's disk has room for.
    pub(crate) room: AtomicU64,
    pub(crate) extending: Mutex<()>,
}

impl Frames {
    /// An empty cache.
    pub(crate) fn new(layout: &Layout, write_back_at_percent: u64) -> Self {
        let frames = layout.cache_frames;
        Self {
            frames: (0..frames).map(|_| Frame::default()).collect(),
            places: (0..layout.partitions).map(|_| OnceCell::new()).collect(),
            partition_pages: layout.partition_pages,
            free: Mutex::new((0..frames as u32).rev().collect()),
            oldest: Mutex::default(),
            uses: AtomicU64::new(1),
            dirty: AtomicU64::new(0),
            dirty_limit: (frames * write_back_at_percent / 100).max(1),
            room: AtomicU64::new(0),
            extending: Mutex::new(()),
        }
    }

    /// A frame.
    pub(crate) fn frame(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }

    /// How many frames there are.
    pub(crate) fn len(&self) -> u64 {
        self.frames.len() as u64
    }

    /// How many are dirty.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// The frame of a page. Called with a lock of the page's partition held.
    pub(crate) fn find(&self, lpa: u64) -> Option<u32> {
        let places = self.places[(lpa / self.partition_pages) as usize].get()?;
        places[(lpa % self.partition_pages) as usize].load(Ordering::Acquire).checked_sub(1)
    }

    /// When a cached page has come from flash, if the page is cached.
    pub(crate) fn cached_at(&self, lpa: u64) -> Option<u64> {
        self.find(lpa).map(|frame| self.frame(frame).ready_at())
    }

    fn place(&self, lpa: u64) -> &AtomicU32 {
        let places = self.places[(lpa / self.partition_pages) as usize]
            .get_or_init(|| (0..self.partition_pages).map(|_| AtomicU32::new(0)).collect());
        &places[(lpa % self.partition_pages) as usize]
    }

    /// Makes a frame in hand that of a page, clean, its page there at `ready_at`. Called with the partition's
    /// write lock held.
    pub(crate) fn attach(&self, frame: u32, lpa: u64, ready_at: u64) {
        let it = self.frame(frame);
        it.lpa.store(lpa as u32, Ordering::Release);
        it.ready_at.store(ready_at, Ordering::Relaxed);
        it.changed();
        it.state.store(State::Clean as u32, Ordering::Release);
        self.touch(frame);
        self.place(lpa).store(frame + 1, Ordering::Release);
    }

    /// Takes a frame from its page; it is in the caller's hand. Called with the partition's write lock held.
    pub(crate) fn detach(&self, frame: u32) {
        let it = self.frame(frame);
        let lpa = it.lpa();
        if self.find(lpa) == Some(frame) {
            self.place(lpa).store(0, Ordering::Release);
        }
        self.set_state(frame, State::Empty);
    }

    /// Changes a frame's state. Called with the partition's write lock held.
    pub(crate) fn set_state(&self, frame: u32, state: State) {
        let before = self.frame(frame).state.swap(state as u32, Ordering::AcqRel);
        match (before == State::Dirty as u32, state == State::Dirty) {
            (false, true) => _ = self.dirty.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.dirty.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Notes that a frame is used.
    pub(crate) fn touch(&self, frame: u32) {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        self.frame(frame).used.store(now, Ordering::Relaxed);
    }

    /// Takes an empty frame, if there is one.
    pub(crate) fn take(&self) -> Option<u32> {
        self.free.lock().pop()
    }

    /// Returns an empty frame.
    pub(crate) fn give(&self, frame: u32) {
        self.free.lock().push(frame);
    }

    /// At power-up: the frames that hold nothing are empty, and those only.
    pub(crate) fn gather_empty(&self) {
        let empty = |frame: &u32| self.frame(*frame).state() == State::Empty;
        *self.free.lock() = (0..self.frames.len() as u32).rev().filter(empty).collect();
    }

    /// Empty frames that nobody has in hand.
    pub(crate) fn empty(&self) -> u64 {
        self.free.lock().len() as u64
    }

    /// The frame used longest ago, if any holds a page.
    pub(crate) fn oldest(&self) -> Option<u32> {
        let mut oldest = self.oldest.lock();
        for _ in 0..2 {
            while let Some((used, frame)) = oldest.pop_front() {
                let it = self.frame(frame);
                if it.used.load(Ordering::Relaxed) == used && it.state() != State::Empty {
                    return Some(frame);
                }
            }
            let batch = (self.frames.len() / 64).max(16);
            *oldest = self.by_use(batch, |state| state != State::Empty).into();
        }
        None
    }

    /// The `most` dirty frames used longest ago, oldest first.
    pub(crate) fn oldest_dirty(&self, most: usize) -> Vec<(u64, u32)> {
        self.by_use(most, |state| state == State::Dirty)
    }

    fn by_use(&self, most: usize, wanted: impl Fn(State) -> bool) -> Vec<(u64, u32)> {
        let mut all: Vec<(u64, u32)> = (0..self.frames.len() as u32)
            .filter(|&frame| wanted(self.frame(frame).state()))
            .map(|frame| (self.frame(frame).used.load(Ordering::Relaxed), frame))
            .collect();
        if all.len() > most {
            all.select_nth_unstable(most);
            all.truncate(most);
        }
        all.sort_unstable();
        all
    }
}
