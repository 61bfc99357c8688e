//! [`Files`] over system calls, below a directory: a file system of the kernel's, or ours through FUSE.

use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use amphi_rt::sync::RwLock;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::ReadWriteFlags;

use super::{Creation, Error, Files, Handle, OpenMode, Result, Status};

/// The files below a directory of a mounted file system.
///
/// Data is written at a page's boundary or anywhere, read into any buffer: direct I/O needs what the file
/// system asks of it.
#[derive(Debug)]
pub struct SyscallFiles {
    root: OwnedFd,
    open: RwLock<Slots>,
}

/// Open files by their handles' numbers.
#[derive(Debug, Default)]
struct Slots {
    files: Vec<Option<Arc<File>>>,
    free: Vec<usize>,
}

const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// `O_DSYNC`, as all architectures but the oldest have it. rustix, where it calls the kernel itself, gives
/// the flags of `O_SYNC` that name, with which each write waits for its time stamps to be committed too.
const DSYNC: OFlags = OFlags::from_bits_retain(0o10_000);

/// What `statfs` says of a FUSE mount.
const FUSE: i64 = 0x6573_5546;

impl SyscallFiles {
    /// The files below `directory`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(directory: &Path) -> std::io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, directory, flags, Mode::empty())?;
        Ok(Self { root, open: RwLock::new(Slots::default()) })
    }

    fn get(&self, file: Handle) -> Result<Arc<File>> {
        let open = self.open.read();
        let slot = usize::try_from(file.id).ok().and_then(|id| open.files.get(id)?.clone());
        slot.ok_or(Error::Invalid("the file is not open"))
    }

    fn directory(&self, path: &str) -> Result<OwnedFd> {
        openat(&self.root, name(path), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(error)
    }

    /// Syncs everything below a directory, file by file.
    fn sync_below(&self, path: &str) -> Result<()> {
        let directory = self.directory(path)?;
        for entry in Dir::read_from(&directory).map_err(error)? {
            let entry = entry.map_err(error)?;
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let below = if path.is_empty() { file_name.clone() } else { format!("{path}/{file_name}") };
            match entry.file_type() {
                FileType::Directory if !matches!(file_name.as_str(), "." | "..") => {
                    self.sync_below(&below)?
                }
                FileType::RegularFile => {
                    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                    let file = openat(&self.root, below.as_str(), flags, Mode::empty()).map_err(error)?;
                    rustix::fs::fsync(&file).map_err(error)?;
                }
                _ => {}
            }
        }
        rustix::fs::fsync(&directory).map_err(error)
    }
}

/// A path as system calls take it: the root is not an empty name.
const fn name(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

/// What a workload can tell apart; the rest keeps its words.
fn error(error: impl Into<std::io::Error>) -> Error {
    let error = error.into();
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound,
        ErrorKind::AlreadyExists => Error::Exists,
        ErrorKind::NotADirectory => Error::NotDirectory,
        ErrorKind::IsADirectory => Error::IsDirectory,
        ErrorKind::DirectoryNotEmpty => Error::NotEmpty,
        ErrorKind::StorageFull => Error::NoSpace,
        ErrorKind::PermissionDenied => Error::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem => Error::ReadOnly,
        _ => Error::Io(amphi_vfs::Failure::Refused(error.to_string())),
    }
}

impl Files for SyscallFiles {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Handle> {
        let mut flags = OFlags::CLOEXEC | if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags |= match mode.create {
            Creation::Never => OFlags::empty(),
            Creation::IfMissing => OFlags::CREATE,
            Creation::New => OFlags::CREATE | OFlags::EXCL,
        };
        for (is_wanted, flag) in
            [(mode.truncate, OFlags::TRUNC), (mode.direct, OFlags::DIRECT), (mode.sync_data, DSYNC)]
        {
            flags.set(flag, is_wanted);
        }
        let file = File::from(openat(&self.root, path, flags, FILE_MODE).map_err(error)?);
        let open = Arc::new(file);
        let mut slots = self.open.write();
        let id = slots.free.pop().unwrap_or_else(|| {
            slots.files.push(None);
            slots.files.len() - 1
        });
        slots.files[id] = Some(open);
        Ok(Handle { id: id as u64, mode })
    }

    fn close(&self, file: Handle) -> Result<()> {
        let closed = {
            let mut slots = self.open.write();
            let id = usize::try_from(file.id).unwrap_or(usize::MAX);
            let closed = slots.files.get_mut(id).and_then(Option::take);
            if closed.is_some() {
                slots.free.push(id);
            }
            closed
        };
        // The descriptors are closed here, outside the lock.
        closed.map(drop).ok_or(Error::Invalid("the file is not open"))
    }

    fn size(&self, file: Handle) -> Result<u64> {
        Ok(self.get(file)?.metadata().map_err(error)?.len())
    }

    fn read(&self, file: Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        let open = self.get(file)?;
        let mut done = 0;
        while done < into.len() {
            match open.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(failure) if failure.kind() == ErrorKind::Interrupted => {}
                Err(failure) => return Err(error(failure)),
            }
        }
        Ok(done)
    }

    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> Result<()> {
        self.get(file)?.write_all_at(data, offset).map_err(error)
    }

    fn append(&self, file: Handle, data: &[u8]) -> Result<()> {
        let open = self.get(file)?;
        let mut rest = data;
        while !rest.is_empty() {
            let part = [IoSlice::new(rest)];
            match rustix::io::pwritev2(&*open, &part, 0, ReadWriteFlags::APPEND) {
                Ok(written) => rest = &rest[written..],
                Err(failure) if std::io::Error::from(failure).kind() == ErrorKind::Interrupted => {}
                Err(failure) => return Err(error(failure)),
            }
        }
        Ok(())
    }

    fn set_size(&self, file: Handle, size: u64) -> Result<()> {
        self.get(file)?.set_len(size).map_err(error)
    }

    fn fsync(&self, file: Handle, data_only: bool) -> Result<()> {
        let open = self.get(file)?;
        let synced = if data_only { open.sync_data() } else { open.sync_all() };
        synced.map_err(error)
    }

    fn sync_directory(&self, path: &str) -> Result<()> {
        rustix::fs::fsync(self.directory(path)?).map_err(error)
    }

    /// `syncfs`. The kernel keeps that from a server of FUSE, so there every file is synced.
    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.root).map_err(error)?;
        match rustix::fs::fstatfs(&self.root) {
            Ok(found) if found.f_type == FUSE => self.sync_below(""),
            _ => Ok(()),
        }
    }

    fn unlink(&self, path: &str) -> Result<()> {
        unlinkat(&self.root, path, AtFlags::empty()).map_err(error)
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        mkdirat(&self.root, path, DIRECTORY_MODE).map_err(error)
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        unlinkat(&self.root, path, AtFlags::REMOVEDIR).map_err(error)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        renameat(&self.root, from, &self.root, to).map_err(error)
    }

    fn stat(&self, path: &str) -> Result<Status> {
        let found = statat(&self.root, name(path), AtFlags::SYMLINK_NOFOLLOW).map_err(error)?;
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        Ok(Status { size: u64::try_from(found.st_size).unwrap_or(0), is_directory })
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()> {
        for entry in Dir::read_from(self.directory(path)?).map_err(error)? {
            let entry = entry.map_err(error)?;
            let file_name = entry.file_name().to_string_lossy();
            if !matches!(&*file_name, "." | "..") {
                each(&file_name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, SyscallFiles) {
        let directory = tempfile::tempdir().expect("a directory");
        let files = SyscallFiles::new(directory.path()).expect("it opens");
        (directory, files)
    }

    #[test]
    fn a_file_is_made_written_read_moved_and_removed() {
        let (_directory, files) = files();
        files.mkdir("a").unwrap();
        let file = files.open("a/f", OpenMode::NEW).unwrap();
        files.write(file, 0, b"hello").unwrap();
        files.append(file, b", world").unwrap();
        files.write(file, 0, b"J").unwrap();
        let mut buffer = [0; 32];
        assert_eq!(files.read(file, 0, &mut buffer).unwrap(), 12);
        assert_eq!(&buffer[..12], b"Jello, world");
        assert_eq!(files.size(file).unwrap(), 12);
        files.set_size(file, 3).unwrap();
        files.append(file, b"!").unwrap();
        assert_eq!(files.stat("a/f").unwrap(), Status { size: 4, is_directory: false });
        files.fsync(file, true).unwrap();
        files.sync_directory("a").unwrap();
        files.sync().unwrap();
        files.sync_below("").unwrap();
        assert_eq!(files.open("a/f", OpenMode::NEW), Err(Error::Exists));
        files.close(file).unwrap();
        assert!(files.close(file).is_err() && files.read(file, 0, &mut buffer).is_err(), "it is closed");
        files.rename("a/f", "g").unwrap();
        let mut names = Vec::new();
        files.list("", &mut |name| names.push(name.to_owned())).unwrap();
        names.sort();
        assert_eq!(names, ["a", "g"]);
        assert_eq!(files.rmdir("g"), Err(Error::NotDirectory));
        files.unlink("g").unwrap();
        files.rmdir("a").unwrap();
        assert_eq!(files.stat("a"), Err(Error::NotFound));
        assert!(files.stat("").unwrap().is_directory);
    }

    /// `O_DSYNC` and not `O_SYNC`: the attributes are not asked for.
    #[test]
    fn what_is_opened_to_have_its_data_durable_has_no_more_than_that() {
        let (_directory, files) = files();
        let open = files.open("f", OpenMode { sync_data: true, ..OpenMode::NEW }).unwrap();
        let flags = rustix::fs::fcntl_getfl(files.get(open).unwrap()).unwrap();
        assert_eq!(flags.bits() & OFlags::SYNC.bits(), DSYNC.bits(), "{flags:?}");
        files.write(open, 0, b"durable").unwrap();
    }

    /// A handle's number is used again only when it is closed.
    #[test]
    fn open_files_do_not_mix() {
        let (_directory, files) = files();
        let handles: Vec<_> =
            (0..8).map(|number| files.open(&format!("{number}"), OpenMode::NEW).unwrap()).collect();
        files.close(handles[3]).unwrap();
        let again = files.open("again", OpenMode::NEW).unwrap();
        for (number, file) in handles.iter().enumerate().filter(|(number, _)| *number != 3) {
            files.write(*file, 0, &[number as u8; 4]).unwrap();
        }
        files.write(again, 0, b"new").unwrap();
        assert_eq!(files.stat("3").unwrap().size, 0);
        assert_eq!((files.stat("again").unwrap().size, files.stat("7").unwrap().size), (3, 4));
    }
}
