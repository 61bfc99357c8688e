//! [`Files`] over a [`FileSystem`] called in this process, in the place of the kernel above it.
//!
//! The kernel holds a directory's lock while it makes, removes or renames a name there: its own work and the
//! file system's lie inside. So does this, and the host's processor time of that work is charged with the
//! lock held.

use std::sync::Arc;

use amphi_rt::hash::HashMap;
use amphi_rt::sync::RwLock;
use amphi_vfs::{
    Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, Result, SetAttr, WriteMode,
    XattrMode,
};

use super::costs::charge;
use super::{Creation, Files, Handle, HostCosts, OpenMode, Status};

/// The files of a file system in this process.
///
/// Directories that were walked are remembered and kept referenced, as the kernel's dentry cache does above a
/// file system: finding a file asks the file system for one name, not for each name of the path.
pub struct LibraryFiles<F: FileSystem + ?Sized> {
    fs: Arc<F>,
    cred: Cred,
    costs: HostCosts,
    root: Arc<Directory>,
    directories: RwLock<HashMap<Box<str>, Arc<Directory>>>,
}

/// A directory that was walked.
struct Directory {
    ino: Ino,
    /// Held while names in it change, shared while they are listed: the kernel's lock of the directory.
    names: RwLock<()>,
}

impl Directory {
    fn new(ino: Ino) -> Arc<Self> {
        Arc::new(Self { ino, names: RwLock::new(()) })
    }
}

impl<F: FileSystem + ?Sized> LibraryFiles<F> {
    /// The files below the root of `fs`. Make it inside the `Sim` that uses it.
    #[must_use]
    pub fn new(fs: Arc<F>, costs: HostCosts) -> Self {
        let root = Directory::new(Ino::ROOT);
        Self { fs, cred: Cred::ROOT, costs, root, directories: RwLock::new(HashMap::default()) }
    }

    /// The file system below.
    pub const fn file_system(&self) -> &Arc<F> {
        &self.fs
    }

    /// The directory at a path.
    fn directory(&self, path: &str) -> Result<Arc<Directory>> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(found) = self.directories.read().get(path) {
            return Ok(Arc::clone(found));
        }
        let (parent, name) = split(path);
        let attr = self.fs.lookup(self.directory(parent)?.ino, Name::new(name.as_bytes())?)?.attr;
        if attr.file_type != FileType::Directory {
            self.fs.forget(attr.ino, 1);
            return Err(Error::NotDirectory);
        }
        let mut directories = self.directories.write();
        if let Some(first) = directories.get(path).map(Arc::clone) {
            // Another task was first: one reference is enough.
            drop(directories);
            self.fs.forget(attr.ino, 1);
            return Ok(first);
        }
        let found = Directory::new(attr.ino);
        directories.insert(path.into(), Arc::clone(&found));
        Ok(found)
    }

    /// Calls `then` with the directory of the last name, and that name.
    fn at<T>(&self, path: &str, then: impl FnOnce(Ino, Name<'_>) -> Result<T>) -> Result<T> {
        let (parent, name) = split(path);
        then(self.directory(parent)?.ino, Name::new(name.as_bytes())?)
    }

    /// As [`at`](Self::at), to change the name: with the directory's lock held, in which the kernel's part of
    /// the work, and `computing_ns` of the file system's, are charged.
    fn change<T>(
        &self,
        path: &str,
        computing_ns: u64,
        then: impl FnOnce(Ino, Name<'_>) -> Result<T>,
    ) -> Result<T> {
        let (parent, name) = split(path);
        let directory = self.directory(parent)?;
        let _names = directory.names.write();
        self.costs.namespace(computing_ns);
        then(directory.ino, Name::new(name.as_bytes())?)
    }

    /// Forgets a directory and all below it.
    fn leave(&self, path: &str) {
        let mut left = Vec::new();
        let mut directories = self.directories.write();
        left.extend(directories.remove(path));
        if !left.is_empty() && !path.is_empty() {
            directories.retain(|known, directory| {
                let below = known.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
                if below {
                    left.push(Arc::clone(directory));
                }
                !below
            });
        }
        drop(directories);
        for directory in left {
            self.fs.forget(directory.ino, 1);
        }
    }

    /// The inode at a path, and whether it was made for that.
    fn find_or_create(&self, path: &str, create: Creation) -> Result<(Ino, bool)> {
        let find = || {
            charge(self.costs.computing.lookup_ns);
            self.at(path, |dir, name| self.fs.lookup(dir, name).map(|entry| (entry.attr.ino, false)))
        };
        if create != Creation::New {
            match find() {
                Err(Error::NotFound) if create == Creation::IfMissing => {}
                found => return found,
            }
        }
        let made = self.change(path, self.costs.computing.create_ns, |dir, name| {
            let made = self.fs.create(dir, name, FileType::Regular, 0o644, 0, &self.cred)?;
            Ok((made.attr.ino, true))
        });
        match made {
            // Made by another task meanwhile.
            Err(Error::Exists) if create == Creation::IfMissing => find(),
            made => made,
        }
    }
}

/// The path of a path's directory, and its last name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl<F: FileSystem + ?Sized> Files for LibraryFiles<F> {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Handle> {
        self.costs.walk(path, 0);
        let (ino, made) = self.find_or_create(path, mode.create)?;
        let flags = OpenFlags { write: mode.write, direct: mode.direct, truncate: mode.truncate && !made };
        if let Err(error) = self.fs.open(ino, flags) {
            self.fs.forget(ino, 1);
            return Err(error);
        }
        charge(self.costs.open_ns);
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
        self.fs.fsync(self.directory(path)?.ino, false)
    }

    fn sync(&self) -> Result<()> {
        self.costs.call(0);
        self.fs.sync()
    }

    fn free_bytes(&self) -> Result<u64> {
        let space = self.fs.statfs()?;
        Ok(space.blocks_available * u64::from(space.block_bytes))
    }

    fn unlink(&self, path: &str) -> Result<()> {
        self.costs.walk(path, 0);
        self.change(path, self.costs.computing.unlink_ns, |dir, name| self.fs.unlink(dir, name).map(drop))
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        self.costs.walk(path, 0);
        let made = self.change(path, self.costs.computing.mkdir_ns, |dir, name| {
            self.fs.mkdir(dir, name, 0o755, &self.cred)
        })?;
        self.fs.forget(made.attr.ino, 1);
        Ok(())
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        self.costs.walk(path, 0);
        self.change(path, self.costs.computing.rmdir_ns, |dir, name| self.fs.rmdir(dir, name))?;
        self.leave(path);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.costs.walk(from, 0);
        let (from_parent, from_name) = split(from);
        let (to_parent, to_name) = split(to);
        let (from_name, to_name) = (Name::new(from_name.as_bytes())?, Name::new(to_name.as_bytes())?);
        let (from_dir, to_dir) = (self.directory(from_parent)?, self.directory(to_parent)?);
        {
            // By number, each once.
            let mut both = [&from_dir, &to_dir];
            both.sort_by_key(|dir| dir.ino);
            let _first = both[0].names.write();
            let _second = (both[0].ino != both[1].ino).then(|| both[1].names.write());
            self.costs.namespace(self.costs.computing.rename_ns);
            self.fs.rename(from_dir.ino, from_name, to_dir.ino, to_name, RenameMode::Replace)?;
        }
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

    fn set_attribute(&self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        self.costs.walk(path, self.costs.computing.lookup_ns);
        let ino = self.at(path, |dir, name| Ok(self.fs.lookup(dir, name)?.attr.ino))?;
        let set = self.fs.setxattr(ino, name.as_bytes(), value, XattrMode::Set);
        self.fs.forget(ino, 1);
        set
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()> {
        self.costs.walk(path, 0);
        let directory = self.directory(path)?;
        let _names = directory.names.read();
        self.fs.readdir(directory.ino, 0, &mut |entry| {
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
        for (_, directory) in self.directories.get_mut().drain() {
            self.fs.forget(directory.ino, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use amphi_model::Model;
    use amphi_rt::cpu::HostProfile;
    use amphi_rt::{Sim, task, time};

    use super::*;
    use crate::files::Computing;

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

    /// What `change` takes with eight tasks that do it four times each in one directory, or each in its own,
    /// µs.
    fn micros(own: bool, change: impl Fn(&LibraryFiles<Model>, &str) + Sync) -> u64 {
        const COSTS: HostCosts = HostCosts {
            call_ns: 0,
            name_ns: 0,
            open_ns: 0,
            namespace_ns: 1000,
            copy_ps_per_byte: 0,
            page_ns: 0,
            computing: Computing { rename_ns: 2000, ..Computing::FREE },
        };
        Sim::new(1).host(HostProfile { cores: 8, ..HostProfile::default() }).run(|| {
            let files = LibraryFiles::new(Arc::new(Model::new()), COSTS);
            (0..8).for_each(|number| files.mkdir(&format!("d{number}")).unwrap());
            let begun = time::now_ns();
            task::scope(|scope| {
                for number in 0..8 {
                    let (files, change) = (&files, &change);
                    let dir = if own { number } else { 0 };
                    scope.spawn("changes", move || {
                        (0..4).for_each(|again| change(files, &format!("d{dir}/{number}-{again}")));
                    });
                }
            });
            (time::now_ns() - begun) / 1000
        })
    }

    /// One lock forbids more: each change of a name costs its directory's lock the time that it costs a
    /// processor.
    #[test]
    fn changes_of_names_in_one_directory_follow_each_other() {
        let make = |files: &LibraryFiles<Model>, path: &str| {
            files.close(files.open(path, OpenMode::NEW).unwrap()).unwrap();
        };
        assert_eq!((micros(false, make), micros(true, make)), (32, 4));
        let make_and_remove = |files: &LibraryFiles<Model>, path: &str| {
            files.mkdir(path).unwrap();
            files.rmdir(path).unwrap();
        };
        assert_eq!((micros(false, make_and_remove), micros(true, make_and_remove)), (64, 8));
        let make_and_move = |files: &LibraryFiles<Model>, path: &str| {
            make(files, path);
            files.rename(path, &format!("{path}-moved")).unwrap();
            files.unlink(&format!("{path}-moved")).unwrap();
        };
        assert_eq!((micros(false, make_and_move), micros(true, make_and_move)), (32 * 5, 4 * 5));
    }
}
