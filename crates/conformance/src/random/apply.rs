//! Applying one operation to both file systems and comparing the answers.

use amphi_model::Model;
use amphi_rt::task;
use amphi_vfs::{
    AccessTimes, Attr, Cred, Error, FileSystem, Ino, Name, OpenFlags, Removed, Result, Seek, SetAttr,
    SetTime, TimeSpec, WriteMode, XattrMode, acl,
};

use super::compare;
use super::generate::HANDLES;
use super::operation::{Data, Object, Operation, Path, component};
use crate::cases::acls::{list, plain};
use crate::harness::Fs;

/// What an operation answered, in terms that both file systems share.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// What has lost a name has so many left, if anything has.
    Removed(Option<u32>),
    Attr(compare::SharedAttr),
    Bytes(Vec<u8>),
    List(Vec<Vec<u8>>),
    Failed(&'static str),
}

const fn removed(removed: Removed) -> Answer {
    Answer::Removed(Some(removed.nlink))
}

/// An open handle: the inode, and how many lookup references it holds.
#[derive(Clone, Copy, Debug)]
struct Handle {
    ino: Ino,
    lookups: u64,
}

/// One file system with its handles.
struct Side<'a> {
    fs: &'a dyn FileSystem,
    handles: &'a mut [Option<Handle>],
    prefix: &'a [u8],
}

/// The file system under test and the model, kept in step.
pub(super) struct Pair {
    fs: Fs,
    model: Model,
    handles: [[Option<Handle>; HANDLES as usize]; 2],
    /// Set in front of names right below the root, if others use the root too.
    prefix: Vec<u8>,
    has_xattrs: bool,
    applied: usize,
}

impl Pair {
    pub(super) fn new(fs: Fs, model: Model, task: Option<usize>) -> Self {
        let unsupported = matches!(fs.getxattr(Ino::ROOT, b"user.none"), Err(Error::Unsupported(_)));
        model.set_access_times(fs.access_times());
        let prefix = task.map_or_else(Vec::new, |number| format!("{number}-").into_bytes());
        Self {
            fs,
            model,
            handles: [[None; HANDLES as usize]; 2],
            prefix,
            has_xattrs: !unsupported,
            applied: 0,
        }
    }

    /// Operations applied so far.
    pub(super) const fn applied(&self) -> usize {
        self.applied
    }

    pub(super) fn into_model(self) -> Model {
        self.model
    }

    pub(super) fn apply(&mut self, operation: &Operation) -> std::result::Result<(), String> {
        if !self.prefix.is_empty() {
            // Virtual time passes only where something waits: give the other tasks their turn.
            task::yield_now();
        }
        let skipped = !self.has_xattrs && is_about_xattrs(operation) || self.concerns_others(operation);
        if !skipped {
            self.apply_to_both(operation)?;
        }
        self.applied += 1;
        Ok(())
    }

    /// Whether the operation is about the root while other tasks use it too.
    fn concerns_others(&self, operation: &Operation) -> bool {
        let shared_root = |object: &Object| matches!(object, Object::At(path) if path.0.is_empty());
        !self.prefix.is_empty()
            && match operation {
                Operation::SetMode { object, .. }
                | Operation::SetOwner { object, .. }
                | Operation::SetTimes { object, .. }
                | Operation::GetAttr { object }
                | Operation::SetXattr { object, .. }
                | Operation::SetAcl { object, .. }
                | Operation::GetXattr { object, .. }
                | Operation::ListXattr { object }
                | Operation::RemoveXattr { object, .. } => shared_root(object),
                _ => false,
            }
    }

    fn apply_to_both(&mut self, operation: &Operation) -> std::result::Result<(), String> {
        let [ours, models] = &mut self.handles;
        let mut side = Side { fs: &*self.fs, handles: ours, prefix: &self.prefix };
        let answer = side.answer(operation);
        let not_offered = matches!(answer, Answer::Failed("unsupported"));
        if not_offered || matches!(answer, Answer::Failed(FULL)) {
            // It may offer less, or have less room, than the model; nothing may have changed then, which
            // later comparisons show.
            return Ok(());
        }
        let mut side = Side { fs: &self.model, handles: models, prefix: &self.prefix };
        let expected = side.answer(operation);
        if let Operation::Seek { offset, what, .. } = operation {
            return self.check_seek(operation, *offset, *what, &answer, &expected);
        }
        if answer == expected || either_will_do(operation, &answer, &expected) {
            return Ok(());
        }
        Err(format!("answered {}, the model {}", brief(&answer), brief(&expected)))
    }

    /// Where data end and holes begin is a file system's own affair, as long as a hole holds zeros and data
    /// are not passed over.
    fn check_seek(
        &mut self,
        operation: &Operation,
        offset: u64,
        what: Seek,
        answer: &Answer,
        expected: &Answer,
    ) -> std::result::Result<(), String> {
        let Operation::Seek { object, .. } = operation else { return Ok(()) };
        let found = match answer {
            Answer::Bytes(bytes) => Some(u64::from_le_bytes(bytes[..].try_into().unwrap_or([0xFF; 8]))),
            _ => None,
        };
        // Looking is not reading.
        self.model.set_access_times(AccessTimes::Never);
        let mut side = Side { fs: &self.model, handles: &mut self.handles[1], prefix: &self.prefix };
        let fits = side.with(object, |fs, ino| {
            let size = fs.getattr(ino)?.size;
            Ok(match (what, found) {
                (Seek::Data, Some(found)) => {
                    found >= offset && found < size && compare::is_zero(fs, ino, offset, found)?
                }
                (Seek::Hole, Some(found)) => {
                    found >= offset && found <= size && compare::is_zero(fs, ino, found, found + 1)?
                }
                (Seek::Data, None) if *answer == Answer::Failed("no data") => {
                    compare::is_zero(fs, ino, offset, size)?
                }
                _ => answer == expected,
            })
        });
        self.model.set_access_times(self.fs.access_times());
        if answer == expected || fits == Ok(true) {
            return Ok(());
        }
        Err(format!("found {found:?} ({}), the model {}", brief(answer), brief(expected)))
    }

    /// Closes the handles and compares the trees.
    pub(super) fn finish(&mut self) -> std::result::Result<(), String> {
        for handle in 0..HANDLES {
            self.apply(&Operation::Close { handle })?;
        }
        compare::trees_below(&self.fs, &self.model, Ino::ROOT, &self.prefix)
    }
}

/// The answer of a file system that has no room left.
pub(super) const FULL: &str = "full";

/// Whether both refuse, each for one of two reasons that apply: a directory that is above the source is not
/// empty, too.
fn either_will_do(operation: &Operation, answer: &Answer, expected: &Answer) -> bool {
    let reasons = [Answer::Failed("not empty"), Answer::Failed("is a directory")];
    matches!(operation, Operation::Rename { .. }) && reasons.contains(answer) && reasons.contains(expected)
}

const fn is_about_xattrs(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::SetXattr { .. }
            | Operation::SetAcl { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. }
    )
}

/// An answer, with long contents cut.
pub(super) fn brief(answer: &impl std::fmt::Debug) -> String {
    let mut text = format!("{answer:?}");
    if text.len() > 600 {
        text.truncate(600);
        text.push_str(" …");
    }
    text
}

/// Errors by what a program could tell apart; the texts are the file system's own.
pub(super) const fn class(error: &Error) -> &'static str {
    match error {
        Error::NotFound | Error::Stale(_) => "not found",
        Error::Exists => "exists",
        Error::NotDirectory => "not a directory",
        Error::IsDirectory => "is a directory",
        Error::NotEmpty => "not empty",
        Error::NameTooLong => "name too long",
        Error::InvalidName | Error::Invalid(_) | Error::IntoItself => "invalid",
        Error::NoSpace | Error::NoInodes => FULL,
        Error::TooLarge => "too large",
        Error::TooManyLinks => "too many links",
        Error::PermissionDenied => "permission denied",
        Error::NotPermitted => "not permitted",
        Error::ReadOnly => "read-only",
        Error::Unsupported(_) => "unsupported",
        Error::NoData => "no data",
        Error::BufferTooSmall => "buffer too small",
        Error::XattrTooLarge => "attribute too large",
        Error::Corrupt(_) => "corrupt",
        Error::Busy(_) => "in use",
        Error::Io(_) => "i/o error",
    }
}

fn user(uid: u32) -> Cred {
    let umask = match uid {
        0 => 0,
        1_000 => 0o022,
        _ => 0o077,
    };
    Cred { umask, ..Cred::user(uid, uid) }
}

/// One of a few ACLs, by number: none, what a mode could say, a named user, and no valid list.
fn access_list(number: u8) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        1 => plain(6, 4, 0),
        5 => b"no list".to_vec(),
        other => list(7, (1_000, 6), 4, u16::from(other), 1),
    }
}

fn key(number: u8) -> Vec<u8> {
    format!("user.{}", "k".repeat(1 + 20 * number as usize)).into_bytes()
}

impl Side<'_> {
    fn answer(&mut self, operation: &Operation) -> Answer {
        self.perform(operation).unwrap_or_else(|error| Answer::Failed(class(&error)))
    }

    /// The bytes of the name at `depth` of `path`.
    fn bytes(&self, path: &Path, depth: usize) -> Vec<u8> {
        let mut bytes = if depth == 0 { self.prefix.to_vec() } else { Vec::new() };
        bytes.extend(component(path.0[depth]));
        bytes
    }

    /// Walks the first `depth` names; the reference on the inode found is the caller's unless it is the root.
    fn walk(&self, path: &Path, depth: usize) -> Result<Ino> {
        let mut ino = Ino::ROOT;
        for level in 0..depth {
            let found = self.fs.lookup(ino, Name::new(&self.bytes(path, level))?);
            self.put_back(ino);
            ino = found?.attr.ino;
        }
        Ok(ino)
    }

    fn put_back(&self, ino: Ino) {
        if ino != Ino::ROOT {
            self.fs.forget(ino, 1);
        }
    }

    /// Calls `f` with the directory of the last name and that name.
    fn within<T>(
        &self,
        path: &Path,
        f: impl FnOnce(&dyn FileSystem, Ino, Name<'_>) -> Result<T>,
    ) -> Result<T> {
        let depth = path.0.len().checked_sub(1).ok_or(Error::Invalid("the root has no name"))?;
        let dir = self.walk(path, depth)?;
        let result = Name::new(&self.bytes(path, depth)).and_then(|name| f(self.fs, dir, name));
        self.put_back(dir);
        result
    }

    /// Calls `f` with the inode that `object` stands for.
    fn with<T>(&mut self, object: &Object, f: impl FnOnce(&dyn FileSystem, Ino) -> Result<T>) -> Result<T> {
        match object {
            Object::Handle(number) => {
                let handle =
                    self.handles[usize::from(*number)].ok_or(Error::Invalid("the handle is closed"))?;
                f(self.fs, handle.ino)
            }
            Object::At(path) => {
                let ino = self.walk(path, path.0.len())?;
                let result = f(self.fs, ino);
                self.put_back(ino);
                result
            }
        }
    }

    fn handle(&self, number: u8) -> Result<Handle> {
        self.handles[usize::from(number % HANDLES)].ok_or(Error::Invalid("the handle is closed"))
    }

    /// Makes something and puts its reference back at once.
    fn made(&self, attr: Attr) -> Answer {
        self.fs.forget(attr.ino, 1);
        Answer::Attr(compare::SharedAttr::of(&attr))
    }

    fn close(&mut self, number: u8) {
        if let Some(handle) = self.handles[usize::from(number % HANDLES)].take() {
            self.fs.release(handle.ino);
            self.fs.forget(handle.ino, handle.lookups);
        }
    }

    fn set(&mut self, object: &Object, change: &SetAttr, cred: &Cred) -> Result<Answer> {
        let attr = self.with(object, |fs, ino| fs.setattr(ino, change, cred))?;
        Ok(Answer::Attr(compare::SharedAttr::of(&attr)))
    }

    fn perform(&mut self, operation: &Operation) -> Result<Answer> {
        match operation {
            Operation::Create { path, file_type, mode, rdev, user: uid } => {
                let made = self.within(path, |fs, dir, name| {
                    fs.create(dir, name, *file_type, *mode, *rdev, &user(*uid))
                })?;
                Ok(self.made(made.attr))
            }
            Operation::Mkdir { path, mode, user: uid } => {
                let made = self.within(path, |fs, dir, name| fs.mkdir(dir, name, *mode, &user(*uid)))?;
                Ok(self.made(made.attr))
            }
            Operation::Symlink { path, length, user: uid } => {
                let target = vec![b't'; usize::from(*length)];
                let made = self.within(path, |fs, dir, name| fs.symlink(dir, name, &target, &user(*uid)))?;
                Ok(self.made(made.attr))
            }
            Operation::Readlink { path } => {
                self.with(&Object::At(path.clone()), |fs, ino| fs.readlink(ino)).map(Answer::Bytes)
            }
            Operation::Link { from, to } => self.link(from, to),
            Operation::Unlink { path } => {
                self.within(path, |fs, dir, name| fs.unlink(dir, name)).map(removed)
            }
            Operation::Rmdir { path } => self.within(path, |fs, dir, name| fs.rmdir(dir, name)).map(removed),
            Operation::Rename { from, to, mode } => {
                let renamed = self.within(from, |fs, dir, name| {
                    self.within(to, |_, new_dir, new_name| fs.rename(dir, name, new_dir, new_name, *mode))
                });
                renamed.map(|renamed| Answer::Removed(renamed.target.map(|lost| lost.nlink)))
            }
            Operation::Open { path, handle, keep_lookup, truncate } => {
                self.open(path, *handle, *keep_lookup, *truncate)
            }
            Operation::Close { handle } => {
                self.close(*handle);
                Ok(Answer::Done)
            }
            Operation::Write { object, offset, data, append, direct, user: uid } => {
                let mode = WriteMode { append: *append, direct: *direct, ..WriteMode::default() };
                self.with(object, |fs, ino| {
                    let written = fs.write(ino, *offset, &data.bytes(), mode, &user(*uid))?;
                    Ok(Answer::Bytes(written.to_le_bytes().to_vec()))
                })
            }
            Operation::Read { object, offset, length, direct } => self.with(object, |fs, ino| {
                let mut bytes = vec![0xEE; *length as usize];
                let read = fs.read(ino, *offset, &mut bytes, *direct)?;
                bytes.truncate(read);
                Ok(Answer::Bytes(bytes))
            }),
            Operation::Resize { object, size, user: uid } => {
                self.set(object, &SetAttr { size: Some(*size), ..SetAttr::default() }, &user(*uid))
            }
            Operation::SetMode { object, mode } => {
                self.set(object, &SetAttr { mode: Some(*mode), ..SetAttr::default() }, &Cred::ROOT)
            }
            Operation::SetOwner { object, uid, gid } => {
                self.set(object, &SetAttr { uid: *uid, gid: *gid, ..SetAttr::default() }, &Cred::ROOT)
            }
            Operation::SetTimes { object, atime, mtime } => {
                let at = |time: &Option<i64>| time.map(|ns| SetTime::At(TimeSpec { ns }));
                let change = SetAttr { atime: at(atime), mtime: at(mtime), ..SetAttr::default() };
                self.set(object, &change, &Cred::ROOT)
            }
            Operation::GetAttr { object } => self
                .with(object, |fs, ino| fs.getattr(ino))
                .map(|attr| Answer::Attr(compare::SharedAttr::of(&attr))),
            Operation::List { path, step } => {
                let prefix = if path.0.is_empty() { self.prefix.to_vec() } else { Vec::new() };
                self.with(&Object::At(path.clone()), |fs, ino| {
                    compare::listing(fs, ino, usize::from(*step), &prefix)
                })
                .map(|names| Answer::List(names.into_iter().map(|(name, ..)| name).collect()))
            }
            Operation::Parent { path } => self.with(&Object::At(path.clone()), |fs, ino| {
                // Inode numbers differ; a directory's parent is where the path says, which the walk has
                // shown.
                let parent = fs.parent(ino)?;
                fs.getattr(parent).map(|attr| Answer::Attr(compare::SharedAttr::of(&attr).without_links()))
            }),
            Operation::Seek { object, offset, what } => self
                .with(object, |fs, ino| fs.seek(ino, *offset, *what))
                .map(|found| Answer::Bytes(found.to_le_bytes().to_vec())),
            Operation::Allocate { object, offset, length, what, user: uid } => self
                .with(object, |fs, ino| {
                    fs.allocate(ino, *offset, u64::from(*length), *what, &user(*uid))?;
                    fs.getattr(ino)
                })
                .map(|attr| Answer::Attr(compare::SharedAttr::of(&attr))),
            Operation::SetXattr { object, key: number, length, mode } => {
                let value = Data { seed: *number, length: u32::from(*length) }.bytes();
                self.with(object, |fs, ino| fs.setxattr(ino, &key(*number), &value, *mode))
                    .map(|()| Answer::Done)
            }
            Operation::GetXattr { object, key: number } => {
                self.with(object, |fs, ino| fs.getxattr(ino, &key(*number))).map(Answer::Bytes)
            }
            Operation::ListXattr { object } => {
                let mut names = self.with(object, |fs, ino| fs.listxattr(ino))?;
                names.sort();
                Ok(Answer::List(names))
            }
            Operation::RemoveXattr { object, key: number } => {
                self.with(object, |fs, ino| fs.removexattr(ino, &key(*number))).map(|()| Answer::Done)
            }
            Operation::SetAcl { object, default, number } => {
                let name = if *default { acl::DEFAULT } else { acl::ACCESS };
                self.with(object, |fs, ino| fs.setxattr(ino, name, &access_list(*number), XattrMode::Set))
                    .map(|()| Answer::Done)
            }
            Operation::Tmpfile { directory, handle, mode, user: uid } => {
                let made =
                    self.with(&Object::At(directory.clone()), |fs, dir| fs.tmpfile(dir, *mode, &user(*uid)))?;
                // Only now: what fails for lack of room must change nothing.
                self.close(*handle);
                self.fs.open(made.attr.ino, OpenFlags::default())?;
                self.fs.forget(made.attr.ino, 1);
                self.handles[usize::from(*handle % HANDLES)] =
                    Some(Handle { ino: made.attr.ino, lookups: 0 });
                Ok(Answer::Attr(compare::SharedAttr::of(&made.attr)))
            }
            Operation::Fsync { object, data_only } => {
                self.with(object, |fs, ino| fs.fsync(ino, *data_only)).map(|()| Answer::Done)
            }
            Operation::Sync => self.fs.sync().map(|()| Answer::Done),
            Operation::Remount => Ok(Answer::Done),
        }
    }

    fn link(&mut self, from: &Object, to: &Path) -> Result<Answer> {
        let source = match from {
            Object::Handle(number) => self.handle(*number)?.ino,
            Object::At(path) => self.walk(path, path.0.len())?,
        };
        let linked = self.within(to, |fs, dir, name| fs.link(source, dir, name));
        if matches!(from, Object::At(_)) {
            self.put_back(source);
        }
        Ok(self.made(linked?.attr))
    }

    fn open(&mut self, path: &Path, number: u8, keep_lookup: bool, truncate: bool) -> Result<Answer> {
        self.close(number);
        let ino = self.walk(path, path.0.len())?;
        let opened = self.fs.open(ino, OpenFlags { write: true, truncate, direct: false });
        if opened.is_err() || !keep_lookup {
            self.put_back(ino);
        }
        opened?;
        let lookups = u64::from(keep_lookup && ino != Ino::ROOT);
        self.handles[usize::from(number % HANDLES)] = Some(Handle { ino, lookups });
        Ok(Answer::Done)
    }
}
