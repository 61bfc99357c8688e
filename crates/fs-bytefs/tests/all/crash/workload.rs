//! A random workload that knows, at every moment, what a crash may leave: the model does what ByteFS does,
//! and a set says whose contents are not yet synced.

use amphi_rt::hash::mix;
use std::collections::{BTreeMap, BTreeSet};

use amphi_model::Model;
use amphi_vfs::{
    Allocate, Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, Result, SetAttr, WriteMode,
};

use super::walk::{Tree, walk};

/// A small generator of numbers (SplitMix64), so that a seed gives one and the same run for ever.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0) % bound
    }
}

/// One operation on paths.
#[derive(Clone, Debug)]
pub enum Op {
    Create(String, u16),
    Mkdir(String),
    Symlink(String, usize),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameMode),
    Chmod(String, u16),
    SetXattr(String, u8, usize),
    RemoveXattr(String, u8),
    Allocate(String, u64, u64, Allocate),
    Truncate(String, u64),
    Write(String, u64, usize, u8),
    Sync(String, bool),
    SyncAll,
    /// Opens a file and removes its name: after a crash it is gone.
    UnlinkOpen(String),
}

const DIRS: [&str; 4] = ["", "/a", "/b", "/a/c"];
const NAMES: [&str; 5] =
    ["x", "y", "d", "a", "a-name-that-takes-more-than-one-line-of-sixty-four-bytes-in-its-directory"];

impl Op {
    /// A random one; `large` lets files grow to megabytes.
    pub fn random(numbers: &mut Numbers, large: bool) -> Self {
        let dir = |n: &mut Numbers| DIRS[n.below(4) as usize];
        let path = |n: &mut Numbers| format!("{}/{}", dir(n), NAMES[n.below(5) as usize]);
        let any_dir = |n: &mut Numbers| ["/a", "/b", "/a/c", "/d", "/a/a"][n.below(5) as usize].to_owned();
        let offset = |n: &mut Numbers| match n.below(4) {
            0 => 0,
            1 => n.below(200),
            2 => n.below(20_000),
            _ => n.below(if large { 3_000_000 } else { 100_000 }),
        };
        let n = numbers;
        match n.below(36) {
            0..4 => Self::Create(path(n), (n.below(0o777)) as u16),
            4..7 => Self::Mkdir(any_dir(n)),
            7 => Self::Symlink(path(n), 1 + n.below(120) as usize),
            8 => Self::Link(path(n), path(n)),
            9..11 => Self::Unlink(path(n)),
            11 => Self::Rmdir(any_dir(n)),
            12..15 => {
                let mode =
                    [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]
                        [n.below(4) as usize];
                if n.below(4) == 0 {
                    Self::Rename(any_dir(n), any_dir(n), mode)
                } else {
                    Self::Rename(path(n), path(n), mode)
                }
            }
            15 => Self::Chmod(path(n), n.below(0o777) as u16),
            16..18 => Self::Truncate(path(n), offset(n)),
            18..24 => {
                let longest = if large { 300_000 } else { 9000 };
                let len = if n.below(2) == 0 { 1 + n.below(300) } else { 1 + n.below(longest) };
                Self::Write(path(n), offset(n), len as usize, n.below(255) as u8 + 1)
            }
            24..28 => Self::Sync(path(n), n.below(2) == 0),
            28 => Self::SyncAll,
            33..35 => {
                let keep_size = n.below(2) == 0;
                let what =
                    [Allocate::Reserve { keep_size }, Allocate::PunchHole, Allocate::Zero { keep_size }]
                        [n.below(3) as usize];
                Self::Allocate(path(n), offset(n), 1 + n.below(40_000), what)
            }
            29..31 => Self::SetXattr(path(n), n.below(3) as u8, n.below(900) as usize),
            31 => Self::RemoveXattr(path(n), n.below(3) as u8),
            _ => Self::UnlinkOpen(path(n)),
        }
    }

    /// Does it.
    pub fn apply(&self, fs: &dyn FileSystem) -> Result<()> {
        let cred = &Cred::ROOT;
        match self {
            Self::Create(path, mode) => at_parent(fs, path, |dir, name| {
                fs.create(dir, name, FileType::Regular, *mode, 0, cred).map(|e| forget(fs, e.attr.ino))
            }),
            Self::Mkdir(path) => at_parent(fs, path, |dir, name| {
                fs.mkdir(dir, name, 0o755, cred).map(|e| forget(fs, e.attr.ino))
            }),
            Self::Symlink(path, len) => at_parent(fs, path, |dir, name| {
                fs.symlink(dir, name, &vec![b't'; *len], cred).map(|e| forget(fs, e.attr.ino))
            }),
            Self::Link(from, to) => at(fs, from, |ino| {
                at_parent(fs, to, |dir, name| fs.link(ino, dir, name).map(|e| forget(fs, e.attr.ino)))
            }),
            Self::Unlink(path) => at_parent(fs, path, |dir, name| fs.unlink(dir, name).map(drop)),
            Self::Rmdir(path) => at_parent(fs, path, |dir, name| fs.rmdir(dir, name).map(drop)),
            Self::Rename(from, to, mode) => at_parent(fs, from, |from_dir, name| {
                at_parent(fs, to, |to_dir, new_name| {
                    fs.rename(from_dir, name, to_dir, new_name, *mode).map(drop)
                })
            }),
            Self::Chmod(path, mode) => at(fs, path, |ino| {
                fs.setattr(ino, &SetAttr { mode: Some(*mode), ..SetAttr::default() }, cred).map(drop)
            }),
            Self::SetXattr(path, key, len) => at(fs, path, |ino| {
                fs.setxattr(ino, &[b'k', *key], &vec![*key; *len], amphi_vfs::XattrMode::Set)
            }),
            Self::Allocate(path, offset, length, what) => {
                at(fs, path, |ino| fs.allocate(ino, *offset, *length, *what, cred))
            }
            Self::RemoveXattr(path, key) => at(fs, path, |ino| fs.removexattr(ino, &[b'k', *key])),
            Self::Truncate(path, size) => at(fs, path, |ino| {
                fs.setattr(ino, &SetAttr { size: Some(*size), ..SetAttr::default() }, cred).map(drop)
            }),
            Self::Write(path, offset, len, byte) => at(fs, path, |ino| {
                fs.write(ino, *offset, &vec![*byte; *len], WriteMode::default(), cred).map(drop)
            }),
            Self::Sync(path, data_only) => at(fs, path, |ino| fs.fsync(ino, *data_only)),
            Self::SyncAll => fs.sync(),
            Self::UnlinkOpen(path) => at(fs, path, |ino| {
                if fs.getattr(ino)?.file_type != FileType::Regular {
                    return Err(Error::Invalid("only regular files are opened"));
                }
                fs.open(ino, OpenFlags { write: true, ..OpenFlags::default() })?;
                fs.write(ino, 0, &[9; 5000], WriteMode::default(), cred)?;
                let removed = at_parent(fs, path, |dir, name| fs.unlink(dir, name).map(drop));
                if removed.is_err() {
                    fs.release(ino);
                }
                removed
            }),
        }
    }

    /// The contents of the file it is about once it has been done, given those before; `None` if it may be
    /// seen half done.
    fn effect(&self, before: &[u8]) -> Option<Vec<u8>> {
        let mut after = before.to_vec();
        let mut write = |at: usize, len: usize, byte: u8| {
            after.resize(after.len().max(at + len), 0);
            after[at..at + len].fill(byte);
        };
        match self {
            Self::Write(_, offset, len, byte) => write(*offset as usize, *len, *byte),
            Self::UnlinkOpen(_) => write(0, 5000, 9),
            Self::Truncate(_, size) => after.resize(*size as usize, 0),
            Self::Allocate(..) => return None,
            _ => {}
        }
        Some(after)
    }

    fn touched(&self) -> Option<&str> {
        match self {
            Self::Write(path, ..)
            | Self::Sync(path, _)
            | Self::Truncate(path, _)
            | Self::Allocate(path, ..)
            | Self::UnlinkOpen(path) => Some(path),
            _ => None,
        }
    }
}

fn forget(fs: &dyn FileSystem, ino: Ino) {
    fs.forget(ino, 1);
}

fn at<T>(fs: &dyn FileSystem, path: &str, body: impl FnOnce(Ino) -> Result<T>) -> Result<T> {
    let mut ino = Ino::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let next = fs.lookup(ino, Name::new(part.as_bytes())?);
        if ino != Ino::ROOT {
            fs.forget(ino, 1);
        }
        ino = next?.attr.ino;
    }
    let outcome = body(ino);
    if ino != Ino::ROOT {
        fs.forget(ino, 1);
    }
    outcome
}

fn at_parent<T>(fs: &dyn FileSystem, path: &str, body: impl FnOnce(Ino, Name<'_>) -> Result<T>) -> Result<T> {
    let (parent, name) = path.rsplit_once('/').expect("paths start with a slash");
    at(fs, parent, |dir| body(dir, Name::new(name.as_bytes())?))
}

/// What a crash may leave.
pub struct Expected {
    /// The model, which has done every completed operation.
    model: Model,
    /// Inodes (of the model) whose contents are not promised.
    pub unsynced: BTreeSet<u64>,
    /// What each of them has held since it was last synced, oldest first.
    moments: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Expected {
    /// An empty file system.
    pub fn new() -> Self {
        Self { model: Model::new(), unsynced: BTreeSet::new(), moments: BTreeMap::new() }
    }

    /// The promised tree as of now.
    pub fn tree(&self) -> Tree {
        walk(&self.model)
    }

    /// Does to the model what ByteFS just did, and compares the answers.
    pub fn follow(&mut self, op: &Op, answer: &Result<()>) {
        let touched = op.touched().and_then(|path| at(&self.model, path, |ino| Ok(ino.0)).ok());
        let before = touched.map(|ino| self.contents(ino));
        let due = op.apply(&self.model);
        assert_eq!(answer.is_ok(), due.is_ok(), "{op:?}: answered {answer:?}, the model {due:?}");
        if due.is_err() {
            return;
        }
        match (op, touched) {
            (
                Op::Write(..)
                | Op::UnlinkOpen(_)
                | Op::Allocate(.., Allocate::PunchHole | Allocate::Zero { .. }),
                Some(ino),
            ) => {
                self.unsynced.insert(ino);
            }
            (Op::Sync(..), Some(ino)) => {
                self.unsynced.remove(&ino);
            }
            (Op::SyncAll, _) => self.unsynced.clear(),
            _ => {}
        }
        match (op, touched) {
            (Op::Sync(..), Some(ino)) => drop(self.moments.remove(&ino)),
            (Op::SyncAll, _) => self.moments.clear(),
            (_, Some(ino)) => {
                let after = self.contents(ino);
                let moments = self.moments.entry(ino).or_insert_with(|| before.into_iter().collect());
                moments.push(after);
            }
            _ => {}
        }
    }

    /// What a file of the model holds; nothing if it is none, or gone.
    fn contents(&self, ino: u64) -> Vec<u8> {
        let size = self.model.getattr(Ino(ino)).map_or(0, |attr| attr.size);
        let mut bytes = vec![0; size as usize];
        match self.model.read(Ino(ino), 0, &mut bytes, false) {
            Ok(_) => bytes,
            Err(_) => Vec::new(),
        }
    }

    /// With data journaling: a file that is found with contents that it never had, not even by `interrupted`.
    pub fn torn(&self, found: &Tree, interrupted: Option<&Op>) -> Option<String> {
        let due = self.tree();
        for (path, seen) in found.iter().filter(|(_, seen)| seen.file_type == FileType::Regular) {
            let Some(ino) = due.get(path).map(|due| due.ino).filter(|ino| self.unsynced.contains(ino)) else {
                continue;
            };
            let moments = self.moments.get(&ino).map_or(&[][..], |moments| &moments[..]);
            if moments.contains(&seen.data) {
                continue;
            }
            let about = interrupted.filter(|op| {
                op.touched().and_then(|path| at(&self.model, path, |ino| Ok(ino.0)).ok()) == Some(ino)
            });
            let Some(op) = about else {
                return Some(format!("{path} never held these {} bytes", seen.data.len()));
            };
            match op.effect(&self.contents(ino)) {
                None => {}
                Some(after) if after == seen.data => {}
                Some(_) => return Some(format!("{path} holds a part of {op:?}, or what it never held")),
            }
        }
        None
    }

    /// Takes what a crash left of unsynced contents as given.
    pub fn adopt(&mut self, found: &Tree) {
        for (path, seen) in found.iter().filter(|(_, seen)| seen.file_type == FileType::Regular) {
            let outcome = at(&self.model, path, |ino| {
                if self.unsynced.contains(&ino.0) {
                    let size = |bytes| SetAttr { size: Some(bytes), ..SetAttr::default() };
                    self.model.setattr(ino, &size(0), &Cred::ROOT)?;
                    self.model.write(ino, 0, &seen.data, WriteMode::default(), &Cred::ROOT)?;
                }
                Ok(())
            });
            assert_eq!(outcome, Ok(()), "the model has every name that was found");
        }
        self.unsynced.clear();
        self.moments.clear();
    }
}
