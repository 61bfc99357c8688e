//! What a crash may leave at one moment: a tree, and of its regular files what else they may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tree::{Node, Tree};

/// What of a regular file a crash may leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// Contents the file had since it was last synced, oldest first; the last are what a reader sees.
    pub versions: Vec<Arc<Vec<u8>>>,
    /// Contents it was given later than the tree of which this is said. Bytes of them may be in place
    /// already, or be zero where one of them is too short to have any.
    pub later: Vec<Arc<Vec<u8>>>,
    /// Modification times that it had since they were last promised.
    pub mtimes: Vec<i64>,
    /// The same for change times.
    pub ctimes: Vec<i64>,
    /// Whether an operation since then promises less than a write: `fallocate` may be found half done, byte
    /// by byte.
    pub torn: bool,
}

impl Range {
    pub(crate) fn exactly(node: &Node) -> Self {
        Self {
            versions: vec![Arc::clone(&node.data)],
            later: Vec::new(),
            mtimes: vec![node.times[1]],
            ctimes: vec![node.times[2]],
            torn: false,
        }
    }

    pub(crate) fn add_times(&mut self, node: &Node) {
        for (times, time) in [(&mut self.mtimes, node.times[1]), (&mut self.ctimes, node.times[2])] {
            if !times.contains(&time) {
                times.push(time);
            }
        }
    }

    pub(crate) fn widened(&self, other: &Self) -> Self {
        let mut wide = Self { torn: self.torn || other.torn, ..self.clone() };
        wide.later.extend(other.later.iter().cloned());
        for version in &other.versions {
            if !wide.versions.contains(version) {
                wide.versions.push(Arc::clone(version));
            }
        }
        for (mine, theirs) in [(&mut wide.mtimes, &other.mtimes), (&mut wide.ctimes, &other.ctimes)] {
            for time in theirs {
                if !mine.contains(time) {
                    mine.push(*time);
                }
            }
        }
        wide
    }
}

/// A tree that is legal, but for regular files that may be within a range.
#[derive(Clone, Debug, Default, Hash)]
pub struct Candidate {
    /// Names and everything that is exactly promised.
    pub tree: Tree,
    /// Of regular files, by the model's inode number, what else they may be.
    pub ranges: BTreeMap<u64, Range>,
}
