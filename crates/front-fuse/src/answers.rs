//! What requests are answered with, whichever way they came.

use std::time::Duration;

use amphi_vfs::Result;
use fuser::Errno;

use crate::errno::{errno, errno_or_absent};

/// How long the kernel may believe names and attributes: as good as for ever, since all changes go through
/// it.
pub(crate) const VALID: Duration = Duration::from_secs(86_400);

/// An answer, or the error that the program sees.
pub(crate) type Answer<T> = std::result::Result<T, Errno>;

/// The answer to a question for extended attributes.
#[derive(Debug)]
pub(crate) enum Xattr {
    /// How long it is, in bytes, for who offered no room.
    Size(u32),
    /// What it is.
    Value(Vec<u8>),
}

/// The value, or its size if the caller offers no room.
pub(crate) fn xattr_that_fits(room: u32, result: Result<Vec<u8>>) -> Answer<Xattr> {
    match result {
        Ok(value) if room == 0 => Ok(Xattr::Size(value.len() as u32)),
        Ok(value) if value.len() <= room as usize => Ok(Xattr::Value(value)),
        Ok(_) => Err(Errno::ERANGE),
        Err(error) => Err(errno_or_absent(&error)),
    }
}

/// What became of an operation, for a program.
pub(crate) trait OrErrno<T> {
    /// Errors as [`errno`] has them.
    fn or_errno(self) -> Answer<T>;
    /// Errors as [`errno_or_absent`] has them.
    fn or_absent(self) -> Answer<T>;
}

impl<T> OrErrno<T> for Result<T> {
    fn or_errno(self) -> Answer<T> {
        self.map_err(|error| errno(&error))
    }

    fn or_absent(self) -> Answer<T> {
        self.map_err(|error| errno_or_absent(&error))
    }
}
