//! [`Files`]: a file system, and what is done with names on it.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_queue::format::{
    Attributes, Change, Completion, PATH_BYTES_MAX, Space, Submission, XATTR_BYTES_MAX, change, flag, op,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::errno::{OpenError, error};
use crate::file::{Access, File};
use crate::image::{Image, ImageOptions};
use crate::listing::Listing;
use crate::mounted::Mounted;
use crate::request::{Data, Request};
use crate::way::{Shared, Way};

/// How a path is opened, as `open(2)`'s flags say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// Each write goes to the end.
    pub append: bool,
    /// Cut to nothing.
    pub truncate: bool,
    /// Made if it is not there, with the permission bits.
    pub create: Option<u16>,
    /// It must not be there.
    pub exclusive: bool,
    /// It must be a directory.
    pub directory: bool,
    /// A symbolic link at the path's end is not followed (`ELOOP`).
    pub no_follow: bool,
    /// A file without a name in the directory that the path names; with `create`.
    pub unnamed: bool,
    /// Past the page cache.
    pub direct: bool,
    /// Each write is durable when it returns (`O_DSYNC`).
    pub sync_data: bool,
    /// Attributes too (`O_SYNC`).
    pub sync_all: bool,
}

/// When an attribute may be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// In any case.
    #[default]
    Any,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

/// A time stamp to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// It stays.
    Keep,
    /// Now.
    Now,
    /// ns since 1970.
    At(i64),
}

/// A file system. Threads may share it. Paths begin at its root, with a slash or without. Permission bits of
/// what is made are as given: no umask is applied.
///
/// A child of `fork` has to open its own; with this one it gets `EBADF`.
pub struct Files {
    shared: Arc<Shared>,
}

impl Files {
    /// The file system mounted at `directory`, by the queue of its daemon.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn mounted(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        let (mounted, device) = Mounted::open(directory.as_ref())?;
        Ok(Self { shared: Arc::new(Shared::new(Way::Mounted(mounted), device)) })
    }

    /// The file system on `image`, which this process has to itself until [`close`](Self::close).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn image(image: impl AsRef<Path>, options: &ImageOptions) -> Result<Self, OpenError> {
        let image = Image::open(image.as_ref(), options)?;
        Ok(Self { shared: Arc::new(Shared::new(Way::Image(image), 0)) })
    }

    /// Makes everything durable and gives the mount or the image back. All files must be closed.
    ///
    /// # Errors
    /// `EBUSY`: files are open, the last of which ends it; the device fails.
    pub fn close(self) -> io::Result<()> {
        Arc::into_inner(self.shared).ok_or_else(|| error(libc::EBUSY))?.end()
    }

    /// Whether no file of it is open.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// The mount's device number; 0 of an image.
    pub(crate) fn device(&self) -> u64 {
        self.shared.device
    }

    fn run(&self, operation: u16, flags: u16, path: &Path) -> io::Result<Completion> {
        let command =
            Submission { operation: operation.into(), flags: flags.into(), ..Submission::default() };
        self.with(command, path, b"", Data::None)
    }

    fn with(
        &self,
        command: Submission,
        path: &Path,
        second: &[u8],
        data: Data<'_>,
    ) -> io::Result<Completion> {
        self.shared.run(Request { command, first: from_root(path)?, second, data })
    }

    /// Opens a path.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(&self, path: impl AsRef<Path>, how: How) -> io::Result<File> {
        let path = path.as_ref();
        let makes = how.create.is_some();
        let mut flags = 0;
        for (is_set, bit) in [
            (how.read, flag::READ),
            (how.write || how.append, flag::WRITE),
            (makes && !how.unnamed, flag::CREATE),
            (makes && how.exclusive, flag::EXCLUSIVE),
            (how.truncate, flag::TRUNCATE),
            (how.directory, flag::DIRECTORY),
            (how.no_follow, flag::NO_FOLLOW),
            (makes && how.unnamed, flag::UNNAMED),
        ] {
            flags |= if is_set { bit } else { 0 };
        }
        let command = Submission {
            operation: op::OPEN.into(),
            flags: flags.into(),
            argument: u64::from(how.create.unwrap_or(0)).into(),
            ..Submission::default()
        };
        let opened = self.with(command, path, b"", Data::None)?;
        let access = Access {
            read: how.read,
            write: how.write || how.append,
            append: how.append,
            sync_data: how.sync_data,
            sync_all: how.sync_all,
            direct: how.direct,
        };
        Ok(File::new(Arc::clone(&self.shared), opened.value.get(), access, &opened.attributes))
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// As `opendir(3)`.
    pub fn list(&self, path: impl AsRef<Path>) -> io::Result<Listing> {
        let how = How { read: true, directory: true, ..How::default() };
        Ok(Listing::new(self.open(path, how)?))
    }

    /// Attributes of what a path names; with `follow`, of what a symbolic link at its end leads to.
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn attributes(&self, path: impl AsRef<Path>, follow: bool) -> io::Result<Attributes> {
        let flags = if follow { 0 } else { flag::NO_FOLLOW };
        Ok(self.run(op::ATTRIBUTES, flags, path.as_ref())?.attributes)
    }

    /// Whether the path may be used: read 4, write 2, execute or search 1, 0 for existence.
    ///
    /// # Errors
    /// As `access(2)`, for the effective user.
    pub fn access(&self, path: impl AsRef<Path>, wanted: u16) -> io::Result<()> {
        let command = Submission {
            operation: op::ACCESS.into(),
            argument: u64::from(wanted).into(),
            ..Submission::default()
        };
        self.with(command, path.as_ref(), b"", Data::None).map(drop)
    }

    /// Removes a name of what is no directory.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn unlink(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.run(op::UNLINK, 0, path.as_ref()).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn rmdir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.run(op::REMOVE_DIRECTORY, 0, path.as_ref()).map(drop)
    }

    /// Makes a directory with the permission bits.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u16) -> io::Result<()> {
        let command = Submission {
            operation: op::MAKE_DIRECTORY.into(),
            argument: u64::from(mode).into(),
            ..Submission::default()
        };
        self.with(command, path.as_ref(), b"", Data::None).map(drop)
    }

    /// Moves a name, over what the new one names.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.two(op::RENAME, from.as_ref(), to.as_ref())
    }

    /// Gives a file another name. A symbolic link is not followed.
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (from.as_ref(), from_root(to.as_ref())?);
        let command =
            Submission { operation: op::LINK.into(), flags: flag::NO_FOLLOW.into(), ..Submission::default() };
        self.with(command, from, to, Data::None).map(drop)
    }

    fn two(&self, operation: u16, from: &Path, to: &Path) -> io::Result<()> {
        let command = Submission { operation: operation.into(), ..Submission::default() };
        self.with(command, from, from_root(to)?, Data::None).map(drop)
    }

    /// Makes a symbolic link that holds `target`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
        let command = Submission { operation: op::SYMLINK.into(), ..Submission::default() };
        self.with(command, path.as_ref(), target.as_ref().as_os_str().as_bytes(), Data::None).map(drop)
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// As `readlink(2)`.
    pub fn readlink(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let mut target = vec![0; PATH_BYTES_MAX];
        let command = Submission { operation: op::READ_LINK.into(), ..Submission::default() };
        let read = self.with(command, path.as_ref(), b"", Data::Room(&mut target))?;
        target.truncate(read.len.get() as usize);
        Ok(std::ffi::OsString::from(std::ffi::OsStr::from_bytes(&target)).into())
    }

    fn change(&self, path: &Path, follow: bool, change: Change) -> io::Result<()> {
        let command = Submission {
            operation: op::SET_ATTRIBUTES.into(),
            flags: if follow { 0 } else { flag::NO_FOLLOW }.into(),
            ..Submission::default()
        };
        self.with(command, path, b"", Data::Given(change.as_bytes())).map(drop)
    }

    /// Sets permission bits.
    ///
    /// # Errors
    /// As `chmod(2)`.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u16) -> io::Result<()> {
        let change =
            Change { which: change::MODE.into(), mode: u32::from(mode & 0o7777).into(), ..Change::default() };
        self.change(path.as_ref(), true, change)
    }

    /// Sets owner and group; `None` stays. A symbolic link is not followed.
    ///
    /// # Errors
    /// As `lchown(2)`.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let which = if uid.is_some() { change::UID } else { 0 } | if gid.is_some() { change::GID } else { 0 };
        let change = Change {
            which: which.into(),
            uid: uid.unwrap_or(0).into(),
            gid: gid.unwrap_or(0).into(),
            ..Change::default()
        };
        self.change(path.as_ref(), false, change)
    }

    /// Sets access and modification time.
    ///
    /// # Errors
    /// As `utimensat(2)`.
    pub fn set_times(&self, path: impl AsRef<Path>, atime: Time, mtime: Time) -> io::Result<()> {
        let which = |time, given, now| match time {
            Time::Keep => 0,
            Time::Now => now,
            Time::At(_) => given,
        };
        let ns = |time| if let Time::At(ns) = time { ns } else { 0 };
        let times =
            which(atime, change::ATIME, change::ATIME_NOW) | which(mtime, change::MTIME, change::MTIME_NOW);
        let change = Change {
            which: times.into(),
            atime: ns(atime).into(),
            mtime: ns(mtime).into(),
            ..Change::default()
        };
        self.change(path.as_ref(), true, change)
    }

    /// Makes a file `bytes` long.
    ///
    /// # Errors
    /// As `truncate(2)`.
    pub fn truncate(&self, path: impl AsRef<Path>, bytes: u64) -> io::Result<()> {
        let path = path.as_ref();
        let how = How { write: true, ..How::default() };
        self.open(path, how)?.set_len(bytes)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As `getxattr(2)`.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> io::Result<Vec<u8>> {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let command = Submission { operation: op::GET_XATTR.into(), ..Submission::default() };
        let got = self.with(command, path.as_ref(), name, Data::Room(&mut value))?;
        value.truncate(got.len.get() as usize);
        Ok(value)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> io::Result<()> {
        if value.len() > XATTR_BYTES_MAX {
            return Err(error(libc::E2BIG));
        }
        let flags = match how {
            SetXattr::Any => 0,
            SetXattr::Create => flag::CREATE_ONLY,
            SetXattr::Replace => flag::REPLACE_ONLY,
        };
        let command =
            Submission { operation: op::SET_XATTR.into(), flags: flags.into(), ..Submission::default() };
        self.with(command, path.as_ref(), name, Data::Given(value)).map(drop)
    }

    /// The names of all extended attributes, each with a zero byte behind it.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut names = vec![0; XATTR_BYTES_MAX];
        let command = Submission { operation: op::LIST_XATTR.into(), ..Submission::default() };
        let listed = self.with(command, path.as_ref(), b"", Data::Room(&mut names))?;
        names.truncate(listed.len.get() as usize);
        Ok(names)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As `removexattr(2)`.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> io::Result<()> {
        let command = Submission { operation: op::REMOVE_XATTR.into(), ..Submission::default() };
        self.with(command, path.as_ref(), name, Data::None).map(drop)
    }

    /// How much space there is.
    ///
    /// # Errors
    /// The device fails.
    pub fn space(&self) -> io::Result<Space> {
        let mut room = [0; size_of::<Space>()];
        let command = Submission { operation: op::SPACE.into(), ..Submission::default() };
        self.shared.run(Request { command, data: Data::Room(&mut room), ..Request::default() })?;
        Space::read_from_bytes(&room).map_err(|_| error(libc::EIO))
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// The device fails.
    pub fn sync(&self) -> io::Result<()> {
        let command = Submission { operation: op::SYNC.into(), ..Submission::default() };
        self.shared.run(Request { command, ..Request::default() }).map(drop)
    }
}

/// A path as a command has it: from the root, without a slash before it. The root itself is empty.
fn from_root(path: &Path) -> io::Result<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(error(libc::ENOENT));
    }
    let slashes = bytes.iter().take_while(|&&byte| byte == b'/').count();
    Ok(&bytes[slashes..])
}
