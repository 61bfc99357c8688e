//! What images that descend from one another know of each other: which pages of the image each has touched.
//!
//! So forking again copies only pages in which two members of the lineage may differ, and memory of forks
//! that are gone is used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::Mutex;
use hashbrown::HashMap;
use memmap2::MmapRaw;

use crate::format::PAGE;

/// One bit per page of an image.
type Pages = Box<[AtomicU64]>;

/// What all of a lineage share.
#[derive(Debug, Default)]
struct Family {
    /// Memory of forks that are gone, with the pages in which it may differ from the origin.
    idle: Mutex<Vec<(MmapRaw, Pages)>>,
    /// Numbers that tell what pages of the origin hold, as far as somebody wanted to know.
    told: Mutex<HashMap<u64, u64>>,
}

/// What an image knows of the origin it descends from: the pages in which the two may differ.
#[derive(Debug)]
pub(crate) struct Lineage {
    touched: Pages,
    /// The origin is the one member that never changes, so that everybody can be compared with it.
    origin: bool,
    family: Arc<Family>,
}

fn blank(words: usize, value: u64) -> Pages {
    (0..words).map(|_| AtomicU64::new(value)).collect()
}

impl Lineage {
    /// The lineage of a new origin of `bytes` bytes.
    pub(crate) fn found(bytes: u64) -> Self {
        let words = bytes.div_ceil(PAGE).div_ceil(64) as usize;
        Self { touched: blank(words, 0), origin: true, family: Arc::default() }
    }

    /// Of fresh memory, which may differ from the origin anywhere.
    pub(crate) fn stranger(&self) -> Self {
        Self { touched: blank(self.touched.len(), u64::MAX), origin: false, family: Arc::clone(&self.family) }
    }

    /// Memory of a fork that is gone.
    pub(crate) fn take_idle(&self) -> Option<(MmapRaw, Self)> {
        let (map, touched) = self.family.idle.lock().pop()?;
        Some((map, Self { touched, origin: false, family: Arc::clone(&self.family) }))
    }

    /// Keeps the memory of a fork that is gone.
    pub(crate) fn retire(self, map: MmapRaw) {
        if !self.origin {
            self.family.idle.lock().push((map, self.touched));
        }
    }

    /// Notes that bytes may change.
    pub(crate) fn touch(&self, at: u64, len: usize) {
        if self.origin || len == 0 {
            return;
        }
        for page in at / PAGE..=(at + len as u64 - 1) / PAGE {
            let word = &self.touched[(page / 64) as usize];
            let bit = 1 << (page % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// The pages in which this image and another of the lineage may differ, ascending.
    pub(crate) fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u64> + 'a {
        self.touched.iter().zip(&other.touched).enumerate().flat_map(move |(number, (mine, theirs))| {
            let mut bits = mine.load(Ordering::Relaxed) | theirs.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = u64::from(bits.trailing_zeros());
                if bits == 0 {
                    return None;
                }
                bits &= bits - 1;
                Some(number as u64 * 64 + bit)
            })
        })
    }

    /// The number that tells what a page holds, found out by `find` unless this image has it from the origin
    /// and somebody found out before.
    pub(crate) fn told<E>(&self, page: u64, find: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        let touched = self.touched[(page / 64) as usize].load(Ordering::Relaxed) >> (page % 64) & 1 == 1;
        if touched && !self.origin {
            return find();
        }
        if let Some(told) = self.family.told.lock().get(&page) {
            return Ok(*told);
        }
        let told = find()?;
        self.family.told.lock().insert(page, told);
        Ok(told)
    }

    /// Whether the two descend from the same origin.
    pub(crate) fn is_kin(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.family, &other.family)
    }

    /// This image has just become a copy of another of the lineage.
    pub(crate) fn follow(&self, other: &Self) {
        for (mine, theirs) in self.touched.iter().zip(&other.touched) {
            mine.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
