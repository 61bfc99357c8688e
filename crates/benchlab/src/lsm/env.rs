//! The store's file layer over [`Files`]. `flush` of a file that it writes is `fdatasync`, as in LevelDB:
//! after a table, after an edit of the manifest, and after a write that the caller wants durable.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_rt::{cpu, time};
use rusty_leveldb::env::{Env, FileLock, Logger, RandomAccess};
use rusty_leveldb::{Result, Status, StatusCode};

use crate::files::{Creation, Error, Files, Handle, OpenMode};

/// Stands before each path that the store is given. It asks the host's file system for the real path of its
/// directory; with a NUL in it no host has such a file, and none is asked.
const NOT_ON_THE_HOST: char = '\0';

/// The store's view of the files of a file system under test.
pub struct FilesEnv {
    files: Arc<dyn Files>,
    /// Processor time of making a byte of a table: merging, checksum, filter.
    table_ps_per_byte: u64,
    locked: RefCell<BTreeSet<String>>,
}

impl FilesEnv {
    /// The store's files are among `files`. Making a table costs `table_ps_per_byte` picoseconds of processor
    /// time for each byte in virtual time.
    #[must_use]
    pub fn new(files: Arc<dyn Files>, table_ps_per_byte: u64) -> Self {
        Self { files, table_ps_per_byte, locked: RefCell::default() }
    }

    /// What to call a directory of these files towards the store.
    #[must_use]
    pub fn name(directory: &str) -> PathBuf {
        format!("{NOT_ON_THE_HOST}{directory}").into()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<File> {
        let path = ours(path)?;
        let handle = self.files.open(path, mode).map_err(|error| status(path, &error))?;
        // Its table's name ends so; what else it writes costs no more than the copying that `Files` charges.
        let ps_per_byte = if path.ends_with(".ldb") { self.table_ps_per_byte } else { 0 };
        Ok(File { files: Arc::clone(&self.files), handle, offset: 0, ps_per_byte })
    }
}

/// A path of [`Files`] for one of the store's.
fn ours(path: &Path) -> Result<&str> {
    path.to_str()
        .map(|path| path.trim_start_matches(NOT_ON_THE_HOST))
        .ok_or_else(|| Status::new(StatusCode::InvalidArgument, "a path that is no text"))
}

fn status(path: &str, error: &Error) -> Status {
    let code = match error {
        Error::NotFound => StatusCode::NotFound,
        Error::Exists => StatusCode::AlreadyExists,
        Error::PermissionDenied | Error::NotPermitted => StatusCode::PermissionDenied,
        _ => StatusCode::IOError,
    };
    Status::new(code, &format!("{path}: {error}"))
}

fn io_error(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// An open file with a position.
struct File {
    files: Arc<dyn Files>,
    handle: Handle,
    offset: u64,
    ps_per_byte: u64,
}

impl io::Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.files.read(self.handle, self.offset, into).map_err(io_error)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl RandomAccess for File {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<usize> {
        self.files
            .read(self.handle, offset as u64, into)
            .map_err(|error| Status::new(StatusCode::IOError, &error.to_string()))
    }
}

impl io::Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        cpu::charge_ns(data.len() as u64 * self.ps_per_byte / 1000);
        self.files.write(self.handle, self.offset, data).map_err(io_error)?;
        self.offset += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.files.fsync(self.handle, true).map_err(io_error)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The store has no place for an answer here, as a program that lets a descriptor go.
        let _ = self.files.close(self.handle);
    }
}

const EMPTIED: OpenMode = OpenMode { create: Creation::IfMissing, truncate: true, ..OpenMode::WRITE };
const APPENDED: OpenMode = OpenMode { create: Creation::IfMissing, ..OpenMode::WRITE };

impl Env for FilesEnv {
    fn open_sequential_file(&self, path: &Path) -> Result<Box<dyn io::Read>> {
        Ok(Box::new(self.open(path, OpenMode::READ)?))
    }

    fn open_random_access_file(&self, path: &Path) -> Result<Box<dyn RandomAccess>> {
        Ok(Box::new(self.open(path, OpenMode::READ)?))
    }

    fn open_writable_file(&self, path: &Path) -> Result<Box<dyn io::Write>> {
        Ok(Box::new(self.open(path, EMPTIED)?))
    }

    fn open_appendable_file(&self, path: &Path) -> Result<Box<dyn io::Write>> {
        let mut file = self.open(path, APPENDED)?;
        let path = ours(path)?;
        file.offset = self.files.size(file.handle).map_err(|error| status(path, &error))?;
        Ok(Box::new(file))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let path = ours(path)?;
        match self.files.stat(path) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(status(path, &error)),
        }
    }

    fn children(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let path = ours(path)?;
        let mut names = Vec::new();
        self.files.list(path, &mut |name| names.push(name.into())).map_err(|error| status(path, &error))?;
        Ok(names)
    }

    fn size_of(&self, path: &Path) -> Result<usize> {
        let path = ours(path)?;
        self.files.stat(path).map(|found| found.size as usize).map_err(|error| status(path, &error))
    }

    fn delete(&self, path: &Path) -> Result<()> {
        let path = ours(path)?;
        self.files.unlink(path).map_err(|error| status(path, &error))
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        let path = ours(path)?;
        self.files.mkdir(path).map_err(|error| status(path, &error))
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        let path = ours(path)?;
        self.files.rmdir(path).map_err(|error| status(path, &error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let from = ours(from)?;
        self.files.rename(from, ours(to)?).map_err(|error| status(from, &error))
    }

    fn lock(&self, path: &Path) -> Result<FileLock> {
        let id = ours(path)?.to_owned();
        if !self.locked.borrow_mut().insert(id.clone()) {
            return Err(Status::new(StatusCode::LockError, "the store is open already"));
        }
        drop(self.open(path, EMPTIED)?);
        Ok(FileLock { id })
    }

    fn unlock(&self, lock: FileLock) -> Result<()> {
        self.locked.borrow_mut().remove(&lock.id);
        Ok(())
    }

    fn new_logger(&self, path: &Path) -> Result<Logger> {
        Ok(Logger::new(self.open_appendable_file(path)?))
    }

    fn micros(&self) -> u64 {
        time::now_ns() / 1000
    }

    fn sleep_for(&self, micros: u32) {
        time::sleep_ns(u64::from(micros) * 1000);
    }
}

#[cfg(test)]
mod tests {
    use amphi_model::Model;

    use super::*;
    use crate::files::{HostCosts, LibraryFiles};

    fn env() -> FilesEnv {
        FilesEnv::new(Arc::new(LibraryFiles::new(Arc::new(Model::new()), HostCosts::default())), 0)
    }

    #[test]
    fn what_is_written_is_read_listed_moved_and_removed() {
        let env = env();
        let at = |name: &str| FilesEnv::name("db").join(name);
        env.mkdir(&FilesEnv::name("db")).unwrap();
        env.open_writable_file(&at("a")).unwrap().write_all(b"first").unwrap();
        env.open_appendable_file(&at("a")).unwrap().write_all(b", second").unwrap();
        let mut text = String::new();
        env.open_sequential_file(&at("a")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "first, second");
        let mut part = [0; 6];
        assert_eq!(env.open_random_access_file(&at("a")).unwrap().read_at(7, &mut part).unwrap(), 6);
        assert_eq!(&part, b"second");
        env.rename(&at("a"), &at("b")).unwrap();
        assert_eq!(env.children(&FilesEnv::name("db")).unwrap(), [PathBuf::from("b")]);
        assert_eq!(env.size_of(&at("b")).unwrap(), 13);
        assert!(!env.exists(&at("a")).unwrap());
        env.delete(&at("b")).unwrap();
        assert_eq!(env.open_sequential_file(&at("b")).err().unwrap().code, StatusCode::NotFound);
    }

    #[test]
    fn a_store_is_open_once() {
        let env = env();
        let lock = env.lock(&FilesEnv::name("LOCK")).unwrap();
        assert_eq!(env.lock(&FilesEnv::name("LOCK")).err().unwrap().code, StatusCode::LockError);
        env.unlock(lock).unwrap();
        assert!(env.lock(&FilesEnv::name("LOCK")).is_ok());
    }
}
