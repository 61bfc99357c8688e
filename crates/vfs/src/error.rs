//! Why an operation failed, by cause. Front ends turn these into errno in one table of their own.

use std::borrow::Cow;

use crate::attr::Ino;
use crate::failure::{Damage, Failure};

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A typed failure. Unless a variant says otherwise the operation had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such name, or the inode is gone.
    #[error("no such file or directory")]
    NotFound,
    /// The inode number names no file any more.
    #[error("inode {} is stale", .0.0)]
    Stale(Ino),
    /// The name exists.
    #[error("the name already exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was not allowed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name is longer than 255 bytes.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// The name is empty, `.`, `..`, or holds `/` or NUL.
    #[error("the name is not a valid file name")]
    InvalidName,
    /// An argument is out of its range; the text names it.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The directory would become its own ancestor.
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    /// No free blocks.
    #[error("no space left on the device")]
    NoSpace,
    /// No free inodes.
    #[error("no free inodes left")]
    NoInodes,
    /// The file would exceed the largest supported size.
    #[error("the file would be larger than this file system supports")]
    TooLarge,
    /// The inode has as many names as it can have.
    #[error("too many links to the file")]
    TooManyLinks,
    /// The caller's permissions do not allow it.
    #[error("permission denied")]
    PermissionDenied,
    /// Only the owner or a privileged caller may do it.
    #[error("operation not permitted")]
    NotPermitted,
    /// Mounted read-only, or turned read-only after an error.
    #[error("the file system is read-only")]
    ReadOnly,
    /// The file system does not offer the operation.
    #[error("operation not supported: {0}")]
    Unsupported(&'static str),
    /// No such extended attribute, or no data beyond this offset.
    #[error("no such attribute or data")]
    NoData,
    /// The caller's buffer is too small.
    #[error("the buffer is too small")]
    BufferTooSmall,
    /// The extended attribute or its list is larger than supported.
    #[error("the extended attribute is too large")]
    XattrTooLarge,
    /// Something uses what the operation would change; the text names it.
    #[error("in use: {0}")]
    Busy(&'static str),
    /// What is on the device cannot be right.
    #[error("the file system is damaged: {0}; run `amphi fsck`")]
    Corrupt(Damage),
    /// The device failed. Either the operation had no effect, all of it, or, if it writes, a part; or the
    /// file system takes no changes from now on ([`ReadOnly`](Self::ReadOnly)).
    #[error("device error: {0}")]
    Io(Failure),
}

impl Error {
    /// That the `structure` with the number `at` is damaged, and how.
    pub fn corrupt(
        structure: &'static str,
        at: impl Into<Option<u64>>,
        what: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Corrupt(Damage { structure, at: at.into(), what: what.into() })
    }
}
