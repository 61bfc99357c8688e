//! The least a file system can do behind FUSE: names and bytes in memory, no permissions, no accounting,
//! nothing durable. What an operation takes here is what FUSE and fuser take, so it is what our mount is
//! measured against.
//!
//! It answers what any such file system answers: `open` and `create` come as requests, closing needs none
//! (`flush` is not implemented), and the kernel may remember names and attributes for as long as it likes.
//! `fsync` is answered, since a call that is never sent is none to compare with. It has no permissions, so
//! the kernel, which would ask for a directory's attributes after each change to it, checks none. It is
//! mounted by the same code as ours, with as many threads.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amphi_front_fuse::{MountError, MountOptions, Session, mount_server};
use amphi_rt::sync::{Mutex, RwLock};
use amphi_rt::time;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

/// How long the kernel may believe what it was told.
const VALID: Duration = Duration::from_secs(86_400);
/// Largest write request, in bytes; as ours.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// fuser knows no other answer to a name that the kernel may remember as absent than an entry with this
/// number.
const ABSENT: INodeNo = INodeNo(0);

/// Mounts an empty one on `directory`.
///
/// # Errors
/// It cannot be mounted.
pub fn mount(directory: &Path) -> Result<Session, MountError> {
    let options =
        MountOptions { fsname: "trivial".to_owned(), kernel_permissions: false, ..MountOptions::default() };
    mount_server(Trivial::new(), directory, &options)
}

type Answer<T> = Result<T, Errno>;

/// A file or directory. It lives as long as a name or the kernel refers to it.
struct Node {
    attr: FileAttr,
    bytes: Vec<u8>,
    names: BTreeMap<OsString, INodeNo>,
}

/// The file system.
struct Trivial {
    nodes: RwLock<BTreeMap<INodeNo, Arc<Mutex<Node>>>>,
    next: AtomicU64,
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(time::wall_ns().unsigned_abs())
}

fn node(number: INodeNo, kind: FileType, mode: u32) -> Node {
    let now = now();
    let attr = FileAttr {
        ino: number,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm: (mode & 0o7777) as u16,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    };
    Node { attr, bytes: Vec::new(), names: BTreeMap::new() }
}

impl Trivial {
    fn new() -> Self {
        let root = Arc::new(Mutex::new(node(INodeNo::ROOT, FileType::Directory, 0o755)));
        Self {
            nodes: RwLock::new(BTreeMap::from([(INodeNo::ROOT, root)])),
            next: AtomicU64::new(INodeNo::ROOT.0 + 1),
        }
    }

    fn with<T>(&self, number: INodeNo, f: impl FnOnce(&mut Node) -> Answer<T>) -> Answer<T> {
        let node = self.nodes.read().get(&number).cloned().ok_or(Errno::ENOENT)?;
        f(&mut node.lock())
    }

    fn attr(&self, number: INodeNo) -> Answer<FileAttr> {
        self.with(number, |node| Ok(node.attr))
    }

    fn make(&self, parent: INodeNo, name: &OsStr, kind: FileType, mode: u32) -> Answer<FileAttr> {
        let number = INodeNo(self.next.fetch_add(1, Ordering::Relaxed));
        let made = node(number, kind, mode);
        let attr = made.attr;
        self.with(parent, |parent| {
            if parent.names.contains_key(name) {
                return Err(Errno::EEXIST);
            }
            self.nodes.write().insert(number, Arc::new(Mutex::new(made)));
            parent.names.insert(name.to_owned(), number);
            parent.attr.mtime = attr.mtime;
            Ok(attr)
        })
    }

    fn remove(&self, parent: INodeNo, name: &OsStr) -> Answer<()> {
        let number = self.with(parent, |parent| {
            parent.attr.mtime = now();
            parent.names.remove(name).ok_or(Errno::ENOENT)
        })?;
        self.with(number, |node| {
            node.attr.nlink = 0;
            Ok(())
        })
    }
}

fn answer_entry(reply: ReplyEntry, answer: Answer<FileAttr>) {
    match answer {
        Ok(attr) => reply.entry(&VALID, &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn answer_attr(reply: ReplyAttr, answer: Answer<FileAttr>) {
    match answer {
        Ok(attr) => reply.attr(&VALID, &attr),
        Err(error) => reply.error(error),
    }
}

fn answer_empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

const fn time(given: TimeOrNow, now: SystemTime) -> SystemTime {
    match given {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => now,
    }
}

impl Filesystem for Trivial {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel that lacks one of these only sends more requests, or smaller ones.
        for wanted in [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_MAX_PAGES, InitFlags::FUSE_ASYNC_DIO]
        {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.with(parent, |parent| Ok(parent.names.get(name).copied()));
        let answer = match found {
            Ok(Some(number)) => self.attr(number),
            Ok(None) => Ok(node(ABSENT, FileType::RegularFile, 0).attr),
            Err(error) => Err(error),
        };
        answer_entry(reply, answer);
    }

    fn forget(&self, _request: &Request, number: INodeNo, _count: u64) {
        // The kernel forgets all references at once to what has lost its name.
        if self.attr(number).is_ok_and(|attr| attr.nlink == 0) {
            self.nodes.write().remove(&number);
        }
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        answer_attr(reply, self.attr(number));
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let answer = self.with(number, |node| {
            let now = now();
            if let Some(mode) = mode {
                node.attr.perm = (mode & 0o7777) as u16;
            }
            if let Some(size) = size {
                node.bytes.resize(size as usize, 0);
                node.attr.size = size;
                node.attr.mtime = now;
            }
            node.attr.atime = atime.map_or(node.attr.atime, |given| time(given, now));
            node.attr.mtime = mtime.map_or(node.attr.mtime, |given| time(given, now));
            node.attr.ctime = now;
            Ok(node.attr)
        });
        answer_attr(reply, answer);
    }

    fn mknod(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        answer_entry(reply, self.make(parent, name, FileType::RegularFile, mode));
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(parent, name, FileType::RegularFile, mode) {
            Ok(attr) => reply.created(&VALID, &attr, Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _file: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn mkdir(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        answer_entry(reply, self.make(parent, name, FileType::Directory, mode));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.remove(parent, name));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.remove(parent, name));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let moved = self.with(parent, |parent| parent.names.remove(name).ok_or(Errno::ENOENT));
        let renamed = moved.and_then(|number| {
            self.with(new_parent, |parent| Ok(parent.names.insert(new_name.to_owned(), number)))
        });
        answer_empty(reply, renamed.map(drop));
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(node) = self.nodes.read().get(&number).cloned() else { return reply.error(Errno::ENOENT) };
        let node = node.lock();
        let begin = (offset as usize).min(node.bytes.len());
        let end = (begin + size as usize).min(node.bytes.len());
        reply.data(&node.bytes[begin..end]);
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.with(number, |node| {
            let end = offset as usize + data.len();
            if node.bytes.len() < end {
                node.bytes.resize(end, 0);
                node.attr.size = end as u64;
            }
            node.bytes[offset as usize..end].copy_from_slice(data);
            node.attr.mtime = now();
            Ok(())
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        _file: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        _file: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.with(number, |node| {
            for (at, (name, number)) in node.names.iter().enumerate().skip(cookie as usize) {
                let kind = self.attr(*number).map_or(FileType::RegularFile, |attr| attr.kind);
                if reply.add(*number, at as u64 + 1, kind, name) {
                    break;
                }
            }
            Ok(())
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}
