//! The oracle: which trees a crash may leave, at every moment, given what the file system promises.
//!
//! The model does what the file system does. Names and attributes of completed operations are promised, all
//! or nothing; contents are promised once synced. Of a file with writes that were not synced yet, the oracle
//! keeps every state it had since: its size may be that of any of them, and, unless the promise says that
//! writes are atomic, every byte may be what any of them had there.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_model::Model;
use amphi_vfs::{AccessTimes, FileSystem, FileType, Promise, Result};

pub use crate::candidate::{Candidate, Range};
use crate::past::{self, Past};
use crate::subject::Fsync;
use crate::tree::{Node, Tree};
use crate::workload::{How, Operation, at};

/// Every tree that a crash may leave at one moment.
#[derive(Clone, Debug, Default, Hash)]
pub struct Legal {
    /// The candidates; one of them must match.
    pub candidates: Vec<Candidate>,
    /// Whether a write is all or nothing.
    pub atomic_writes: bool,
    /// Whether time stamps are compared: only where operations do not overlap do the model and the file
    /// system see the same clock.
    pub times: bool,
    /// What is promised of regular files, beyond their names.
    pub fsync: Fsync,
}

impl Legal {
    /// Has contents be also those of a moment between two operations that both may be under way. Where writes
    /// are neither atomic nor later than their return, the second of them tears what the first has left, of
    /// which the oracle after both remembers nothing.
    pub fn pass(&mut self, moment: &Oracle) {
        if self.atomic_writes {
            return;
        }
        for (ino, range) in self.candidates.iter_mut().flat_map(|candidate| &mut candidate.ranges) {
            if let Some(other) = moment.ranges.get(ino) {
                *range = range.widened(other);
            }
        }
    }
}

/// The model with its memory of what is not yet promised.
#[derive(Clone)]
pub struct Oracle {
    /// The model.
    pub model: Model,
    promise: Promise,
    tree: Arc<Tree>,
    ranges: BTreeMap<u64, Range>,
    /// Earlier moments to which a crash may lead back, oldest first: none where operations are durable when
    /// they return.
    past: Vec<Past>,
    /// What `fsync` of a regular file promises.
    fsync: Fsync,
}

impl Oracle {
    /// The oracle of an empty file system, whose root is as `root` says.
    ///
    /// # Errors
    /// The model's.
    pub fn new(promise: Promise, root: &Node) -> Result<Self> {
        let model = Model::new();
        // Reading is for looking at trees here, and must not change them.
        model.set_access_times(AccessTimes::Never);
        let time = |ns| amphi_vfs::SetTime::At(amphi_vfs::TimeSpec { ns });
        let change = amphi_vfs::SetAttr {
            mode: Some(root.mode),
            atime: Some(time(root.times[0])),
            mtime: Some(time(root.times[1])),
            ctime: Some(amphi_vfs::TimeSpec { ns: root.times[2] }),
            ..amphi_vfs::SetAttr::default()
        };
        model.setattr(amphi_vfs::Ino::ROOT, &change, &amphi_vfs::Cred::ROOT)?;
        let mut oracle = Self {
            model,
            promise,
            tree: Arc::default(),
            ranges: BTreeMap::new(),
            past: Vec::new(),
            fsync: Fsync::Before,
        };
        oracle.tree = oracle.walk();
        Ok(oracle)
    }

    /// The same for a file system whose `fsync` of a regular file promises this.
    #[must_use]
    pub fn with_fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }

    /// Whether `fsync` of a regular file brings that file to any past moment, and not what was done before.
    const fn alone(&self) -> bool {
        !matches!(self.fsync, Fsync::Before)
    }

    /// The model's tree. Contents that have not changed are shared with the tree before.
    fn walk(&self) -> Arc<Tree> {
        let mut tree = Tree::of(&self.model).expect("the model can be read");
        for (ino, node) in &mut tree.nodes {
            if let Some(old) = self.tree.nodes.get(ino).filter(|old| old.data == node.data) {
                node.data = Arc::clone(&old.data);
            }
        }
        Arc::new(tree)
    }

    /// What is legal while nothing is being done.
    #[must_use]
    pub fn legal(&self) -> Legal {
        let mut candidates: Vec<Candidate> =
            self.past.iter().map(Past::candidate).chain([self.candidate()]).collect();
        self.let_contents_come_first(&mut candidates, &self.ranges);
        Legal { candidates, atomic_writes: self.promise.atomic_writes, times: true, fsync: self.fsync }
    }

    /// What is legal now, of past moments too: how many.
    #[must_use]
    pub const fn moments(&self) -> usize {
        self.past.len() + 1
    }

    /// The oracle as it was at one of its [`moments`](Self::moments), the oldest being 0: for when a crash
    /// has led back to it.
    #[must_use]
    pub fn at_moment(mut self, moment: usize) -> Self {
        if moment < self.past.len() {
            let Past { model, tree, ranges } = self.past.swap_remove(moment);
            (self.model, self.tree, self.ranges) = (model, tree, ranges);
        }
        self.past.clear();
        self
    }

    /// Which of the moments of the oracle `after` an operation is the `nth` of those that
    /// [`legal_until`](Self::legal_until) puts behind this one's.
    #[must_use]
    pub const fn moment_after(&self, nth: usize) -> usize {
        if self.alone() { nth } else { usize::MAX }
    }

    /// The candidate of this moment itself.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        Candidate { tree: Tree::clone(&self.tree), ranges: self.ranges.clone() }
    }

    /// The candidate of this moment as whoever looks at it sees it, before any crash.
    #[must_use]
    pub fn seen(&self) -> Candidate {
        Candidate { tree: Tree::clone(&self.tree), ranges: exactly(&self.tree) }
    }

    /// Lets contents be also those of `other`, to or from which `operation` has failed to lead.
    pub fn waver(&mut self, other: &Self, operation: &Operation) {
        if operation.changes_data() {
            waver(&mut self.ranges, &other.ranges);
        }
    }

    /// Where `fsync` of a file brings what it holds, that may be there before all else, as far as `ranges`.
    fn let_contents_come_first(&self, candidates: &mut [Candidate], ranges: &BTreeMap<u64, Range>) {
        if self.fsync != Fsync::Contents {
            return;
        }
        for (ino, range) in candidates.iter_mut().flat_map(|candidate| &mut candidate.ranges) {
            if let Some(newest) = ranges.get(ino) {
                *range = range.widened(newest);
            }
        }
    }

    /// What is legal while an operation turns `self` into `after`: first what is legal of each of the
    /// [`moments`](Self::moments) of `self`, then, unless the operation only persists, of `after`.
    #[must_use]
    pub fn legal_until(&self, after: &Self, operation: &Operation) -> Legal {
        let (mut before, mut after_it) = (self.candidate(), after.candidate());
        if operation.changes_data() {
            // Neither atomic nor promised: each of the two may be anything in between.
            for (ino, range) in &mut before.ranges {
                if let Some(other) = after_it.ranges.get_mut(ino) {
                    let wide = range.widened(other);
                    (*range, *other) = (wide.clone(), wide);
                }
            }
        }
        let mut candidates: Vec<Candidate> = self.past.iter().map(Past::candidate).collect();
        candidates.push(before);
        if !self.promise.metadata_durable_on_return {
            for candidate in &mut candidates {
                past::overwrite(&mut candidate.ranges, &self.tree, &after_it.tree);
            }
        }
        self.let_contents_come_first(&mut candidates, &after_it.ranges);
        if self.alone() {
            // What it brings may be there already, in part, and what was done before it not.
            candidates.extend(after.past.iter().map(|past| {
                let mut candidate = past.candidate();
                waver(&mut candidate.ranges, &self.ranges);
                candidate
            }));
        }
        if !operation.persists() {
            candidates.push(after_it);
        }
        Legal { candidates, atomic_writes: self.promise.atomic_writes, times: true, fsync: self.fsync }
    }

    /// What is legal once the oracle has become `after`, while `operation`, which changes data and may or may
    /// not be part of that, is under way.
    #[must_use]
    pub fn legal_overlapped(&self, after: &Self, operation: &Operation) -> Legal {
        let mut legal = self.legal_until(after, operation);
        // What it was before is legal only where nothing is promised yet; of `after`, its past is legal too.
        legal.candidates.drain(..legal.candidates.len() - 1);
        if !self.promise.metadata_durable_on_return {
            let mut earlier: Vec<Candidate> = after.past.iter().map(Past::candidate).collect();
            for candidate in &mut earlier {
                past::overwrite(&mut candidate.ranges, &self.tree, &after.tree);
            }
            legal.candidates.splice(..0, earlier);
        }
        legal
    }

    /// Does an operation, `number` of the workload.
    ///
    /// # Errors
    /// What the model answers; then nothing has changed.
    pub fn apply(&mut self, operation: &Operation, number: u64) -> Result<()> {
        let remembers = !self.promise.metadata_durable_on_return && !operation.persists();
        let before = remembers.then(|| self.model.clone());
        operation.apply(&self.model, number)?;
        if operation.persists() {
            match operation {
                Operation::Fsync(path, data_only) => {
                    if let Ok(ino) = at(&self.model, path, |ino| Ok(ino.0)) {
                        let regular = |node: &Node| node.file_type == FileType::Regular;
                        if self.alone() && self.tree.nodes.get(&ino).is_some_and(regular) {
                            // What is written anew may keep its times.
                            self.synced(ino, *data_only && self.fsync == Fsync::File);
                            let (tree, ranges) = (&self.tree, &self.ranges);
                            let only_contents = *data_only && self.fsync == Fsync::Contents;
                            let bring =
                                |past: &mut Past| past.bring((ino, path), tree, ranges, only_contents);
                            self.past.retain_mut(bring);
                        } else {
                            self.forget_past(ino, *data_only);
                            self.synced(ino, *data_only);
                        }
                    }
                }
                _ => {
                    self.past.clear();
                    for ino in self.ranges.keys().copied().collect::<Vec<_>>() {
                        self.synced(ino, false);
                    }
                }
            }
            return Ok(());
        }
        let tree = self.walk();
        if let Some(model) = before {
            self.past.push(Past { model, tree: Arc::clone(&self.tree), ranges: self.ranges.clone() });
            for past in &mut self.past {
                past::overwrite(&mut past.ranges, &self.tree, &tree);
            }
        }
        let mut ranges = BTreeMap::new();
        for (ino, node) in tree.nodes.iter().filter(|(_, node)| node.file_type == FileType::Regular) {
            let range = match (self.tree.nodes.get(ino), self.ranges.remove(ino)) {
                (Some(old), Some(range)) => self.follow(range, old, node, operation),
                _ => Range::exactly(node),
            };
            ranges.insert(*ino, range);
        }
        self.tree = tree;
        self.ranges = ranges;
        if let Operation::Write(path, how, ..) = operation
            && (self.promise.data_durable_on_return || *how == How::Mapped)
        {
            self.apply(&Operation::Fsync(path.clone(), false), number)?;
        }
        Ok(())
    }

    /// Forgets the moments before what `fsync` or `fdatasync` of a file has just promised.
    fn forget_past(&mut self, ino: u64, data_only: bool) {
        let trees = self.past.iter().map(|past| &past.tree).chain([&self.tree]);
        let pairs = trees.clone().zip(trees.skip(1));
        let last =
            pairs.enumerate().filter(|(_, (old, new))| past::concerns(ino, old, new, data_only)).last();
        if let Some((moment, _)) = last {
            self.past.drain(..=moment);
        }
    }

    fn follow(&self, mut range: Range, old: &Node, new: &Node, operation: &Operation) -> Range {
        if old == new {
            return range;
        }
        if operation.changes_data() {
            if old.data != new.data {
                if let Operation::Allocate(..) = operation {
                    // The new size is a promised attribute; what the range held may still be there.
                    resize_all(&mut range.versions, new.data.len());
                    range.torn = true;
                }
                range.versions.push(Arc::clone(&new.data));
            }
            range.add_times(new);
            return range;
        }
        if old.data != new.data {
            resize_all(&mut range.versions, new.data.len());
        }
        if old.times[1] != new.times[1] {
            range.mtimes = vec![new.times[1]];
        }
        range.ctimes = vec![new.times[2]];
        range
    }

    /// Takes what a crash has left as what there is from now on: contents, times and, where `fsync` brings
    /// a file alone, all else of regular files, which a moment before may not have had.
    ///
    /// # Errors
    /// The model's; the names must be those of the model.
    pub fn adopt(&mut self, found: &Tree) -> Result<()> {
        use amphi_vfs::{Cred, SetAttr, SetTime, TimeSpec, WriteMode, XattrMode};
        // Nothing holds on to files any more: what had no name is gone.
        self.model.drop_references();
        let cred = &Cred::ROOT;
        for (path, ino) in &found.names {
            let Some(node) = found.nodes.get(ino) else { continue };
            let time = |which: usize| Some(SetTime::At(TimeSpec { ns: node.times[which] }));
            at(&self.model, path, |ino| {
                if node.file_type == FileType::Regular {
                    self.model.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }, cred)?;
                    self.model.write(ino, 0, &node.data, WriteMode::default(), cred)?;
                }
                if node.file_type == FileType::Regular && self.alone() {
                    let (uid, gid) = node.owner;
                    let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
                    self.model.setattr(ino, &owner, cred)?;
                    for name in self.model.listxattr(ino)? {
                        self.model.removexattr(ino, &name)?;
                    }
                    for (name, value) in &node.xattrs {
                        self.model.setxattr(ino, name, value, XattrMode::Create)?;
                    }
                }
                let change = SetAttr {
                    mode: Some(node.mode),
                    atime: time(0),
                    mtime: time(1),
                    ctime: Some(TimeSpec { ns: node.times[2] }),
                    ..SetAttr::default()
                };
                self.model.setattr(ino, &change, cred).map(drop)
            })?;
        }
        self.past.clear();
        self.tree = self.walk();
        self.ranges = exactly(&self.tree);
        Ok(())
    }

    /// On a device that is nearly full, the operation that makes room: cutting the largest file to nothing,
    /// or removing what lies deepest. The model knows no such limits, so a random run must keep away from
    /// them.
    #[must_use]
    pub fn room_maker(&self, fs: &dyn FileSystem) -> Option<Operation> {
        const ENOUGH_PAGES: u64 = 250;
        const ENOUGH_INODES: u64 = 100;
        // No statistics tell how much room there is for extended attributes.
        const ATTRIBUTE_BYTES_MOST: usize = 32 << 10;
        let stat = fs.statfs().ok()?;
        let attributes = |node: &Node| node.xattrs.values().map(Vec::len).sum::<usize>();
        if self.tree.nodes.values().map(attributes).sum::<usize>() > ATTRIBUTE_BYTES_MOST {
            let of = |path: &&String| self.tree.get(path).map_or(0, attributes);
            return Some(Operation::RemoveXattr(self.tree.names.keys().max_by_key(of)?.clone()));
        }
        if stat.inodes_free < ENOUGH_INODES {
            return self.deepest_removed();
        }
        if stat.blocks_free >= ENOUGH_PAGES {
            return None;
        }
        let sized = |path: &&String| {
            self.tree
                .get(path)
                .map_or(0, |node| if node.file_type == FileType::Regular { node.data.len() } else { 0 })
        };
        let largest = self.tree.names.keys().max_by_key(sized)?;
        // Where each inode has a block of its own, it may be names that fill the device.
        if sized(&largest) > 0 {
            Some(Operation::Truncate(largest.clone(), 0))
        } else {
            self.deepest_removed()
        }
    }

    /// Directories moved into directories pile up. What lies deepest is a file or an empty directory.
    fn deepest_removed(&self) -> Option<Operation> {
        let deepest = self.tree.names.keys().max_by_key(|path| path.matches('/').count())?;
        let is_dir = self.tree.get(deepest).is_some_and(|node| node.file_type == FileType::Directory);
        let remove = if is_dir { Operation::Rmdir } else { Operation::Unlink };
        Some(remove(deepest.clone()))
    }

    fn synced(&mut self, ino: u64, data_only: bool) {
        let Some(node) = self.tree.nodes.get(&ino) else { return };
        let past = self.past.iter_mut().map(|past| &mut past.ranges);
        for range in past.chain([&mut self.ranges]).filter_map(|ranges| ranges.get_mut(&ino)) {
            if data_only {
                (range.versions, range.later) = (vec![Arc::clone(&node.data)], Vec::new());
                range.torn = false;
            } else {
                *range = Range::exactly(node);
            }
        }
    }
}

/// The contents of regular files as they are, and nothing else.
fn exactly(tree: &Tree) -> BTreeMap<u64, Range> {
    let regular = tree.nodes.iter().filter(|(_, node)| node.file_type == FileType::Regular);
    regular.map(|(ino, node)| (*ino, Range::exactly(node))).collect()
}

/// Lets contents be also those of `other`. What a reader sees stays last.
pub(crate) fn waver(ranges: &mut BTreeMap<u64, Range>, other: &BTreeMap<u64, Range>) {
    for (ino, range) in ranges {
        if let Some(other) = other.get(ino) {
            *range = other.widened(range);
        }
    }
}

fn resize_all(versions: &mut Vec<Arc<Vec<u8>>>, size: usize) {
    for version in versions.iter_mut() {
        if version.len() != size {
            Arc::make_mut(version).resize(size, 0);
        }
    }
    versions.dedup();
}
