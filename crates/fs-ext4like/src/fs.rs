//! [`Ext4Like`]: the mounted file system, and its operations as `vfs` names them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::{
    AccessTimes, Allocate, Attr, Cred, DirSink, Entry, Error, FileSystem, FileType, Ino, Name, OpenFlags,
    Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, StatFs, WriteMode, XattrMode,
};

use crate::core::Core;
use crate::format::BLOCK;
use crate::inode::{Body, Inode};
use crate::mount::{self, FormatOptions, Info, MountError};
use crate::namespace::{self, NewInode};
use crate::options::MountOptions;
use crate::page::CacheUse;
use crate::writeback::fsync;
use crate::{allocate, dir, file, rename, setattr, xattr};

/// Longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = BLOCK - 1;

/// A mounted ext4-like file system.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system: what was durable is there after the next mount.
pub struct Ext4Like<D: BlockPort + 'static> {
    core: Arc<Core<D>>,
    replayed: u32,
    background: Vec<JoinHandle<()>>,
}

impl<D: BlockPort + 'static> Ext4Like<D> {
    /// Makes an empty file system on `device`, over whatever was there.
    ///
    /// # Errors
    /// [`MountError::Unsuitable`], [`MountError::Device`].
    pub fn format(device: &D, options: &FormatOptions) -> std::result::Result<(), MountError> {
        mount::format(device, options)
    }

    /// Mounts the file system on `device`: replays its journal, and starts what runs in the background.
    ///
    /// # Errors
    /// As [`MountError`] says.
    pub fn mount(device: Arc<D>, options: MountOptions) -> std::result::Result<Self, MountError> {
        let in_background = options.commit_interval_ns > 0 && !options.read_only;
        let (core, replayed) = mount::open(device, options)?;
        let core = Arc::new(core);
        let mut background = Vec::new();
        if in_background {
            let journal = Arc::clone(&core);
            background.push(task::spawn("ext4like-journal", move || journal.commit_in_background()));
            let flusher = Arc::clone(&core);
            background.push(task::spawn("ext4like-write-back", move || flusher.write_back_in_background()));
        }
        Ok(Self { core, replayed, background })
    }

    /// Transactions that mounting replayed.
    pub const fn replayed(&self) -> u32 {
        self.replayed
    }

    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.core.device
    }

    /// What the superblock says, as of this mount.
    pub fn info(&self) -> Info {
        Info::of(&self.core.superblock)
    }

    /// Why the file system turned read-only, if a device error made it.
    pub fn failure(&self) -> Option<String> {
        self.core.failure()
    }

    /// What the page cache takes.
    pub fn cache_use(&self) -> CacheUse {
        self.core.pages.usage()
    }

    /// Transactions committed since the file system was made.
    pub fn commits(&self) -> u32 {
        self.core.journal.last_committed()
    }

    /// Writes everything in place, deletes files without names, and marks the file system clean. Nobody uses it any more.
    ///
    /// # Errors
    /// [`Error::Io`]; the file system is then as after a crash.
    pub fn unmount(mut self) -> Result<()> {
        self.stop();
        if self.core.options.read_only {
            return Ok(());
        }
        self.core.writable().map_err(|_| Error::Io(self.core.failure().unwrap_or_default()))?;
        mount::close(&self.core)
    }

    fn stop(&mut self) {
        if !self.background.is_empty() {
            self.core.dirty.stop();
            for task in self.background.drain(..) {
                task.join();
            }
        }
    }

    fn drop_reference(&self, inode: &Arc<Inode>) {
        // The common case, an inode with names, is decided without waiting for its lock.
        if inode.referenced() || inode.state.try_read().is_some_and(|state| state.nlink > 0) {
            return;
        }
        namespace::reap(&self.core, inode);
    }
}

impl<D: BlockPort + 'static> Drop for Ext4Like<D> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<D: BlockPort + 'static> FileSystem for Ext4Like<D> {
    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: false, atomic_writes: false, data_durable_on_return: false }
    }

    fn access_times(&self) -> AccessTimes {
        self.core.options.access_times
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let core = &self.core;
        let parent = core.inode(dir)?;
        let state = parent.state.read();
        state.dir()?;
        if state.gone {
            return Err(Error::NotFound);
        }
        let found = dir::find(core, &state, name)?.ok_or(Error::NotFound)?;
        let inode = namespace::entry_inode(core, &parent, found)?;
        // Under the directory's lock, so that nobody takes the name away before the reference counts.
        inode.lookups.fetch_add(1, Ordering::AcqRel);
        let attr = inode.attr(&inode.state.read());
        Ok(Entry { attr })
    }

    fn reference(&self, ino: Ino) -> Result<Entry> {
        let inode = self.core.inode(ino)?;
        let state = inode.state.read();
        if state.gone || state.nlink == 0 {
            return Err(Error::Stale(ino));
        }
        // Under the inode's lock, so that nobody deletes it before the reference counts.
        inode.lookups.fetch_add(1, Ordering::AcqRel);
        Ok(Entry { attr: inode.attr(&state) })
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let inode = self.core.inode(dir)?;
        inode.state.read().dir()?;
        Ok(Ino(inode.parent.load(Ordering::Acquire)))
    }

    fn forget(&self, ino: Ino, count: u64) {
        let Ok(inode) = self.core.inode(ino) else { return };
        let lower = |n: u64| Some(n.saturating_sub(count));
        let before = inode.lookups.fetch_update(Ordering::AcqRel, Ordering::Acquire, lower);
        if before.is_ok_and(|before| before > 0 && before <= count) {
            self.drop_reference(&inode);
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.core.inode(ino)?;
        let state = inode.state.read();
        if state.gone { Err(Error::Stale(ino)) } else { Ok(inode.attr(&state)) }
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        setattr::setattr(&self.core, ino, change, cred)
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
        if matches!(file_type, FileType::Directory | FileType::Symlink) {
            return Err(Error::Invalid("directories and symlinks have operations of their own"));
        }
        namespace::create(&self.core, dir, name, &NewInode { file_type, mode, rdev, target: &[] }, cred)
    }

    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        namespace::tmpfile(&self.core, dir, mode, cred)
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        let new = NewInode { file_type: FileType::Directory, mode, rdev: 0, target: &[] };
        namespace::create(&self.core, dir, name, &new, cred)
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::Invalid("a symlink needs a target"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let new = NewInode { file_type: FileType::Symlink, mode: 0o777, rdev: 0, target };
        namespace::create(&self.core, dir, name, &new, cred)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.core.inode(ino)?;
        let (target, moves) = {
            let state = inode.state.read();
            let Body::Symlink(target) = &state.body else {
                return Err(Error::Invalid("not a symbolic link"));
            };
            (target.clone(), self.core.read_moves_atime(&state))
        };
        if moves {
            self.core.note_read(&inode);
        }
        Ok(target)
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        namespace::link(&self.core, ino, dir, name)
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        namespace::unlink(&self.core, dir, name)
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        namespace::rmdir(&self.core, dir, name)
    }

    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        rename::rename(&self.core, from, name, to, new_name, mode)
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        let inode = self.core.inode(ino)?;
        if flags.truncate {
            let change = SetAttr { size: Some(0), ..SetAttr::default() };
            setattr::setattr(&self.core, ino, &change, &Cred::ROOT)?;
        }
        let state = inode.state.read();
        if state.gone {
            return Err(Error::Stale(ino));
        }
        if flags.write {
            self.core.writable()?;
        }
        inode.opens.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let Ok(inode) = self.core.inode(ino) else { return };
        let lower = |n: u64| Some(n.saturating_sub(1));
        if inode.opens.fetch_update(Ordering::AcqRel, Ordering::Acquire, lower) == Ok(1) {
            self.drop_reference(&inode);
        }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        file::read(&self.core, ino, offset, into, direct)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        file::write(&self.core, ino, offset, data, mode, cred)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        fsync(&self.core, &self.core.inode(ino)?, data_only)
    }

    fn sync(&self) -> Result<()> {
        self.core.sync_all()
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let inode = self.core.inode(dir)?;
        let moves = {
            let state = inode.state.read();
            let parent = inode.parent.load(Ordering::Acquire) as u32;
            dir::list(&self.core, inode.ino, parent, &state, cookie, sink)?;
            self.core.read_moves_atime(&state)
        };
        if moves {
            self.core.note_read(&inode);
        }
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let core = &self.core;
        let (blocks_free, blocks_available, inodes_free) = core.groups.free();
        Ok(StatFs {
            block_bytes: BLOCK as u32,
            blocks: u64::from(core.layout.blocks - core.layout.data),
            blocks_free,
            blocks_available,
            inodes: u64::from(core.layout.inodes() - 1),
            inodes_free,
            name_bytes_max: amphi_vfs::NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        file::seek(&*self.core.inode(ino)?, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        allocate::allocate(&self.core, ino, offset, length, what, cred)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        xattr::get(&self.core, ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        xattr::set(&self.core, ino, name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        xattr::list(&self.core, ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        xattr::remove(&self.core, ino, name)
    }
}
