//! Merge-on-write (RO-7, algorithm 2): what becomes of a block's data logs when some of its bytes are written
//! to the memory zone.
//!
//! A log lies in one log page, and where its bytes lie in the file's page. New bytes that touch one log and
//! cover none of it go into the same page: nobody sees them before the entry has grown. New bytes that cover
//! others are written to a new page together with what is left of those.

use std::ops::Range;

use smallvec::SmallVec;

use crate::format::{LEAF_ENTRIES, PAGE};
use crate::planted::{self, Bug};
use crate::tree::{Log, Logs};

/// Bytes to store in one log page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// What the page will hold.
    pub log: Log,
    /// The new bytes, counted from the block's first.
    pub new: Range<u64>,
    /// Logs whose bytes come along.
    pub old: SmallVec<[Log; 2]>,
}

/// What a write makes of a block's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The block's logs afterwards. Those of [`puts`](Self::puts) that are `new_pages` have no page yet.
    pub logs: Logs,
    /// What is stored.
    pub puts: SmallVec<[Put; 4]>,
    /// Log pages that are free afterwards.
    pub freed: SmallVec<[u32; 4]>,
}

/// Stands for a page that has not been taken yet.
pub const NO_PAGE: u32 = u32::MAX;

/// Merges the bytes `new` of a block with its logs. None if the leaf has too few entries: the block is
/// written back then.
pub fn merge(logs: &Logs, new: Range<u64>) -> Option<Merged> {
    let mut merged = Merged { logs: Logs::from_slice(logs), ..Merged::default() };
    let mut at = new.start;
    while at < new.end {
        let page_end = (at / PAGE as u64 + 1) * PAGE as u64;
        let part = at..new.end.min(page_end);
        at = part.end;
        merge_page(&mut merged, part);
    }
    (merged.logs.len() <= LEAF_ENTRIES).then_some(merged)
}

fn merge_page(merged: &mut Merged, new: Range<u64>) {
    let page = (new.start / PAGE as u64) as u32;
    let touches = |log: &Log| {
        log.page_of_block() == page && log.range().start <= new.end && new.start <= log.range().end
    };
    let covers = |log: &Log| log.meets(&new);
    let old: SmallVec<[Log; 2]> = merged.logs.iter().filter(|log| touches(log)).copied().collect();
    let start = old.iter().map(|log| log.range().start).fold(new.start, u64::min);
    let end = old.iter().map(|log| log.range().end).fold(new.end, u64::max);
    let in_place = match &old[..] {
        [one] if !covers(one) || planted::has(Bug::MergeInPlace) => Some(one.page),
        _ => None,
    };
    if !planted::has(Bug::MergedEntryStays) || old.len() < 2 {
        merged.logs.retain(|log| !touches(log));
    } else {
        merged.logs.retain(|log| !touches(log) || log.page == old[0].page);
    }
    let log = Log { page: in_place.unwrap_or(NO_PAGE), offset: start as u32, size: (end - start) as u32 };
    merged.logs.push(log);
    let freed: SmallVec<[u32; 2]> = old.iter().map(|log| log.page).collect();
    if in_place.is_some() || planted::has(Bug::MergeForgetsOld) {
        merged.puts.push(Put { log, new, old: SmallVec::new() });
    } else {
        // What is covered as a whole does not come along.
        let left = |log: &&Log| log.range().start < new.start || new.end < log.range().end;
        let old = old.iter().filter(left).copied().collect();
        merged.puts.push(Put { log, new, old });
    }
    if in_place.is_none() {
        merged.freed.extend(freed);
    }
}

impl Merged {
    /// How many pages have to be taken.
    pub fn pages_missing(&self) -> usize {
        self.puts.iter().filter(|put| put.log.page == NO_PAGE).count()
    }

    /// Gives those that have none a page.
    pub fn set_pages(&mut self, pages: &[u32]) {
        let mut pages = pages.iter();
        for put in &mut self.puts {
            if put.log.page == NO_PAGE
                && let Some(page) = pages.next()
            {
                let log =
                    self.logs.iter_mut().find(|log| log.page == NO_PAGE && log.offset == put.log.offset);
                if let Some(log) = log {
                    log.page = *page;
                }
                put.log.page = *page;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: usize = 64 << 10;

    /// What a write does to bytes, as a block's logs have them: the pages' contents by number.
    fn apply(pages: &mut Vec<[u8; PAGE]>, logs: &mut Logs, new: Range<u64>, value: u8) -> bool {
        let Some(mut merged) = merge(logs, new) else { return false };
        let first = pages.len() as u32;
        let numbers: Vec<_> = (first..first + merged.pages_missing() as u32).collect();
        pages.resize(pages.len() + numbers.len(), [0; PAGE]);
        merged.set_pages(&numbers);
        for put in &merged.puts {
            for old in &put.old {
                for byte in old.range() {
                    pages[put.log.page as usize][byte as usize % PAGE] =
                        pages[old.page as usize][byte as usize % PAGE];
                }
            }
            put.new.clone().for_each(|byte| pages[put.log.page as usize][byte as usize % PAGE] = value);
        }
        *logs = merged.logs;
        true
    }

    proptest! {
        /// After any writes the logs hold the last bytes written, no two of them the same byte, and what was
        /// visible before a write is untouched until its entries change.
        #[test]
        fn logs_hold_what_was_written(writes in proptest::collection::vec((0..BLOCK as u64, 1..9000_u64), 1..60)) {
            let (mut pages, mut logs, mut truth) = (Vec::new(), Logs::new(), vec![None; BLOCK]);
            for (number, (start, len)) in writes.into_iter().enumerate() {
                let new = start..(start + len).min(BLOCK as u64);
                let before = (pages.clone(), logs.clone());
                if !apply(&mut pages, &mut logs, new.clone(), number as u8) {
                    continue;
                }
                for log in &before.1 {
                    for byte in log.range() {
                        let (page, at) = (log.page as usize, byte as usize % PAGE);
                        prop_assert_eq!(pages[page][at], before.0[page][at], "an old log changed");
                    }
                }
                truth[new.start as usize..new.end as usize].fill(Some(number as u8));
                let mut seen = vec![None; BLOCK];
                for log in &logs {
                    prop_assert!(log.in_page() + u64::from(log.size) <= PAGE as u64);
                    for byte in log.range() {
                        prop_assert!(seen[byte as usize].is_none());
                        seen[byte as usize] = Some(pages[log.page as usize][byte as usize % PAGE]);
                    }
                }
                prop_assert_eq!(&seen, &truth);
                prop_assert!(logs.len() <= LEAF_ENTRIES);
            }
        }
    }

    #[test]
    fn figure_4_of_the_paper() {
        // Logs at 4-7 KB and 13-16 KB; a write of 6-14 KB merges with both and logs 8-12 KB anew.
        let log = |page, offset: u32, size: u32| Log { page, offset: offset << 10, size: size << 10 };
        let logs: Logs = [log(0, 4, 3), log(1, 13, 3)].into_iter().collect();
        let merged = merge(&logs, 6 << 10..14 << 10).expect("there are entries");
        let of = |log: &Log| (log.offset >> 10, log.size >> 10);
        assert_eq!(merged.logs.iter().map(of).collect::<Vec<_>>(), [(4, 4), (8, 4), (12, 4)]);
        assert_eq!(merged.freed[..], [0, 1]);
        assert_eq!(merged.pages_missing(), 3);
    }
}
