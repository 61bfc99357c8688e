//! Free pages and free numbers of inodes, in host memory alone, each behind one lock as in PMFS. They are
//! found again at every mount.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::Mutex;
use amphi_rt::task;
use amphi_vfs::Ino;

use crate::format::Layout;

/// Runs that an allocation looks at before it takes the longest it has seen.
const LOOKS: usize = 64;

/// Free pages.
pub struct Space {
    /// First page and length of each free run.
    runs: Mutex<BTreeMap<u64, u64>>,
    /// Pages that are neither in use nor promised.
    available: AtomicU64,
    total: u64,
}

impl Space {
    /// None is free yet.
    pub fn new(layout: &Layout) -> Self {
        let total = layout.pages - layout.data();
        Self { runs: Mutex::new(BTreeMap::new()), available: AtomicU64::new(0), total }
    }

    /// Pages that may be in use.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Pages that are neither in use nor promised.
    pub fn available(&self) -> u64 {
        self.available.load(Ordering::Acquire)
    }

    /// Promises pages, unless fewer than `left` would remain.
    pub fn reserve(&self, pages: u64, left: u64) -> bool {
        let take = |free: u64| free.checked_sub(pages).filter(|remain| *remain >= left);
        self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok()
    }

    /// Gives a promise back.
    pub fn unreserve(&self, pages: u64) {
        self.available.fetch_add(pages, Ordering::AcqRel);
    }

    /// Takes a run of at most `most` pages, which were promised: the first that is long enough.
    pub fn take(&self, most: u64) -> (u64, u64) {
        loop {
            if let Some(run) = take(&mut self.runs.lock(), most) {
                return run;
            }
            // What is promised is free in a moment: whoever frees pages counts them after they are here.
            task::yield_now();
        }
    }

    /// Frees a run that was in use.
    pub fn give(&self, start: u64, len: u64) {
        give(&mut self.runs.lock(), start, len);
        self.available.fetch_add(len, Ordering::AcqRel);
    }
}

fn take(runs: &mut BTreeMap<u64, u64>, most: u64) -> Option<(u64, u64)> {
    let mut best = None::<(u64, u64)>;
    for (start, len) in runs.iter().take(LOOKS) {
        if best.is_none_or(|(_, longest)| *len > longest) {
            best = Some((*start, *len));
        }
        if *len >= most {
            break;
        }
    }
    let (start, len) = best?;
    let count = len.min(most);
    runs.remove(&start);
    if count < len {
        runs.insert(start + count, len - count);
    }
    Some((start, count))
}

fn give(runs: &mut BTreeMap<u64, u64>, mut start: u64, mut len: u64) {
    if let Some((before, its)) = runs.range(..start).next_back().map(|(before, its)| (*before, *its))
        && before + its == start
    {
        runs.remove(&before);
        (start, len) = (before, its + len);
    }
    if let Some(its) = runs.remove(&(start + len)) {
        len += its;
    }
    runs.insert(start, len);
}

/// Free numbers of inodes that the table has room for; the lowest is on top.
pub struct Numbers(Mutex<Vec<u32>>);

impl Numbers {
    /// These, the highest first.
    pub const fn new(free: Vec<u32>) -> Self {
        Self(Mutex::new(free))
    }

    /// Takes one.
    pub fn take(&self) -> Option<Ino> {
        self.0.lock().pop().map(|ino| Ino(ino.into()))
    }

    /// Gives one back.
    pub fn give(&self, ino: Ino) {
        self.0.lock().push(ino.0 as u32);
    }

    /// How many are free.
    pub fn free(&self) -> u64 {
        self.0.lock().len() as u64
    }
}
