//! Extent trees: walks them level by level in batches of node reads, checks order, ranges and keys, claims
//! their pages, and counts them.
//!
//! Nothing is followed twice: a node whose page something else already claims is reported and not read, so
//! that trees that share nodes or bite their own tail end.

use amphi_device::{BlockPort, Structure};

use super::FsckError;
use super::finding::FindingKind;
use super::read::{Page, Reader, Run};
use super::state::{DirExtent, State, parts};
use crate::format::{Extent, NodeHeader};

/// First file page beyond what any file may have.
pub(super) const FILE_PAGES_MAX: u64 = 1 << 40;

/// Nodes read together.
const BATCH: usize = 512;

/// A file whose extents are being checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub ino: u32,
    /// Index of the directory that the file is, if it is one.
    pub dir: Option<u32>,
    /// File pages that its size needs.
    pub end_page: u64,
    /// Extents beyond the end are the next mount's work.
    pub orphan: bool,
    /// Pages that the inode says it has.
    pub stored: u32,
    /// Pages counted so far.
    pub counted: u64,
    /// A finding was made that makes the count worthless.
    pub broken: bool,
    /// A directory's pages up to here were found.
    pub found_to: u64,
}

/// A node to be read.
struct Pending {
    tree: usize,
    page: u32,
    depth: u16,
    /// First key, and the first key that it cannot hold.
    from: u64,
    to: u64,
}

/// Trees whose nodes are still to be read.
#[derive(Default)]
pub(super) struct Walk {
    trees: Vec<Tree>,
    pending: Vec<Pending>,
}

impl Walk {
    /// Checks the root of a tree, in the inode's upper half: `depth` levels of nodes below `entries`.
    pub fn root(&mut self, state: &mut State, mut tree: Tree, depth: u16, entries: &[Extent]) {
        let from = if tree.dir.is_some() { Some(0) } else { None };
        if depth == 0 {
            leaf(state, &mut tree, entries, from, FILE_PAGES_MAX);
            finish(state, &tree);
            return;
        }
        let index = self.trees.len();
        inner(state, &mut tree, index, entries, depth, from, FILE_PAGES_MAX, &mut self.pending);
        self.trees.push(tree);
    }

    /// Reads and checks all nodes, then compares the counts.
    pub fn run<D: BlockPort>(
        &mut self,
        state: &mut State,
        reader: &mut Reader<'_, D>,
    ) -> Result<(), FsckError> {
        while !self.pending.is_empty() {
            let mut batch = self.pending.split_off(self.pending.len().saturating_sub(BATCH));
            batch.sort_unstable_by_key(|node| node.page);
            let runs: Vec<Run> = batch.iter().map(|node| Run { first: node.page, pages: 1 }).collect();
            let Self { trees, pending } = self;
            reader.read(&runs, Structure::Pointer, &mut |i, page, bytes| match bytes {
                Ok(bytes) => node(state, &mut trees[batch[i].tree], &batch[i], bytes, pending),
                Err(error) => {
                    trees[batch[i].tree].broken = true;
                    state.findings.add_unreadable(page, "an extent node", &error);
                }
            })?;
        }
        for tree in self.trees.drain(..) {
            finish(state, &tree);
        }
        Ok(())
    }
}

fn node(state: &mut State, tree: &mut Tree, at: &Pending, page: &Page, pending: &mut Vec<Pending>) {
    let entries = match NodeHeader::decode(page, tree.ino, at.depth) {
        Ok(entries) => entries,
        Err(error) => {
            tree.broken = true;
            let reason = error.to_string();
            state.findings.add(FindingKind::NodeBad { ino: tree.ino, page: at.page, reason });
            return;
        }
    };
    if at.depth == 0 {
        leaf(state, tree, entries, Some(at.from), at.to);
    } else {
        inner(state, tree, at.tree, entries, at.depth, Some(at.from), at.to, pending);
    }
}

/// Checks that a node's first key is what its parent says.
fn first_key(state: &mut State, tree: &mut Tree, entries: &[Extent], from: Option<u64>) {
    if let (Some(from), Some(first)) = (from, entries.first())
        && first.file_page.get() != from
    {
        tree.broken = true;
        let found = first.file_page.get();
        state.findings.add(match tree.dir {
            Some(_) if from == 0 && found > 0 => FindingKind::DirectoryHole { ino: tree.ino, file_page: 0 },
            _ => FindingKind::NodeKeyWrong { ino: tree.ino, file_page: from, found },
        });
    }
}

/// Checks the extents of a leaf that may hold file pages from `from` up to `to`.
fn leaf(state: &mut State, tree: &mut Tree, entries: &[Extent], from: Option<u64>, to: u64) {
    first_key(state, tree, entries, from);
    let ino = tree.ino;
    let mut previous: Option<(u64, u64)> = None;
    for extent in entries {
        let (file_page, lba, pages) = parts(extent);
        if pages == 0 {
            tree.broken = true;
            state.findings.add(FindingKind::ExtentLengthBad { ino, what: "the extent", file_page, pages });
            continue;
        }
        let end = file_page.saturating_add(u64::from(pages));
        if !state.layout.holds_data(lba, pages) || end > FILE_PAGES_MAX {
            tree.broken = true;
            state.findings.add(FindingKind::ExtentOutOfRange {
                ino,
                what: "the extent",
                file_page,
                page: lba,
                pages,
            });
            continue;
        }
        match previous {
            Some((first, _)) if file_page < first => {
                tree.broken = true;
                state.findings.add(FindingKind::ExtentsUnsorted { ino, file_page });
            }
            Some((_, last)) if file_page < last => {
                tree.broken = true;
                state.findings.add(FindingKind::ExtentsOverlap { ino, file_page });
            }
            Some((_, last)) if file_page > last && tree.dir.is_some() => {
                state.findings.add(FindingKind::DirectoryHole { ino, file_page: last });
            }
            _ => {}
        }
        if tree.dir.is_some() && extent.unwritten() {
            state.findings.add(FindingKind::DirectoryHole { ino, file_page });
        }
        if end > to {
            tree.broken = true;
            state.findings.add(FindingKind::ExtentsOverlap { ino, file_page: to.max(file_page) });
        } else if file_page >= tree.end_page && !tree.orphan && !extent.unwritten() {
            state.findings.add(FindingKind::DataBeyondEnd { ino, file_page });
        }
        previous = Some((file_page, end));
        tree.counted += u64::from(pages);
        let complete = state.claim(ino, lba, pages).complete;
        if !complete {
            state.findings.add(FindingKind::ClaimsNotListed);
        }
        if complete && let (Some(dir), Ok(file_page)) = (tree.dir, u32::try_from(file_page)) {
            state.dir_extents.push(DirExtent { dir, file_page, first: lba, pages });
        }
    }
    if let (Some(_), Some((_, end))) = (tree.dir, previous) {
        if to != FILE_PAGES_MAX && end < to {
            state.findings.add(FindingKind::DirectoryHole { ino, file_page: end });
        }
        tree.found_to = tree.found_to.max(end);
    }
}

/// Checks the child pointers of a node, or of the root, with `depth` levels below it, and queues the
/// children.
#[expect(clippy::too_many_arguments, reason = "called from the two places that know a node")]
fn inner(
    state: &mut State,
    tree: &mut Tree,
    index: usize,
    entries: &[Extent],
    depth: u16,
    from: Option<u64>,
    to: u64,
    pending: &mut Vec<Pending>,
) {
    first_key(state, tree, entries, from);
    let ino = tree.ino;
    for (i, pointer) in entries.iter().enumerate() {
        let (file_page, page, pages) = parts(pointer);
        let next = entries.get(i + 1).map_or(to, |next| next.file_page.get());
        if next <= file_page {
            tree.broken = true;
            state.findings.add(FindingKind::ExtentsUnsorted { ino, file_page: next });
            continue;
        }
        if pages != 0 {
            tree.broken = true;
            state.findings.add(FindingKind::ExtentLengthBad {
                ino,
                what: "the child pointer",
                file_page,
                pages,
            });
            continue;
        }
        if !state.layout.holds_data(page, 1) {
            tree.broken = true;
            state.findings.add(FindingKind::ExtentOutOfRange {
                ino,
                what: "the extent node",
                file_page,
                page,
                pages: 1,
            });
            continue;
        }
        if !state.claim(ino, page, 1).alone {
            tree.broken = true;
            continue;
        }
        tree.counted += 1;
        pending.push(Pending { tree: index, page, depth: depth - 1, from: file_page, to: next });
    }
}

/// Compares a tree with what its inode says, once all of it was seen.
fn finish(state: &mut State, tree: &Tree) {
    if tree.broken {
        return;
    }
    let ino = tree.ino;
    if tree.dir.is_some() && tree.found_to < tree.end_page {
        state.findings.add(FindingKind::DirectoryHole { ino, file_page: tree.found_to });
    }
    if tree.counted != u64::from(tree.stored) {
        state.findings.add(FindingKind::PageCountWrong { ino, stored: tree.stored, actual: tree.counted });
    }
}
