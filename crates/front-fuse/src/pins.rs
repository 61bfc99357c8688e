//! `ioctl` on a file of a mount that pins and unpins ranges of it (2B-SSD §III-C): what the daemon answers,
//! and what a program asks.
//!
//! The argument is two u64 of this machine's byte order, offset and length in bytes; `AMPHI_PIN` is
//! `_IOW('A', 0x80, uint64_t[2])`, `AMPHI_UNPIN` the next number.

use std::os::fd::BorrowedFd;

use amphi_vfs::{Error, FileSystem, Ino, Result};
use rustix::io;
use rustix::ioctl::{Setter, ioctl};

use crate::caller::Caller;

/// `AMPHI_PIN`.
pub(crate) const PIN: u32 = 0x4010_4180;
/// `AMPHI_UNPIN`.
pub(crate) const UNPIN: u32 = 0x4010_4181;

/// Pins or unpins what the argument says, for the caller with all its groups and capabilities.
///
/// # Errors
/// As [`FileSystem::pin_range`] and [`FileSystem::unpin_range`].
pub(crate) fn change<F: FileSystem>(
    fs: &F,
    caller: Caller,
    ino: Ino,
    command: u32,
    argument: &[u8],
) -> Result<()> {
    let argument: [u8; 16] =
        argument.try_into().map_err(|_| Error::Invalid("an argument that is no range"))?;
    let word = |at: usize| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| argument[at * 8 + byte]));
    let cred = caller.at_least();
    match command {
        PIN => fs.pin_range(ino, word(0), word(1), &cred),
        _ => fs.unpin_range(ino, word(0), word(1), &cred),
    }
}

/// Asks the mount that an open file is on to pin `length` bytes at `offset` of it, or to end the pins there.
///
/// # Errors
/// The daemon's answer: `EACCES`, `EPERM`, `EINVAL`, `EBUSY`, `ENOSPC`, `ENOENT`, `EOPNOTSUPP`; `ENOTTY` for
/// a file of something else.
#[allow(unsafe_code, reason = "a system call with a pointer")]
pub fn ask(file: BorrowedFd<'_>, pins: bool, offset: u64, length: u64) -> io::Result<()> {
    let argument = [offset, length];
    // SAFETY: both numbers say that the kernel reads sixteen bytes, which the argument has.
    unsafe {
        match pins {
            true => ioctl(file, Setter::<PIN, [u64; 2]>::new(argument)),
            false => ioctl(file, Setter::<UNPIN, [u64; 2]>::new(argument)),
        }
    }
}
