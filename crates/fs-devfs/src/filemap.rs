//! A file's map in device memory (§4.1): which blocks of flash its blocks are, as runs in a red-black tree.
//! It is made when a file is first read or written, leaf by leaf of the pointer pages, and given up when the
//! inode leaves device memory (§4.4).

use hashbrown::HashSet;

use crate::format::{POINTERS, UNWRITTEN};
use crate::memory::Hold;
use crate::planted::{self, Bug};
use crate::rbtree::RbTree;

/// A run of blocks that lie one after the other on flash.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    count: u64,
    /// The first block's pointer.
    pointer: u32,
}

/// What blocks of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// So many blocks, the first with this pointer, those behind it one after the other.
    Mapped(u32, u64),
    /// So many blocks of a hole.
    Hole(u64),
    /// The leaf of the pointer pages has not been read.
    Unknown,
}

impl Blocks {
    /// How many.
    pub fn count(self) -> u64 {
        match self {
            Self::Mapped(_, count) | Self::Hole(count) => count,
            Self::Unknown => unreachable!("a look reads what it lacks"),
        }
    }
}

/// The map of a file.
#[derive(Debug, Default)]
pub struct Filemap {
    runs: RbTree<Run>,
    /// The leaves that are in the map.
    leaves: HashSet<u64, amphi_rt::hash::State>,
    /// The memory that it takes, while it has any.
    pub hold: Option<Hold>,
}

impl Filemap {
    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.runs.len() as u64 * RbTree::<Run>::NODE_BYTES + self.leaves.len() as u64 * 16
    }

    /// Whether a leaf is in the map.
    pub fn knows(&self, leaf: u64) -> bool {
        self.leaves.contains(&leaf)
    }

    /// Notes that a leaf is in the map from now on.
    pub fn learn(&mut self, leaf: u64) {
        self.leaves.insert(leaf);
    }

    /// What `block`, and at most `most` with those behind it in the same leaf, are.
    pub fn find(&self, block: u64, most: u64) -> Blocks {
        let leaf = block / POINTERS;
        if !self.knows(leaf) {
            return Blocks::Unknown;
        }
        let most = most.min((leaf + 1) * POINTERS - block);
        match self.runs.floor(block) {
            Some((first, run)) if block < first + run.count => {
                let count = (first + run.count - block).min(most);
                Blocks::Mapped(run.pointer + (block - first) as u32, count)
            }
            _ => {
                let next = self.runs.ceiling(block).map_or(u64::MAX, |(first, _)| first);
                Blocks::Hole(most.min(next - block))
            }
        }
    }

    /// Maps a run; what was mapped there is replaced.
    pub fn insert(&mut self, first: u64, count: u64, pointer: u32) {
        self.remove(first, count);
        let before = first.checked_sub(1).and_then(|before| self.runs.floor(before));
        if let Some((start, run)) = before
            && start + run.count == first
            && !planted::has(Bug::RunsNotJoined)
            && run.pointer + run.count as u32 == pointer
            && (run.pointer ^ pointer) & UNWRITTEN == 0
        {
            self.runs.insert(start, Run { count: run.count + count, ..run });
        } else {
            self.runs.insert(first, Run { count, pointer });
        }
    }

    /// Makes a hole.
    pub fn remove(&mut self, first: u64, count: u64) {
        let end = first.saturating_add(count);
        if let Some((start, run)) = self.runs.floor(first).filter(|(start, run)| start + run.count > first) {
            self.runs.remove(start);
            if start < first {
                self.runs.insert(start, Run { count: first - start, ..run });
            }
            self.keep_behind(start, run, end);
        }
        while let Some((start, run)) = self.runs.ceiling(first).filter(|(start, _)| *start < end) {
            self.runs.remove(start);
            self.keep_behind(start, run, end);
        }
    }

    /// Keeps what of a run that was taken out lies behind `end`.
    fn keep_behind(&mut self, start: u64, run: Run, end: u64) {
        if start + run.count > end {
            let cut = end - start;
            self.runs.insert(end, Run { count: run.count - cut, pointer: run.pointer + cut as u32 });
        }
    }
}
