//! Moments of the past to which a crash may lead back, where operations are not durable when they return.
//!
//! A file system that journals metadata and commits them later promises less than one that is durable on
//! return, but not nothing: after a crash the tree is that of *some* moment, all earlier operations done and
//! no later one, and of no moment before what was last synced. Data are not in that order. What is written
//! goes in place whenever it likes, so that in an older tree a file's bytes may be newer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amphi_model::Model;
use amphi_vfs::FileType;

use crate::candidate::{Candidate, Range};
use crate::tree::{Node, Tree};
use crate::workload::Operation;

/// Everything the oracle knew at an earlier moment.
#[derive(Clone)]
pub(crate) struct Past {
    pub(crate) model: Model,
    pub(crate) tree: Arc<Tree>,
    pub(crate) ranges: BTreeMap<u64, Range>,
}

impl Past {
    pub(crate) fn candidate(&self) -> Candidate {
        Candidate { tree: Tree::clone(&self.tree), ranges: self.ranges.clone() }
    }
}

impl Past {
    /// Has a regular file be as it is `now`, since it was synced alone, or have what it holds be so, since
    /// `only_contents` were. False if this moment is past then: the file's names are others now, so that more
    /// than the file was made durable.
    pub(crate) fn bring(
        &mut self,
        (ino, path): (u64, &str),
        now: &Tree,
        ranges: &BTreeMap<u64, Range>,
        only_contents: bool,
    ) -> bool {
        let (Some(node), Some(range)) = (now.nodes.get(&ino), ranges.get(&ino)) else { return false };
        let names = names_of(now, ino);
        if !self.tree.nodes.contains_key(&ino) {
            let (parent, _) = path.rsplit_once('/').unwrap_or((".", path));
            let same_place = self.tree.names.get(parent) == now.names.get(parent);
            if names.len() != 1 || !same_place || !self.tree.names.contains_key(parent) {
                return false;
            }
            if let Some(old) = self.tree.names.get(path).copied() {
                let is_dir = self.tree.nodes.get(&old).is_none_or(|old| old.file_type == FileType::Directory);
                if is_dir || Operation::Unlink(path.to_owned()).apply(&self.model, 0).is_err() {
                    return false;
                }
                let tree = Arc::make_mut(&mut self.tree);
                tree.names.remove(path);
                let left = tree.names.values().filter(|named| **named == old).count() as u32;
                if left == 0 {
                    tree.nodes.remove(&old);
                    self.ranges.remove(&old);
                } else if let Some(old) = tree.nodes.get_mut(&old) {
                    old.nlink = left;
                }
            }
            if Operation::Create(path.to_owned()).apply(&self.model, 0).is_err() {
                return false;
            }
            Arc::make_mut(&mut self.tree).names.insert(path.to_owned(), ino);
        } else if only_contents {
            if let Some(then) = Arc::make_mut(&mut self.tree).nodes.get_mut(&ino) {
                then.data = Arc::clone(&node.data);
            }
            self.ranges.insert(ino, range.clone());
            return true;
        } else if names_of(&self.tree, ino) != names {
            return false;
        }
        Arc::make_mut(&mut self.tree).nodes.insert(ino, node.clone());
        self.ranges.insert(ino, range.clone());
        true
    }
}

/// Lets bytes of files be in place already as they are in `after`, which came from `before`: written, or cut
/// off, which leaves zeros.
pub(crate) fn overwrite(ranges: &mut BTreeMap<u64, Range>, before: &Tree, after: &Tree) {
    for (ino, range) in ranges {
        if let (Some(old), Some(new)) = (before.nodes.get(ino), after.nodes.get(ino))
            && old.data != new.data
            && !range.later.contains(&new.data)
        {
            range.later.push(Arc::clone(&new.data));
        }
    }
}

/// The names that concern a file: its own, and if it is a directory those in it. In which directory, as what,
/// and of which file.
fn names_of(tree: &Tree, ino: u64) -> BTreeSet<(Option<u64>, &str, u64)> {
    let all = tree.names.iter().map(|(path, named)| {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        (tree.names.get(parent).copied(), name, *named)
    });
    all.filter(|(parent, _, named)| *named == ino || *parent == Some(ino)).collect()
}

/// Whether `fsync` of a file, or `fdatasync`, promises the operation that turned `before` into `after`.
/// `fsync` promises everything about the file, its names and those in it included, and with them, operations
/// being durable in their order, whatever was done before; `fdatasync` that it exists and how long it is.
pub(crate) fn concerns(ino: u64, before: &Tree, after: &Tree, data_only: bool) -> bool {
    let (old, new) = (before.nodes.get(&ino), after.nodes.get(&ino));
    if !data_only {
        return old != new || names_of(before, ino) != names_of(after, ino);
    }
    let size = |node: &Node| (node.file_type == FileType::Regular).then(|| node.data.len());
    old.map(size) != new.map(size)
}
