//! What the calls of a [`FileSystem`](crate::FileSystem) take and answer.

use crate::{Attr, FileType, Ino};

/// A looked-up name: the inode's attributes, with one more reference held on it (see
/// [`FileSystem::forget`](crate::FileSystem::forget)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode's attributes.
    pub attr: Attr,
}

/// What a name was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The inode that it named.
    pub ino: Ino,
    /// Names that the inode has left, or links of a directory; without any it is deleted once nobody refers
    /// to it.
    pub nlink: u32,
}

/// What a rename did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The inode that was moved.
    pub moved: Ino,
    /// What lost the target name, if anything had it: after an exchange it has the other one. None if both
    /// were names of one file.
    pub target: Option<Removed>,
}

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub file_type: FileType,
    /// Name; `.` and `..` are listed first.
    pub name: &'a [u8],
    /// Pass this to [`FileSystem::readdir`](crate::FileSystem::readdir) to continue after this entry.
    pub next_cookie: u64,
}

/// Receives directory entries; returns false when it is full and has not taken the entry.
pub type DirSink<'a> = dyn FnMut(DirEntry<'_>) -> bool + 'a;

/// How a file is opened, as far as a file system cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// Opened for writing.
    pub write: bool,
    /// `O_DIRECT`.
    pub direct: bool,
    /// Cut to length zero on opening.
    pub truncate: bool,
}

/// How one write is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteMode {
    /// Write at the end of the file whatever the offset, atomically with finding the end.
    pub append: bool,
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Data durable on return (`O_DSYNC`); with `sync_metadata`, all attributes too (`O_SYNC`).
    pub sync_data: bool,
    /// See `sync_data`.
    pub sync_metadata: bool,
}

/// What `rename` does with the target name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    #[default]
    Replace,
    /// Refuses if it exists.
    NoReplace,
    /// Swaps the two; both must exist.
    Exchange,
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte of data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file is one.
    Hole,
}

/// What `allocate` does with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Reserves its space, so that writing there cannot fail for lack of it; what was a hole reads as zeros
    /// as before.
    Reserve {
        /// The file does not grow if the range ends beyond it; else it does, to the end of the range.
        keep_size: bool,
    },
    /// Frees what it can of the range, all of which reads as zeros afterwards. The size stays.
    PunchHole,
    /// Makes the range read as zeros and keeps its space reserved.
    Zero {
        /// As for `Reserve`.
        keep_size: bool,
    },
}

impl Allocate {
    /// Whether the range has its space reserved afterwards.
    #[must_use]
    pub const fn reserves(self) -> bool {
        matches!(self, Self::Reserve { .. } | Self::Zero { .. })
    }

    /// Whether the range reads as zeros afterwards, whatever was there.
    #[must_use]
    pub const fn clears(self) -> bool {
        matches!(self, Self::PunchHole | Self::Zero { .. })
    }

    /// Whether the file's size stays even if the range ends beyond it.
    #[must_use]
    pub const fn keeps_size(self) -> bool {
        !matches!(self, Self::Reserve { keep_size: false } | Self::Zero { keep_size: false })
    }
}

/// What `setxattr` does if the attribute exists or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    #[default]
    Set,
    /// Fails with [`Error::Exists`](crate::Error::Exists) if it exists.
    Create,
    /// Fails with [`Error::NoData`](crate::Error::NoData) if it does not.
    Replace,
}

/// What a file system promises to survive a host crash or power loss: the oracle's licence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// A completed namespace or attribute operation survives, without any `fsync`.
    pub metadata_durable_on_return: bool,
    /// A write operation is all or nothing.
    pub atomic_writes: bool,
    /// A completed write survives, without any `fsync`.
    pub data_durable_on_return: bool,
}

/// A range of a file that is pinned to a device's window (2B-SSD §III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedRange {
    /// The file.
    pub ino: Ino,
    /// First byte, a multiple of 4096.
    pub offset: u64,
    /// Bytes, a multiple of 4096.
    pub length: u64,
    /// Who pinned it.
    pub uid: u32,
}
