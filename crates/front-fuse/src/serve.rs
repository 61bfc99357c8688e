//! Kernel requests to file-system operations: one method per request, each a translation and nothing else.
//!
//! Files are not opened here: `open` and `create` are answered with "not implemented", on which the kernel stops sending
//! them, and opens and closes files it knows by itself. An open file is an inode the kernel has looked up and not forgotten, so it
//! lives, with or without names, as long as anybody needs it; `O_TRUNC` arrives as a `setattr`, and creating a file is one `mknod`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use amphi_vfs::{
    Allocate, Capabilities, Entry, Error, FileSystem, Ino, Name, Promise, RenameMode, Result, Seek, SetAttr,
    WriteMode, XattrMode, acl,
    permission::{may_change, may_list_attribute, without_foreign_group},
};
use fuser::{
    BsdFileFlags, Errno, FileHandle, FopenFlags, INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};

use crate::answered::Answered;
use crate::answers::{answer_attr, answer_empty, answer_entry, answer_lookup, answer_xattr};
use crate::attributes::{node_type, set_time, time_spec};
use crate::caller;
use crate::errno::{errno, errno_of_seek, errno_or_absent};
use crate::listing;
use crate::negotiate::negotiate;
use crate::room::with_room;
use crate::trim;

thread_local! {
    /// Where `read` puts data on its way to the kernel: one per serving thread, as large as its largest read so far.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Serves one file system.
#[derive(Debug)]
pub(crate) struct Server<F> {
    fs: Arc<F>,
    answered: Arc<Answered>,
    /// Whether there are extended attributes at all. Before most writes the kernel asks for one; if not, it can be told to stop.
    has_xattrs: bool,
    /// What is durable without being asked for.
    promise: Promise,
}

impl<F: FileSystem> Server<F> {
    pub(crate) fn new(fs: Arc<F>, answered: Arc<Answered>) -> Self {
        let absent = matches!(fs.getxattr(Ino::ROOT, b"user.amphi"), Err(Error::Unsupported(_)));
        let promise = fs.promise();
        Self { fs, answered, has_xattrs: !absent, promise }
    }

    /// The result of a change to `inodes`, to be answered to the thread of `request`.
    fn changed<T>(&self, request: &Request, inodes: &[INodeNo], result: Result<T>) -> Result<T> {
        if result.is_ok() {
            for number in inodes {
                self.answered.changed(ino(*number), request.pid());
            }
        }
        result
    }

    /// The inode that has come to be called `name` was changed, for the thread of `request`.
    fn changed_by_name(&self, request: &Request, parent: INodeNo, name: &OsStr) {
        // By now it may be called something else; then whoever renamed it has seen to it.
        if let Ok(found) = Self::with_name(name, |name| self.fs.lookup(ino(parent), name)) {
            self.answered.changed(found.attr.ino, request.pid());
            self.fs.forget(found.attr.ino, 1);
        }
    }

    /// The inode, once more known to the kernel, with attributes read after it was noted who gets them.
    fn reference(&self, inode: Ino, thread: u32) -> Result<Entry> {
        self.answered.note(inode, thread);
        self.fs.reference(inode)
    }

    /// Whether a change of owner or contents takes set-id bits away, depending on who asks.
    fn may_lose_set_id(&self, number: INodeNo) -> bool {
        self.fs.getattr(ino(number)).is_ok_and(|attr| attr.mode & 0o6000 != 0)
    }

    /// Whether the caller may take the set-id bits of a file that gets a new owner or group. Of that the kernel leaves nothing to us but this.
    fn may_give_away(&self, request: &Request, number: INodeNo, change: &SetAttr) -> Result<()> {
        if change.uid.is_none() && change.gid.is_none() {
            return Ok(());
        }
        // A caller that cannot be seen has been permitted by the kernel as far as it goes.
        let Some(caller) = caller::in_full(request) else { return Ok(()) };
        let given = SetAttr { uid: change.uid, gid: change.gid, ..SetAttr::default() };
        may_change(&self.fs.getattr(ino(number))?, None, &given, &caller).map(drop)
    }

    /// An access ACL from who is not in the file's group takes its set-group-id bit away. The kernel leaves that to us, and fuser does not pass on
    /// what it says about it.
    fn before_access_list(&self, request: &Request, number: INodeNo, name: &OsStr) -> Result<()> {
        if name.as_bytes() != acl::ACCESS {
            return Ok(());
        }
        let attr = self.fs.getattr(ino(number))?;
        if attr.mode & 0o2000 == 0 {
            return Ok(());
        }
        let caller = caller::at_least(request);
        let kept = without_foreign_group(attr.mode, attr.gid, &caller);
        if kept != attr.mode {
            let change = SetAttr { mode: Some(kept), ..SetAttr::default() };
            self.fs.setattr(ino(number), &change, &caller)?;
        }
        Ok(())
    }

    fn with_name<T>(name: &OsStr, f: impl FnOnce(Name<'_>) -> Result<T>) -> Result<T> {
        f(Name::new(name.as_bytes())?)
    }
}

const fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

/// Permission bits of a mode.
const fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

impl<F: FileSystem + 'static> fuser::Filesystem for Server<F> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        negotiate(config)
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        // With FUSE_EXPORT_SUPPORT the kernel asks for these when it has a file handle and no longer the inode.
        match name.as_bytes() {
            b"." => return answer_entry(reply, self.reference(ino(parent), request.pid())),
            b".." => {
                let above =
                    self.fs.parent(ino(parent)).and_then(|above| self.reference(above, request.pid()));
                return answer_entry(reply, above);
            }
            _ => {}
        }
        let found = Self::with_name(name, |name| {
            listing::lookup(&*self.fs, &self.answered, ino(parent), name, request.pid())
        });
        answer_lookup(reply, found);
    }

    fn forget(&self, _request: &Request, number: INodeNo, count: u64) {
        self.fs.forget(ino(number), count);
    }

    fn getattr(&self, request: &Request, number: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        self.answered.note(ino(number), request.pid());
        answer_attr(reply, self.fs.getattr(ino(number)));
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
            mode: mode.map(permissions),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(time_spec),
        };
        let mut caller = caller::permitted(request, 0);
        if (size.is_some() || uid.is_some() || gid.is_some()) && self.may_lose_set_id(number) {
            caller = caller::at_least(request);
            if let Err(error) = self.may_give_away(request, number, &change) {
                return reply.error(errno(&error));
            }
        }
        answer_attr(reply, self.fs.setattr(ino(number), &change, &caller));
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        match self.fs.readlink(ino(number)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
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
        let created = Self::with_name(name, |name| {
            let file_type = node_type(mode).ok_or(Error::Invalid("a type that mknod does not make"))?;
            let caller = caller::permitted(request, umask);
            with_room(|| self.fs.create(ino(parent), name, file_type, permissions(mode), rdev, &caller))
        });
        answer_entry(reply, self.changed(request, &[parent], created));
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
        let created = Self::with_name(name, |name| {
            let caller = caller::permitted(request, umask);
            with_room(|| self.fs.mkdir(ino(parent), name, permissions(mode), &caller))
        });
        answer_entry(reply, self.changed(request, &[parent], created));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = Self::with_name(name, |name| self.fs.unlink(ino(parent), name));
        answer_empty(reply, self.changed(request, &[parent], removed));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = Self::with_name(name, |name| self.fs.rmdir(ino(parent), name));
        answer_empty(reply, self.changed(request, &[parent], removed));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let created = Self::with_name(name, |name| {
            let caller = caller::permitted(request, 0);
            with_room(|| self.fs.symlink(ino(parent), name, target.as_os_str().as_bytes(), &caller))
        });
        answer_entry(reply, self.changed(request, &[parent], created));
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
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameMode::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let renamed = Self::with_name(name, |name| {
            Self::with_name(new_name, |new_name| {
                self.fs.rename(ino(parent), name, ino(new_parent), new_name, mode)
            })
        });
        if renamed.is_ok() {
            self.changed_by_name(request, new_parent, new_name);
            if mode == RenameMode::Exchange {
                self.changed_by_name(request, parent, name);
            }
        }
        answer_empty(reply, self.changed(request, &[parent, new_parent], renamed));
    }

    fn link(
        &self,
        request: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = Self::with_name(new_name, |name| self.fs.link(ino(number), ino(new_parent), name));
        answer_entry(reply, self.changed(request, &[number, new_parent], linked));
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
        // Directories need no opening either, but "not implemented" lets the kernel keep listings: see `negotiate`.
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
            match self.fs.read(ino(number), offset, &mut buffer[..size], is_direct(flags)) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(error) => reply.error(errno(&error)),
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
        // The kernel has turned O_APPEND into an offset under the file's lock, and sends an fsync of its own after an O_SYNC write.
        let mode = WriteMode { direct: is_direct(flags), ..WriteMode::default() };
        let mut caller = caller::permitted(request, 0);
        // The kernel knows the caller's capabilities and says whether set-id bits have to go.
        caller.capabilities = if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            caller.capabilities.without(Capabilities::FSETID)
        } else {
            caller.capabilities.with(Capabilities::FSETID)
        };
        match with_room(|| self.fs.write(ino(number), offset, data, mode, &caller)) {
            Ok(length) => reply.written(length as u32),
            Err(error) => reply.error(errno(&error)),
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
        if self.promise.data_durable_on_return {
            // The kernel still writes back what is mapped, and waits for that; it need not ask for more.
            return reply.error(Errno::ENOSYS);
        }
        answer_empty(reply, self.fs.fsync(ino(number), data_only));
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        if self.promise.metadata_durable_on_return {
            // There is nothing left to do, and the kernel stops asking.
            return reply.error(Errno::ENOSYS);
        }
        answer_empty(reply, self.fs.fsync(ino(number), data_only));
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        match listing::plain(&*self.fs, ino(number), cookie, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
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
        match listing::with_attributes(
            &*self.fs,
            &self.answered,
            ino(number),
            cookie,
            request.pid(),
            &mut reply,
        ) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        match self.fs.statfs() {
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
            Err(error) => reply.error(errno(&error)),
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
        let mode = match XattrFlags::from_bits_retain(flags as u32) {
            XattrFlags::CREATE => XattrMode::Create,
            XattrFlags::REPLACE => XattrMode::Replace,
            flags if flags.is_empty() => XattrMode::Set,
            _ => return reply.error(Errno::EINVAL),
        };
        let set = self
            .before_access_list(request, number, name)
            .and_then(|()| self.fs.setxattr(ino(number), name.as_bytes(), value, mode));
        match self.changed(request, &[number], set) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno_or_absent(&error)),
        }
    }

    fn getxattr(&self, _request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.has_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        answer_xattr(reply, size, self.fs.getxattr(ino(number), name.as_bytes()));
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let joined = self.fs.listxattr(ino(number)).map(|mut names| {
            let nobody = caller::permitted(request, 0).without_capabilities();
            if names.iter().any(|name| !may_list_attribute(name, &nobody)) {
                let caller = caller::at_least(request);
                names.retain(|name| may_list_attribute(name, &caller));
            }
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            list
        });
        answer_xattr(reply, size, joined);
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.fs.removexattr(ino(number), name.as_bytes());
        match self.changed(request, &[number], removed) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno_or_absent(&error)),
        }
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
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let what = match flags - FallocateFlags::KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE => Allocate::PunchHole,
            FallocateFlags::ZERO_RANGE => Allocate::Zero { keep_size },
            rest if rest.is_empty() => Allocate::Reserve { keep_size },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let mut caller = caller::permitted(request, 0);
        if self.may_lose_set_id(number) {
            caller = caller::at_least(request);
        }
        let allocated = with_room(|| self.fs.allocate(ino(number), offset, length, what, &caller));
        answer_empty(reply, self.changed(request, &[number], allocated));
    }

    fn ioctl(
        &self,
        request: &Request,
        _number: INodeNo,
        _file: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        argument: &[u8],
        _room: u32,
        reply: ReplyIoctl,
    ) {
        if command != trim::FITRIM {
            return reply.error(Errno::ENOTTY);
        }
        match trim::trim(&*self.fs, request, argument) {
            Ok(argument) => reply.ioctl(0, &argument),
            Err(error) => reply.error(errno(&error)),
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
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.fs.seek(ino(number), offset, what) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno_of_seek(&error)),
        }
    }
}

/// Whether the file was opened with `O_DIRECT`.
const fn is_direct(flags: OpenFlags) -> bool {
    flags.0 as u32 & OFlags::DIRECT.bits() != 0
}
