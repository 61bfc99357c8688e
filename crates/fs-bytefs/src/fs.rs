//! [`ByteFs`]: the mounted file system, and its operations as `vfs` names them.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, RecoverReport, WriteLog};
use amphi_rt::task::{self, JoinHandle};
use amphi_rt::time;
use amphi_vfs::{
    AccessTimes, Allocate, Attr, Cred, DirSink, Entry, Error, FileSystem, FileType, Ino, Name, OpenFlags,
    Promise, RenameMode, Result, Seek, SetAttr, StatFs, WriteMode, XattrMode,
};

use crate::core::{Core, io_error};
use crate::format::PAGE;
use crate::inode::{Body, Inode};
use crate::mount::{self, FormatOptions, Info, MountError};
use crate::namespace::{self, NewInode, lock_dir};
use crate::options::MountOptions;
use crate::page::CacheUse;
use crate::planted::{self, Bug};
use crate::symlink::TARGET_BYTES_MAX;
use crate::truncate::delete;
use crate::tx::Tx;
use crate::writeback::write_back;
use crate::{allocate, direct, discard, file, rename, setattr, xattr};

/// A mounted ByteFS.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system: what was durable is there after the next mount.
pub struct ByteFs<D: BlockPort + WriteLog + 'static> {
    core: Arc<Core<D>>,
    recovered: RecoverReport,
    /// The background task that writes dirty files back.
    flusher: Option<JoinHandle<()>>,
}

impl<D: BlockPort + WriteLog + 'static> ByteFs<D> {
    /// Makes an empty file system on `device`, over whatever was there.
    ///
    /// # Errors
    /// [`MountError::Unsuitable`], [`MountError::Device`].
    pub fn format(device: &D, options: &FormatOptions) -> std::result::Result<(), MountError> {
        mount::format(device, options)
    }

    /// The mount options that the file system on `device` asks for: the defaults but for what its superblock says. Options there that
    /// this version does not know are passed over, and fsck finds them.
    ///
    /// # Errors
    /// [`MountError::Format`], [`MountError::Device`].
    pub fn default_options(device: &D) -> std::result::Result<MountOptions, MountError> {
        mount::recognise(device)?;
        let wanted = match mount::probe(device) {
            // A change that was never committed lies over it.
            Err(MountError::Format(_)) => {
                device.recover()?;
                mount::probe(device)?.options
            }
            found => found?.options,
        };
        let mut options = MountOptions::default();
        for word in wanted.split(',') {
            // An error leaves the option as it is.
            let _known = options.set(word);
        }
        Ok(options)
    }

    /// Tells the device which pages hold nothing: the free runs of at least `shortest` bytes. Returns the bytes of all of them.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::ReadOnly`].
    pub fn trim_free(&self, shortest: u64) -> Result<u64> {
        self.discard_free(0..u64::MAX, shortest)
    }

    /// Mounts the file system on `device`: `RECOVER()`s it, which is what makes a crashed one whole, and starts background write-back.
    ///
    /// # Errors
    /// As [`MountError`] says.
    pub fn mount(device: Arc<D>, options: MountOptions) -> std::result::Result<Self, MountError> {
        let interval_ns = options.write_back_interval_ns;
        let read_only = options.read_only;
        let (core, recovered) = mount::open(device, options)?;
        let core = Arc::new(core);
        let flusher = (interval_ns > 0 && !read_only).then(|| {
            let core = Arc::clone(&core);
            task::spawn("bytefs-write-back", move || {
                while let Some(rung) = core.dirty.wait(interval_ns) {
                    // Too much is dirty, or its time has come.
                    let expired_ns = time::now_ns().saturating_sub(core.options.dirty_expire_ns);
                    let before_ns = if rung { u64::MAX } else { expired_ns };
                    // A failure has turned the file system read-only, which the next operation reports.
                    let _reported_by_the_next_operation = core.write_back_since(before_ns);
                }
            })
        });
        Ok(Self { core, recovered, flusher })
    }

    /// What `RECOVER()` found when this was mounted.
    pub const fn recovered(&self) -> RecoverReport {
        self.recovered
    }

    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.core.device
    }

    /// What the superblock says, as of this mount.
    pub fn info(&self) -> Info {
        Info::of(&self.core.superblock, &self.core.state)
    }

    /// Why the file system turned read-only, if a device error made it.
    pub fn failure(&self) -> Option<String> {
        self.core.failure()
    }

    /// Writes everything back, deletes files without names, and marks the file system clean. Nobody uses it any more.
    ///
    /// # Errors
    /// [`Error::Io`]; the file system is then as after a crash.
    pub fn unmount(mut self) -> Result<()> {
        self.stop_flusher();
        let core = &self.core;
        if core.options.read_only {
            return Ok(());
        }
        core.write_back_all()?;
        let mut lately_read = Vec::new();
        core.icache.visit(0, |inode| {
            if inode.state.read().atime_dirty {
                lately_read.push(Arc::clone(inode));
            }
            ControlFlow::Continue(())
        });
        core.write_atimes(&lately_read)?;
        for (_, ino) in core.orphans.filled() {
            let inode = core.inode(Ino(u64::from(ino)))?;
            let mut state = inode.state.write();
            if state.nlink == 0 && !state.gone {
                delete(core, &inode, &mut state, Tx::new(core, 0)?)?;
            }
        }
        core.device.flush().map_err(io_error)?;
        let mut state = core.state;
        state.unmounted_ns = core.now().into();
        state.clean = 1.into();
        mount::write_state(core, state)
    }

    fn stop_flusher(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            self.core.dirty.stop();
            flusher.join();
        }
    }

    /// What the page cache takes.
    pub fn cache_use(&self) -> CacheUse {
        self.core.pages.usage()
    }

    fn dir_entry(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let core = &self.core;
        let parent = core.inode(dir)?;
        loop {
            {
                let state = parent.state.read();
                let body = state.dir()?;
                if state.gone {
                    return Err(Error::NotFound);
                }
                if body.loaded() {
                    let (found, cached) = body.find_inode(name, &core.icache).ok_or(Error::NotFound)?;
                    let inode = match cached {
                        // What is cached is as good as looked up; an entry that was replaced names the inode it does now.
                        Some(inode) if inode.ino == found.ino => {
                            namespace::check_entry(&parent, found, &inode)?;
                            inode
                        }
                        _ => namespace::entry_inode(core, &parent, found)?,
                    };
                    // Under the directory's lock, so that nobody takes the name away before the reference counts.
                    inode.lookups.fetch_add(1, Ordering::AcqRel);
                    let attr = inode.attr(&inode.state.read());
                    return Ok(Entry { attr });
                }
            }
            drop(lock_dir(core, &parent)?);
        }
    }

    fn new_inode(&self, dir: Ino, name: Name<'_>, new: &NewInode<'_>, cred: &Cred) -> Result<Entry> {
        self.with_room(|| namespace::create(&self.core, dir, name, new, cred))
    }

    /// Tries once more where no space is left: files with writes to come hold more than they will take, extent nodes above all, and writing them back sets that free.
    fn with_room<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(Error::NoSpace) => {
                self.core.write_back_all()?;
                attempt()
            }
            outcome => outcome,
        }
    }

    fn drop_reference(&self, inode: &Inode) {
        // The common case, an inode with names, is decided without waiting for its lock.
        if inode.referenced() || inode.state.try_read().is_some_and(|state| state.nlink > 0) {
            return;
        }
        namespace::reap(&self.core, inode);
    }
}

impl<D: BlockPort + WriteLog + 'static> Drop for ByteFs<D> {
    fn drop(&mut self) {
        self.stop_flusher();
    }
}

impl<D: BlockPort + WriteLog + 'static> FileSystem for ByteFs<D> {
    fn promise(&self) -> Promise {
        Promise {
            metadata_durable_on_return: true,
            atomic_writes: self.core.journals_data(),
            data_durable_on_return: self.core.options.sync_writes,
        }
    }

    fn access_times(&self) -> AccessTimes {
        self.core.options.access_times
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.dir_entry(dir, name)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let inode = self.core.inode(dir)?;
        inode.state.read().dir()?;
        Ok(Ino(inode.parent.load(Ordering::Acquire)))
    }

    fn forget(&self, ino: Ino, count: u64) {
        let Ok(inode) = self.core.inode(ino) else { return };
        let before = inode
            .lookups
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| Some(n.saturating_sub(count)));
        if before.is_ok_and(|before| before > 0 && before <= count) {
            self.drop_reference(&inode);
        }
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
        self.new_inode(dir, name, &NewInode { file_type, mode, rdev, target: &[] }, cred)
    }

    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        namespace::tmpfile(&self.core, dir, mode, cred)
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.new_inode(
            dir,
            name,
            &NewInode { file_type: FileType::Directory, mode, rdev: 0, target: &[] },
            cred,
        )
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::Invalid("a symlink needs a target"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let new = NewInode { file_type: FileType::Symlink, mode: 0o777, rdev: 0, target };
        self.new_inode(dir, name, &new, cred)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.core.inode(ino)?;
        let (target, moves) = {
            let state = inode.state.read();
            let Body::Symlink(target, _) = &state.body else {
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

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<()> {
        namespace::unlink(&self.core, dir, name)
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<()> {
        namespace::rmdir(&self.core, dir, name)
    }

    fn rename(&self, from: Ino, name: Name<'_>, to: Ino, new_name: Name<'_>, mode: RenameMode) -> Result<()> {
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
        let before =
            inode.opens.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| Some(n.saturating_sub(1)));
        if before == Ok(1) {
            self.drop_reference(&inode);
        }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        if direct {
            return direct::read(&self.core, &*self.core.inode(ino)?, offset, into);
        }
        file::read(&self.core, &*self.core.inode(ino)?, offset, into)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mut mode: WriteMode, cred: &Cred) -> Result<usize> {
        mode.sync_data |= self.core.options.sync_writes;
        mode.sync_metadata |= self.core.options.sync_writes;
        let inode = &*self.core.inode(ino)?;
        self.with_room(|| {
            let write = if mode.direct { direct::write } else { file::write };
            write(&self.core, inode, offset, data, mode, cred)
        })
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        let inode = self.core.inode(ino)?;
        let mut state = inode.state.write();
        match state.body {
            Body::File(_) => write_back(&self.core, &inode, &mut state, data_only),
            // Everything else is durable when the operation that changed it returns.
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        if planted::has(Bug::SyncForgotten) {
            return Ok(());
        }
        self.core.write_back_all()
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let inode = self.core.inode(dir)?;
        let parent = |inode: &Inode| inode.parent.load(Ordering::Acquire) as u32;
        loop {
            {
                let state = inode.state.read();
                let body = state.dir()?;
                if body.loaded() {
                    body.list(inode.ino, parent(&inode), cookie, sink);
                    let moves = self.core.read_moves_atime(&state);
                    drop(state);
                    if moves {
                        self.core.note_read(&inode);
                    }
                    return Ok(());
                }
            }
            inode.state.write().dir_mut()?.load(&self.core, inode.ino)?;
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        let core = &self.core;
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: core.layout.pages - core.layout.metadata_pages(),
            blocks_free: core.blocks.free(),
            blocks_available: core.blocks.available(),
            inodes: core.inodes.bits() - 1,
            inodes_free: core.inodes.available(),
            name_bytes_max: amphi_vfs::NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        file::seek(&*self.core.inode(ino)?, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        allocate::allocate(&self.core, ino, offset, length, what, cred)?;
        // Parts of pages were zeroed in the cache.
        if self.core.options.sync_writes { self.fsync(ino, false) } else { Ok(()) }
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        let page = PAGE as u64;
        discard::trim_free(&self.core, range.start.div_ceil(page)..range.end / page, shortest.div_ceil(page))
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
