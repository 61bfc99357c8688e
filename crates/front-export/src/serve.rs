//! The kernel's requests about a directory with one file.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amphi_device::{BlockPort, PAGE_BYTES};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

use crate::disk::Disk;
use crate::errno::errno;

/// The name of the one file.
pub const FILE_NAME: &str = "ssd";

const FILE: INodeNo = INodeNo(2);

/// How long the kernel may believe names and attributes: nothing here ever changes them.
const VALID: Duration = Duration::from_secs(86_400);

/// Largest request, in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel keeps in flight on its own behalf, asynchronous direct I/O among them; a loop
/// device has 128.
const BACKGROUND_MAX: u16 = 128;

/// What is wanted of the kernel where it can.
const WANTED: [InitFlags; 5] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

thread_local! {
    /// Where `read` puts data on its way to the kernel: one per serving thread, as large as its largest read
    /// so far.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Serves one device.
#[derive(Debug)]
pub(crate) struct Server<P> {
    disk: Disk<P>,
    since: SystemTime,
}

impl<P: BlockPort> Server<P> {
    pub(crate) fn new(disk: Disk<P>) -> Self {
        let since = u64::try_from(amphi_rt::time::wall_ns()).unwrap_or(0);
        Self { disk, since: UNIX_EPOCH + Duration::from_nanos(since) }
    }

    /// Both belong to whoever exports, and to nobody else: they are a disk.
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 2, 0),
            FILE => (FileType::RegularFile, 0o600, 1, self.disk.size()),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        })
    }
}

fn answer(reply: ReplyEmpty, result: amphi_device::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Whether a write must be durable when it returns (`O_SYNC`, `O_DSYNC`, `RWF_DSYNC`): past the page cache
/// the kernel leaves that to us.
const fn is_sync(flags: OpenFlags) -> bool {
    // O_SYNC holds the bit of O_DSYNC.
    flags.0 as u32 & OFlags::DSYNC.bits() != 0
}

impl<P: BlockPort + 'static> fuser::Filesystem for Server<P> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!("the kernel's FUSE driver lacks {flag:?}");
            }
        }
        if let Err(largest) = config.set_max_write(REQUEST_BYTES_MAX) {
            tracing::debug!("write requests are limited to {largest} bytes");
        }
        if let Err(most) = config.set_max_background(BACKGROUND_MAX) {
            tracing::debug!("the kernel keeps at most {most} requests in flight");
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE).filter(|_| parent == INodeNo::ROOT && name == FILE_NAME) {
            Some(attr) => reply.entry(&VALID, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&VALID, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// A disk has the size, the owner and the permissions that it has.
    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attr) = self.attr(ino) else { return reply.error(Errno::ENOENT) };
        if size.is_some_and(|size| size != attr.size) || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        reply.attr(&VALID, &attr);
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // The kernel would keep what is read and hide later reads from the device; the user of a disk has a
        // cache of their own.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| match self.disk.read(offset, size as usize, buffer) {
            Ok(range) => reply.data(&buffer[range]),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.disk.write(offset, data).and_then(|length| {
            if is_sync(flags) {
                self.disk.flush()?;
            }
            Ok(length)
        });
        match written {
            // As at the end of a block device.
            Ok(0) if !data.is_empty() => reply.error(Errno::ENOSPC),
            Ok(length) => reply.written(length as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.disk.flush());
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    /// A punched hole and a zeroed range are one thing to an SSD: pages trimmed read as zeros.
    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let what = flags - FallocateFlags::KEEP_SIZE;
        let fits = self.disk.clip(offset, length) == length;
        if what == FallocateFlags::PUNCH_HOLE || what == FallocateFlags::ZERO_RANGE && fits {
            return answer(reply, self.disk.discard(offset, length));
        }
        if !(what.is_empty() || what == FallocateFlags::ZERO_RANGE) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        // Every page there is has its room already; there are no others.
        if fits { reply.ok() } else { reply.error(Errno::ENOSPC) }
    }

    /// To its user a disk has no holes.
    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let size = self.disk.size();
        if u64::try_from(offset).map_or(true, |offset| offset >= size) {
            return reply.error(Errno::ENXIO);
        }
        match whence {
            SEEK_DATA => reply.offset(offset),
            SEEK_HOLE => reply.offset(size as i64),
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _file: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (ino, FileType::Directory, "."),
            (ino, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (number, (ino, kind, name)) in (1_u64..).zip(entries) {
            if number > cookie && reply.add(ino, number, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // A loop device takes the block size as the granularity of discards.
        let pages = self.disk.size() / PAGE_BYTES as u64;
        reply.statfs(pages, 0, 0, 1, 0, PAGE_BYTES as u32, 255, PAGE_BYTES as u32);
    }
}
