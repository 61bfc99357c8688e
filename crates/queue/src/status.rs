//! Why a command was refused, and the code that says so in a completion.

use amphi_vfs::{Error, Failure};

use crate::command::Malformed;
use crate::format::code;

/// Why a command came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The file system's own reason.
    #[error(transparent)]
    FileSystem(#[from] Error),
    /// The command itself is wrong.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The handle is not open, or not open for this.
    #[error("the handle is not open for this")]
    BadHandle,
    /// The path leads out of the file system.
    #[error("the path leads out of the file system")]
    Outside,
    /// Too many symbolic links on the path.
    #[error("too many symbolic links on the path")]
    LinkLoop,
    /// The client has as many files open as it may have.
    #[error("too many open files")]
    TooManyOpen,
}

/// The code of a refusal, of [`code`](crate::format::code).
#[must_use]
pub const fn status(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::Malformed(_) => code::MALFORMED,
        Refusal::BadHandle => code::BAD_HANDLE,
        Refusal::Outside => code::OUTSIDE,
        Refusal::LinkLoop => code::LINK_LOOP,
        Refusal::TooManyOpen => code::TOO_MANY_OPEN,
        Refusal::FileSystem(error) => match error {
            Error::NotFound => code::NOT_FOUND,
            Error::Stale(_) => code::STALE,
            Error::Exists => code::EXISTS,
            Error::NotDirectory => code::NOT_DIRECTORY,
            Error::IsDirectory => code::IS_DIRECTORY,
            Error::NotEmpty => code::NOT_EMPTY,
            Error::NameTooLong => code::NAME_TOO_LONG,
            Error::InvalidName | Error::Invalid(_) | Error::IntoItself => code::INVALID,
            Error::NoSpace | Error::NoInodes | Error::Io(Failure::Full(_)) => code::NO_SPACE,
            Error::TooLarge => code::TOO_LARGE,
            Error::TooManyLinks => code::TOO_MANY_LINKS,
            Error::PermissionDenied => code::PERMISSION_DENIED,
            Error::NotPermitted => code::NOT_PERMITTED,
            Error::ReadOnly => code::READ_ONLY,
            Error::Unsupported(_) => code::UNSUPPORTED,
            Error::Busy(_) => code::BUSY,
            Error::NoData => code::NO_DATA,
            Error::BufferTooSmall => code::BUFFER_TOO_SMALL,
            Error::XattrTooLarge => code::XATTR_TOO_LARGE,
            Error::Corrupt(_) => code::CORRUPT,
            Error::Io(_) => code::IO,
        },
    }
}
