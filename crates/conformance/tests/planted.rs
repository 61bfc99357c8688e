//! The suite can fail: each bug planted here is found, and random sequences that find one are shrunk to a few
//! operations.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use amphi_conformance::{check_all, random};
use amphi_model::{Limits, Model};
use amphi_rt::Sim;
use amphi_vfs::{
    AccessTimes, Attr, Cred, DirEntry, DirSink, Entry, Error, FileSystem, FileType, Ino, Name, OpenFlags,
    Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, SetTime, StatFs, TimeSpec, WriteMode,
    XattrMode, may_remove,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A replacing rename removes the target first.
    RenameInTwoSteps,
    /// Appends go to the offset given.
    AppendIgnored,
    /// A listing that is continued misses an entry.
    ListingSkips,
    /// A write that ends within a block loses its last byte if it is longer than one.
    TailLost,
    /// Set-id bits survive writes.
    SetIdKept,
    /// Times are kept in microseconds.
    CoarseTimes,
    /// A directory moved elsewhere keeps its link in the old parent.
    LinkCountWrong,
    /// The last unlink frees the file although it is open.
    OrphansFreed,
    /// Two names of one file are merged by a rename.
    NamesMerged,
    /// The umask counts below a default ACL, too.
    UmaskOverDefaultList,
    /// Reading moves no access time.
    AccessTimeStuck,
    /// A write for which there is no room grows the file all the same.
    FullButGrown,
    /// Others may come between two halves of a write.
    WriteInHalves,
    /// A change of attributes answers with those of a moment later.
    AnswersLate,
}

const ALL: [Bug; 11] = [
    Bug::RenameInTwoSteps,
    Bug::AppendIgnored,
    Bug::ListingSkips,
    Bug::TailLost,
    Bug::SetIdKept,
    Bug::CoarseTimes,
    Bug::LinkCountWrong,
    Bug::OrphansFreed,
    Bug::NamesMerged,
    Bug::UmaskOverDefaultList,
    Bug::AccessTimeStuck,
];

/// The model with one bug.
struct Broken {
    model: Model,
    bug: Bug,
}

fn broken(bug: Bug) -> impl Fn() -> Broken {
    move || {
        let model = Model::new();
        if bug == Bug::AccessTimeStuck {
            model.set_access_times(AccessTimes::Never);
        }
        Broken { model, bug }
    }
}

impl FileSystem for Broken {
    fn promise(&self) -> Promise {
        self.model.promise()
    }
    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.model.lookup(dir, name)
    }
    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.model.parent(dir)
    }
    fn forget(&self, ino: Ino, count: u64) {
        self.model.forget(ino, count);
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let mut attr = self.model.getattr(ino)?;
        if self.bug == Bug::LinkCountWrong && attr.file_type == FileType::Directory && attr.nlink > 3 {
            attr.nlink -= 1;
        }
        Ok(attr)
    }
    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        let mut change = *change;
        if let (Bug::CoarseTimes, Some(SetTime::At(time))) = (self.bug, change.mtime) {
            change.mtime = Some(SetTime::At(TimeSpec { ns: time.ns / 1_000 * 1_000 }));
        }
        if self.bug == Bug::AnswersLate {
            self.model.setattr(ino, &change, cred)?;
            amphi_rt::task::yield_now();
            return self.model.getattr(ino);
        }
        self.model.setattr(ino, &change, cred)
    }
    fn create(
        &self,
        dir: Ino,
        name: Name<'_>,
        file_type: FileType,
        mode: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Entry> {
        let taken = if self.bug == Bug::UmaskOverDefaultList { cred.umask } else { 0 };
        self.model.create(dir, name, file_type, mode & !taken, rdev, cred)
    }
    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.model.mkdir(dir, name, mode, cred)
    }
    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        self.model.symlink(dir, name, target, cred)
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.model.readlink(ino)
    }
    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.model.link(ino, dir, name)
    }
    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let entry = self.model.lookup(dir, name)?;
        self.model.forget(entry.attr.ino, 1);
        let removed = self.model.unlink(dir, name)?;
        if self.bug == Bug::OrphansFreed && entry.attr.nlink == 1 {
            self.model.forget(entry.attr.ino, u64::MAX);
            self.model.release(entry.attr.ino);
        }
        Ok(removed)
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        may_remove(self, dir, name, cred)?;
        self.unlink(dir, name)
    }
    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.model.rmdir(dir, name)
    }

    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        may_remove(self, dir, name, cred)?;
        self.rmdir(dir, name)
    }
    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        if mode == RenameMode::Replace
            && let (Ok(one), Ok(other)) = (self.model.lookup(from, name), self.model.lookup(to, new_name))
        {
            self.model.forget(one.attr.ino, 1);
            self.model.forget(other.attr.ino, 1);
            let same = one.attr.ino == other.attr.ino;
            let files =
                other.attr.file_type != FileType::Directory && one.attr.file_type != FileType::Directory;
            if self.bug == Bug::NamesMerged && same && files && (from, name) != (to, new_name) {
                self.model.unlink(from, name)?;
                return Ok(Renamed { moved: one.attr.ino, target: None });
            }
            if self.bug == Bug::RenameInTwoSteps && files && !same {
                let lost = self.model.unlink(to, new_name)?;
                amphi_rt::task::yield_now();
                let renamed = self.model.rename(from, name, to, new_name, mode)?;
                return Ok(Renamed { target: Some(lost), ..renamed });
            }
        }
        self.model.rename(from, name, to, new_name, mode)
    }
    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        self.model.open(ino, flags)
    }
    fn release(&self, ino: Ino) {
        self.model.release(ino);
    }
    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        self.model.read(ino, offset, into, direct)
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let end = offset.saturating_add(data.len() as u64);
        match self.bug {
            Bug::AppendIgnored => {
                self.model.write(ino, offset, data, WriteMode { append: false, ..mode }, cred)
            }
            Bug::SetIdKept => self.model.write(ino, offset, data, mode, &Cred::ROOT),
            Bug::TailLost if data.len() > 4_096 && !end.is_multiple_of(4_096) => {
                self.model.write(ino, offset, &data[..data.len() - 1], mode, cred).map(|length| length + 1)
            }
            Bug::WriteInHalves => {
                let (first, rest) = data.split_at(data.len() / 2);
                self.model.write(ino, offset, first, mode, cred)?;
                amphi_rt::task::yield_now();
                self.model.write(ino, offset + first.len() as u64, rest, mode, cred)?;
                Ok(data.len())
            }
            Bug::FullButGrown => {
                let written = self.model.write(ino, offset, data, mode, cred);
                if written == Err(Error::NoSpace) {
                    let grown = SetAttr { size: Some(end), ..SetAttr::default() };
                    self.model.setattr(ino, &grown, cred)?;
                }
                written
            }
            _ => self.model.write(ino, offset, data, mode, cred),
        }
    }
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.model.fsync(ino, data_only)
    }
    fn sync(&self) -> Result<()> {
        self.model.sync()
    }
    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let mut skip = self.bug == Bug::ListingSkips && cookie > 3;
        self.model.readdir(dir, cookie, &mut |entry: DirEntry<'_>| std::mem::take(&mut skip) || sink(entry))
    }
    fn statfs(&self) -> Result<StatFs> {
        self.model.statfs()
    }
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.model.seek(ino, offset, what)
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.model.getxattr(ino, name)
    }
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.model.setxattr(ino, name, value, mode)
    }
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.model.listxattr(ino)
    }
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.model.removexattr(ino, name)
    }
}

/// The message with which `f` fails, if it does.
fn failure(f: impl FnOnce()) -> Option<String> {
    let cause = catch_unwind(AssertUnwindSafe(f)).err()?;
    Some(*cause.downcast::<String>().expect("the suite panics with a text"))
}

#[test]
fn without_a_bug_nothing_fails() {
    check_all(broken(Bug::None));
    random::run(broken(Bug::None), 3, 3_000);
}

#[test]
fn the_cases_find_every_bug() {
    for bug in ALL {
        let message = failure(|| check_all(broken(bug)));
        let message = message.unwrap_or_else(|| panic!("{bug:?} was not found"));
        println!("{bug:?}: {}", message.lines().nth(1).unwrap_or_default());
    }
}

#[test]
fn random_operations_find_every_bug_that_one_task_can_see() {
    for bug in ALL {
        let message = (0..10).find_map(|seed| failure(|| random::run(broken(bug), seed, 3_000)));
        if bug == Bug::RenameInTwoSteps {
            assert_eq!(message, None, "one task cannot see {bug:?}");
            continue;
        }
        let message = message.unwrap_or_else(|| panic!("{bug:?} was not found"));
        let operations = message.lines().count() - 1;
        println!("{bug:?}: {message}");
        assert!(message.starts_with("seed ") && operations <= 12, "shrunk to {operations} operations only");
    }
}

#[test]
fn calls_at_the_same_time_find_what_one_task_cannot_see() {
    let wrong = |bug, seed| {
        let fs: Arc<dyn FileSystem> = Arc::new(broken(bug)());
        Sim::new(seed).run(move || random::linearizable(&fs, seed, 4, false).err())
    };
    for bug in [Bug::RenameInTwoSteps, Bug::WriteInHalves, Bug::AnswersLate] {
        let what = (0..200).find_map(|seed| wrong(bug, seed));
        println!("{bug:?}: {}", what.unwrap_or_else(|| panic!("{bug:?} was not found")));
    }
    for seed in 0..50 {
        assert_eq!(wrong(Bug::None, seed), None);
    }
}

#[test]
fn what_a_remount_loses_is_found() {
    let remount = |fs: Broken| {
        fs.model.drop_references();
        // Forgets the mode of the root: what an attribute that never reached the device looks like.
        fs.model
            .setattr(Ino::ROOT, &SetAttr { mode: Some(0o700), ..SetAttr::default() }, &Cred::ROOT)
            .unwrap();
        fs
    };
    let message = failure(|| random::run_with_remounts(broken(Bug::None), remount, 1, 500, 50));
    let message = message.expect("a lost attribute");
    assert!(message.contains("after remounting") && message.contains("shrunk to 1:"), "{message}");
}

#[test]
fn what_a_full_file_system_does_by_halves_is_found() {
    let full = || {
        let limits = Limits { pages: 6, ..Limits::default() };
        Broken { model: Model::with_limits(limits), bug: Bug::FullButGrown }
    };
    let message = (0..5).find_map(|seed| failure(|| random::run(full, seed, 3_000)));
    let message = message.expect("a file that grew");
    assert!(message.lines().count() <= 20, "{message}");
}
