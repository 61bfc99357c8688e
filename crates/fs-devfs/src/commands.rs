//! The mounted file system as the host's kernel calls it: each call is a command, carried out on a processor
//! of the device (§4.6). The kernel has checked the caller; programs that send commands themselves use
//! `door`.

use std::ops::Range;

use amphi_device::{BlockPort, CommandPort, MemoryArea, PAGE_BYTES};
use amphi_vfs::{
    AccessTimes, Allocate, Attr, Cred, DirSink, Entry, FileSystem, FileType, Ino, Name, OpenFlags, Promise,
    Removed, RenameMode, Renamed, Result, Seek, SetAttr, StatFs, WriteMode, XattrMode,
};
use amphi_volume::io_error;

use crate::controller::Controller;
use crate::fs::DevFs;

impl<D: BlockPort + MemoryArea + CommandPort + 'static> DevFs<D> {
    /// Carries out a command that takes `given` bytes from the host and answers with `taken`.
    fn command<T>(
        &self,
        given: usize,
        taken: usize,
        body: impl FnOnce(&Controller<D>) -> Result<T>,
    ) -> Result<T> {
        let device = &**self.device();
        device.receive(given as u64).map_err(io_error)?;
        let processor = self.inside.processors.take();
        device.compute((given + taken) as u64);
        self.controller().relieve();
        let outcome = body(self.controller());
        self.controller().pay_for_moves();
        drop(processor);
        device.complete(taken as u64).map_err(io_error)?;
        outcome
    }
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static> FileSystem for DevFs<D> {
    fn promise(&self) -> Promise {
        self.controller().promise()
    }

    fn access_times(&self) -> AccessTimes {
        self.controller().access_times()
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.command(name.bytes().len(), 0, |fs| fs.lookup(dir, name))
    }

    fn reference(&self, ino: Ino) -> Result<Entry> {
        self.command(0, 0, |fs| fs.reference(ino))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.command(0, 0, |fs| fs.parent(dir))
    }

    fn forget(&self, ino: Ino, count: u64) {
        // What the kernel remembers of names is the emulation's affair: a program's commands name paths or
        // open files and leave nothing to forget.
        self.controller().forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.command(0, 0, |fs| fs.getattr(ino))
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        self.command(0, 0, |fs| fs.setattr(ino, change, cred))
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
        self.command(name.bytes().len(), 0, |fs| fs.create(dir, name, file_type, mode, rdev, cred))
    }

    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        self.command(0, 0, |fs| fs.tmpfile(dir, mode, cred))
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.command(name.bytes().len(), 0, |fs| fs.mkdir(dir, name, mode, cred))
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        self.command(name.bytes().len() + target.len(), 0, |fs| fs.symlink(dir, name, target, cred))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.command(0, 0, |fs| fs.readlink(ino))
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.command(name.bytes().len(), 0, |fs| fs.link(ino, dir, name))
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.command(name.bytes().len(), 0, |fs| fs.unlink(dir, name))
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.command(name.bytes().len(), 0, |fs| fs.unlink_as(dir, name, cred))
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.command(name.bytes().len(), 0, |fs| fs.rmdir(dir, name))
    }

    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.command(name.bytes().len(), 0, |fs| fs.rmdir_as(dir, name, cred))
    }

    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        let given = name.bytes().len() + new_name.bytes().len();
        self.command(given, 0, |fs| fs.rename(from, name, to, new_name, mode))
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        self.command(0, 0, |fs| fs.may_open().and_then(|()| fs.open(ino, flags)))
    }

    fn release(&self, ino: Ino) {
        // A device that is gone has no files open.
        let _ = self.command(0, 0, |fs| {
            fs.release(ino);
            Ok(())
        });
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        self.command(0, into.len(), |fs| fs.read(ino, offset, into, direct))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        self.command(data.len(), 0, |fs| fs.write(ino, offset, data, mode, cred))
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.command(0, 0, |fs| fs.fsync(ino, data_only))
    }

    fn sync(&self) -> Result<()> {
        self.command(0, 0, FileSystem::sync)
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.command(0, PAGE_BYTES, |fs| fs.readdir(dir, cookie, sink))
    }

    fn statfs(&self) -> Result<StatFs> {
        self.command(0, 0, FileSystem::statfs)
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        self.command(0, 0, |fs| fs.discard_free(range, shortest))
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.command(0, 0, |fs| fs.seek(ino, offset, what))
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        self.command(0, 0, |fs| fs.allocate(ino, offset, length, what, cred))
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.command(name.len(), 0, |fs| fs.getxattr(ino, name))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.command(name.len() + value.len(), 0, |fs| fs.setxattr(ino, name, value, mode))
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.command(0, 0, |fs| fs.listxattr(ino))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.command(name.len(), 0, |fs| fs.removexattr(ino, name))
    }
}
