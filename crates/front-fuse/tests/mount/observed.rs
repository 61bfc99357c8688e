//! The model, with somebody looking on at who serves a request, and able to keep it waiting.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use amphi_model::Model;
use amphi_vfs::{
    Attr, Cred, DirSink, Entry, FileSystem, FileType, Ino, Name, OpenFlags, Promise, Removed, RenameMode,
    Renamed, Result, Seek, SetAttr, StatFs, WriteMode,
};

/// Looks on at writes: their inode and data.
pub type Observer = Box<dyn Fn(Ino, &[u8]) + Send + Sync>;

pub struct Observed {
    model: Arc<Model>,
    observer: Observer,
    /// The processor that served the last `getattr`.
    pub served_on: Mutex<usize>,
    next_forget_takes: Mutex<Duration>,
    overtakes: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Observed {
    pub fn new(model: Arc<Model>, observer: impl Fn(Ino, &[u8]) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            model,
            observer: Box::new(observer),
            served_on: Mutex::new(usize::MAX),
            next_forget_takes: Mutex::default(),
            overtakes: Mutex::default(),
        })
    }

    /// Whoever tells of the next inode that the kernel has forgotten is kept for so long.
    pub fn next_forget_takes(&self, duration: Duration) {
        *self.next_forget_takes.lock().unwrap() = duration;
    }

    /// Something happens between the next change of attributes or link and its answer.
    pub fn overtake(&self, by: impl FnOnce() + Send + 'static) {
        *self.overtakes.lock().unwrap() = Some(Box::new(by));
    }

    fn let_overtake(&self) {
        if let Some(by) = self.overtakes.lock().unwrap().take() {
            by();
        }
    }
}

impl FileSystem for Observed {
    fn promise(&self) -> Promise {
        self.model.promise()
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.model.lookup(dir, name)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.model.parent(dir)
    }

    fn forget(&self, ino: Ino, count: u64) {
        // Threads of rings only give back what they have taken for a moment.
        if thread::current().name() != Some("fuse-ring") {
            let duration = std::mem::take(&mut *self.next_forget_takes.lock().unwrap());
            thread::sleep(duration);
        }
        self.model.forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        *self.served_on.lock().unwrap() = rustix::thread::sched_getcpu();
        self.model.getattr(ino)
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        let set = self.model.setattr(ino, change, cred);
        self.let_overtake();
        set
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
        self.model.create(dir, name, file_type, mode, rdev, cred)
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.model.mkdir(dir, name, mode, cred)
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        self.model.symlink(dir, name, target, cred)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.model.readlink(ino)
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let linked = self.model.link(ino, dir, name);
        self.let_overtake();
        linked
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.model.unlink(dir, name)
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.model.unlink_as(dir, name, cred)
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.model.rmdir(dir, name)
    }

    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.model.rmdir_as(dir, name, cred)
    }

    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        self.model.rename(from, name, to, new_name, mode)
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        self.model.open(ino, flags)
    }

    fn release(&self, ino: Ino) {
        self.model.release(ino);
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        self.model.read(ino, offset, into, direct)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        (self.observer)(ino, data);
        self.model.write(ino, offset, data, mode, cred)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.model.fsync(ino, data_only)
    }

    fn sync(&self) -> Result<()> {
        self.model.sync()
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.model.readdir(dir, cookie, sink)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.model.statfs()
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.model.seek(ino, offset, what)
    }
}
