//! SQLite's files on an [`amphi_vfs::FileSystem`], without a mount: what SQLite's interface means, in safe
//! code.
//!
//! All files are in the root directory. One connection at a time uses a database, so its locks need not
//! exist.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use amphi_vfs::{Cred, Error, Failure, FileSystem, FileType, Ino, Name, OpenFlags, SetAttr, WriteMode};

/// The file system under SQLite, which a crash takes away and a mount puts back.
pub struct Storage {
    mounted: Mutex<Option<Arc<dyn FileSystem>>>,
    temporaries: AtomicU64,
}

/// How SQLite wants a file opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Make it if it is not there.
    pub create: bool,
    /// It must not be there.
    pub exclusive: bool,
    /// Remove it when it is closed.
    pub delete_on_close: bool,
}

/// A file that SQLite has open.
pub struct OpenFile {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    delete_on_close: Option<String>,
}

impl Storage {
    /// Nothing is mounted yet.
    pub const fn new() -> Self {
        Self { mounted: Mutex::new(None), temporaries: AtomicU64::new(0) }
    }

    /// Puts a file system under SQLite.
    pub fn mount(&self, fs: Arc<dyn FileSystem>) {
        *self.lock() = Some(fs);
    }

    /// Takes it away. Open files keep it until they are closed.
    pub fn unmount(&self) {
        *self.lock() = None;
    }

    /// Opens the file at `path`, or a temporary one without a path.
    ///
    /// # Errors
    /// As the file system says; [`Error::Io`] if none is mounted.
    pub fn open(&self, path: Option<&str>, wanted: Wanted) -> Result<OpenFile, Error> {
        let fs = self.fs()?;
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = path.map_or_else(|| format!("temporary-{number}"), |path| base_name(path).to_owned());
        let checked = Name::new(name.as_bytes())?;
        let found = match fs.lookup(Ino::ROOT, checked) {
            Ok(_) if wanted.exclusive => return Err(Error::Exists),
            Err(Error::NotFound) if wanted.create => {
                fs.create(Ino::ROOT, checked, FileType::Regular, 0o600, 0, &Cred::ROOT)
            }
            found => found,
        }?;
        let ino = found.attr.ino;
        let opened = fs.open(ino, OpenFlags { write: true, ..OpenFlags::default() });
        // The open reference is enough from here on.
        fs.forget(ino, 1);
        opened?;
        Ok(OpenFile { fs, ino, delete_on_close: wanted.delete_on_close.then_some(name) })
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`Error::NotFound`] and others.
    pub fn delete(&self, path: &str) -> Result<(), Error> {
        self.fs()?.unlink(Ino::ROOT, Name::new(base_name(path).as_bytes())?).map(drop)
    }

    /// Whether there is such a file.
    ///
    /// # Errors
    /// As the file system says, except [`Error::NotFound`].
    pub fn exists(&self, path: &str) -> Result<bool, Error> {
        let fs = self.fs()?;
        match fs.lookup(Ino::ROOT, Name::new(base_name(path).as_bytes())?) {
            Ok(found) => {
                fs.forget(found.attr.ino, 1);
                Ok(true)
            }
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn fs(&self) -> Result<Arc<dyn FileSystem>, Error> {
        self.lock().clone().ok_or(Error::Io(Failure::Stuck("nothing is mounted")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<dyn FileSystem>>> {
        self.mounted.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl OpenFile {
    /// Reads; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// As the file system says.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.fs.read(self.ino, offset, into, false)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// As the file system says.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.fs.write(self.ino, offset, data, WriteMode::default(), &Cred::ROOT).map(drop)
    }

    /// Cuts or grows.
    ///
    /// # Errors
    /// As the file system says.
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(self.ino, &change, &Cred::ROOT).map(drop)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// As the file system says.
    pub fn sync(&self, data_only: bool) -> Result<(), Error> {
        self.fs.fsync(self.ino, data_only)
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// As the file system says.
    pub fn size(&self) -> Result<u64, Error> {
        Ok(self.fs.getattr(self.ino)?.size)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(name) = self.delete_on_close.take()
            && let Ok(name) = Name::new(name.as_bytes())
        {
            // A temporary file that stays is no loss; SQLite has no use for the error.
            let _ = self.fs.unlink(Ino::ROOT, name);
        }
        self.fs.release(self.ino);
    }
}

/// The last component.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
    use amphi_ssd::{Profile, Ssd};

    fn storage() -> Storage {
        let device = Ssd::in_memory(&Profile::named("free").unwrap(), 64 << 20);
        ByteFs::format(&device, &FormatOptions::default()).unwrap();
        let fs = ByteFs::mount(Arc::new(device), MountOptions::default()).unwrap();
        let storage = Storage::new();
        storage.mount(Arc::new(fs));
        storage
    }

    #[test]
    fn files_are_made_found_and_removed() {
        let storage = storage();
        assert_eq!(storage.open(Some("/a.db"), Wanted::default()).err(), Some(Error::NotFound));
        let file = storage.open(Some("/a.db"), Wanted { create: true, ..Wanted::default() }).unwrap();
        file.write(10, b"abc").unwrap();
        file.sync(true).unwrap();
        let mut bytes = [7; 20];
        assert_eq!(file.read(0, &mut bytes), Ok(13));
        assert_eq!(&bytes[..13], b"\0\0\0\0\0\0\0\0\0\0abc");
        file.truncate(11).unwrap();
        assert_eq!(file.size(), Ok(11));
        assert_eq!(storage.exists("/a.db"), Ok(true));
        storage.delete("/a.db").unwrap();
        assert_eq!(storage.exists("/a.db"), Ok(false));
        assert_eq!(file.size(), Ok(11), "an open file outlives its name");
    }

    #[test]
    fn temporary_files_go_when_they_are_closed() {
        let storage = storage();
        let wanted = Wanted { create: true, exclusive: true, delete_on_close: true };
        let first = storage.open(None, wanted).unwrap();
        let second = storage.open(None, wanted).unwrap();
        first.write(0, b"1").unwrap();
        assert_eq!(second.size(), Ok(0));
        drop((first, second));
        assert_eq!(storage.exists("/temporary-0"), Ok(false));
        storage.unmount();
        assert!(storage.exists("/temporary-0").is_err());
    }
}
