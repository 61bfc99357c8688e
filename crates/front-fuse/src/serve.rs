//! Requests that come through `/dev/fuse`, as fuser reads them: one method per request, which passes it on to
//! [`Operations`] and its answer to fuser.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use amphi_vfs::{Attr, Entry, FileSystem, Ino, SetAttr};
use fuser::{
    BsdFileFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use crate::answers::{Answer, VALID, Xattr};
use crate::attributes::{absent, file_attr, kind, set_time, time_spec};
use crate::negotiate::Negotiation;
use crate::operations::Operations;

thread_local! {
    /// Where `read` puts data on its way to the kernel: one per serving thread, as large as its largest read
    /// so far.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Serves one file system through fuser.
#[derive(Debug)]
pub(crate) struct Server<F> {
    operations: Arc<Operations<F>>,
    negotiation: Arc<Negotiation>,
}

impl<F: FileSystem> Server<F> {
    pub(crate) const fn new(operations: Arc<Operations<F>>, negotiation: Arc<Negotiation>) -> Self {
        Self { operations, negotiation }
    }
}

const fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

fn answer_entry(reply: ReplyEntry, answer: Answer<Entry>) {
    match answer {
        Ok(entry) => {
            let generation = Generation(u64::from(entry.attr.generation));
            reply.entry(&VALID, &file_attr(&entry.attr), generation);
        }
        Err(error) => reply.error(error),
    }
}

fn answer_empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn answer_xattr(reply: ReplyXattr, answer: Answer<Xattr>) {
    match answer {
        Ok(Xattr::Size(size)) => reply.size(size),
        Ok(Xattr::Value(value)) => reply.data(&value),
        Err(error) => reply.error(error),
    }
}

fn answer_attr(reply: ReplyAttr, answer: Answer<Attr>, valid: Duration) {
    match answer {
        Ok(attr) => reply.attr(&valid, &file_attr(&attr)),
        Err(error) => reply.error(error),
    }
}

impl<F: FileSystem + 'static> fuser::Filesystem for Server<F> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.negotiation.negotiate(config)
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (caller, name) = (request.into(), name.as_bytes());
        if let Some(entry) = self.operations.passed(caller, ino(parent), name) {
            let generation = Generation(u64::from(entry.attr.generation));
            return reply.entry_with_ttls(&VALID, &Duration::ZERO, &file_attr(&entry.attr), generation);
        }
        match self.operations.lookup(caller, ino(parent), name) {
            Ok(None) => reply.entry(&VALID, &absent(), Generation(0)),
            Ok(Some(entry)) => answer_entry(reply, Ok(entry)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _request: &Request, number: INodeNo, count: u64) {
        self.operations.forget(ino(number), count);
    }

    fn getattr(&self, request: &Request, number: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        answer_attr(reply, self.operations.getattr(request.into(), ino(number)), VALID);
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = SetAttr {
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(time_spec),
        };
        let set = self.operations.setattr(request.into(), ino(number), &change);
        answer_attr(reply, set, self.operations.answered.valid_whatever_comes());
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        match self.operations.readlink(ino(number)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes();
        answer_entry(reply, self.operations.mknod(request.into(), ino(parent), name, mode, umask, rdev));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes();
        answer_entry(reply, self.operations.mkdir(request.into(), ino(parent), name, mode, umask));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.operations.unlink(request.into(), ino(parent), name.as_bytes()));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.operations.rmdir(request.into(), ino(parent), name.as_bytes()));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let created = self.operations.symlink(request.into(), ino(parent), name.as_bytes(), target);
        answer_entry(reply, created);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((ino(parent), name.as_bytes()), (ino(new_parent), new_name.as_bytes()));
        answer_empty(reply, self.operations.rename(request.into(), from, to, flags.bits()));
    }

    fn link(
        &self,
        request: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = new_name.as_bytes();
        match self.operations.link(request.into(), ino(number), ino(new_parent), name) {
            Ok(Entry { attr }) => {
                let valid = self.operations.answered.valid_whatever_comes();
                let generation = Generation(u64::from(attr.generation));
                reply.entry_with_ttls(&valid, &VALID, &file_attr(&attr), generation);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        _file: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _file: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Closing a file makes nothing durable and drops no lock of ours: the kernel need not tell.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.operations.read(ino(number), offset, &mut buffer[..size], flags.0 as u32) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (how, open) = (write_flags.bits(), flags.0 as u32);
        match self.operations.write(request.into(), ino(number), offset, data, how, open) {
            Ok(length) => reply.written(length),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.operations.fsync(ino(number), data_only));
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.operations.fsyncdir(ino(number), data_only));
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.operations.readdir(ino(number), cookie, &mut |entry| {
            let name = OsStr::from_bytes(entry.name);
            reply.add(INodeNo(entry.ino.0), entry.next_cookie, kind(entry.file_type), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        number: INodeNo,
        _file: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut add = |name: &[u8], next_cookie, attr: &Attr| {
            let generation = Generation(u64::from(attr.generation));
            let name = OsStr::from_bytes(name);
            reply.add(INodeNo(attr.ino.0), next_cookie, name, &VALID, &file_attr(attr), generation)
        };
        match self.operations.readdirplus(request.into(), ino(number), cookie, &mut add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        match self.operations.statfs() {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.blocks_free,
                stat.blocks_available,
                stat.inodes,
                stat.inodes_free,
                stat.block_bytes,
                stat.name_bytes_max,
                stat.block_bytes,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let name = name.as_bytes();
        let set = self.operations.setxattr(request.into(), ino(number), name, value, flags as u32);
        answer_empty(reply, set);
    }

    fn getxattr(&self, _request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer_xattr(reply, self.operations.getxattr(ino(number), name.as_bytes(), size));
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        answer_xattr(reply, self.operations.listxattr(request.into(), ino(number), size));
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.operations.removexattr(request.into(), ino(number), name.as_bytes()));
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = request.into();
        answer_empty(reply, self.operations.fallocate(caller, ino(number), offset, length, mode as u32));
    }

    fn ioctl(
        &self,
        request: &Request,
        number: INodeNo,
        _file: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        argument: &[u8],
        _room: u32,
        reply: ReplyIoctl,
    ) {
        match self.operations.ioctl(request.into(), ino(number), command, argument) {
            Ok(argument) => reply.ioctl(0, &argument),
            Err(error) => reply.error(error),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.operations.lseek(ino(number), offset, whence as u32) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(error),
        }
    }
}
