//! [`Files`] over a [`FileSystem`] called in this process.

use std::sync::Arc;

use amphi_rt::hash::HashMap;
use amphi_rt::sync::RwLock;
use amphi_vfs::{
    Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, Result, SetAttr, WriteMode,
};

use super::{Creation, Files, Handle, HostCosts, OpenMode, Status};

/// The files of a file system in this process.
///
/// Directories that were walked are remembered and kept referenced, as the kernel's dentry cache does above a file system: finding a file asks the file system for one
/// name, not for each name of the path.
pub struct LibraryFiles<F: FileSystem + ?Sized> {
    fs: Arc<F>,
    cred: Cred,
    costs: HostCosts,
    directories: RwLock<HashMap<Box<str>, Ino>>,
}

impl<F: FileSystem + ?Sized> LibraryFiles<F> {
    /// The files below the root of `fs`. Make it inside the `Sim` that uses it.
    #[must_use]
    pub fn new(fs: Arc<F>, costs: HostCosts) -> Self {
        Self { fs, cred: Cred::ROOT, costs, directories: RwLock::new(HashMap::default()) }
    }

    /// The file system below.
    pub const fn file_system(&self) -> &Arc<F> {
        &self.fs
    }

    /// The inode of a directory.
    fn directory(&self, path: &str) -> Result<Ino> {
        if path.is_empty() {
            return Ok(Ino::ROOT);
        }
        if let Some(found) = self.directories.read().get(path) {
            return Ok(*found);
        }
        let (parent, name) = split(path);
        let attr = self.fs.lookup(self.directory(parent)?, Name::new(name.as_bytes())?)?.attr;
        if attr.file_type != FileType::Directory {
            self.fs.forget(attr.ino, 1);
            return Err(Error::NotDirectory);
        }
        let mut directories = self.directories.write();
        if directories.insert(path.into(), attr.ino).is_some() {
            // Another task was first: one reference is enough.
            drop(directories);
            self.fs.forget(attr.ino, 1);
        }
        Ok(attr.ino)
    }

    /// Calls `then` with the directory of the last name, and that name.
    fn at<T>(&self, path: &str, then: impl FnOnce(Ino, Name<'_>) -> Result<T>) -> Result<T> {
        let (parent, name) = split(path);
        then(self.directory(parent)?, Name::new(name.as_bytes())?)
    }

    /// Forgets a directory and all below it.
    fn leave(&self, path: &str) {
        let mut left = Vec::new();
        let mut directories = self.directories.write();
        if let Some(ino) = directories.remove(path) {
            left.push(ino);
        }
        if !left.is_empty() && !path.is_empty() {
            directories.retain(|known, ino| {
                let below = known.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
                if below {
                    left.push(*ino);
                }
                !below
            });
        }
        drop(directories);
        for ino in left {
            self.fs.forget(ino, 1);
        }
    }

    fn find_or_create(&self, path: &str, mode: OpenMode) -> Result<(Ino, bool)> {
        self.at(path, |dir, name| {
            if mode.create != Creation::New {
                match self.fs.lookup(dir, name) {
                    Err(Error::NotFound) if mode.create == Creation::IfMissing => {}
                    found => return found.map(|entry| (entry.attr.ino, false)),
                }
            }
            match self.fs.create(dir, name, FileType::Regular, 0o644, 0, &self.cred) {
                // Made by another task meanwhile.
                Err(Error::Exists) if mode.create == Creation::IfMissing => {
                    self.fs.lookup(dir, name).map(|entry| (entry.attr.ino, false))
                }
                made => made.map(|entry| (entry.attr.ino, true)),
            }
        })
    }
}

/// The path of a path's directory, and its last name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl<F: FileSystem + ?Sized> Files for LibraryFiles<F> {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Handle> {
        let (ino, made) = self.find_or_create(path, mode)?;
        let flags = OpenFlags { write: mode.write, direct: mode.direct, truncate: mode.truncate && !made };
        if let Err(error) = self.fs.open(ino, flags) {
            self.fs.forget(ino, 1);
            return Err(error);
        }
        let costs = &self.costs;
        let made_ns = costs.namespace_ns + costs.computing.create_ns;
        costs.walk(path, costs.open_ns + if made { made_ns } else { costs.computing.lookup_ns });
        Ok(Handle { id: ino.0, mode })
    }

    fn close(&self, file: Handle) -> Result<()> {
        self.fs.release(Ino(file.id));
        self.fs.forget(Ino(file.id), 1);
        self.costs.call(self.costs.open_ns);
        Ok(())
    }

    fn size(&self, file: Handle) -> Result<u64> {
        let size = self.fs.getattr(Ino(file.id))?.size;
        self.costs.call(0);
        Ok(size)
    }

    fn read(&self, file: Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        let read = self.fs.read(Ino(file.id), offset, into, file.mode.direct)?;
        self.costs.transfer(read, self.costs.computing.read_page_ns);
        Ok(read)
    }

    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> Result<()> {
        let mode =
            WriteMode { direct: file.mode.direct, sync_data: file.mode.sync_data, ..WriteMode::default() };
        self.costs.write(data.len(), file.mode.sync_data);
        self.fs.write(Ino(file.id), offset, data, mode, &self.cred).map(drop)
    }

    fn append(&self, file: Handle, data: &[u8]) -> Result<()> {
        let mode = WriteMode {
            append: true,
            direct: file.mode.direct,
            sync_data: file.mode.sync_data,
            ..WriteMode::default()
        };
        self.costs.write(data.len(), file.mode.sync_data);
        self.fs.write(Ino(file.id), 0, data, mode, &self.cred).map(drop)
    }

    fn set_size(&self, file: Handle, size: u64) -> Result<()> {
        self.costs.call(0);
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(Ino(file.id), &change, &self.cred).map(drop)
    }

    fn fsync(&self, file: Handle, data_only: bool) -> Result<()> {
        self.costs.call(self.costs.computing.fsync_ns);
        self.fs.fsync(Ino(file.id), data_only)
    }

    fn sync_directory(&self, path: &str) -> Result<()> {
        self.costs.walk(path, 0);
        if self.fs.promise().metadata_durable_on_return {
            return Ok(());
        }
        self.fs.fsync(self.directory(path)?, false)
    }

    fn sync(&self) -> Result<()> {
        self.costs.call(0);
        self.fs.sync()
    }

    fn unlink(&self, path: &str) -> Result<()> {
        self.costs.walk(path, self.costs.namespace_ns + self.costs.computing.unlink_ns);
        self.at(path, |dir, name| self.fs.unlink(dir, name).map(drop))
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        self.costs.walk(path, self.costs.namespace_ns + self.costs.computing.mkdir_ns);
        self.at(path, |dir, name| {
            let made = self.fs.mkdir(dir, name, 0o755, &self.cred)?;
            self.fs.forget(made.attr.ino, 1);
            Ok(())
        })
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        self.costs.walk(path, self.costs.namespace_ns + self.costs.computing.rmdir_ns);
        self.at(path, |dir, name| self.fs.rmdir(dir, name))?;
        self.leave(path);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.costs.walk(from, self.costs.namespace_ns + self.costs.computing.rename_ns);
        let (to_parent, to_name) = split(to);
        let (to_dir, to_name) = (self.directory(to_parent)?, Name::new(to_name.as_bytes())?);
        self.at(from, |dir, name| self.fs.rename(dir, name, to_dir, to_name, RenameMode::Replace))?;
        // Either may have been a directory.
        self.leave(from);
        self.leave(to);
        Ok(())
    }

    fn stat(&self, path: &str) -> Result<Status> {
        self.costs.walk(path, self.costs.computing.lookup_ns);
        if path.is_empty() {
            return Ok(status(&self.fs.getattr(Ino::ROOT)?));
        }
        self.at(path, |dir, name| {
            let attr = self.fs.lookup(dir, name)?.attr;
            self.fs.forget(attr.ino, 1);
            Ok(status(&attr))
        })
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()> {
        self.costs.walk(path, 0);
        let dir = self.directory(path)?;
        self.fs.readdir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                each(&String::from_utf8_lossy(entry.name));
            }
            true
        })
    }
}

fn status(attr: &amphi_vfs::Attr) -> Status {
    Status { size: attr.size, is_directory: attr.file_type == FileType::Directory }
}

impl<F: FileSystem + ?Sized> Drop for LibraryFiles<F> {
    fn drop(&mut self) {
        for (_, ino) in self.directories.get_mut().drain() {
            self.fs.forget(ino, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use amphi_model::Model;

    use super::*;

    fn files() -> LibraryFiles<Model> {
        LibraryFiles::new(Arc::new(Model::new()), HostCosts::default())
    }

    #[test]
    fn a_file_is_made_written_read_and_found() {
        let files = files();
        files.mkdir("a").unwrap();
        files.mkdir("a/b").unwrap();
        let file = files.open("a/b/f", OpenMode::NEW).unwrap();
        files.write(file, 0, b"hello").unwrap();
        files.append(file, b", world").unwrap();
        let mut buffer = [0; 5];
        assert_eq!(files.read_whole(file, &mut buffer).unwrap(), 12);
        assert_eq!(files.size(file).unwrap(), 12);
        files.fsync(file, false).unwrap();
        files.close(file).unwrap();
        assert_eq!(files.stat("a/b/f").unwrap(), Status { size: 12, is_directory: false });
        assert_eq!(files.open("a/b/f", OpenMode::NEW), Err(Error::Exists));
        assert_eq!(files.open("a/b/g", OpenMode::READ), Err(Error::NotFound));
        let mut names = Vec::new();
        files.list("a/b", &mut |name| names.push(name.to_owned())).unwrap();
        assert_eq!(names, ["f"]);
    }

    #[test]
    fn a_directory_that_was_moved_is_not_found_at_its_old_path() {
        let files = files();
        for path in ["a", "a/b", "c"] {
            files.mkdir(path).unwrap();
        }
        files.close(files.open("a/b/f", OpenMode::NEW).unwrap()).unwrap();
        files.rename("a", "c/a").unwrap();
        assert_eq!(files.stat("a/b/f"), Err(Error::NotFound));
        assert!(files.stat("c/a/b/f").is_ok());
        assert_eq!(files.rmdir("c/a/b"), Err(Error::NotEmpty));
        files.unlink("c/a/b/f").unwrap();
        files.rmdir("c/a/b").unwrap();
        files.mkdir("c/a/b").unwrap();
        assert_eq!(files.open("c/a/b/f", OpenMode::READ), Err(Error::NotFound));
    }
}
