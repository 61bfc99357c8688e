//! Recording what programs do to a file system as a trace: a file system around another that writes down each
//! operation as one line.
//!
//! Operations are known by inode, traces by path: the recorder knows every name, because all begin with it,
//! or were there when it began and are then the trace's first lines. What a trace does not have is not
//! recorded: contents (those of a replay tell who wrote them), who did it, permissions at creation, names and
//! values of extended attributes. Operations that overlap are recorded in the order in which they returned.

use std::ops::Range;
use std::sync::Arc;

use amphi_rt::sync::Mutex;
use amphi_vfs::{
    AccessTimes, Allocate, Attr, Cred, DirSink, Entry, FileSystem, FileType, Ino, Name, OpenFlags,
    PinnedRange, Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, StatFs, WriteMode, XattrMode,
};

use crate::file::BEGUN;
use crate::operation::{How, Operation, Place};
pub use crate::scribe::Sink;
use crate::scribe::{Names, Scribe, plain};

/// A file system of whose operations a trace is made.
pub struct Recording<F> {
    fs: Arc<F>,
    scribe: Mutex<Scribe>,
}

impl<F: FileSystem> Recording<F> {
    /// Records what is done to `fs` from now on. What is in it becomes the beginning of the trace.
    ///
    /// # Errors
    /// The file system's, if it cannot be listed.
    pub fn begin(fs: Arc<F>, mut sink: Sink) -> Result<Self> {
        sink(
            "# operations recorded on a mount; crash them with: amphi crash run --workload trace --trace FILE; replay them with: amphi bench run trace --trace FILE",
        );
        let mut scribe = Scribe { names: Names::default(), sink };
        let mut dirs = vec![Ino::ROOT];
        while let Some(dir) = dirs.pop() {
            let mut names = Vec::new();
            fs.readdir(dir, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                true
            })?;
            for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
                let Entry { attr, .. } = fs.lookup(dir, Name::new(&name)?)?;
                if attr.file_type == FileType::Directory {
                    dirs.push(attr.ino);
                }
                let target =
                    if attr.file_type == FileType::Symlink { fs.readlink(attr.ino)? } else { Vec::new() };
                let earlier = scribe.path(attr.ino);
                scribe.named(dir, &name, attr.ino, |path| match (earlier, attr.file_type) {
                    (Some(earlier), _) => Operation::Link(earlier, path),
                    (None, file_type) => made(file_type, path, &target),
                });
                if attr.file_type == FileType::Regular && attr.size > 0 {
                    let len = u32::try_from(attr.size).unwrap_or(u32::MAX);
                    scribe.on(attr.ino, |path| Operation::Write(path, How::Buffered, Place::At(0), len));
                }
                fs.forget(attr.ino, 1);
            }
        }
        if !scribe.names.is_empty() {
            scribe.note(&Operation::Sync);
            (scribe.sink)(BEGUN);
        }
        Ok(Self { fs, scribe: Mutex::new(scribe) })
    }

    fn noted<T>(&self, outcome: Result<T>, note: impl FnOnce(&mut Scribe, &T)) -> Result<T> {
        if let Ok(answer) = &outcome {
            note(&mut self.scribe.lock(), answer);
        }
        outcome
    }
}

/// The operation that makes a file of a type.
fn made(file_type: FileType, path: String, target: &[u8]) -> Operation {
    match file_type {
        FileType::Regular => Operation::Create(path),
        FileType::Directory => Operation::Mkdir(path),
        FileType::Symlink => Operation::Symlink(plain(target), path),
        _ => Operation::Mknod(path),
    }
}

impl<F: FileSystem> FileSystem for Recording<F> {
    fn promise(&self) -> Promise {
        self.fs.promise()
    }

    fn access_times(&self) -> AccessTimes {
        self.fs.access_times()
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.fs.lookup(dir, name)
    }

    fn reference(&self, ino: Ino) -> Result<Entry> {
        self.fs.reference(ino)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.fs.parent(dir)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.fs.forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.fs.getattr(ino)
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        self.noted(self.fs.setattr(ino, change, cred), |scribe, attr| {
            if let Some(size) = change.size {
                scribe.on(ino, |path| Operation::Truncate(path, size));
            }
            if let Some(mode) = change.mode {
                scribe.on(ino, |path| Operation::Chmod(path, mode));
            }
            if change.uid.is_some() || change.gid.is_some() {
                scribe.on(ino, |path| Operation::Chown(path, attr.uid, attr.gid));
            }
            // Cutting a file sets its times by itself.
            if change.size.is_none() && (change.atime.is_some() || change.mtime.is_some()) {
                scribe.on(ino, |path| Operation::Utimens(path, attr.mtime.ns));
            }
        })
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
        self.noted(self.fs.create(dir, name, file_type, mode, rdev, cred), |scribe, entry| {
            scribe.named(dir, name.bytes(), entry.attr.ino, |path| made(file_type, path, &[]));
        })
    }

    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        self.fs.tmpfile(dir, mode, cred)
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.noted(self.fs.mkdir(dir, name, mode, cred), |scribe, entry| {
            scribe.named(dir, name.bytes(), entry.attr.ino, Operation::Mkdir);
        })
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        self.noted(self.fs.symlink(dir, name, target, cred), |scribe, entry| {
            let make = |path| made(FileType::Symlink, path, target);
            scribe.named(dir, name.bytes(), entry.attr.ino, make);
        })
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.fs.readlink(ino)
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.noted(self.fs.link(ino, dir, name), |scribe, _| {
            let earlier = scribe.path(ino);
            scribe.named(dir, name.bytes(), ino, |path| match earlier {
                Some(earlier) => Operation::Link(earlier, path),
                // It was made without a name.
                None => Operation::Tmpfile(path),
            });
        })
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.noted(self.fs.unlink(dir, name), |scribe, _| {
            scribe.unnamed(dir, name.bytes(), Operation::Unlink);
        })
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.noted(self.fs.unlink_as(dir, name, cred), |scribe, _| {
            scribe.unnamed(dir, name.bytes(), Operation::Unlink);
        })
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.noted(self.fs.rmdir(dir, name), |scribe, _| {
            scribe.unnamed(dir, name.bytes(), Operation::Rmdir);
        })
    }

    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.noted(self.fs.rmdir_as(dir, name, cred), |scribe, _| {
            scribe.unnamed(dir, name.bytes(), Operation::Rmdir);
        })
    }

    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        self.noted(self.fs.rename(from, name, to, new_name, mode), |scribe, _| {
            let (old, new) = ((from, name.bytes().to_vec()), (to, new_name.bytes().to_vec()));
            let paths = scribe.path_in(from, &old.1).zip(scribe.path_in(to, &new.1));
            let (moved, replaced) = (scribe.names.get(&old), scribe.names.get(&new));
            let Some(((old_path, new_path), moved)) = paths.zip(moved) else { return };
            if mode == RenameMode::Exchange {
                scribe.note(&Operation::Exchange(old_path, new_path));
                if let Some(replaced) = replaced {
                    scribe.names.insert(old, replaced);
                }
                scribe.names.insert(new, moved);
                return;
            }
            scribe.note(&Operation::Rename(old_path, new_path));
            // Two names of one file stay as they are.
            if replaced != Some(moved) {
                scribe.names.remove(&old);
                scribe.names.insert(new, moved);
            }
        })
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        self.noted(self.fs.open(ino, flags), |scribe, ()| {
            if flags.truncate {
                scribe.on(ino, |path| Operation::Truncate(path, 0));
            }
        })
    }

    fn release(&self, ino: Ino) {
        self.fs.release(ino);
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        self.fs.read(ino, offset, into, direct)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        self.noted(self.fs.write(ino, offset, data, mode, cred), |scribe, written| {
            let how = if mode.direct { How::Direct } else { How::Buffered };
            let place = if mode.append { Place::End } else { Place::At(offset) };
            scribe.on(ino, |path| Operation::Write(path, how, place, *written as u32));
            if mode.sync_data || mode.sync_metadata {
                scribe.on(ino, |path| Operation::Fsync(path, !mode.sync_metadata));
            }
        })
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.noted(self.fs.fsync(ino, data_only), |scribe, ()| {
            scribe.on(ino, |path| Operation::Fsync(path, data_only));
        })
    }

    fn sync(&self) -> Result<()> {
        self.noted(self.fs.sync(), |scribe, ()| scribe.note(&Operation::Sync))
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.fs.readdir(dir, cookie, sink)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.fs.seek(ino, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        self.noted(self.fs.allocate(ino, offset, length, what, cred), |scribe, ()| {
            let len = u32::try_from(length).unwrap_or(u32::MAX);
            scribe.on(ino, |path| Operation::Allocate(path, what, Place::At(offset), len));
        })
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        self.noted(self.fs.discard_free(range, shortest), |scribe, _| scribe.note(&Operation::Discard))
    }

    fn pin_range(&self, ino: Ino, offset: u64, length: u64, cred: &Cred) -> Result<()> {
        self.fs.pin_range(ino, offset, length, cred)
    }

    fn unpin_range(&self, ino: Ino, offset: u64, length: u64, cred: &Cred) -> Result<()> {
        self.fs.unpin_range(ino, offset, length, cred)
    }

    fn pinned_ranges(&self) -> Result<Vec<PinnedRange>> {
        self.fs.pinned_ranges()
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.noted(self.fs.setxattr(ino, name, value, mode), |scribe, ()| {
            scribe.on(ino, |path| Operation::SetXattr(path, value.len() as u32));
        })
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.fs.listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.noted(self.fs.removexattr(ino, name), |scribe, ()| scribe.on(ino, Operation::RemoveXattr))
    }
}

#[cfg(test)]
mod tests {
    use amphi_model::Model;

    use super::*;

    fn recorded(fs: &Model, work: &[&str]) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let sink: Sink = Box::new(move |line| kept.lock().push(line.to_owned()));
        let recording = Recording::begin(Arc::new(fs.clone()), sink).expect("it can be listed");
        for (number, line) in (0..).zip(work) {
            let operation: Operation = line.parse().expect("an operation");
            operation.apply(&recording, number).expect("it can be done");
        }
        let lines = lines.lock();
        lines.iter().filter(|line| !line.starts_with('#')).cloned().collect()
    }

    /// The names, types, sizes and links that operations leave.
    fn shape(lines: &[String]) -> Vec<String> {
        let fs = Model::new();
        for (number, line) in (0..).zip(lines) {
            let operation: Operation = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            operation.apply(&fs, number).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let mut lines = Vec::new();
        shape_below(&fs, Ino::ROOT, "", &mut lines);
        lines
    }

    fn shape_below(fs: &Model, dir: Ino, prefix: &str, into: &mut Vec<String>) {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .expect("it can be listed");
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            let attr = fs.lookup(dir, Name::new(&name).expect("a name")).expect("it is there").attr;
            let path = format!("{prefix}{}", plain(&name));
            into.push(format!("{path} {:?} {} {} {:o}", attr.file_type, attr.nlink, attr.size, attr.mode));
            if attr.file_type == FileType::Directory {
                shape_below(fs, attr.ino, &format!("{path}/"), into);
            }
            fs.forget(attr.ino, 1);
        }
    }

    const WORK: [&str; 22] = [
        "create a",
        "write a 0 100",
        "fsync a",
        "mkdir d",
        "mkdir d/e",
        "rename a d/e/b",
        "write d/e/b 100 50",
        "rename d f",
        "write f/e/b 0 10",
        "link f/e/b c",
        "unlink f/e/b",
        "truncate c 40",
        "symlink c s",
        "create x",
        "exchange x c",
        "fallocate x keep 0 5000",
        "setxattr x 30",
        "chmod c 600",
        "fdatasync x",
        "rmdir f/e",
        "utimens c 5",
        "sync",
    ];

    #[test]
    fn a_trace_does_again_what_was_done() {
        let lines = recorded(&Model::new(), &WORK);
        assert_eq!(lines, WORK, "names are followed wherever they go");
    }

    #[test]
    fn what_was_there_before_is_the_beginning() {
        let fs = Model::new();
        recorded(&fs, &[]);
        for (number, line) in
            (0..).zip(["mkdir d", "create d/a", "write d/a 0 70", "link d/a b", "symlink q d/s"])
        {
            line.parse::<Operation>()
                .and_then(|operation| operation.apply(&fs, number))
                .expect("it can be done");
        }
        let lines = recorded(&fs, &["unlink b", "tmpfile d/t", "write d/a 70 30"]);
        assert_eq!(
            lines[lines.len() - 3..],
            ["unlink b", "tmpfile d/t", "write d/a 70 30"].map(str::to_owned)
        );
        let shape = shape(&lines);
        assert!(shape.contains(&"d/a Regular 1 100 644".to_owned()), "{shape:?}");
        assert_eq!(shape.len(), 4, "d, d/a, d/s, d/t: {shape:?}");
    }

    #[test]
    fn what_took_the_place_of_a_file_is_followed_from_there() {
        let work = [
            "create a",
            "create b",
            "link a c",
            "rename b a",
            "write a 0 7",
            "write c 0 9",
            "unlink c",
            "create c",
            "exchange a c",
            "write c 7 1",
        ];
        assert_eq!(recorded(&Model::new(), &work), work);
    }

    #[test]
    fn names_that_a_trace_cannot_have_are_spelt() {
        assert_eq!(plain("a b\u{e9}".as_bytes()), "a%20b%c3%a9");
    }
}
