//! The journal for what spans several inodes (NOVA §4.5): the words that a change stores, as they were
//! before. Each processor has one, of a page, and at most one change is open in it. What is between its two
//! pointers when the file system is mounted is undone.

use amphi_device::{PageView, Structure};
use amphi_direct_access::{Medium, PAGE};
use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::{Error, Failure, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{JOURNAL_ENTRIES, Layout, Undo};
use crate::planted::{self, Bug};

/// A word that a change stores.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    pub at: u64,
    pub old: u64,
    pub new: u64,
}

/// The journals. Each knows where its next entry goes, unless a change in it has failed: that is undone when
/// the file system is mounted next, and no other may come in its place.
pub struct Journal(Box<[Padded<Mutex<Option<u64>>>]>);

impl Journal {
    /// Undoes what was open when the device was last used, and forgets it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn recover<D: PageView>(medium: &Medium<D>, layout: &Layout) -> Result<Self> {
        let mut lanes = Vec::new();
        for lane in 0..layout.lanes {
            let pair = layout.pair(lane);
            let head = medium.word(pair, Structure::Journal)?;
            let tail = medium.word(pair + 8, Structure::Journal)?;
            if head >= JOURNAL_ENTRIES || tail >= JOURNAL_ENTRIES {
                return Err(Error::corrupt("journal", lane, "its pointers lead out of it"));
            }
            if head != tail && !planted::has(Bug::JournalNotUndone) {
                undo(medium, layout, lane, head, tail)?;
                medium.barrier()?;
                medium.store_word(pair, tail, Structure::Journal)?;
                medium.barrier()?;
            }
            lanes.push(Padded(Mutex::new(Some(tail))));
        }
        Ok(Self(lanes.into()))
    }

    /// Makes a change of several words count, and what this task has stored before.
    ///
    /// # Errors
    /// [`Error::Io`]; so behind a change that has failed.
    pub fn commit<D: PageView>(&self, medium: &Medium<D>, layout: &Layout, words: &[Word]) -> Result<()> {
        let lane = cpu::current() % self.0.len();
        let mut place = self.0[lane].0.lock();
        let begin =
            place.take().ok_or_else(|| Error::Io(Failure::Earlier("a journal has failed".to_owned())))?;
        let (lane, pair) = (lane as u64, layout.pair(lane as u64));
        let mut next = begin;
        for four in words.chunks(4) {
            let mut entry = Undo::new_zeroed();
            for (index, word) in four.iter().enumerate() {
                (entry.at[index], entry.old[index]) = (word.at.into(), word.old.into());
            }
            medium.store(layout.journal(lane, next), entry.as_bytes(), Structure::Journal)?;
            next = (next + 1) % JOURNAL_ENTRIES;
        }
        debug_assert!(words.len() as u64 <= 4 * (JOURNAL_ENTRIES - 1) && next != begin, "it fits");
        medium.barrier()?;
        if !planted::has(Bug::WordsWithoutJournal) {
            medium.store_word(pair + 8, next, Structure::Journal)?;
            medium.barrier()?;
        }
        for word in words {
            medium.store_word(word.at, word.new, Structure::Pointer)?;
        }
        medium.barrier()?;
        if planted::has(Bug::WordsWithoutJournal) {
            *place = Some(begin);
            return Ok(());
        }
        medium.store_word(pair, next, Structure::Journal)?;
        if !planted::has(Bug::JournalEndNotDurable) {
            medium.barrier()?;
        }
        *place = Some(next);
        Ok(())
    }
}

fn undo<D: PageView>(medium: &Medium<D>, layout: &Layout, lane: u64, head: u64, tail: u64) -> Result<()> {
    let mut words = Vec::new();
    let mut at = head;
    while at != tail {
        let mut entry = Undo::new_zeroed();
        medium.load(layout.journal(lane, at), entry.as_mut_bytes(), Structure::Journal)?;
        words.extend(entry.at.iter().zip(entry.old).map(|(at, old)| (at.get(), old.get())));
        at = (at + 1) % JOURNAL_ENTRIES;
    }
    for (at, old) in words.into_iter().rev().filter(|(at, _)| *at != 0) {
        let inside = at.is_multiple_of(8) && (layout.table() * PAGE..layout.pages * PAGE).contains(&at);
        if !inside {
            return Err(Error::corrupt("journal", lane, format!("it would undo a word at {at}")));
        }
        medium.store_word(at, old, Structure::Pointer)?;
    }
    Ok(())
}
