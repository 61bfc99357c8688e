//! The `FileSystem` trait: inode-level operations with their atomicity, their durability on return, and their
//! errors.

use std::ops::Range;

use crate::{
    AccessTimes, Allocate, Attr, Cred, DirSink, Entry, Error, FileType, Ino, Name, OpenFlags, PinnedRange,
    Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, StatFs, WriteMode, XattrMode,
};

/// An inode-level file system.
///
/// All methods may be called from many tasks at once. A namespace operation (`create` … `rename`, `setattr`)
/// is atomic: other tasks and a crash see it done or not at all; [`promise`](FileSystem::promise) says
/// whether it is durable on return. File data is durable after [`fsync`](FileSystem::fsync). Callers have
/// checked permissions ([`Checked`](crate::Checked) does, and the kernel for a mount); credentials are passed
/// so that new inodes get their owner and the umask, and so that set-id bits are cleared as they must be.
///
/// Reading, listing and reading a symbolic link may move the access time
/// ([`AccessTimes`](crate::AccessTimes)). That is never durable by itself and changes nothing else: after a
/// crash an older access time may be back.
///
/// References: each [`Entry`] returned adds one to the inode's lookup count, which
/// [`forget`](FileSystem::forget) lowers; `open` and `release` keep a count of their own. An inode without
/// names lives on until both counts are zero.
///
/// Unless stated, errors are [`Error::NotFound`] or [`Error::Stale`] for an inode that does not exist,
/// [`Error::NotDirectory`] where a directory was needed, [`Error::ReadOnly`], [`Error::Io`] and
/// [`Error::Corrupt`].
pub trait FileSystem: Send + Sync {
    /// What survives a crash.
    fn promise(&self) -> Promise;

    /// When reading moves access times.
    fn access_times(&self) -> AccessTimes {
        AccessTimes::default()
    }

    /// Finds `name` in `dir` and takes a reference.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry>;

    /// Takes a reference on an inode known by its number, as a lookup does: for file handles that outlive
    /// what is cached (NFS, `open_by_handle_at`). Whoever asks compares the generation.
    ///
    /// # Errors
    /// [`Error::Stale`] if it does not exist, or has no name left and is not open; [`Error::Unsupported`].
    fn reference(&self, ino: Ino) -> Result<Entry> {
        let _ = ino;
        Err(Error::Unsupported("inodes by number"))
    }

    /// The parent of a directory (the root's is itself), without taking a reference.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    fn parent(&self, dir: Ino) -> Result<Ino>;

    /// Drops `count` lookup references. Never fails; frees an inode whose last name and reference are gone.
    fn forget(&self, ino: Ino, count: u64);

    /// Attributes, including the effect of writes not yet durable.
    ///
    /// # Errors
    /// [`Error::Stale`].
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Changes attributes atomically. Shrinking drops data for good; growing adds a hole; either moves the
    /// modification time.
    ///
    /// Set-id bits (set-user-id, and set-group-id with group execution or for a group the caller is not in)
    /// of anything but a directory are cleared by a new owner or group, and by a new size unless `cred` has
    /// [`Capabilities::FSETID`](crate::Capabilities::FSETID); a `mode` given in the same call is what they
    /// are afterwards. An access ACL follows the mode. A new owner, group or size removes the file's
    /// capabilities (`security.capability`).
    ///
    /// # Errors
    /// [`Error::IsDirectory`] or [`Error::Invalid`] for a size on anything but a regular file;
    /// [`Error::TooLarge`].
    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr>;

    /// Creates a regular file, FIFO, socket or device node and takes a reference. A set-group-id directory
    /// passes on its group. A directory with a default ACL passes that on in place of the caller's umask
    /// ([`acl::inherit`](crate::acl::inherit)).
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::NoInodes`], [`Error::Invalid`] for a directory or
    /// symlink type.
    fn create(
        &self,
        dir: Ino,
        name: Name<'_>,
        file_type: FileType,
        mode: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Entry>;

    /// Creates a regular file without a name, as if in `dir`, and takes a reference (`O_TMPFILE`). It is gone
    /// with its last reference, or after a crash, unless [`link`](FileSystem::link) gives it a name before.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoInodes`], [`Error::Unsupported`].
    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        let _ = (dir, mode, cred);
        Err(Error::Unsupported("files without a name"))
    }

    /// Creates a directory and takes a reference. Its link count is 2; the parent's grows by one. A
    /// set-group-id directory passes on its group and the bit. A default ACL is passed on as for
    /// [`create`](FileSystem::create), and itself too.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::NoInodes`], [`Error::TooManyLinks`].
    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry>;

    /// Creates a symbolic link holding `target` (1 to 4095 bytes) and takes a reference.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::NoInodes`], [`Error::NameTooLong`] for the target.
    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not one.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Gives a non-directory another name and takes a reference.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a directory, [`Error::Exists`], [`Error::TooManyLinks`],
    /// [`Error::NotFound`] if it has no name left, unless it never had one
    /// ([`tmpfile`](FileSystem::tmpfile)).
    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry>;

    /// Removes a name of a non-directory, and tells what it named.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`].
    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed>;

    /// As [`unlink`](FileSystem::unlink), for a caller who has not been checked. A file system that can
    /// decides under its locks whether `cred` may; by default it is decided before, and whoever changes
    /// permissions meanwhile may come too late.
    ///
    /// # Errors
    /// As [`unlink`](FileSystem::unlink); [`Error::PermissionDenied`]; [`Error::NotPermitted`] in a sticky
    /// directory.
    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed>;

    /// Removes an empty directory, and tells which.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`].
    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed>;

    /// As [`rmdir`](FileSystem::rmdir), for a caller who has not been checked, as
    /// [`unlink_as`](FileSystem::unlink_as) does.
    ///
    /// # Errors
    /// As [`rmdir`](FileSystem::rmdir); [`Error::PermissionDenied`]; [`Error::NotPermitted`] in a sticky
    /// directory.
    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed>;

    /// Moves a name. Replacing is atomic: at no moment is the target name missing, and it keeps its place in
    /// listings. Two names of one file stay as they are. Where several errors apply, the source is missing
    /// before the target exists before the rest.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::NotEmpty`], [`Error::IsDirectory`],
    /// [`Error::NotDirectory`], [`Error::IntoItself`], [`Error::NoSpace`].
    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed>;

    /// Takes an open reference; with `truncate`, cuts the file to zero.
    ///
    /// # Errors
    /// As [`setattr`](FileSystem::setattr) when truncating.
    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()>;

    /// Drops an open reference; frees an inode whose last name and reference are gone.
    fn release(&self, ino: Ino);

    /// Reads at `offset`; returns the number of bytes, less than asked only at the end of the file.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`] for other non-regular files.
    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize>;

    /// Writes all of `data` and returns its length, or fails; no data changes nothing. Clears set-id bits and
    /// removes the file's capabilities as a new size does. Atomic towards other readers and writers of the
    /// file.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::TooLarge`], [`Error::IsDirectory`].
    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize>;

    /// Makes the file's data, and the attributes needed to read it (all of them unless `data_only`), durable.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NoSpace`] never: space was reserved by `write`.
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;

    /// Makes everything completed so far durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn sync(&self) -> Result<()>;

    /// Lists `dir` from `cookie` (0 starts) until it ends or `sink` is full. An entry present throughout a
    /// listing appears exactly once; one created or removed meanwhile may or may not.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; [`Error::NotFound`] of a directory that was removed.
    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()>;

    /// Space and inode counts.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn statfs(&self) -> Result<StatFs>;

    /// Finds data or a hole at or after `offset`.
    ///
    /// # Errors
    /// [`Error::NoData`] at or beyond the end of the file, or if no data follow; [`Error::IsDirectory`],
    /// [`Error::Invalid`] as for `read`.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;

    /// Reserves, frees or zeroes `length` (not zero) bytes at `offset` of a regular file. Atomic towards
    /// other readers and writers. Moves the modification time and clears set-id bits as a write by `cred`
    /// does.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::TooLarge`], which a hole never is; [`Error::IsDirectory`],
    /// [`Error::Invalid`] for other files that are not regular or an empty range; [`Error::Unsupported`].
    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let _ = (ino, offset, length, what, cred);
        Err(Error::Unsupported("allocation of space"))
    }

    /// Tells the device which parts of it hold nothing: of the bytes `range` of it the free runs of at least
    /// `shortest`. Returns the bytes of all of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is empty or begins beyond the device; [`Error::ReadOnly`];
    /// [`Error::Unsupported`].
    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        let _ = (range, shortest);
        Err(Error::Unsupported("discarding what is free"))
    }

    /// Value of extended attribute `name`.
    ///
    /// # Errors
    /// [`Error::NoData`]; [`Error::Unsupported`].
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _ = (ino, name);
        Err(Error::Unsupported("extended attributes"))
    }

    /// Sets an extended attribute. An ACL ([`acl::ACCESS`](crate::acl::ACCESS),
    /// [`acl::DEFAULT`](crate::acl::DEFAULT)) is checked; the mode follows an access ACL in the same atomic
    /// step, and one that says no more than the mode is not kept. Setting no list at all removes the ACL,
    /// which need not be there.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::PermissionDenied`] for an ACL as [`acl::change`](crate::acl::change)
    /// says; [`Error::XattrTooLarge`], [`Error::NoSpace`], [`Error::Unsupported`].
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _ = (ino, name, value, mode);
        Err(Error::Unsupported("extended attributes"))
    }

    /// Names of all extended attributes.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let _ = ino;
        Err(Error::Unsupported("extended attributes"))
    }

    /// Removes an extended attribute. An ACL need not be there.
    ///
    /// # Errors
    /// [`Error::NoData`], [`Error::Unsupported`].
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _ = (ino, name);
        Err(Error::Unsupported("extended attributes"))
    }

    /// Pins `length` bytes at `offset` of a file to the device's window, for `cred`, who may read and write
    /// it: until the pin ends, writes there go by bytes and are durable when they return.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`]; [`Error::Invalid`] unless the range is whole pages of 4096 bytes inside
    /// of the file, all of them written; [`Error::Busy`] if some of it is pinned; [`Error::NoSpace`] if the
    /// window or its table has no room; [`Error::Unsupported`].
    fn pin_range(&self, ino: Ino, offset: u64, length: u64, cred: &Cred) -> Result<()> {
        let _ = (ino, offset, length, cred);
        Err(Error::Unsupported("pins"))
    }

    /// Ends every pin of the file that lies in `length` bytes at `offset`. Their pages are durable in place.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none; [`Error::Invalid`] for one that lies there in part;
    /// [`Error::NotPermitted`] for another user's; [`Error::Io`]; [`Error::Unsupported`]. Pins before the
    /// refused one may have ended.
    fn unpin_range(&self, ino: Ino, offset: u64, length: u64, cred: &Cred) -> Result<()> {
        let _ = (ino, offset, length, cred);
        Err(Error::Unsupported("pins"))
    }

    /// What is pinned, in no order.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    fn pinned_ranges(&self) -> Result<Vec<PinnedRange>> {
        Err(Error::Unsupported("pins"))
    }
}
