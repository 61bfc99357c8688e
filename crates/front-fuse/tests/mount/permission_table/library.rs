//! The table's operations through `vfs::Checked`, without any kernel.

use std::sync::Arc;

use amphi_model::Model;
use amphi_vfs::acl::{ACCESS, DEFAULT};
use amphi_vfs::permission::{EXECUTE, Protected};
use amphi_vfs::{
    Checked, Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, Result, SetAttr, SetTime,
    TimeSpec, WriteMode, XattrMode,
};
use rustix::io::Errno;

use super::cases::{Caller, GROUP, List, OTHER, OWNER, Operation, Subject, attribute_value, new_list};
use super::{Outcome, Target};

/// A file system whose callers are checked.
pub struct InLibrary {
    fs: Checked<Model>,
    /// The directory outside, the one around the subject, and the subject.
    outside: Ino,
    table: Ino,
    subject: Ino,
    /// Counts the subjects made: each tree starts in directories of its own.
    made: u32,
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotDirectory => Errno::NOTDIR,
        Error::IsDirectory => Errno::ISDIR,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::Invalid(_) => Errno::INVAL,
        Error::PermissionDenied => Errno::ACCESS,
        Error::NotPermitted => Errno::PERM,
        Error::NoData => Errno::NODATA,
        Error::Unsupported(_) => Errno::OPNOTSUPP,
        other => panic!("an error that the table does not know: {other}"),
    }
}

impl InLibrary {
    pub fn on(model: Arc<Model>, protected_hardlinks: bool) -> Self {
        let fs = Checked::new(model)
            .with_protected(Protected { hardlinks: protected_hardlinks, ..Protected::default() });
        Self { fs, outside: Ino::ROOT, table: Ino::ROOT, subject: Ino::ROOT, made: 0 }
    }

    fn own(&self, ino: Ino, uid: u32, gid: u32, mode: u16) {
        let owner = SetAttr { uid: Some(uid), gid: Some(gid), mode: Some(mode), ..SetAttr::default() };
        self.fs.inner().setattr(ino, &owner, &Cred::ROOT).unwrap();
    }

    fn file(&self, dir: Ino, text: &str, contents: &[u8]) -> Ino {
        let fs = self.fs.inner();
        let made = fs.create(dir, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT).unwrap().attr.ino;
        fs.write(made, 0, contents, WriteMode::default(), &Cred::ROOT).unwrap();
        made
    }

    fn find(&self, dir: Ino, text: &str) -> Option<Ino> {
        let found = self.fs.inner().lookup(dir, name(text)).ok()?.attr.ino;
        self.fs.inner().forget(found, 1);
        Some(found)
    }

    fn describe(&self, ino: Option<Ino>) -> String {
        let fs = self.fs.inner();
        let Some(attr) = ino.and_then(|ino| fs.getattr(ino).ok()) else { return "gone".to_owned() };
        let list =
            |name| fs.getxattr(attr.ino, name).map_or_else(|_| "-".to_owned(), |value| format!("{value:?}"));
        let size = if attr.file_type == FileType::Directory { 0 } else { attr.size };
        let (access, default) = (list(ACCESS), list(DEFAULT));
        format!("{:o} {}:{} {size} {access} {default}", attr.mode, attr.uid, attr.gid)
    }

    fn call(&self, operation: Operation, cred: &Cred) -> Result<()> {
        use Operation as O;
        let (fs, subject, outside) = (&self.fs, self.subject, self.outside);
        let new = name("new");
        let open = |read, write, truncate| {
            let flags = OpenFlags { write, truncate, ..OpenFlags::default() };
            fs.open(subject, read, flags, cred).inspect(|()| fs.inner().release(subject))
        };
        let change = |change: SetAttr| fs.setattr(subject, &change, cred).map(drop);
        let rename =
            |from, one, to, other, mode| fs.rename(from, name(one), to, name(other), mode, cred).map(drop);
        let replace = RenameMode::Replace;
        let make = |file_type, mode| fs.create(subject, new, file_type, mode, 259, cred).map(drop);
        match operation {
            O::OpenToRead => open(true, false, false),
            O::OpenToWrite => open(false, true, false),
            O::OpenToTruncate => open(false, true, true),
            O::Write => {
                open(false, true, false)?;
                fs.inner().write(subject, 0, b"x", WriteMode::default(), cred).map(drop)
            }
            O::AccessExecute => fs.access(subject, EXECUTE, cred),
            O::Chmod(mode) => change(SetAttr { mode: Some(mode), ..SetAttr::default() }),
            O::Chown(uid, gid) => change(SetAttr { uid, gid, ..SetAttr::default() }),
            O::TouchNow | O::SetTimes => {
                let at = SetTime::At(TimeSpec { ns: 5_000_000_005 });
                let time = Some(if operation == O::TouchNow { SetTime::Now } else { at });
                change(SetAttr { atime: time, mtime: time, ..SetAttr::default() })
            }
            O::GetAttribute(name) => fs.getxattr(subject, name.as_bytes(), cred).map(drop),
            O::SetAttribute(name) => {
                fs.setxattr(subject, name.as_bytes(), &attribute_value(name), XattrMode::Set, cred)
            }
            O::RemoveAttribute(name) => fs.removexattr(subject, name.as_bytes(), cred),
            O::SetList => fs.setxattr(subject, ACCESS, &new_list(), XattrMode::Set, cred),
            O::RemoveList => fs.removexattr(subject, ACCESS, cred),
            O::SetDefaultList => fs.setxattr(subject, DEFAULT, &new_list(), XattrMode::Set, cred),
            O::GetDefaultList => match fs.getxattr(subject, DEFAULT, cred) {
                Err(Error::NoData) => Ok(()),
                got => got.map(drop),
            },
            O::LinkElsewhere => fs.link(subject, outside, new, cred).map(drop),
            O::List => fs.readdir(subject, 0, &mut |_| true, cred),
            O::Search => fs.lookup(subject, name("theirs"), cred).map(drop),
            O::Create(mode) => make(FileType::Regular, mode),
            O::Mkdir(mode) => fs.mkdir(subject, new, mode, cred).map(drop),
            O::Symlink => fs.symlink(subject, new, b"target", cred).map(drop),
            O::MakeFifo => make(FileType::Fifo, 0o666),
            O::MakeDevice => make(FileType::CharDevice, 0o600),
            O::UnlinkTheirs => fs.unlink(subject, name("theirs"), cred).map(drop),
            O::UnlinkOwners => fs.unlink(subject, name("owners"), cred).map(drop),
            O::RmdirTheirs => fs.rmdir(subject, name("sub"), cred).map(drop),
            O::RenameTheirs => rename(subject, "theirs", subject, "new", replace),
            O::ReplaceOwnersByTheirs => rename(subject, "theirs", subject, "owners", replace),
            O::MoveTheirsOut => rename(subject, "theirs", outside, "new", replace),
            O::MoveDirectoryOut => rename(subject, "sub", outside, "new", replace),
            O::MoveIn => rename(outside, "file", subject, "new", replace),
            O::ExchangeWithOutside => rename(subject, "sub", outside, "file", RenameMode::Exchange),
            O::LinkIn => {
                let file = self.find(outside, "file").ok_or(Error::NotFound)?;
                fs.link(file, subject, new, cred).map(drop)
            }
        }
    }
}

impl Target for InLibrary {
    fn prepare(&mut self, subject: &Subject) {
        let fs = self.fs.inner();
        self.made += 1;
        let mkdir = |dir, text: &str| fs.mkdir(dir, name(text), 0o777, &Cred::ROOT).unwrap().attr.ino;
        self.table = mkdir(Ino::ROOT, &format!("table-{}", self.made));
        self.outside = mkdir(Ino::ROOT, &format!("outside-{}", self.made));
        self.own(self.file(self.outside, "file", b"outside"), OTHER, OTHER, 0o644);
        self.subject = if subject.directory {
            let made = mkdir(self.table, "subject");
            self.own(self.file(made, "theirs", b"theirs"), OTHER, OTHER, 0o600);
            self.own(self.file(made, "owners", b"owner's"), OWNER, OWNER, 0o600);
            self.own(mkdir(made, "sub"), OTHER, OTHER, 0o755);
            made
        } else {
            self.file(self.table, "subject", b"contents")
        };
        self.own(self.subject, OWNER, GROUP, subject.mode);
        let set = |name, value: &[u8]| fs.setxattr(self.subject, name, value, XattrMode::Set).unwrap();
        set(b"user.here", b"value");
        set(b"trusted.here", b"value");
        if let Some(value) = subject.list.value(subject.mode) {
            set(ACCESS, &value);
        }
        if subject.inherits {
            set(DEFAULT, &List::Grants.value(0o775).unwrap());
        }
    }

    fn perform(&mut self, _subject: &Subject, caller: &Caller, operation: Operation) -> Outcome {
        self.call(operation, &caller.cred).map_err(|error| errno(&error).raw_os_error())?;
        let places = [
            Some(self.subject),
            self.find(self.subject, "new"),
            self.find(self.outside, "new"),
            self.find(self.outside, "file"),
        ];
        Ok(places.map(|place| self.describe(place)).join("; "))
    }
}
