//! Calls about a few files and names, what they are answered, and how they are drawn.

use amphi_vfs::{
    Allocate, Attr, Cred, FileSystem, FileType, Ino, Name, RenameMode, Result, SetAttr, WriteMode, XattrMode,
};

use crate::random::apply::class;
use crate::random::compare::SharedAttr;
use crate::random::numbers::Numbers;
use crate::random::operation::Data;

/// Files that are held, directories that stay, and names that may be in each of those.
pub(super) const FILES: usize = 2;
pub(super) const DIRS: usize = 2;
pub(super) const NAMES: u64 = 3;
/// What the directories are called.
pub(super) const DIR_NAMES: [&str; DIRS] = ["x", "y"];
/// Largest offset and length of what is read and written: a few pages.
pub(super) const BYTES: u64 = 9000;

/// A name in one of the directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub dir: usize,
    pub name: u64,
}

/// One call, about files that are held by their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Create(Place),
    Mkdir(Place),
    Lookup(Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place, RenameMode),
    Link(usize, Place),
    Write { file: usize, offset: u64, data: Data, append: bool, direct: bool },
    Read { file: usize, offset: u64, length: u64, direct: bool },
    Resize(usize, u64),
    Punch { file: usize, offset: u64, length: u64 },
    SetMode(usize, u16),
    GetAttr(usize),
    SetXattr(usize, u8, XattrMode),
    GetXattr(usize),
    RemoveXattr(usize),
    Fsync(usize),
    List(usize),
}

impl Call {
    /// The names that it is about.
    pub(super) const fn places(&self) -> [Option<Place>; 2] {
        match *self {
            Self::Create(it) | Self::Mkdir(it) | Self::Lookup(it) | Self::Unlink(it) | Self::Rmdir(it) => {
                [Some(it), None]
            }
            Self::Rename(from, to, _) => [Some(from), Some(to)],
            Self::Link(_, to) => [None, Some(to)],
            _ => [None, None],
        }
    }

    /// The file that it is about, by descriptor.
    pub(super) const fn file(&self) -> Option<usize> {
        match *self {
            Self::Link(file, _)
            | Self::Resize(file, _)
            | Self::SetMode(file, _)
            | Self::GetAttr(file)
            | Self::SetXattr(file, ..)
            | Self::GetXattr(file)
            | Self::RemoveXattr(file)
            | Self::Fsync(file)
            | Self::Write { file, .. }
            | Self::Read { file, .. }
            | Self::Punch { file, .. } => Some(file),
            _ => None,
        }
    }
}

/// What a call was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Attr(SharedAttr),
    /// What a name names, and which of the files that are held it is.
    Found(SharedAttr, Option<usize>),
    /// What has lost a name has so many left, if anything has.
    Removed(Option<u32>),
    Written(usize),
    Bytes(Vec<u8>),
    /// Names in order, without the dots.
    Names(Vec<String>),
    Failed(&'static str),
}

/// The inodes of a file system that calls are about, held all the time.
#[derive(Clone, Copy)]
pub(super) struct World {
    dirs: [Ino; DIRS],
    files: [Ino; FILES],
}

pub(super) const CRED: &Cred = &Cred::ROOT;

fn attr(attr: &Attr) -> Answer {
    Answer::Attr(SharedAttr::of(attr))
}

impl World {
    /// Makes them; each file has its first name in one of the directories.
    pub(super) fn furnish(fs: &dyn FileSystem) -> Result<Self> {
        let mut world = Self { dirs: [Ino::ROOT; DIRS], files: [Ino::ROOT; FILES] };
        for (dir, name) in world.dirs.iter_mut().zip(DIR_NAMES) {
            *dir = fs.mkdir(Ino::ROOT, Name::new(name.as_bytes())?, 0o755, CRED)?.attr.ino;
        }
        for (file, dir) in world.files.iter_mut().zip(world.dirs) {
            *file = fs.create(dir, Name::new(b"0")?, FileType::Regular, 0o644, 0, CRED)?.attr.ino;
        }
        Ok(world)
    }

    /// Writes a part of a file's new bytes.
    pub(super) fn write(&self, fs: &dyn FileSystem, file: usize, offset: u64, bytes: &[u8]) -> Result<usize> {
        fs.write(self.files[file], offset, bytes, WriteMode::default(), CRED)
    }

    pub(super) fn answer(&self, fs: &dyn FileSystem, call: Call) -> Answer {
        self.call(fs, call).unwrap_or_else(|error| Answer::Failed(class(&error)))
    }

    fn call(&self, fs: &dyn FileSystem, call: Call) -> Result<Answer> {
        let names = |place: Place| (self.dirs[place.dir], place.name.to_string());
        let at = |place: Place, body: &dyn Fn(Ino, Name<'_>) -> Result<Answer>| {
            let (dir, name) = names(place);
            body(dir, Name::new(name.as_bytes())?)
        };
        let given_back = |found: Attr| {
            fs.forget(found.ino, 1);
            Ok(attr(&found))
        };
        let set = |file: usize, change: SetAttr| fs.setattr(self.files[file], &change, CRED);
        match call {
            Call::Create(place) => at(place, &|dir, name| {
                given_back(fs.create(dir, name, FileType::Regular, 0o644, 0, CRED)?.attr)
            }),
            Call::Mkdir(place) => at(place, &|dir, name| given_back(fs.mkdir(dir, name, 0o755, CRED)?.attr)),
            Call::Lookup(place) => at(place, &|dir, name| {
                let found = fs.lookup(dir, name)?.attr;
                fs.forget(found.ino, 1);
                let file = self.files.iter().position(|file| *file == found.ino);
                Ok(Answer::Found(SharedAttr::of(&found), file))
            }),
            Call::Unlink(place) => {
                at(place, &|dir, name| Ok(Answer::Removed(Some(fs.unlink(dir, name)?.nlink))))
            }
            Call::Rmdir(place) => {
                at(place, &|dir, name| Ok(Answer::Removed(Some(fs.rmdir(dir, name)?.nlink))))
            }
            Call::Rename(from, to, mode) => at(from, &|dir, name| {
                at(to, &|to_dir, to_name| {
                    let renamed = fs.rename(dir, name, to_dir, to_name, mode)?;
                    Ok(Answer::Removed(renamed.target.map(|lost| lost.nlink)))
                })
            }),
            Call::Link(file, place) => {
                at(place, &|dir, name| given_back(fs.link(self.files[file], dir, name)?.attr))
            }
            Call::Write { file, offset, data, append, direct } => {
                let how = WriteMode { append, direct, ..WriteMode::default() };
                fs.write(self.files[file], offset, &data.bytes(), how, CRED).map(Answer::Written)
            }
            Call::Read { file, offset, length, direct } => {
                let mut bytes = vec![0xEE; length as usize];
                let read = fs.read(self.files[file], offset, &mut bytes, direct)?;
                bytes.truncate(read);
                Ok(Answer::Bytes(bytes))
            }
            Call::Resize(file, size) => {
                Ok(attr(&set(file, SetAttr { size: Some(size), ..SetAttr::default() })?))
            }
            Call::Punch { file, offset, length } => {
                fs.allocate(self.files[file], offset, length, Allocate::PunchHole, CRED)?;
                Ok(Answer::Done)
            }
            Call::SetMode(file, mode) => {
                Ok(attr(&set(file, SetAttr { mode: Some(mode), ..SetAttr::default() })?))
            }
            Call::GetAttr(file) => Ok(attr(&fs.getattr(self.files[file])?)),
            Call::SetXattr(file, value, mode) => {
                fs.setxattr(self.files[file], b"user.it", &[value; 40], mode)?;
                Ok(Answer::Done)
            }
            Call::GetXattr(file) => fs.getxattr(self.files[file], b"user.it").map(Answer::Bytes),
            Call::RemoveXattr(file) => {
                fs.removexattr(self.files[file], b"user.it")?;
                Ok(Answer::Done)
            }
            Call::Fsync(file) => {
                fs.fsync(self.files[file], false)?;
                Ok(Answer::Done)
            }
            Call::List(dir) => {
                let mut names = Vec::new();
                fs.readdir(self.dirs[dir], 0, &mut |entry| {
                    names.push(String::from_utf8_lossy(entry.name).into_owned());
                    true
                })?;
                names.retain(|name| !name.starts_with('.'));
                names.sort();
                Ok(Answer::Names(names))
            }
        }
    }
}

/// Draws a call.
pub(super) fn draw(dice: &mut Numbers) -> Call {
    let file = dice.below(FILES as u64) as usize;
    let mut place = || Place { dir: dice.below(DIRS as u64) as usize, name: dice.below(NAMES) };
    let (one, other) = (place(), place());
    let (offset, length) = (dice.below(BYTES), 1 + dice.below(BYTES));
    let direct = dice.one_in(6);
    match dice.below(24) {
        0 | 1 => Call::Create(one),
        2 => Call::Mkdir(one),
        3 | 4 => Call::Lookup(one),
        5 | 6 => Call::Unlink(one),
        7 => Call::Rmdir(one),
        8 | 9 => Call::Rename(one, other, RenameMode::Replace),
        10 => Call::Rename(one, other, dice.pick(&[RenameMode::NoReplace, RenameMode::Exchange])),
        11 => Call::Link(file, one),
        12..=14 => {
            let data = Data { seed: dice.next() as u8, length: length as u32 };
            Call::Write { file, offset, data, append: dice.one_in(3), direct }
        }
        15..=17 => Call::Read { file, offset: offset / 4, length: 2 * BYTES, direct },
        18 => Call::Resize(file, offset),
        19 => Call::Punch { file, offset, length },
        20 => Call::SetMode(file, dice.pick(&[0o644, 0o600, 0o4755])),
        21 => Call::GetAttr(file),
        22 => {
            let mode = dice.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
            dice.pick(&[
                Call::SetXattr(file, offset as u8, mode),
                Call::GetXattr(file),
                Call::RemoveXattr(file),
            ])
        }
        _ => Call::Fsync(file),
    }
}
