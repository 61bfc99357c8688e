//! The conformance suite through the kernel: a mount seen as a [`FileSystem`] again, compared with the model
//! like any other.
//!
//! What the suite asks by inode is asked by `O_PATH` descriptor, as root. So names, attributes, data and
//! sizes all come from what the kernel remembers, and a wrong invalidation shows as a disagreement.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

use amphi_conformance::{check_some, random};
use amphi_vfs::acl::DEFAULT;
use amphi_vfs::permission::mode_after_change;
use amphi_vfs::{
    AccessTimes, Allocate, Attr, Capabilities, Cred, DirEntry, DirSink, Entry, Error, Failure, FileSystem,
    FileType, Ino, Name, OpenFlags, Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, SetTime,
    StatFs, TimeSpec, WriteMode, XattrMode, may_remove,
};
use rustix::fs::{
    self as sys, AtFlags, CWD, Dir, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::mounted::{Mounted, is_root, wait_until};

/// A mounted file system with the descriptors that stand for references.
struct Kernel {
    held: Mutex<BTreeMap<u64, Held>>,
    root: u64,
    // Last, so that the descriptors are closed before it is unmounted.
    mounted: Mounted,
}

struct Held {
    fd: OwnedFd,
    references: u64,
}

fn error(errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::NotFound,
        Errno::EXIST => Error::Exists,
        Errno::NOTDIR => Error::NotDirectory,
        Errno::ISDIR => Error::IsDirectory,
        Errno::NOTEMPTY => Error::NotEmpty,
        Errno::NAMETOOLONG => Error::NameTooLong,
        Errno::INVAL => Error::Invalid("the kernel says EINVAL"),
        Errno::NOSPC => Error::NoSpace,
        Errno::FBIG => Error::TooLarge,
        Errno::PERM => Error::NotPermitted,
        Errno::ACCESS => Error::PermissionDenied,
        Errno::TOOBIG => Error::XattrTooLarge,
        Errno::OPNOTSUPP => Error::Unsupported("the kernel says EOPNOTSUPP"),
        Errno::NODATA | Errno::NXIO => Error::NoData,
        other => Error::Io(Failure::Refused(other.to_string())),
    }
}

fn io_error(cause: &std::io::Error) -> Error {
    error(Errno::from_io_error(cause).unwrap_or(Errno::IO))
}

fn os(name: Name<'_>) -> &OsStr {
    OsStr::from_bytes(name.bytes())
}

/// What `name` names in a directory.
fn named(dir: &OwnedFd, name: Name<'_>) -> Result<sys::Stat> {
    sys::statat(dir, os(name), AtFlags::SYMLINK_NOFOLLOW).map_err(error)
}

/// What has just lost a name that it had when this was read.
fn without_name(before: sys::Stat) -> Removed {
    let is_dir = sys::FileType::from_raw_mode(before.st_mode) == sys::FileType::Directory;
    Removed { ino: Ino(before.st_ino), nlink: if is_dir { 0 } else { before.st_nlink as u32 - 1 } }
}

fn file_type(kind: sys::FileType) -> FileType {
    match kind {
        sys::FileType::Directory => FileType::Directory,
        sys::FileType::Symlink => FileType::Symlink,
        sys::FileType::Fifo => FileType::Fifo,
        sys::FileType::Socket => FileType::Socket,
        sys::FileType::CharacterDevice => FileType::CharDevice,
        sys::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::Regular,
    }
}

impl Kernel {
    fn new() -> Option<Self> {
        let mounted = Mounted::new()?;
        mounted.model.set_access_times(AccessTimes::Never);
        let fd = sys::open(mounted.root(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let root = sys::fstat(&fd).unwrap().st_ino;
        let held = Mutex::new(BTreeMap::from([(root, Held { fd, references: 1 })]));
        Some(Self { held, root, mounted })
    }

    /// A descriptor of its own for `ino`, if it is held.
    fn fd(&self, ino: Ino) -> Result<OwnedFd> {
        let held = self.held.lock().unwrap();
        let held = held.get(&ino.0).ok_or(Error::Stale(ino))?;
        Ok(held.fd.try_clone().unwrap())
    }

    /// The path by which the kernel finds an inode again, named or not.
    fn path(fd: &OwnedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
    }

    fn attr(fd: &OwnedFd) -> Result<Attr> {
        let stat = sys::fstat(fd).map_err(error)?;
        let time = |seconds: i64, ns: u64| TimeSpec { ns: seconds * 1_000_000_000 + ns as i64 };
        Ok(Attr {
            ino: Ino(stat.st_ino),
            generation: 0,
            file_type: file_type(sys::FileType::from_raw_mode(stat.st_mode)),
            mode: (stat.st_mode & 0o7777) as u16,
            nlink: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev as u32,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            atime: time(stat.st_atime, stat.st_atime_nsec as u64),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec as u64),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec as u64),
        })
    }

    /// Holds what `name` names in `dir`.
    fn take(&self, dir: &OwnedFd, name: &OsStr) -> Result<Entry> {
        let fd = sys::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).map_err(error)?;
        let attr = Self::attr(&fd)?;
        let mut held = self.held.lock().unwrap();
        held.entry(attr.ino.0).or_insert(Held { fd, references: 0 }).references += 1;
        Ok(Entry { attr })
    }

    /// Gives references back. The last one to an inode without names frees it: the kernel tells the server
    /// so with a request that nobody waits for, hence this waits until the server knows.
    fn put(&self, ino: Ino, count: u64) {
        if ino.0 == self.root {
            return;
        }
        let dropped = {
            let mut held = self.held.lock().unwrap();
            let Some(one) = held.get_mut(&ino.0) else { return };
            one.references = one.references.saturating_sub(count);
            if one.references > 0 { None } else { held.remove(&ino.0) }
        };
        let Some(Held { fd, .. }) = dropped else { return };
        let is_freed = Self::attr(&fd).is_ok_and(|attr| attr.nlink == 0);
        drop(fd);
        if is_freed {
            wait_until("the kernel gives an inode back", || self.mounted.model.getattr(ino).is_err());
        }
    }

    /// Opens the data of a regular file; other types give the error that the trait documents.
    fn open_data(&self, ino: Ino, options: &OpenOptions) -> Result<File> {
        let fd = self.fd(ino)?;
        match Self::attr(&fd)?.file_type {
            FileType::Regular => options.open(Self::path(&fd)).map_err(|cause| io_error(&cause)),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Makes something new in `dir` as `cred` would: the suite's users may not be able to walk there. It was
    /// made with `mode`.
    fn made(&self, dir: &OwnedFd, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        let made = self.take(dir, os(name))?.attr;
        let parent = Self::attr(dir)?;
        let fd = self.fd(made.ino)?;
        let gid = if parent.mode & 0o2000 == 0 { cred.gid } else { parent.gid };
        let inherited = if made.file_type == FileType::Directory { parent.mode & 0o2000 } else { 0 };
        sys::chownat(&fd, "", Some(Uid::from_raw(cred.uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
            .map_err(error)?;
        if made.file_type != FileType::Symlink {
            // Below a default ACL the mode is already what it gives; else this process's umask, not the
            // caller's, has counted.
            let has_list =
                sys::getxattr(Self::path(dir), OsStr::from_bytes(DEFAULT), &mut [0; 4096][..]).is_ok();
            let bits = if has_list { made.mode & 0o777 } else { mode & 0o777 & !cred.umask };
            sys::chmod(Self::path(&fd), Mode::from(u32::from(bits | mode & 0o7000 | inherited)))
                .map_err(error)?;
        }
        Ok(Entry { attr: Self::attr(&fd)? })
    }

    /// What a write by someone without privileges does to set-id bits; the descriptors here are all root's.
    fn drop_set_id(&self, ino: Ino, cred: &Cred) -> Result<()> {
        let fd = self.fd(ino)?;
        let attr = Self::attr(&fd)?;
        let kept = mode_after_change(attr.mode, attr.gid, cred);
        if cred.has(Capabilities::FSETID) || kept == attr.mode {
            return Ok(());
        }
        sys::chmod(Self::path(&fd), Mode::from(u32::from(kept))).map_err(error)
    }
}

impl FileSystem for Kernel {
    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: false, atomic_writes: false, data_durable_on_return: false }
    }

    /// What the kernel reads from its own memory moves none.
    fn access_times(&self) -> AccessTimes {
        AccessTimes::Never
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.take(&self.fd(dir)?, os(name))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        if dir.0 == self.root {
            return Ok(dir);
        }
        let entry = self.take(&self.fd(dir)?, OsStr::new(".."))?;
        Ok(entry.attr.ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.put(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Self::attr(&self.fd(ino)?)
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        let fd = self.fd(ino)?;
        let is_symlink = Self::attr(&fd)?.file_type == FileType::Symlink;
        if let Some(size) = change.size {
            let size = i64::try_from(size).map_err(|_| Error::TooLarge)?;
            let file = self.open_data(ino, OpenOptions::new().write(true))?;
            sys::ftruncate(&file, size as u64).map_err(error)?;
            self.drop_set_id(ino, cred)?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            sys::chownat(&fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(error)?;
        }
        if let Some(mode) = change.mode {
            if is_symlink {
                return Err(Error::Unsupported("the mode of a symbolic link"));
            }
            sys::chmod(Self::path(&fd), Mode::from(u32::from(mode))).map_err(error)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let stamp = |set: Option<SetTime>| match set {
                None => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT },
                Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_NOW },
                Some(SetTime::At(TimeSpec { ns })) => Timespec {
                    tv_sec: ns.div_euclid(1_000_000_000),
                    tv_nsec: ns.rem_euclid(1_000_000_000) as _,
                },
            };
            let times =
                Timestamps { last_access: stamp(change.atime), last_modification: stamp(change.mtime) };
            sys::utimensat(&fd, "", &times, AtFlags::EMPTY_PATH).map_err(error)?;
        }
        Self::attr(&fd)
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
        let kind = match file_type {
            FileType::Regular => sys::FileType::RegularFile,
            FileType::Fifo => sys::FileType::Fifo,
            FileType::Socket => sys::FileType::Socket,
            FileType::CharDevice => sys::FileType::CharacterDevice,
            FileType::BlockDevice => sys::FileType::BlockDevice,
            _ => return Err(Error::Invalid("not a node")),
        };
        let dir = self.fd(dir)?;
        sys::mknodat(&dir, os(name), kind, Mode::from(u32::from(mode)), u64::from(rdev)).map_err(error)?;
        self.made(&dir, name, mode, cred)
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        let dir = self.fd(dir)?;
        sys::mkdirat(&dir, os(name), Mode::from(u32::from(mode))).map_err(error)?;
        self.made(&dir, name, mode, cred)
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::Invalid("an empty target"));
        }
        let dir = self.fd(dir)?;
        sys::symlinkat(OsStr::from_bytes(target), &dir, os(name)).map_err(error)?;
        self.made(&dir, name, 0o777, cred)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let fd = self.fd(ino)?;
        if Self::attr(&fd)?.file_type != FileType::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        sys::readlinkat(&fd, "", Vec::new()).map(|target| target.into_bytes()).map_err(error)
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let (fd, dir) = (self.fd(ino)?, self.fd(dir)?);
        sys::linkat(CWD, Self::path(&fd), &dir, os(name), AtFlags::SYMLINK_FOLLOW).map_err(error)?;
        self.take(&dir, os(name))
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let dir = self.fd(dir)?;
        let removed = named(&dir, name).map(without_name);
        sys::unlinkat(&dir, os(name), AtFlags::empty()).map_err(error)?;
        removed
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        may_remove(self, dir, name, cred)?;
        self.unlink(dir, name)
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let dir = self.fd(dir)?;
        let removed = named(&dir, name).map(without_name);
        sys::unlinkat(&dir, os(name), AtFlags::REMOVEDIR).map_err(error)?;
        removed
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
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        let (from, to) = (self.fd(from)?, self.fd(to)?);
        let (moved, target) = (named(&from, name), named(&to, new_name).ok());
        let renamed = sys::renameat_with(&from, os(name), &to, os(new_name), flags);
        renamed.map_err(|errno| if errno == Errno::INVAL { Error::IntoItself } else { error(errno) })?;
        let moved = Ino(moved?.st_ino);
        let lost = target.filter(|target| target.st_ino != moved.0).map(|target| match mode {
            RenameMode::Exchange => Removed { ino: Ino(target.st_ino), nlink: target.st_nlink as u32 },
            _ => without_name(target),
        });
        Ok(Renamed { moved, target: lost })
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        if flags.truncate {
            self.open_data(ino, OpenOptions::new().write(true).truncate(true))?;
        }
        let mut held = self.held.lock().unwrap();
        held.get_mut(&ino.0).ok_or(Error::Stale(ino))?.references += 1;
        Ok(())
    }

    fn release(&self, ino: Ino) {
        self.put(ino, 1);
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        let flags = if direct { OFlags::DIRECT.bits() as i32 } else { 0 };
        let file = self.open_data(ino, OpenOptions::new().read(true).custom_flags(flags))?;
        if i64::try_from(offset.saturating_add(into.len() as u64)).is_err() {
            return Ok(0);
        }
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64).map_err(|cause| io_error(&cause))? {
                0 => break,
                length => done += length,
            }
        }
        Ok(done)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let flags = if mode.direct { OFlags::DIRECT.bits() as i32 } else { 0 };
        let mut options = OpenOptions::new();
        options.write(true).append(mode.append).custom_flags(flags);
        let file = self.open_data(ino, &options)?;
        if !mode.append && i64::try_from(offset.saturating_add(data.len() as u64)).is_err() {
            return Err(Error::TooLarge);
        }
        if data.is_empty() {
            return Ok(0);
        }
        let offset = if mode.append { 0 } else { offset };
        file.write_all_at(data, offset).map_err(|cause| io_error(&cause))?;
        self.drop_set_id(ino, cred)?;
        Ok(data.len())
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        let fd = self.fd(ino)?;
        if !matches!(Self::attr(&fd)?.file_type, FileType::Regular | FileType::Directory) {
            return Ok(());
        }
        let file = File::open(Self::path(&fd)).map_err(|cause| io_error(&cause))?;
        if data_only { sys::fdatasync(&file) } else { sys::fsync(&file) }.map_err(error)
    }

    fn sync(&self) -> Result<()> {
        let root = File::open(Self::path(&self.fd(Ino(self.root))?)).map_err(|cause| io_error(&cause))?;
        sys::syncfs(&root).map_err(error)
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let fd = self.fd(dir)?;
        if Self::attr(&fd)?.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let mut listing =
            Dir::read_from(File::open(Self::path(&fd)).map_err(|cause| io_error(&cause))?).map_err(error)?;
        listing.seek(cookie as i64).map_err(error)?;
        let mut is_there = cookie > 0;
        while let Some(entry) = listing.read() {
            let entry = entry.map_err(error)?;
            is_there = true;
            let name = entry.file_name().to_bytes();
            // Above the root there is another file system; the suite expects the root itself.
            let above = dir.0 == self.root && name == b"..";
            let ino = if above { dir } else { Ino(entry.ino()) };
            let file_type = file_type(entry.file_type());
            if !sink(DirEntry { ino, file_type, name, next_cookie: entry.offset() as u64 }) {
                break;
            }
        }
        // The error of one that was removed is an end to `Dir`; others have their dots at least.
        if is_there { Ok(()) } else { Err(Error::NotFound) }
    }

    fn statfs(&self) -> Result<StatFs> {
        let stat = sys::fstatvfs(&self.fd(Ino(self.root))?).map_err(error)?;
        Ok(StatFs {
            block_bytes: stat.f_frsize as u32,
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            blocks_available: stat.f_bavail,
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
            name_bytes_max: stat.f_namemax as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let file = self.open_data(ino, OpenOptions::new().read(true))?;
        let from = match what {
            Seek::Data => sys::SeekFrom::Data(offset),
            Seek::Hole => sys::SeekFrom::Hole(offset),
        };
        sys::seek(&file, from).map_err(error)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let keep = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let flags = match what {
            Allocate::Reserve { keep_size } => keep(keep_size),
            Allocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocate::Zero { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        };
        let file = self.open_data(ino, OpenOptions::new().write(true))?;
        if length > 0 && i64::try_from(offset.saturating_add(length)).is_err() {
            return Err(Error::TooLarge);
        }
        sys::fallocate(&file, flags, offset, length).map_err(error)?;
        self.drop_set_id(ino, cred)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let mut value = vec![0; 1 << 16];
        let length =
            sys::getxattr(self.with_xattrs(ino)?, OsStr::from_bytes(name), &mut value[..]).map_err(error)?;
        value.truncate(length);
        Ok(value)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        sys::setxattr(self.with_xattrs(ino)?, OsStr::from_bytes(name), value, flags).map_err(error)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut list = vec![0; 1 << 16];
        let length = sys::listxattr(self.with_xattrs(ino)?, &mut list[..]).map_err(error)?;
        Ok(list[..length]
            .split_inclusive(|&byte| byte == 0)
            .map(|name| name[..name.len() - 1].to_vec())
            .collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        sys::removexattr(self.with_xattrs(ino)?, OsStr::from_bytes(name)).map_err(error)
    }
}

impl Kernel {
    /// A path to an inode that may have attributes of the user's: the kernel allows them on files and
    /// directories.
    fn with_xattrs(&self, ino: Ino) -> Result<PathBuf> {
        let fd = self.fd(ino)?;
        match Self::attr(&fd)?.file_type {
            // The descriptor must outlive the path: the one held does.
            FileType::Regular | FileType::Directory => {
                let held = self.held.lock().unwrap();
                Ok(Self::path(&held.get(&ino.0).ok_or(Error::Stale(ino))?.fd))
            }
            _ => Err(Error::Unsupported("user attributes of special files")),
        }
    }
}

/// Cases that ask for what no system call can: to set the change time, and reads that are atomic towards
/// writes.
const NOT_THROUGH_THE_KERNEL: [&str; 3] =
    ["changes_move_the_right_times", "readers_see_whole_writes", "readers_see_long_writes_whole"];

#[test]
fn the_promises_hold_through_the_kernel() {
    if !is_root() || Kernel::new().is_none() {
        println!("skipped: needs a mount, and root to be everybody");
        return;
    }
    check_some(|| Kernel::new().unwrap(), |name| !NOT_THROUGH_THE_KERNEL.contains(&name));
}

#[test]
fn random_operations_agree_through_the_kernel() {
    if !is_root() || Kernel::new().is_none() {
        println!("skipped: needs a mount, and root to be everybody");
        return;
    }
    for seed in 0..6 {
        random::run(|| Kernel::new().unwrap(), seed, 2_000);
    }
    random::run_tasks(|| Kernel::new().unwrap(), 50, 1_000, 4);
}
