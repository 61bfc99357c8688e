//! Pages of data blocks in host memory (RO-9), by where they are on the device. All are clean: writes go to
//! the device, and a data block that is written was nobody's before, so there is nothing to keep true.
//!
//! A full shard lets go of the page that came first and was not used since.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_device::{Lpa, PAGE_BYTES};
use amphi_rt::hash::HashMap;
use amphi_rt::sync::{Padded, RwLock};

const SHARDS: u64 = 64;
/// Pages in a row that share a shard.
const NEIGHBOURS: u64 = 16;

struct Page {
    bytes: Box<[u8]>,
    used: AtomicBool,
}

#[derive(Default)]
struct Shard {
    pages: HashMap<u64, Page>,
    /// In the order in which they came, or were last looked at; some may be gone.
    queue: VecDeque<u64>,
}

/// The pages.
pub struct BlockCache {
    shards: Box<[Padded<RwLock<Shard>>]>,
    /// Most pages of a shard.
    limit: usize,
}

impl BlockCache {
    /// A cache of so many pages.
    pub fn new(pages: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            limit: pages.div_ceil(SHARDS as usize),
        }
    }

    fn shard(&self, page: u64) -> &RwLock<Shard> {
        &self.shards[(page / NEIGHBOURS % SHARDS) as usize]
    }

    /// Copies bytes that begin at byte `at` behind the page `base`. False, and `into` holds anything, if a
    /// page of them is not here.
    pub fn copy(&self, base: Lpa, at: u64, into: &mut [u8]) -> bool {
        let (mut at, mut rest) = (base.byte(0) + at, into);
        while !rest.is_empty() {
            let first = at / PAGE_BYTES as u64;
            let shard = self.shard(first).read();
            for page in first..(first / NEIGHBOURS + 1) * NEIGHBOURS {
                let within = at as usize % PAGE_BYTES;
                let (part, behind) = rest.split_at_mut((PAGE_BYTES - within).min(rest.len()));
                let Some(found) = shard.pages.get(&page) else { return false };
                part.copy_from_slice(&found.bytes[within..within + part.len()]);
                // Others read it too: a line that is written is taken from them.
                if !found.used.load(Ordering::Relaxed) {
                    found.used.store(true, Ordering::Relaxed);
                }
                at += part.len() as u64;
                rest = behind;
                if rest.is_empty() {
                    return true;
                }
            }
        }
        true
    }

    /// Keeps pages from `base` on, which were read from there.
    pub fn keep(&self, base: Lpa, bytes: &[u8], page_bytes: usize) {
        for (page, bytes) in (base.0..).zip(bytes.chunks_exact(page_bytes)) {
            let mut shard = self.shard(page).write();
            if shard.pages.len() >= self.limit {
                shard.let_one_go();
            }
            let kept = Page { bytes: bytes.into(), used: AtomicBool::new(false) };
            if shard.pages.insert(page, kept).is_none() {
                shard.queue.push_back(page);
            }
        }
    }

    /// Forgets `count` pages from `base` on, which are about to be written.
    pub fn forget(&self, base: Lpa, count: usize) {
        for page in base.0..base.0 + count as u64 {
            let shard = self.shard(page);
            if shard.read().pages.contains_key(&page) {
                shard.write().pages.remove(&page);
            }
        }
    }

    /// Pages that are here.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().pages.len()).sum()
    }
}

impl Shard {
    fn let_one_go(&mut self) {
        while let Some(page) = self.queue.pop_front() {
            match self.pages.get(&page) {
                Some(found) if found.used.swap(false, Ordering::Relaxed) => self.queue.push_back(page),
                Some(_) => {
                    self.pages.remove(&page);
                    return;
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_copied_as_they_were_read() {
        let cache = BlockCache::new(64 * 4);
        let bytes: Vec<_> = (0..2 * PAGE_BYTES).map(|byte| (byte % 251) as u8).collect();
        cache.keep(Lpa(7), &bytes, PAGE_BYTES);
        let mut into = [0; 5000];
        assert!(cache.copy(Lpa(6), PAGE_BYTES as u64 + 100, &mut into));
        assert_eq!(into, bytes[100..5100]);
        cache.forget(Lpa(8), 1);
        assert!(!cache.copy(Lpa(7), 100, &mut into));
        assert!(cache.copy(Lpa(7), 100, &mut into[..100]));
    }

    #[test]
    fn the_limit_holds_and_used_pages_stay() {
        let cache = BlockCache::new(64 * 2);
        // All of them in one shard.
        let page = |number: u64| Lpa(number * SHARDS * NEIGHBOURS);
        cache.keep(page(0), &[1; PAGE_BYTES], PAGE_BYTES);
        for number in 1..20 {
            assert!(cache.copy(page(0), 0, &mut [0; 8]), "it was used each time");
            cache.keep(page(number), &[2; PAGE_BYTES], PAGE_BYTES);
        }
        assert_eq!(cache.len(), 2);
    }
}
