//! What must be equal: attributes without what each file system decides for itself, listings, whole trees.

use std::collections::BTreeMap;

use amphi_model::Model;
use amphi_vfs::{Attr, Error, FileSystem, FileType, Ino, Name, Result, Seek, TimeSpec};

use crate::harness::{Fs, list};

/// Times before this were set by an operation; later ones come from a clock. (In ns: the year 1990.)
const CLOCK_STARTS: i64 = 631_152_000_000_000_000;

/// Bytes compared at a time.
const CHUNK: usize = 1 << 16;

/// A time: as set, or whatever the clock showed.
type SharedTime = Option<TimeSpec>;

/// The attributes that every file system must agree on. Sizes of directories and allocated space are each
/// one's own affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedAttr {
    file_type: FileType,
    mode: u16,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    size: u64,
    atime: SharedTime,
    mtime: SharedTime,
}

impl SharedAttr {
    /// What a program sees of it: type, mode, names, bytes.
    pub(super) const fn shown(&self) -> (FileType, u16, u32, u64) {
        (self.file_type, self.mode, self.nlink, self.size)
    }

    pub(super) fn of(attr: &Attr) -> Self {
        let as_set = |time: TimeSpec| (time.ns < CLOCK_STARTS).then_some(time);
        Self {
            file_type: attr.file_type,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: if attr.file_type == FileType::Directory { 0 } else { attr.size },
            atime: as_set(attr.atime),
            mtime: as_set(attr.mtime),
        }
    }

    /// Without the number of links and the times, which other tasks change in a directory they share.
    pub(super) fn without_links(self) -> Self {
        Self { nlink: 0, atime: None, mtime: None, ..self }
    }
}

/// Names with types and inodes, sorted, listed `step` at a time: those that start with `prefix`, and the dots
/// if it is empty.
pub(super) fn listing(
    fs: &dyn FileSystem,
    dir: Ino,
    step: usize,
    prefix: &[u8],
) -> Result<Vec<(Vec<u8>, FileType, Ino)>> {
    let mut all = list(fs, dir, step)?;
    all.retain(|(name, ..)| name.starts_with(prefix));
    all.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(all)
}

/// Compares everything below `dir`.
pub(super) fn trees(fs: &Fs, model: &Model, dir: Ino) -> std::result::Result<(), String> {
    trees_below(fs, model, dir, b"")
}

/// Compares everything below `dir` that starts with `prefix`; `dir` itself only if everything is compared.
pub(super) fn trees_below(
    fs: &Fs,
    model: &Model,
    dir: Ino,
    prefix: &[u8],
) -> std::result::Result<(), String> {
    let mut walk = Walk { fs: &**fs, model, same: BTreeMap::new() };
    if prefix.is_empty() {
        walk.attributes("/", dir, dir)?;
    }
    walk.directory("", dir, dir, prefix)
}

/// Whether `[from, to)` of a file reads as zeros, looking only where the file system has data.
pub(super) fn is_zero(fs: &dyn FileSystem, ino: Ino, from: u64, to: u64) -> Result<bool> {
    let mut at = from;
    let mut bytes = vec![0; CHUNK];
    while at < to {
        match fs.seek(ino, at, Seek::Data) {
            Ok(data) => at = data,
            Err(Error::NoData) => break,
            Err(error) => return Err(error),
        }
        let length = to.saturating_sub(at).min(CHUNK as u64) as usize;
        let read = fs.read(ino, at, &mut bytes[..length], false)?;
        if bytes[..read].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}

/// A walk over both trees at once.
struct Walk<'a> {
    fs: &'a dyn FileSystem,
    model: &'a Model,
    /// The model's inode for each inode: names of one file must be names of one file.
    same: BTreeMap<u64, u64>,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        path: &str,
        ours: Ino,
        models: Ino,
        prefix: &[u8],
    ) -> std::result::Result<(), String> {
        let failed = |error: Error| format!("listing {path}/: {error}");
        let listed = listing(self.fs, ours, 1_000, prefix).map_err(failed)?;
        let expected = listing(self.model, models, 1_000, prefix).map_err(failed)?;
        let names = |list: &[(Vec<u8>, FileType, Ino)]| -> Vec<(String, FileType)> {
            list.iter().map(|(name, kind, _)| (String::from_utf8_lossy(name).into_owned(), *kind)).collect()
        };
        if names(&listed) != names(&expected) {
            return Err(format!("{path}/ holds {:?}, in the model {:?}", names(&listed), names(&expected)));
        }
        for ((name, file_type, listed_ino), _) in listed.iter().zip(&expected) {
            let Ok(valid) = Name::new(name) else { continue };
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            let failed = |error: Error| format!("looking up {path}: {error}");
            let ours_below = self.fs.lookup(ours, valid).map_err(failed)?.attr.ino;
            let models_below = self.model.lookup(models, valid).map_err(failed)?.attr.ino;
            let outcome = if ours_below == *listed_ino {
                self.entry(&path, *file_type, ours_below, models_below)
            } else {
                Err(format!("{path} is inode {} and is listed as {}", ours_below.0, listed_ino.0))
            };
            self.fs.forget(ours_below, 1);
            self.model.forget(models_below, 1);
            outcome?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &str,
        file_type: FileType,
        ours: Ino,
        models: Ino,
    ) -> std::result::Result<(), String> {
        let known = *self.same.entry(ours.0).or_insert(models.0);
        if known != models.0 {
            return Err(format!("{path} is a name of another file than in the model"));
        }
        self.attributes(path, ours, models)?;
        match file_type {
            FileType::Directory => self.directory(path, ours, models, b""),
            FileType::Regular => self.contents(path, ours, models),
            FileType::Symlink => {
                let same = self.fs.readlink(ours) == self.model.readlink(models);
                if same { Ok(()) } else { Err(format!("the target of {path} differs")) }
            }
            _ => Ok(()),
        }
    }

    fn attributes(&self, path: &str, ours: Ino, models: Ino) -> std::result::Result<(), String> {
        let failed = |error: Error| format!("attributes of {path}: {error}");
        let attr = SharedAttr::of(&self.fs.getattr(ours).map_err(failed)?);
        let expected = SharedAttr::of(&self.model.getattr(models).map_err(failed)?);
        if attr != expected {
            return Err(format!("attributes of {path} are {attr:?}, in the model {expected:?}"));
        }
        self.extended_attributes(path, ours, models)
    }

    fn extended_attributes(&self, path: &str, ours: Ino, models: Ino) -> std::result::Result<(), String> {
        let mut names = match self.fs.listxattr(ours) {
            Err(Error::Unsupported(_)) => return Ok(()),
            listed => listed.map_err(|error| format!("extended attributes of {path}: {error}"))?,
        };
        names.sort();
        let same = Ok(&names) == self.model.listxattr(models).as_ref()
            && names.iter().all(|name| self.fs.getxattr(ours, name) == self.model.getxattr(models, name));
        if same { Ok(()) } else { Err(format!("extended attributes of {path} differ")) }
    }

    /// Compares what either side holds as data byte by byte, and the edges of the holes between.
    fn contents(&self, path: &str, ours: Ino, models: Ino) -> std::result::Result<(), String> {
        let size = self.model.getattr(models).map_err(|error| error.to_string())?.size;
        let mut at = 0;
        while at < size {
            let next = |fs: &dyn FileSystem, ino| fs.seek(ino, at, Seek::Data).unwrap_or(size);
            let data = next(self.fs, ours).min(next(self.model, models)).min(size);
            if data > at {
                self.chunk(path, ours, models, at)?;
                self.chunk(path, ours, models, data.saturating_sub(CHUNK as u64))?;
                at = data;
            } else {
                self.chunk(path, ours, models, at)?;
                at += CHUNK as u64;
            }
        }
        Ok(())
    }

    fn chunk(&self, path: &str, ours: Ino, models: Ino, at: u64) -> std::result::Result<(), String> {
        let (mut bytes, mut expected) = (vec![0xEE; CHUNK], vec![0xDD; CHUNK]);
        let failed = |error: Error| format!("reading {path} at {at}: {error}");
        let length = self.fs.read(ours, at, &mut bytes, false).map_err(failed)?;
        let expected_length = self.model.read(models, at, &mut expected, false).map_err(failed)?;
        if length != expected_length {
            return Err(format!("{path} gives {length} bytes at {at}, in the model {expected_length}"));
        }
        // As a whole first: byte by byte takes a build without optimisation ten times as long.
        if bytes[..length] == expected[..length] {
            return Ok(());
        }
        let i = (0..length).find(|&i| bytes[i] != expected[i]).expect("they differ");
        let (byte, right) = (bytes[i], expected[i]);
        Err(format!("{path} holds {byte:#04x} at {}, in the model {right:#04x}", at + i as u64))
    }
}
