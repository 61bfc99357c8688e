//! The kernel's end of a mount, as far as it is told something that it did not ask.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use amphi_queue::Remembered;
use amphi_vfs::{Ino, Name};
use fuser::{INodeNo, Notifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::ring::format::{INVALIDATE_INODE, InvalidateInode, OutHeader};

/// Tells the kernel.
pub(crate) struct Kernel {
    notifier: Notifier,
    device: OwnedFd,
}

impl Kernel {
    /// `device` is open on the mount's connection, as what `notifier` writes to is.
    pub(crate) const fn new(notifier: Notifier, device: OwnedFd) -> Self {
        Self { notifier, device }
    }

    /// Lets it forget something of an inode. Whether it has the inode, which `notifier` would not say.
    ///
    /// # Errors
    /// That it was not told.
    pub(crate) fn forget_inode(&self, ino: Ino, what: Remembered) -> io::Result<bool> {
        // From a negative offset on: attributes only, the pages stay.
        let offset = if what == Remembered::Attributes { -1 } else { 0 };
        let len = size_of::<InvalidateInode>() as u32;
        let header = OutHeader { len, error: INVALIDATE_INODE, unique: 0 };
        let told = InvalidateInode { header, ino: ino.0, offset, length: 0 };
        match rustix::io::write(&self.device, told.as_bytes()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets it forget what `name` is in `dir`.
    ///
    /// # Errors
    /// That it was not told.
    pub(crate) fn forget_name(&self, dir: Ino, name: Name<'_>) -> io::Result<()> {
        self.notifier.inval_entry(INodeNo(dir.0), OsStr::from_bytes(name.bytes()))
    }

    /// Whether there is nobody left to tell: the mount was taken away.
    pub(crate) fn is_gone(&self) -> bool {
        is_now(&self.device, PollFlags::ERR)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

/// Whether `what` holds of the device, without waiting for it.
pub(crate) fn is_now(device: &OwnedFd, what: PollFlags) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut asked = [PollFd::new(device, what)];
    poll(&mut asked, Some(&NOW)).is_ok() && asked[0].revents().contains(what)
}
