//! What the kernel has been told, as [`Marks`], and how it is told to forget.
//!
//! The marks are this session's own, or lie where another door of the mount finds them, in memory that
//! processes share.

use std::ffi::OsStr;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;

use amphi_queue::{Marks, Remembered};
use amphi_vfs::{Ino, Name};
use fuser::{INodeNo, Notifier};

/// The marks of a session.
#[derive(Debug)]
pub(crate) enum Known {
    Own(Box<Marks>),
    Shared(&'static Marks),
}

impl Deref for Known {
    type Target = Marks;

    fn deref(&self) -> &Marks {
        match self {
            Self::Own(marks) => marks,
            Self::Shared(marks) => marks,
        }
    }
}

impl Known {
    /// The inode was changed by another door. Returns when the kernel knows nothing older.
    pub(crate) fn inode_changed(&self, ino: Ino, kernel: &Notifier) {
        let from = match self.take_inode(ino) {
            None => return,
            // From a negative offset on: attributes only.
            Some(Remembered::Attributes) => -1,
            Some(Remembered::Contents) => 0,
        };
        if let Err(error) = kernel.inval_inode(INodeNo(ino.0), from, 0) {
            tracing::warn!("the kernel may show an old state of inode {}: {error}", ino.0);
        }
    }

    /// What `name` is in `dir` was changed by another door. Returns when the kernel knows nothing older.
    pub(crate) fn name_changed(&self, dir: Ino, name: Name<'_>, kernel: &Notifier) {
        if self.take_name(dir, name)
            && let Err(error) = kernel.inval_entry(INodeNo(dir.0), OsStr::from_bytes(name.bytes()))
        {
            tracing::warn!("the kernel may show an old name in directory {}: {error}", dir.0);
        }
    }
}
