//! The stores of a change: words that change in place, and pages that nothing leads to yet. One word — or as
//! many bytes as the device stores as a whole — changes by one store (PMFS §3.2, "atomic in-place updates");
//! more than that goes through the log.

use std::collections::BTreeMap;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{Medium, PAGE, Space, Taken};
use amphi_vfs::Result;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::format::{ENTRY_DATA, Layout, Record};
use crate::log::{Log, Range};
use crate::planted::{self, Bug};

/// A word that changes: as it was, as it will be, and what it belongs to.
type Word = (u64, u64, Structure);
/// A page that nothing leads to yet.
type Fresh = (Box<[u8; PAGE as usize]>, Structure);

/// What a change stores.
pub struct Stores<'a, D> {
    medium: &'a Medium<D>,
    space: &'a Space,
    /// What it takes.
    pub taken: Taken<'a>,
    words: BTreeMap<u64, Word>,
    /// Records that change: where, as it was, as it will be.
    records: SmallVec<[(u64, Record, Record); 4]>,
    fresh: BTreeMap<u64, Fresh>,
    /// Something was stored that no word leads to.
    stored: bool,
}

impl<'a, D: PageView> Stores<'a, D> {
    /// Nothing yet.
    pub fn new(medium: &'a Medium<D>, space: &'a Space, taken: Taken<'a>) -> Self {
        Self {
            medium,
            space,
            taken,
            words: BTreeMap::new(),
            records: SmallVec::new(),
            fresh: BTreeMap::new(),
            stored: false,
        }
    }

    /// Frees pages once the change counts.
    pub fn free(&mut self, page: u64, count: u64) {
        if planted::has(Bug::PagesFreedEarly) {
            self.space.give(page, count);
        } else {
            self.taken.free(page, count);
        }
    }

    /// The bytes of a page that nothing leads to before the change counts; zeros at first.
    pub fn fresh(&mut self, page: u64, tag: Structure) -> &mut [u8; PAGE as usize] {
        let fresh = self.fresh.entry(page).or_insert_with(|| (Box::new([0; PAGE as usize]), tag));
        &mut fresh.0
    }

    /// Has a word change in place.
    pub fn set_word(&mut self, at: u64, old: u64, new: u64, tag: Structure) {
        if let Some((page, _)) = self.fresh.get_mut(&(at / PAGE)) {
            let from = (at % PAGE) as usize;
            page[from..from + 8].copy_from_slice(&new.to_le_bytes());
            return;
        }
        self.words.entry(at).or_insert((old, new, tag)).1 = new;
    }

    /// Stores bytes that nothing leads to before the change counts.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn store(&mut self, at: u64, bytes: &[u8], tag: Structure) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some((page, _)) = self.fresh.get_mut(&(at / PAGE)) {
            let from = (at % PAGE) as usize;
            page[from..from + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        self.stored = true;
        self.medium.store(at, bytes, tag)
    }

    /// Has the record at `at` change in place.
    pub fn set_record(&mut self, at: u64, old: Record, new: Record) {
        match self.records.iter_mut().find(|(other, ..)| *other == at) {
            Some((_, _, last)) => *last = new,
            None => self.records.push((at, old, new)),
        }
    }

    /// Leaves the record at `at` as it is on the device.
    pub fn leave_record(&mut self, at: u64) {
        self.records.retain(|(other, ..)| *other != at);
    }

    /// What changes in place, behind each other where it lies so.
    fn ranges(&mut self) -> Vec<Range> {
        let mut ranges = Vec::new();
        for (at, old, new) in &self.records {
            let (old, new) = (old.as_bytes(), new.as_bytes());
            let differs = |from: &usize| old[*from..from + 8] != new[*from..from + 8];
            let mut from = 0;
            while let Some(first) = (from..old.len()).step_by(8).find(differs) {
                // As much as an entry of the log keeps, up to the last word that differs.
                let end = old.len().min(first + ENTRY_DATA);
                let last = (first..end).step_by(8).rev().find(differs).unwrap_or(first);
                let bytes = first..last + 8;
                let (old, new) = (old[bytes.clone()].into(), new[bytes.clone()].into());
                ranges.push(Range { at: at + first as u64, old, new, tag: Structure::Inode });
                from = end;
            }
        }
        for (at, (old, new, tag)) in std::mem::take(&mut self.words) {
            let (old, new) = (old.to_le_bytes(), new.to_le_bytes());
            let behind = |last: &&mut Range| last.at + last.old.len() as u64 == at && last.tag == tag;
            match ranges.last_mut().filter(behind) {
                Some(last) => {
                    last.old.extend_from_slice(&old);
                    last.new.extend_from_slice(&new);
                }
                None => ranges.push(Range { at, old: old[..].into(), new: new[..].into(), tag }),
            }
        }
        ranges
    }

    /// Brings the change to the device, where it counts from then on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(&mut self, log: &Log, layout: &Layout) -> Result<()> {
        let medium = self.medium;
        for (page, (bytes, tag)) in std::mem::take(&mut self.fresh) {
            if !planted::has(Bug::PagesNotStored) {
                medium.store(page * PAGE, &bytes[..], tag)?;
            }
            self.stored = true;
        }
        let ranges = self.ranges();
        let whole = u64::from(medium.atomic_bytes());
        match &ranges[..] {
            [] => medium.barrier(),
            [one] if one.old.len() as u64 <= whole && one.at.is_multiple_of(one.old.len() as u64) => {
                if self.stored {
                    medium.barrier()?;
                }
                medium.store(one.at, &one.new, one.tag)?;
                if planted::has(Bug::WordNotDurable) { Ok(()) } else { medium.barrier() }
            }
            ranges => log.change(medium, layout, ranges),
        }
    }
}
