//! One operation of a workload: what it does to a file system, and how it is written down.
//!
//! Every operation has one line of text, which [`Display`](std::fmt::Display) writes and [`FromStr`] reads:
//! traces are files of such lines.

use std::fmt;
use std::str::FromStr;

use amphi_vfs::{
    Allocate, Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, Result, SetAttr, SetTime,
    TimeSpec, WriteMode, XattrMode,
};

/// Where in a file an operation starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a byte offset.
    At(u64),
    /// At the end of the file, which so grows.
    End,
    /// So many bytes before the end, or at 0 in a shorter file.
    BeforeEnd(u64),
}

impl Place {
    const fn of(self, size: u64) -> u64 {
        match self {
            Self::At(offset) => offset,
            Self::End => size,
            Self::BeforeEnd(bytes) => size.saturating_sub(bytes),
        }
    }
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Through the page cache.
    Buffered,
    /// With `O_DIRECT`.
    Direct,
    /// Stored to a mapping, then `msync(MS_SYNC)`: a write through the page cache and an `fsync`.
    Mapped,
}

/// One operation. Paths are relative to the root; the root itself is `.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates a regular file.
    Create(String),
    /// Creates a file without a name (`O_TMPFILE`) in the path's directory, writes 100 bytes to it, and gives
    /// it the path as its name.
    Tmpfile(String),
    /// Creates a FIFO (`mknod`).
    Mknod(String),
    /// Creates a directory.
    Mkdir(String),
    /// Creates the second path as a symbolic link that holds the first.
    Symlink(String, String),
    /// Gives a file another name.
    Link(String, String),
    /// Removes a name of a file.
    Unlink(String),
    /// Removes a name of a file that is open meanwhile, and closes it.
    UnlinkOpen(String),
    /// Removes a directory.
    Rmdir(String),
    /// Moves a name, replacing what is there.
    Rename(String, String),
    /// Swaps two names.
    Exchange(String, String),
    /// Writes bytes that tell where and by which operation they were written.
    Write(String, How, Place, u32),
    /// Reserves, frees or zeroes a range.
    Allocate(String, Allocate, Place, u32),
    /// Sets a file's size.
    Truncate(String, u64),
    /// Sets the extended attribute `user.mark` to so many bytes.
    SetXattr(String, u32),
    /// Removes it.
    RemoveXattr(String),
    /// Sets the permission bits.
    Chmod(String, u16),
    /// Sets owner and group.
    Chown(String, u32, u32),
    /// Sets access and modification time, ns since 1970.
    Utimens(String, i64),
    /// `fsync`, or with `true` `fdatasync`.
    Fsync(String, bool),
    /// `sync`.
    Sync,
    /// Tells the device what is free (`fstrim`), where the file system can.
    Discard,
}

/// The name of the one extended attribute that operations set.
pub const XATTR: &[u8] = b"user.mark";

/// Fills a buffer with what operation `number` writes at `offset`: never zero, and different for every
/// operation and every 8 bytes.
pub fn pattern(number: u64, offset: u64, into: &mut [u8]) {
    for (position, byte) in into.iter_mut().enumerate() {
        let at = offset + position as u64;
        let word = (at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (number + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        *byte = ((word >> 40) ^ (word >> 17) ^ at) as u8 | 1;
    }
}

impl Operation {
    /// The operation with offsets that no longer depend on how long files are, taken from `fs`; as it is if
    /// the file is not there.
    #[must_use]
    pub fn resolved(&self, fs: &dyn FileSystem) -> Self {
        let size = |path: &str| at(fs, path, |ino| fs.getattr(ino)).map_or(0, |attr| attr.size);
        match self {
            Self::Write(path, how, place, len) => {
                Self::Write(path.clone(), *how, Place::At(place.of(size(path))), *len)
            }
            Self::Allocate(path, what, place, len) => {
                Self::Allocate(path.clone(), *what, Place::At(place.of(size(path))), *len)
            }
            other => other.clone(),
        }
    }

    /// The paths whose file, or whose name, it changes.
    #[must_use]
    pub fn changed_paths(&self) -> Vec<&str> {
        match self {
            Self::Create(path)
            | Self::Tmpfile(path)
            | Self::Mknod(path)
            | Self::Mkdir(path)
            | Self::Symlink(_, path)
            | Self::Unlink(path)
            | Self::UnlinkOpen(path)
            | Self::Rmdir(path)
            | Self::Write(path, ..)
            | Self::Allocate(path, ..)
            | Self::Truncate(path, _)
            | Self::SetXattr(path, _)
            | Self::RemoveXattr(path)
            | Self::Chmod(path, _)
            | Self::Chown(path, ..)
            | Self::Utimens(path, _) => vec![path],
            Self::Link(one, other) | Self::Rename(one, other) | Self::Exchange(one, other) => {
                vec![one, other]
            }
            Self::Fsync(..) | Self::Sync | Self::Discard => Vec::new(),
        }
    }

    /// Does it, as the superuser. `number` decides what is written; offsets must be
    /// [`resolved`](Self::resolved).
    ///
    /// # Errors
    /// The file system's.
    pub fn apply(&self, fs: &dyn FileSystem, number: u64) -> Result<()> {
        let cred = &Cred::ROOT;
        let set = |path: &str, change: SetAttr| at(fs, path, |ino| fs.setattr(ino, &change, cred).map(drop));
        let forget = |entry: amphi_vfs::Entry| fs.forget(entry.attr.ino, 1);
        match self {
            Self::Create(path) => at_parent(fs, path, |dir, name| {
                fs.create(dir, name, FileType::Regular, 0o644, 0, cred).map(forget)
            }),
            Self::Tmpfile(path) => at_parent(fs, path, |dir, name| {
                let ino = fs.tmpfile(dir, 0o640, cred)?.attr.ino;
                let mut data = [0; 100];
                pattern(number, 0, &mut data);
                let outcome = fs
                    .write(ino, 0, &data, WriteMode::default(), cred)
                    .and_then(|_| fs.fsync(ino, false))
                    .and_then(|()| fs.link(ino, dir, name).map(forget));
                fs.forget(ino, 1);
                outcome
            }),
            Self::Mknod(path) => at_parent(fs, path, |dir, name| {
                fs.create(dir, name, FileType::Fifo, 0o600, 0, cred).map(forget)
            }),
            Self::Mkdir(path) => {
                at_parent(fs, path, |dir, name| fs.mkdir(dir, name, 0o755, cred).map(forget))
            }
            Self::Symlink(target, path) => {
                at_parent(fs, path, |dir, name| fs.symlink(dir, name, target.as_bytes(), cred).map(forget))
            }
            Self::Link(from, to) => {
                at(fs, from, |ino| at_parent(fs, to, |dir, name| fs.link(ino, dir, name).map(forget)))
            }
            Self::Unlink(path) => at_parent(fs, path, |dir, name| fs.unlink(dir, name).map(drop)),
            Self::UnlinkOpen(path) => at(fs, path, |ino| {
                fs.open(ino, OpenFlags::default())?;
                let unlinked = at_parent(fs, path, |dir, name| fs.unlink(dir, name).map(drop));
                fs.release(ino);
                unlinked
            }),
            Self::Rmdir(path) => at_parent(fs, path, |dir, name| fs.rmdir(dir, name).map(drop)),
            Self::Rename(from, to) | Self::Exchange(from, to) => {
                let mode =
                    if matches!(self, Self::Rename(..)) { RenameMode::Replace } else { RenameMode::Exchange };
                at_parent(fs, from, |from_dir, name| {
                    at_parent(fs, to, |to_dir, new_name| {
                        fs.rename(from_dir, name, to_dir, new_name, mode).map(drop)
                    })
                })
            }
            Self::Write(path, how, place, len) => at(fs, path, |ino| {
                let offset = place.of(0);
                let mut data = vec![0; *len as usize];
                pattern(number, offset, &mut data);
                let mode = WriteMode { direct: *how == How::Direct, ..WriteMode::default() };
                fs.write(ino, offset, &data, mode, cred)?;
                if *how == How::Mapped { fs.fsync(ino, false) } else { Ok(()) }
            }),
            Self::Allocate(path, what, place, len) => {
                at(fs, path, |ino| fs.allocate(ino, place.of(0), u64::from(*len), *what, cred))
            }
            Self::Truncate(path, size) => set(path, SetAttr { size: Some(*size), ..SetAttr::default() }),
            Self::SetXattr(path, len) => {
                let mut value = vec![0; *len as usize];
                pattern(number, 0, &mut value);
                at(fs, path, |ino| fs.setxattr(ino, XATTR, &value, XattrMode::Set))
            }
            Self::RemoveXattr(path) => at(fs, path, |ino| fs.removexattr(ino, XATTR)),
            Self::Chmod(path, mode) => set(path, SetAttr { mode: Some(*mode), ..SetAttr::default() }),
            Self::Chown(path, uid, gid) => {
                set(path, SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() })
            }
            Self::Utimens(path, ns) => {
                let time = Some(SetTime::At(TimeSpec { ns: *ns }));
                set(path, SetAttr { atime: time, mtime: time, ..SetAttr::default() })
            }
            Self::Fsync(path, data_only) => at(fs, path, |ino| fs.fsync(ino, *data_only)),
            Self::Sync => fs.sync(),
            Self::Discard => match fs.discard_free(0..u64::MAX, 0) {
                Ok(_) | Err(Error::Unsupported(_)) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    /// What it is called: the first word of its line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Tmpfile(_) => "tmpfile",
            Self::Mknod(_) => "mknod",
            Self::Mkdir(_) => "mkdir",
            Self::Symlink(..) => "symlink",
            Self::Link(..) => "link",
            Self::Unlink(_) => "unlink",
            Self::UnlinkOpen(_) => "unlink-open",
            Self::Rmdir(_) => "rmdir",
            Self::Rename(..) => "rename",
            Self::Exchange(..) => "exchange",
            Self::Write(_, How::Buffered, ..) => "write",
            Self::Write(_, How::Direct, ..) => "write-direct",
            Self::Write(_, How::Mapped, ..) => "write-mapped",
            Self::Allocate(..) => "fallocate",
            Self::Truncate(..) => "truncate",
            Self::SetXattr(..) => "setxattr",
            Self::RemoveXattr(_) => "removexattr",
            Self::Chmod(..) => "chmod",
            Self::Chown(..) => "chown",
            Self::Utimens(..) => "utimens",
            Self::Fsync(_, false) => "fsync",
            Self::Fsync(_, true) => "fdatasync",
            Self::Sync => "sync",
            Self::Discard => "fstrim",
        }
    }

    /// Whether it changes contents of a file, which a crash may leave half done, and no other metadata.
    #[must_use]
    pub const fn changes_data(&self) -> bool {
        matches!(self, Self::Write(..) | Self::Allocate(..))
    }

    /// Bytes that it may need room for.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Write(_, _, _, len) | Self::Allocate(_, _, _, len) | Self::SetXattr(_, len) => *len as u64,
            _ => 0,
        }
    }

    /// Whether it only makes durable what was done before.
    #[must_use]
    pub const fn persists(&self) -> bool {
        matches!(self, Self::Fsync(..) | Self::Sync)
    }
}

/// Calls `body` with the inode of a path.
///
/// # Errors
/// A part of the path does not exist; what `body` answers.
pub fn at<T>(fs: &dyn FileSystem, path: &str, body: impl FnOnce(Ino) -> Result<T>) -> Result<T> {
    let mut ino = Ino::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
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
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    at(fs, parent, |dir| body(dir, Name::new(name.as_bytes())?))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(offset) => write!(f, "{offset}"),
            Self::End => f.write_str("end"),
            Self::BeforeEnd(bytes) => write!(f, "end-{bytes}"),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const BAD: Error = Error::Invalid("a place in a file is a number, `end`, or `end-` and a number");
        match text.strip_prefix("end") {
            Some("") => Ok(Self::End),
            Some(rest) => rest.strip_prefix('-').and_then(|n| n.parse().ok()).map(Self::BeforeEnd).ok_or(BAD),
            None => text.parse().map(Self::At).map_err(|_| BAD),
        }
    }
}

/// The names of what `fallocate` can do.
const ALLOCATE: [(&str, Allocate); 5] = [
    ("zero", Allocate::Zero { keep_size: false }),
    ("zero-keep", Allocate::Zero { keep_size: true }),
    ("punch", Allocate::PunchHole),
    ("keep", Allocate::Reserve { keep_size: true }),
    ("plain", Allocate::Reserve { keep_size: false }),
];

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Create(path)
            | Self::Tmpfile(path)
            | Self::Mknod(path)
            | Self::Mkdir(path)
            | Self::Unlink(path)
            | Self::UnlinkOpen(path)
            | Self::Rmdir(path)
            | Self::RemoveXattr(path)
            | Self::Fsync(path, _) => write!(f, "{name} {path}"),
            Self::Symlink(one, other)
            | Self::Link(one, other)
            | Self::Rename(one, other)
            | Self::Exchange(one, other) => write!(f, "{name} {one} {other}"),
            Self::Write(path, _, place, len) => write!(f, "{name} {path} {place} {len}"),
            Self::Allocate(path, what, place, len) => {
                let what = ALLOCATE.iter().find(|(_, known)| known == what).map_or("?", |(name, _)| name);
                write!(f, "{name} {path} {what} {place} {len}")
            }
            Self::Truncate(path, size) => write!(f, "{name} {path} {size}"),
            Self::SetXattr(path, len) => write!(f, "{name} {path} {len}"),
            Self::Chmod(path, mode) => write!(f, "{name} {path} {mode:o}"),
            Self::Chown(path, uid, gid) => write!(f, "{name} {path} {uid} {gid}"),
            Self::Utimens(path, ns) => write!(f, "{name} {path} {ns}"),
            Self::Sync | Self::Discard => f.write_str(name),
        }
    }
}

impl FromStr for Operation {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        const BAD: Error = Error::Invalid("not an operation of a trace; docs/crashlab.md lists them");
        let words: Vec<&str> = line.split_whitespace().collect();
        let own = |text: &str| text.to_owned();
        fn number<T: FromStr>(text: &str) -> Result<T> {
            text.parse().map_err(|_| BAD)
        }
        let how = |name: &str| match name {
            "write-direct" => How::Direct,
            "write-mapped" => How::Mapped,
            _ => How::Buffered,
        };
        Ok(match words[..] {
            ["create", path] => Self::Create(own(path)),
            ["tmpfile", path] => Self::Tmpfile(own(path)),
            ["mknod", path] => Self::Mknod(own(path)),
            ["mkdir", path] => Self::Mkdir(own(path)),
            ["symlink", target, path] => Self::Symlink(own(target), own(path)),
            ["link", from, to] => Self::Link(own(from), own(to)),
            ["unlink", path] => Self::Unlink(own(path)),
            ["unlink-open", path] => Self::UnlinkOpen(own(path)),
            ["rmdir", path] => Self::Rmdir(own(path)),
            ["rename", from, to] => Self::Rename(own(from), own(to)),
            ["exchange", from, to] => Self::Exchange(own(from), own(to)),
            [name @ ("write" | "write-direct" | "write-mapped"), path, place, len] => {
                Self::Write(own(path), how(name), place.parse()?, number(len)?)
            }
            ["fallocate", path, what, place, len] => {
                let (_, what) = ALLOCATE.iter().find(|(name, _)| *name == what).ok_or(BAD)?;
                Self::Allocate(own(path), *what, place.parse()?, number(len)?)
            }
            ["truncate", path, size] => Self::Truncate(own(path), number(size)?),
            ["setxattr", path, len] => Self::SetXattr(own(path), number(len)?),
            ["removexattr", path] => Self::RemoveXattr(own(path)),
            ["chmod", path, mode] => {
                Self::Chmod(own(path), u16::from_str_radix(mode, 8).map_err(|_| BAD)? & 0o7777)
            }
            ["chown", path, uid, gid] => Self::Chown(own(path), number(uid)?, number(gid)?),
            ["utimens", path, ns] => Self::Utimens(own(path), number(ns)?),
            ["fsync", path] => Self::Fsync(own(path), false),
            ["fdatasync", path] => Self::Fsync(own(path), true),
            ["sync"] => Self::Sync,
            ["fstrim"] => Self::Discard,
            _ => return Err(BAD),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_read_as_it_was_written() {
        let lines = "create foo\ntmpfile A/foo\nmknod p\nmkdir A\nsymlink foo A/s\nlink foo A/bar\nunlink foo\nunlink-open A/bar\nrmdir A/C\nrename A B\n\
            exchange foo bar\nwrite foo end 32768\nwrite-direct A/foo 0 8192\nwrite-mapped foo end-2000 5000\n\
            fallocate foo zero-keep 0 5000\nfallocate foo punch end-2000 5000\nfallocate foo plain end 1\n\
            truncate foo 2500\nsetxattr foo 100\nremovexattr foo\nchmod foo 4755\nchown foo 7 8\nutimens foo -5\n\
            fsync .\nfdatasync A/foo\nsync\nfstrim";
        for line in lines.lines() {
            let operation: Operation = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(operation.to_string(), line.trim());
        }
        for bad in ["", "create", "write foo 0", "write foo end-x 5", "chmod foo 9", "fallocate foo half 0 5"]
        {
            assert!(bad.parse::<Operation>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_written_tells_who_wrote_it_and_where() {
        let (mut a, mut b, mut c) = ([0; 64], [0; 64], [0; 64]);
        pattern(1, 0, &mut a);
        pattern(2, 0, &mut b);
        pattern(1, 64, &mut c);
        assert!(a != b && a != c && !a.contains(&0));
    }
}
