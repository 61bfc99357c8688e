//! What is cached of one file.

use std::ops::Range;

use amphi_radix::Radix;
use amphi_vfs::{Error, Result, Seek};

use crate::PAGE;
use crate::budget::Budget;
use crate::map::{Mapped, Mapping};
use crate::page::{Beside, Frame, Page};

/// Pages to read, contiguous in the file and on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First page of the file.
    pub index: u64,
    /// First page on the device.
    pub lba: u64,
    /// How many.
    pub pages: u64,
}

/// Pages that a write needs blocks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Without a block.
    pub unmapped: u64,
    /// With a reserved block that holds nothing yet.
    pub unwritten: u64,
}

/// How a file system takes the bytes of a write into pages.
pub trait Change<F, B> {
    /// Changes a cached page from byte `from` on.
    fn change(&mut self, page: &mut Page<F, B>, from: usize, part: &[u8]);

    /// A page that was not cached, which reads as zeros but for `part` at byte `from`.
    fn make(&mut self, from: usize, part: &[u8]) -> Page<F, B>;
}

/// Bytes are copied, and that is all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl<F: Frame, B: Beside + Default> Change<F, B> for Plain {
    fn change(&mut self, page: &mut Page<F, B>, from: usize, part: &[u8]) {
        page.data.bytes_mut()[from..from + part.len()].copy_from_slice(part);
        page.touch();
    }

    fn make(&mut self, from: usize, part: &[u8]) -> Page<F, B> {
        let mut page = Page::new(F::zeros(), B::default());
        page.data.bytes_mut()[from..from + part.len()].copy_from_slice(part);
        page
    }
}

/// The pages of one file in host memory, and which of them are dirty.
pub struct Pages<F, B = ()> {
    pages: Radix<Page<F, B>>,
    /// In the order in which they became dirty; each once.
    dirty: Vec<u64>,
}

impl<F, B> Default for Pages<F, B> {
    fn default() -> Self {
        Self { pages: Radix::default(), dirty: Vec::new() }
    }
}

/// Page, first byte in it, and number of bytes of what begins at `at` and is `left` long.
#[inline]
fn piece(at: u64, left: usize) -> (u64, usize, usize) {
    let from = (at % PAGE as u64) as usize;
    (at / PAGE as u64, from, (PAGE - from).min(left))
}

impl<F: Frame, B: Beside> Pages<F, B> {
    /// A cached page.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&Page<F, B>> {
        self.pages.get(index)
    }

    /// A cached page, to change what it and the device agree on: neither its frames nor whether it is dirty
    /// change by it.
    #[inline]
    pub fn get_mut(&mut self, index: u64) -> Option<&mut Page<F, B>> {
        self.pages.get_mut(index)
    }

    /// Pages that are cached.
    pub const fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether nothing is cached.
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether no page is dirty.
    #[inline]
    pub const fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Pages that are dirty.
    pub const fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// Dirty pages, in the order in which they became so.
    pub fn dirty(&self) -> &[u64] {
        &self.dirty
    }

    /// Whether a page is dirty.
    #[inline]
    pub fn is_dirty(&self, index: u64) -> bool {
        self.pages.get(index).is_some_and(|page| page.dirty)
    }

    /// Copies `into.len()` bytes at `offset` out of the cache; false if a page is on the device only.
    #[inline]
    pub fn copy_out(&self, map: &impl Mapping, offset: u64, into: &mut [u8]) -> bool {
        self.copy_out_of(map, offset, into, &[])
    }

    /// As [`copy_out`](Self::copy_out), also of pages beside the cache, ascending, that were read just now.
    #[inline]
    pub fn copy_out_of(
        &self,
        map: &impl Mapping,
        offset: u64,
        into: &mut [u8],
        read: &[(u64, Page<F, B>)],
    ) -> bool {
        let mut read = read.iter().peekable();
        let mut done = 0;
        while done < into.len() {
            let (index, from, len) = piece(offset + done as u64, into.len() - done);
            let part = &mut into[done..done + len];
            let beside = read.next_if(|(read, _)| *read == index).map(|(_, page)| page);
            match beside.or_else(|| self.pages.get(index)) {
                Some(page) => part.copy_from_slice(&page.data()[from..from + len]),
                None if matches!(map.map(index), Mapped::At { .. }) => return false,
                None => part.fill(0),
            }
            done += len;
        }
        true
    }

    /// The first pages of `first ..= last` that the device holds and the cache does not, `most` at the most.
    pub fn missing(&self, map: &impl Mapping, first: u64, last: u64, most: u64) -> Option<Run> {
        let mut run: Option<Run> = None;
        let mut index = first;
        while index <= last {
            if self.pages.get(index).is_some() {
                if run.is_some() {
                    break;
                }
                index += 1;
                continue;
            }
            let (lba, pages) = match map.map(index) {
                Mapped::At { lba, pages } => (lba, pages.min(last - index + 1)),
                Mapped::Hole { pages } | Mapped::Unwritten { pages, .. } => {
                    if run.is_some() {
                        break;
                    }
                    index = index.saturating_add(pages);
                    continue;
                }
            };
            let begun = run.get_or_insert(Run { index, lba, pages: 0 });
            if begun.lba + begun.pages != lba {
                break;
            }
            let room = pages.min(most - begun.pages);
            let absent = (1..room).find(|i| self.pages.get(index + i).is_some()).unwrap_or(room);
            begun.pages += absent;
            index += absent;
            if begun.pages == most {
                break;
            }
        }
        run
    }

    /// All that [`missing`](Self::missing) finds of `first ..= last`, in runs of `most` pages at the most.
    pub fn all_missing(
        &self,
        map: &impl Mapping,
        first: u64,
        last: u64,
        most: u64,
    ) -> impl Iterator<Item = Run> {
        let mut at = first;
        std::iter::from_fn(move || {
            let run = self.missing(map, at, last, most)?;
            at = run.index + run.pages;
            Some(run)
        })
    }

    /// Adds a page to the cache that is not there; `dirty` if the device lacks something of it.
    pub fn keep(&mut self, budget: &Budget, index: u64, page: Page<F, B>, dirty: bool) {
        budget.add(page.frames());
        self.pages.insert(index, page);
        if dirty {
            self.mark_dirty(budget, index);
        }
    }

    /// Counts the pages of `first ..= last` that a write would have to find blocks for: what is dirty has
    /// found some.
    #[inline]
    pub fn wanted(&self, map: &impl Mapping, first: u64, last: u64) -> Wanted {
        let mut wanted = Wanted::default();
        let mut index = first;
        while index <= last {
            let (pages, count) = match map.map(index) {
                Mapped::At { pages, .. } => {
                    index = index.saturating_add(pages);
                    continue;
                }
                Mapped::Unwritten { pages, .. } => (pages, &mut wanted.unwritten),
                Mapped::Hole { pages } => (pages, &mut wanted.unmapped),
            };
            let end = last.min(index.saturating_add(pages - 1));
            *count += (index..=end).filter(|index| !self.is_dirty(*index)).count() as u64;
            index = end + 1;
        }
        wanted
    }

    /// Takes the bytes of a write into the cache. Pages that it covers in part and the device holds are
    /// there.
    #[inline]
    pub fn write(&mut self, budget: &Budget, offset: u64, data: &[u8], how: &mut impl Change<F, B>) {
        // Counted once for all pages: a count shared by processors waits for the copy before it.
        let (mut added, mut dirtied) = (0, 0);
        let mut done = 0;
        while done < data.len() {
            let (index, from, len) = piece(offset + done as u64, data.len() - done);
            let part = &data[done..done + len];
            done += len;
            if let Some(page) = self.pages.get_mut(index) {
                let before = page.frames();
                how.change(page, from, part);
                added += page.frames() - before;
                if !std::mem::replace(&mut page.dirty, true) {
                    dirtied += 1;
                    self.dirty.push(index);
                }
                continue;
            }
            let mut page = how.make(from, part);
            page.dirty = true;
            added += page.frames();
            dirtied += 1;
            self.dirty.push(index);
            self.pages.insert(index, page);
        }
        budget.add(added);
        budget.dirtied(dirtied);
    }

    /// Changes a page that is cached, without making it dirty. None if it is not cached.
    #[inline]
    pub fn change<R>(
        &mut self,
        budget: &Budget,
        index: u64,
        change: impl FnOnce(&mut Page<F, B>) -> R,
    ) -> Option<R> {
        let page = self.pages.get_mut(index)?;
        let before = page.frames();
        let result = change(page);
        budget.add(page.frames() - before);
        Some(result)
    }

    /// Makes a page dirty, once.
    pub fn mark_dirty(&mut self, budget: &Budget, index: u64) {
        if let Some(page) = self.pages.get_mut(index)
            && !page.dirty
        {
            page.dirty = true;
            budget.dirtied(1);
            self.dirty.push(index);
        }
    }

    /// Takes the list of dirty pages, ascending, to write them back. They stay dirty until
    /// [`written`](Self::written); what becomes dirty meanwhile is none of them.
    #[inline]
    pub fn take_dirty(&mut self) -> Vec<u64> {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty
    }

    /// Pages that were taken are on the device now. `each` sees every one of them and may give up frames.
    #[inline]
    pub fn written(&mut self, budget: &Budget, mut taken: Vec<u64>, mut each: impl FnMut(&mut Page<F, B>)) {
        debug_assert!(self.dirty.is_empty(), "whoever writes back holds the file");
        let (mut cleaned, mut freed) = (0, 0);
        for index in &taken {
            if let Some(page) = self.pages.get_mut(*index) {
                let before = page.frames();
                each(page);
                freed += before - page.frames();
                cleaned += usize::from(std::mem::take(&mut page.dirty));
            }
        }
        budget.cleaned(cleaned);
        budget.remove(freed);
        taken.clear();
        // Its memory serves the next ones.
        self.dirty = taken;
    }

    /// The first `most` dirty pages, ascending. They stay dirty until [`leave`](Self::leave).
    pub fn first_dirty(&mut self, most: usize) -> Vec<u64> {
        self.dirty.sort_unstable();
        self.dirty[..most.min(self.dirty.len())].to_vec()
    }

    /// The pages of a batch, some of the [dirty ones](Self::first_dirty), ascending, go to the device: they
    /// are clean from now on. What `each` answers of them is returned.
    pub fn leave<T>(
        &mut self,
        budget: &Budget,
        batch: &[u64],
        mut each: impl FnMut(u64, &mut Page<F, B>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let before = self.dirty.len();
        if self.dirty.starts_with(batch) {
            self.dirty.drain(..batch.len());
        } else {
            self.dirty.retain(|index| batch.binary_search(index).is_err());
        }
        debug_assert_eq!(before - self.dirty.len(), batch.len(), "whoever writes back holds the file");
        budget.cleaned(batch.len());
        let mut leaving = Vec::with_capacity(batch.len());
        for index in batch {
            let page = self.pages.get_mut(*index);
            let page = page.ok_or_else(|| Error::corrupt("page", *index, "it is dirty and not cached"))?;
            page.dirty = false;
            leaving.push(each(*index, page)?);
        }
        Ok(leaving)
    }

    /// Forgets the pages of `range`, dirty or not. Returns how many of them were dirty and nowhere on the
    /// device: blocks were reserved for them.
    pub fn forget(&mut self, budget: &Budget, map: &impl Mapping, range: Range<u64>) -> u64 {
        let nowhere =
            |index: u64, page: &Page<F, B>| page.dirty && matches!(map.map(index), Mapped::Hole { .. });
        self.discard(budget, range, nowhere)
    }

    /// Forgets the pages of `range`, dirty or not. Returns of how many `counts` says so.
    pub fn discard(
        &mut self,
        budget: &Budget,
        range: Range<u64>,
        counts: impl Fn(u64, &Page<F, B>) -> bool,
    ) -> u64 {
        let (mut frames, mut cleaned, mut counted) = (0, 0, 0);
        self.remove(range.clone(), |index, page| {
            frames += page.frames();
            cleaned += usize::from(page.dirty);
            counted += u64::from(counts(index, page));
            true
        });
        if cleaned > 0 {
            self.dirty.retain(|index| !range.contains(index));
        }
        budget.remove(frames);
        budget.cleaned(cleaned);
        counted
    }

    /// Forgets the clean pages of `range`.
    pub fn forget_clean(&mut self, budget: &Budget, range: Range<u64>) {
        let mut frames = 0;
        self.remove(range, |_, page| {
            frames += usize::from(!page.dirty) * page.frames();
            !page.dirty
        });
        budget.remove(frames);
    }

    /// Removes the pages of `range` that `goes` says.
    fn remove(&mut self, range: Range<u64>, mut goes: impl FnMut(u64, &Page<F, B>) -> bool) {
        if range.end.saturating_sub(range.start) >= self.pages.len() as u64 {
            self.pages.retain(|index, page| !(range.contains(&index) && goes(index, page)));
            return;
        }
        for index in range {
            if self.pages.get(index).is_some_and(|page| goes(index, page)) {
                self.pages.remove(index);
            }
        }
    }

    /// Frees about `frames` frames of clean pages, those not used of late first; all of them if `also_used`.
    /// Twice as many of those that stay must be used again to stay the next time: else, once all were used,
    /// none could be told from the others.
    pub fn drop_clean(&mut self, budget: &Budget, frames: usize, also_used: bool) {
        let (mut freed, mut next) = (0, frames.saturating_mul(2));
        self.pages.retain(|_, page| {
            if page.dirty {
                return true;
            }
            if freed >= frames {
                if next > 0 {
                    next -= 1;
                    page.was_used();
                }
                return true;
            }
            let keep = page.was_used() && !also_used;
            if !keep {
                freed += page.frames();
            }
            keep
        });
        budget.remove(freed);
    }

    /// Finds data or a hole at or behind `offset` in a file of `size` bytes; see
    /// [`amphi_vfs::FileSystem::seek`].
    ///
    /// # Errors
    /// [`Error::NoData`].
    pub fn seek(&self, map: &impl Mapping, size: u64, offset: u64, what: Seek) -> Result<u64> {
        if offset >= size {
            return Err(Error::NoData);
        }
        let mut index = offset / PAGE as u64;
        let end = size.div_ceil(PAGE as u64);
        while index < end {
            let (is_data, run) = match map.map(index) {
                Mapped::At { pages, .. } => (true, pages),
                // What is cached and the device does not hold is dirty, or on its way there.
                _ if self.pages.get(index).is_some() => (true, 1),
                Mapped::Hole { pages } | Mapped::Unwritten { pages, .. } => {
                    let cached = self.pages.next(index).map_or(u64::MAX, |(cached, _)| cached);
                    (false, pages.min(cached - index))
                }
            };
            if is_data == (what == Seek::Data) {
                return Ok(offset.max(index * PAGE as u64));
            }
            index = index.saturating_add(run);
        }
        match what {
            Seek::Data => Err(Error::NoData),
            Seek::Hole => Ok(size),
        }
    }
}
