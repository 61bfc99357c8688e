//! A worker of the crash loops: random operations on files of its own, each recorded when it returned.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::oracle::{File, Node, Tree};

/// A small generator (splitmix64): one seed, one sequence.
pub struct Dice(u64);

impl Dice {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// One operation, with everything random about it already decided.
#[derive(Clone, Debug)]
enum Operation {
    Create { name: PathBuf },
    Write { name: PathBuf, offset: usize, bytes: Bytes },
    Append { name: PathBuf, bytes: Bytes },
    Sync { name: PathBuf, data_only: bool },
    Truncate { name: PathBuf, len: usize },
    Rename { from: PathBuf, to: PathBuf },
    Remove { name: PathBuf },
    Link { from: PathBuf, to: PathBuf },
    Symlink { name: PathBuf, target: PathBuf },
    MakeDirectory { name: PathBuf },
    Chmod { name: PathBuf, mode: u32 },
}

impl Operation {
    /// The name that it leaves, or takes away.
    fn names_last(&self) -> &Path {
        match self {
            Self::Create { name }
            | Self::Write { name, .. }
            | Self::Append { name, .. }
            | Self::Sync { name, .. }
            | Self::Truncate { name, .. }
            | Self::Remove { name }
            | Self::Symlink { name, .. }
            | Self::MakeDirectory { name }
            | Self::Chmod { name, .. } => name,
            Self::Rename { to, .. } | Self::Link { to, .. } => to,
        }
    }
}

/// Bytes to write, made when they are needed: a message about them should stay short.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    len: u64,
    fill: u64,
}

impl Bytes {
    /// The bytes, none of them zero: a hole is no data.
    fn to_vec(self) -> Vec<u8> {
        (0..self.len).map(|index| ((self.fill | 1).wrapping_mul(index + 1) >> 24) as u8 | 1).collect()
    }
}

/// Bytes of the page that a cut fills with zeros to its end.
const BLOCK: usize = 4096;

/// What new files get; no umask takes any of it away.
const CREATED_MODE: u32 = 0o600;

/// Works in one directory that nobody else touches.
pub struct Worker {
    root: PathBuf,
    dice: Dice,
    tree: Tree,
    /// The operation that a crash interrupted: done or not, both are legal.
    in_flight: Option<Operation>,
    /// Whether it makes each operation durable before it counts, where a return does not promise that.
    syncs: bool,
    /// Whether a cut that a crash interrupted may leave zeros behind the new end and the old length.
    cuts_in_place: bool,
}

impl Worker {
    /// A worker in the empty directory `root`.
    pub fn new(root: PathBuf, dice: Dice) -> Self {
        Self { root, dice, tree: Tree::default(), in_flight: None, syncs: false, cuts_in_place: false }
    }

    /// The same on a file system that promises no more than what was synced.
    pub fn syncing(self, syncs: bool) -> Self {
        Self { syncs, ..self }
    }

    /// The same on a file system in ordered mode, as ext4's: the zeros behind a cut go in place before the
    /// cut is committed.
    pub fn cutting_in_place(self, cuts_in_place: bool) -> Self {
        Self { cuts_in_place, ..self }
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Works until an operation fails because the mount is gone, counting acknowledged operations.
    ///
    /// # Errors
    /// A failure that no crash explains.
    pub fn work_until_crash(&mut self, acknowledged: &AtomicU64) -> Result<(), String> {
        loop {
            let operation = self.choose();
            match self.execute(&operation) {
                Ok(()) => {
                    self.tree.record(&operation);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if is_crash(&error) || self.is_unmounted() => {
                    self.in_flight = Some(operation);
                    return Ok(());
                }
                Err(error) => return Err(format!("{operation:?} failed: {error}")),
            }
        }
    }

    /// Does `count` operations, none of which may fail.
    pub fn work(&mut self, count: usize) {
        for _ in 0..count {
            let operation = self.choose();
            self.execute(&operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
            self.tree.record(&operation);
        }
    }

    /// Compares what is there with what was acknowledged, and goes on from there.
    ///
    /// # Errors
    /// The first difference.
    pub fn verify(&mut self) -> Result<(), String> {
        if self.cuts_in_place
            && let Some(Operation::Truncate { name, len }) = &self.in_flight
        {
            let file = self.tree.file(name);
            file.write(*len, vec![0; file.len().min(len.next_multiple_of(BLOCK)).saturating_sub(*len)]);
        }
        let without = self.tree.compare(&self.root);
        if let Some(operation) = self.in_flight.take() {
            let mut with = self.tree.clone();
            with.record(&operation);
            match (with.compare(&self.root), &without) {
                (Ok(()), _) => self.tree = with,
                (Err(_), Ok(())) => {}
                (Err(done), Err(not_done)) => {
                    return Err(format!(
                        "{operation:?} was in flight; if not done: {not_done}; if done: {done}"
                    ));
                }
            }
        } else {
            without?;
        }
        self.tree.adopt(&self.root)
    }

    /// A file whose bytes must all be there, if any.
    pub fn synced_file(&self) -> Option<PathBuf> {
        self.tree.names.iter().find_map(|(name, node)| match node {
            Node::File(number) if self.tree.files[*number].is_synced() => Some(name.clone()),
            _ => None,
        })
    }

    fn execute(&self, operation: &Operation) -> io::Result<()> {
        self.begin(operation)?;
        if self.syncs { self.sync(operation) } else { Ok(()) }
    }

    /// Makes durable what an operation has done: a file's contents, then its name. A kernel asks no server of
    /// FUSE to sync a whole file system.
    fn sync(&self, operation: &Operation) -> io::Result<()> {
        let path = self.root.join(operation.names_last());
        match fs::symlink_metadata(&path) {
            Ok(there) if there.is_file() => fs::File::open(&path)?.sync_all()?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::File::open(path.parent().unwrap_or(&self.root))?.sync_all()
    }

    fn begin(&self, operation: &Operation) -> io::Result<()> {
        let at = |name: &Path| self.root.join(name);
        match operation {
            Operation::Create { name } => {
                OpenOptions::new().write(true).create_new(true).mode(CREATED_MODE).open(at(name)).map(drop)
            }
            Operation::Write { name, offset, bytes } => {
                OpenOptions::new().write(true).open(at(name))?.write_all_at(&bytes.to_vec(), *offset as u64)
            }
            Operation::Append { name, bytes } => {
                io::Write::write_all(&mut OpenOptions::new().append(true).open(at(name))?, &bytes.to_vec())
            }
            Operation::Sync { name, data_only: false } => fs::File::open(at(name))?.sync_all(),
            Operation::Sync { name, data_only: true } => fs::File::open(at(name))?.sync_data(),
            Operation::Truncate { name, len } => {
                OpenOptions::new().write(true).open(at(name))?.set_len(*len as u64)
            }
            Operation::Rename { from, to } => fs::rename(at(from), at(to)),
            Operation::Remove { name } => match self.tree.names.get(name) {
                Some(Node::Directory) => fs::remove_dir(at(name)),
                _ => fs::remove_file(at(name)),
            },
            Operation::Link { from, to } => fs::hard_link(at(from), at(to)),
            Operation::Symlink { name, target } => std::os::unix::fs::symlink(target, at(name)),
            Operation::MakeDirectory { name } => fs::create_dir(at(name)),
            Operation::Chmod { name, mode } => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(*mode))
            }
        }
    }

    /// A power cut takes the mount away; then the worker's directory is not there any more.
    fn is_unmounted(&self) -> bool {
        !self.root.exists()
    }

    /// The next operation that should succeed.
    fn choose(&mut self) -> Operation {
        loop {
            if let Some(operation) = self.propose() {
                return operation;
            }
        }
    }

    fn propose(&mut self) -> Option<Operation> {
        const FILE_BYTES_MAX: u64 = 40_000;
        Some(match self.dice.below(100) {
            0..15 => Operation::Create { name: self.free_name()? },
            15..40 => {
                let (name, len) = self.any_file()?;
                let offset = self.dice.below((len as u64 + 5000).min(FILE_BYTES_MAX)) as usize;
                Operation::Write { name, offset, bytes: self.bytes() }
            }
            40..50 => Operation::Append { name: self.any_file()?.0, bytes: self.bytes() },
            50..68 => Operation::Sync { name: self.any_file()?.0, data_only: self.dice.below(3) == 0 },
            68..74 => {
                let (name, len) = self.any_file()?;
                Operation::Truncate { name, len: self.dice.below(len as u64 + 3000) as usize }
            }
            74..82 => {
                let (from, to) = (self.any_file()?.0, self.free_or_file_name()?);
                // Two names of one file: rename does nothing then, and says so to nobody.
                if self.tree.names.get(&from) == self.tree.names.get(&to) {
                    return None;
                }
                Operation::Rename { from, to }
            }
            82..88 => Operation::Remove { name: self.any_file()?.0 },
            88..91 => Operation::Link { from: self.any_file()?.0, to: self.free_name()? },
            91..93 => Operation::Symlink { name: self.free_name()?, target: self.symlink_target() },
            93..96 => Operation::MakeDirectory { name: PathBuf::from(format!("d{}", self.dice.below(3))) }
                .if_free(&self.tree)?,
            96..98 => Operation::Remove { name: self.removable_directory()? },
            _ => Operation::Chmod { name: self.any_file()?.0, mode: 0o600 | self.dice.below(0o200) as u32 },
        })
    }

    /// Mostly small writes, as they travel by bytes; some large ones, as they travel by blocks.
    fn bytes(&mut self) -> Bytes {
        let len = match self.dice.below(10) {
            0..6 => 1 + self.dice.below(200),
            6..9 => 1 + self.dice.below(5000),
            _ => 1 + self.dice.below(20_000),
        };
        Bytes { len, fill: self.dice.next() }
    }

    fn symlink_target(&mut self) -> PathBuf {
        let len = if self.dice.below(2) == 0 { 10 } else { 100 };
        PathBuf::from("t".repeat(len))
    }

    fn any_file(&mut self) -> Option<(PathBuf, usize)> {
        let files: Vec<(&PathBuf, usize)> = self
            .tree
            .names
            .iter()
            .filter_map(|(name, node)| match node {
                Node::File(number) => Some((name, self.tree.files[*number].len())),
                _ => None,
            })
            .collect();
        let (name, len) = files.get(self.dice.below(files.len().max(1) as u64) as usize)?;
        Some(((*name).clone(), *len))
    }

    /// A name that may be free, in the worker's directory or in one of its own that exists.
    fn some_name(&mut self) -> Option<PathBuf> {
        let file = format!("f{}", self.dice.below(8));
        if self.dice.below(2) == 0 {
            return Some(PathBuf::from(file));
        }
        let directory = PathBuf::from(format!("d{}", self.dice.below(3)));
        self.tree.names.contains_key(&directory).then(|| directory.join(file))
    }

    fn free_name(&mut self) -> Option<PathBuf> {
        self.some_name().filter(|name| !self.tree.names.contains_key(name))
    }

    fn free_or_file_name(&mut self) -> Option<PathBuf> {
        self.some_name()
    }

    fn removable_directory(&mut self) -> Option<PathBuf> {
        let name = PathBuf::from(format!("d{}", self.dice.below(3)));
        let is_empty = !self.tree.names.keys().any(|other| other != &name && other.starts_with(&name));
        (self.tree.names.contains_key(&name) && is_empty).then_some(name)
    }
}

impl Operation {
    /// The operation, if its new name is free.
    fn if_free(self, tree: &Tree) -> Option<Self> {
        match &self {
            Self::MakeDirectory { name } if tree.names.contains_key(name) => None,
            _ => Some(self),
        }
    }
}

impl Tree {
    /// Records a completed operation.
    fn record(&mut self, operation: &Operation) {
        match operation.clone() {
            Operation::Create { name } => {
                self.names.insert(name, Node::File(self.files.len()));
                self.files.push(File::empty(CREATED_MODE));
            }
            Operation::Write { name, offset, bytes } => self.file(&name).write(offset, bytes.to_vec()),
            Operation::Append { name, bytes } => {
                let file = self.file(&name);
                file.write(file.len(), bytes.to_vec());
            }
            Operation::Sync { name, .. } => self.file(&name).sync(),
            Operation::Truncate { name, len } => self.file(&name).truncate(len),
            Operation::Rename { from, to } => {
                let node = self.names.remove(&from).expect("chosen because it was there");
                self.names.insert(to, node);
            }
            Operation::Remove { name } => drop(self.names.remove(&name)),
            Operation::Link { from, to } => {
                let node = self.names[&from].clone();
                self.names.insert(to, node);
            }
            Operation::Symlink { name, target } => drop(self.names.insert(name, Node::Symlink(target))),
            Operation::MakeDirectory { name } => drop(self.names.insert(name, Node::Directory)),
            Operation::Chmod { name, mode } => self.file(&name).mode = mode,
        }
    }

    fn file(&mut self, name: &Path) -> &mut File {
        match self.names.get(name) {
            Some(Node::File(number)) => &mut self.files[*number],
            other => unreachable!("{} is {other:?}, chosen because it was a file", name.display()),
        }
    }
}

/// Whether an operation failed because the mount went away: not connected, connection aborted; or because the
/// device failed, which turns the file system read-only.
fn is_crash(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    let gone =
        [io::ErrorKind::NotConnected, io::ErrorKind::ConnectionAborted, io::ErrorKind::ReadOnlyFilesystem];
    gone.contains(&error.kind()) || error.raw_os_error() == Some(EIO)
}

#[test]
fn only_a_cut_in_place_that_was_interrupted_may_leave_zeros() {
    let root = tempfile::tempdir().expect("a directory");
    let name = PathBuf::from("f");
    let verify = |found: &[u8], cuts_in_place| {
        fs::write(root.path().join(&name), found).expect("it can be written");
        let created = fs::Permissions::from_mode(CREATED_MODE);
        fs::set_permissions(root.path().join(&name), created).expect("it is there");
        let mut worker = Worker::new(root.path().to_owned(), Dice::new(1)).cutting_in_place(cuts_in_place);
        worker.tree.record(&Operation::Create { name: name.clone() });
        worker.tree.file(&name).write(0, vec![7; 5000]);
        worker.tree.file(&name).sync();
        worker.in_flight = Some(Operation::Truncate { name: name.clone(), len: 1000 });
        worker.verify().is_ok()
    };
    let zeros_to = |end: usize| [vec![7; 1000], vec![0; end - 1000], vec![7; 5000 - end]].concat();
    for cuts_in_place in [true, false] {
        assert!(verify(&[7; 5000], cuts_in_place), "not done");
        assert!(verify(&[7; 1000], cuts_in_place), "done");
        assert!(!verify(&zeros_to(5000), cuts_in_place), "behind the page");
        assert_eq!(verify(&zeros_to(BLOCK), cuts_in_place), cuts_in_place);
    }
}
