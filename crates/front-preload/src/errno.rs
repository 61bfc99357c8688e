//! What a completion's status is to a program: the one table of this front end.
#![allow(unsafe_code)]

use amphi_queue::format::code;
use libc::c_int;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel is to be asked: it may know better, or can do what the queue cannot.
    AskKernel,
    /// This is the answer.
    Errno(c_int),
}

/// The verdict for a status other than [`code::DONE`].
pub const fn verdict(status: u16) -> Verdict {
    let errno = match status {
        code::NOT_FOUND => libc::ENOENT,
        code::EXISTS => libc::EEXIST,
        code::NOT_DIRECTORY => libc::ENOTDIR,
        code::IS_DIRECTORY => libc::EISDIR,
        code::NOT_EMPTY => libc::ENOTEMPTY,
        code::NAME_TOO_LONG => libc::ENAMETOOLONG,
        code::NO_SPACE => libc::ENOSPC,
        code::TOO_LARGE => libc::EFBIG,
        code::TOO_MANY_LINKS => libc::EMLINK,
        code::READ_ONLY => libc::EROFS,
        code::XATTR_TOO_LARGE => libc::E2BIG,
        code::BUSY => libc::EBUSY,
        // Of an extended attribute; of a search for data the caller says so otherwise.
        code::NO_DATA => libc::ENODATA,
        code::BUFFER_TOO_SMALL => libc::ERANGE,
        code::CORRUPT => libc::EUCLEAN,
        code::IO => libc::EIO,
        // Among them permissions: the kernel knows all that a process may.
        _ => return Verdict::AskKernel,
    };
    Verdict::Errno(errno)
}

/// Sets `errno` and returns what a failed call returns.
pub fn fail(errno: c_int) -> isize {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The thread's `errno`, for whoever must not change it.
pub fn current() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
