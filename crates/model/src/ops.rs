//! The [`FileSystem`] operations of the model, each one a single critical section.

use amphi_vfs::{
    AccessTimes, Allocate, Attr, Cred, DirEntry, DirSink, Entry, Error, FileSystem, FileType, Ino,
    NAME_BYTES_MAX, Name, OpenFlags, Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, SetTime,
    StatFs, WriteMode, XattrMode, acl, may_remove,
};

use crate::Model;
use crate::bytes::{Bytes, PAGE};
use crate::inode::Body;
use crate::names::Names;
use crate::tree::now;

/// Longest target of a symbolic link in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// Longest value of an extended attribute in bytes.
const XATTR_BYTES_MAX: usize = 65_536;

impl FileSystem for Model {
    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: true, data_durable_on_return: true }
    }

    fn access_times(&self) -> AccessTimes {
        self.tree.lock().access_times
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let mut tree = self.tree.lock();
        let ino = tree.find(dir, name)?;
        tree.entry(ino)
    }

    fn reference(&self, ino: Ino) -> Result<Entry> {
        let mut tree = self.tree.lock();
        let inode = tree.get(ino)?;
        if inode.nlink == 0 && inode.opens == 0 {
            return Err(Error::Stale(ino));
        }
        tree.entry(ino)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(self.tree.lock().get(dir)?.names()?.parent)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut tree = self.tree.lock();
        if let Ok(inode) = tree.get_mut(ino) {
            inode.lookups = inode.lookups.saturating_sub(count);
            tree.free_if_unheld(ino);
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.tree.lock().get(ino)?.attr(ino))
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        tree.get(ino)?;
        if let Some(size) = change.size {
            tree.resize(ino, size, cred)?;
        }
        let time = now();
        let stamp = |set: SetTime| match set {
            SetTime::Now => time,
            SetTime::At(at) => at,
        };
        let inode = tree.get_mut(ino)?;
        if change.uid.is_some() || change.gid.is_some() {
            inode.shed_privileges(cred, false);
        }
        inode.uid = change.uid.unwrap_or(inode.uid);
        inode.gid = change.gid.unwrap_or(inode.gid);
        if let Some(mode) = change.mode {
            inode.set_mode(mode)?;
        }
        inode.atime = change.atime.map_or(inode.atime, stamp);
        inode.mtime = change.mtime.map_or(inode.mtime, stamp);
        if *change != SetAttr::default() {
            inode.ctime = change.ctime.unwrap_or(time);
        }
        Ok(inode.attr(ino))
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
        let (body, rdev) = match file_type {
            FileType::Regular => (Body::Regular(Bytes::default()), 0),
            FileType::Fifo | FileType::Socket => (Body::Node(file_type), 0),
            FileType::CharDevice | FileType::BlockDevice => (Body::Node(file_type), rdev),
            FileType::Directory | FileType::Symlink => {
                return Err(Error::Invalid("create makes neither directories nor symbolic links"));
            }
        };
        self.tree.lock().add_named(dir, name, body, mode, rdev, cred)
    }

    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        let parent = tree.get(dir)?;
        parent.names()?;
        if parent.nlink == 0 {
            return Err(Error::NotFound);
        }
        let ino = tree.add_owned(dir, Body::Regular(Bytes::default()), mode, 0, cred)?;
        let inode = tree.get_mut(ino)?;
        inode.nlink = 0;
        inode.unnamed = true;
        tree.entry(ino)
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.tree.lock().add_named(dir, name, Body::Directory(Names::new(dir)), mode, 0, cred)
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::Invalid("an empty symbolic link"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        self.tree.lock().add_named(dir, name, Body::Symlink(target.to_vec()), 0o777, 0, cred)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut tree = self.tree.lock();
        let Body::Symlink(target) = &tree.get(ino)?.body else {
            return Err(Error::Invalid("not a symbolic link"));
        };
        let target = target.clone();
        tree.touch_atime(ino);
        Ok(target)
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        tree.get(ino)?;
        tree.vacant(dir, name)?;
        let inode = tree.get(ino)?;
        if inode.is_directory() {
            return Err(Error::NotPermitted);
        }
        if inode.nlink == 0 && !inode.unnamed {
            return Err(Error::NotFound);
        }
        if tree.get(ino)?.nlink >= tree.limits.links {
            return Err(Error::TooManyLinks);
        }
        tree.get_mut(dir)?.names_mut()?.set(name.bytes(), ino);
        let inode = tree.get_mut(ino)?;
        inode.nlink += 1;
        inode.unnamed = false;
        tree.touch(dir)?;
        tree.touch_ctime(ino)?;
        tree.entry(ino)
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        let ino = tree.find(dir, name)?;
        if tree.get(ino)?.is_directory() {
            return Err(Error::IsDirectory);
        }
        tree.get_mut(dir)?.names_mut()?.remove(name.bytes());
        tree.touch(dir)?;
        tree.drop_name(ino)
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        may_remove(self, dir, name, cred)?;
        self.unlink(dir, name)
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        let ino = tree.find(dir, name)?;
        if !tree.get(ino)?.names()?.is_empty() {
            return Err(Error::NotEmpty);
        }
        let parent = tree.get_mut(dir)?;
        parent.names_mut()?.remove(name.bytes());
        parent.nlink -= 1;
        tree.touch(dir)?;
        tree.drop_name(ino)
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
        let mut tree = self.tree.lock();
        tree.writable()?;
        tree.rename(from, name, to, new_name, mode)
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        let mut tree = self.tree.lock();
        tree.get(ino)?;
        if flags.write || flags.truncate {
            tree.writable()?;
        }
        if flags.truncate {
            tree.resize(ino, 0, &Cred::ROOT)?;
        }
        tree.get_mut(ino)?.opens += 1;
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let mut tree = self.tree.lock();
        if let Ok(inode) = tree.get_mut(ino) {
            inode.opens = inode.opens.saturating_sub(1);
            tree.free_if_unheld(ino);
        }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], _direct: bool) -> Result<usize> {
        let mut tree = self.tree.lock();
        let read = tree.get(ino)?.bytes()?.read(offset, into);
        tree.touch_atime(ino);
        Ok(read)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        let limits = tree.limits;
        let bytes = tree.get(ino)?.bytes()?;
        if data.is_empty() {
            return Ok(0);
        }
        let offset = if mode.append { bytes.size() } else { offset };
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= limits.file_bytes);
        let end = end.ok_or(Error::TooLarge)?;
        let added = bytes.pages_missing(offset, end);
        if tree.pages_used + added > limits.pages {
            return Err(Error::NoSpace);
        }
        tree.pages_used += added;
        let inode = tree.get_mut(ino)?;
        inode.bytes_mut()?.write(offset, data);
        inode.note_new_contents(cred);
        tree.touch(ino)?;
        Ok(data.len())
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        self.tree.lock().get(ino).map(drop)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let mut tree = self.tree.lock();
        tree.get(dir)?.names()?;
        if tree.get(dir)?.nlink == 0 {
            return Err(Error::NotFound);
        }
        tree.touch_atime(dir);
        let names = tree.get(dir)?.names()?;
        let dots = [(1, b".".as_slice(), dir), (2, b"..".as_slice(), names.parent)];
        let dots = dots.into_iter().filter(|&(own, ..)| own > cookie);
        for (next_cookie, name, ino) in dots.chain(names.after(cookie)) {
            let file_type = tree.get(ino).map_or(FileType::Directory, |inode| inode.file_type());
            if !sink(DirEntry { ino, file_type, name, next_cookie }) {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let tree = self.tree.lock();
        let free = tree.limits.pages - tree.pages_used;
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: tree.limits.pages,
            blocks_free: free,
            blocks_available: free,
            inodes: tree.limits.inodes,
            inodes_free: tree.limits.inodes - tree.inodes.len() as u64,
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let tree = self.tree.lock();
        let bytes = tree.get(ino)?.bytes()?;
        if offset >= bytes.size() {
            return Err(Error::NoData);
        }
        match what {
            Seek::Data => bytes.next_data(offset).ok_or(Error::NoData),
            Seek::Hole => Ok(bytes.next_hole(offset)),
        }
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        tree.allocate(ino, offset, length, what, cred)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.tree.lock().get(ino)?.xattrs.get(name).cloned().ok_or(Error::NoData)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        let inode = tree.get_mut(ino)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::Invalid("the name of an extended attribute has 1 to 255 bytes"));
        }
        if value.len() > XATTR_BYTES_MAX {
            return Err(Error::XattrTooLarge);
        }
        let change = acl::change(name, value, inode.file_type())?;
        match (mode, inode.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoData),
            _ => {}
        }
        let (value, mode) = match change {
            Some(acl::Change { value, mode }) => (value, mode),
            None => (Some(value.to_vec()), None),
        };
        inode.mode = mode.map_or(inode.mode, |bits| inode.mode & 0o7000 | bits);
        match value {
            Some(value) => drop(inode.xattrs.insert(name.to_vec(), value)),
            None => drop(inode.xattrs.remove(name)),
        }
        inode.ctime = now();
        Ok(())
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.tree.lock().get(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let mut tree = self.tree.lock();
        tree.writable()?;
        let inode = tree.get_mut(ino)?;
        if inode.xattrs.remove(name).is_none() {
            return if acl::is_name(name) { Ok(()) } else { Err(Error::NoData) };
        }
        inode.ctime = now();
        Ok(())
    }
}
