//! Free pages and free numbers of inodes, in host memory alone, in as many parts as a file system wants: PMFS
//! has one list, NOVA one for each processor (§4.3). They are found again at every mount.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::{Mutex, Padded};
use amphi_rt::{cpu, task};
use amphi_vfs::{Ino, Result};

/// Runs that an allocation looks at before it takes the longest it has seen.
const LOOKS: usize = 64;

/// Free pages.
pub struct Space {
    first: u64,
    part_pages: u64,
    parts: Box<[Padded<Mutex<Part>>]>,
    /// Pages that are neither in use nor promised.
    available: AtomicU64,
    total: u64,
}

/// First page and length of each free run.
#[derive(Default)]
struct Part(BTreeMap<u64, u64>);

impl Part {
    fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        let mut best = None::<(u64, u64)>;
        for (start, len) in self.0.iter().take(LOOKS) {
            if best.is_none_or(|(_, longest)| *len > longest) {
                best = Some((*start, *len));
            }
            if *len >= most {
                break;
            }
        }
        let (start, len) = best?;
        let count = len.min(most);
        self.0.remove(&start);
        if count < len {
            self.0.insert(start + count, len - count);
        }
        Some((start, count))
    }

    fn give(&mut self, mut start: u64, mut len: u64) {
        if let Some((before, its)) = self.0.range(..start).next_back().map(|(before, its)| (*before, *its))
            && before + its == start
        {
            self.0.remove(&before);
            (start, len) = (before, its + len);
        }
        if let Some(its) = self.0.remove(&(start + len)) {
            len += its;
        }
        self.0.insert(start, len);
    }
}

impl Space {
    /// For pages `first .. end` in `parts` parts. None is free yet.
    pub fn new(first: u64, end: u64, parts: u64) -> Self {
        let total = end - first;
        let part_pages = total.div_ceil(parts).max(1);
        let parts = (0..total.div_ceil(part_pages)).map(|_| Padded::default()).collect();
        Self { first, part_pages, parts, available: AtomicU64::new(0), total }
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

    /// Takes a run of at most `most` pages, which were promised; the caller's processor's part first.
    pub fn take(&self, most: u64) -> (u64, u64) {
        let own = cpu::current() % self.parts.len();
        loop {
            let mut order = (own..self.parts.len()).chain(0..own);
            // What is promised is free somewhere; it may just have come to a part that was looked at before,
            // or comes in a moment: whoever frees pages counts them after they are here.
            if let Some(run) = order.find_map(|part| self.parts[part].0.lock().take(most)) {
                return run;
            }
            task::yield_now();
        }
    }

    /// Calls `work` with each free run. Nobody takes a page of it meanwhile.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn each_free(&self, mut work: impl FnMut(Range<u64>) -> Result<()>) -> Result<()> {
        for part in &self.parts {
            let mut from = 0;
            loop {
                let part = part.0.lock();
                let Some((start, len)) = part.0.range(from..).next() else { break };
                from = start + len;
                work(*start..from)?;
            }
        }
        Ok(())
    }

    /// Frees a run that was in use.
    pub fn give(&self, start: u64, len: u64) {
        let (mut start, mut rest) = (start, len);
        while rest > 0 {
            let part = (start - self.first) / self.part_pages;
            let end = self.first + (part + 1) * self.part_pages;
            let count = rest.min(end - start);
            self.parts[part as usize].0.lock().give(start, count);
            (start, rest) = (start + count, rest - count);
        }
        self.available.fetch_add(len, Ordering::AcqRel);
    }
}

/// Free numbers of inodes: a stack for each part, the lowest on top.
pub struct Numbers {
    parts: Box<[Padded<Mutex<Vec<u32>>>]>,
    free: AtomicU64,
}

impl Numbers {
    /// Those below `end` that are free, dealt out in runs to so many parts.
    pub fn new(end: u64, parts: u64, is_free: impl Fn(u64) -> bool) -> Self {
        let mut stacks = vec![Vec::new(); parts as usize];
        let run = (end.saturating_sub(1) / parts).max(1);
        let mut free = 0;
        for ino in (1..end).rev().filter(|ino| is_free(*ino)) {
            stacks[(((ino - 1) / run) % parts) as usize].push(ino as u32);
            free += 1;
        }
        Self {
            parts: stacks.into_iter().map(|part| Padded(Mutex::new(part))).collect(),
            free: AtomicU64::new(free),
        }
    }

    /// Takes a number, the processor's own first.
    pub fn take(&self) -> Option<Ino> {
        let own = cpu::current() % self.parts.len();
        let mut order = (own..self.parts.len()).chain(0..own);
        let ino = order.find_map(|part| self.parts[part].0.lock().pop())?;
        self.free.fetch_sub(1, Ordering::AcqRel);
        Some(Ino(ino.into()))
    }

    /// Gives one back.
    pub fn give(&self, ino: Ino) {
        self.parts[cpu::current() % self.parts.len()].0.lock().push(ino.0 as u32);
        self.free.fetch_add(1, Ordering::AcqRel);
    }

    /// How many are free.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }
}
