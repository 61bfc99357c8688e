//! What a program is told of a failure: the one table of this front end.

use std::io;

use amphi_front_queue::ConnectError;
use amphi_queue::format::code;
use amphi_ssd::ImageError;

/// Why a file system cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be opened.
    #[error("{0} cannot be opened: {1}")]
    Directory(String, io::Error),
    /// It is not a mount of ours, or none whose queue reaches all of it.
    #[error("{0} is not the root directory of an Amphi mount without other mounts below it")]
    NotAMount(String),
    /// The mount's daemon is not there for this process.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The image cannot be opened.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Nothing is on the image that could be mounted.
    #[error("the image holds no file system; make one with: amphi mkfs")]
    NoFileSystem,
    /// What is on it cannot be mounted.
    #[error("the image's file system cannot be mounted: {0}")]
    Mount(#[from] amphi_volume::Error),
    /// There is no memory.
    #[error("there is no memory for commands: {0}")]
    Memory(io::Error),
    /// An argument cannot be meant.
    #[error("{0}")]
    Argument(&'static str),
}

impl OpenError {
    /// The errno that a C program gets.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Directory(_, error) | Self::Memory(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Self::NotAMount(_) | Self::Argument(_) => libc::EINVAL,
            Self::Connect(ConnectError::NoDoor(_)) => libc::ENOTCONN,
            Self::Connect(ConnectError::Refused | ConnectError::Stranger(_)) => libc::EACCES,
            Self::Image(ImageError::InUse { .. }) => libc::EBUSY,
            Self::Image(ImageError::NotAnImage { .. }) | Self::NoFileSystem => libc::ENODEV,
            Self::Image(_) | Self::Mount(_) => libc::EIO,
        }
    }
}

/// What a completion's status is, other than [`code::DONE`].
pub const fn errno(status: u16) -> i32 {
    match status {
        code::NOT_FOUND => libc::ENOENT,
        code::STALE => libc::ESTALE,
        code::EXISTS => libc::EEXIST,
        code::NOT_DIRECTORY => libc::ENOTDIR,
        code::IS_DIRECTORY => libc::EISDIR,
        code::NOT_EMPTY => libc::ENOTEMPTY,
        code::NAME_TOO_LONG => libc::ENAMETOOLONG,
        code::NO_SPACE => libc::ENOSPC,
        code::TOO_LARGE => libc::EFBIG,
        code::TOO_MANY_LINKS => libc::EMLINK,
        code::PERMISSION_DENIED | code::BAD_CREDENTIAL => libc::EACCES,
        code::NOT_PERMITTED => libc::EPERM,
        code::READ_ONLY => libc::EROFS,
        code::UNSUPPORTED => libc::EOPNOTSUPP,
        code::NO_DATA => libc::ENODATA,
        code::BUFFER_TOO_SMALL => libc::ERANGE,
        code::XATTR_TOO_LARGE => libc::E2BIG,
        code::CORRUPT => libc::EUCLEAN,
        code::IO => libc::EIO,
        code::BAD_HANDLE => libc::EBADF,
        // As the kernel has it of paths that must stay below a directory (`RESOLVE_BENEATH`).
        code::OUTSIDE => libc::EXDEV,
        code::LINK_LOOP => libc::ELOOP,
        code::TOO_MANY_OPEN => libc::EMFILE,
        code::BUSY => libc::EBUSY,
        // Among them a command that is malformed: it was made of the program's arguments.
        _ => libc::EINVAL,
    }
}

/// The error of an errno.
pub fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
