//! Attributes: inode numbers, file types, times, the answer to `stat` and `statfs`, and requests to change
//! them.

/// An inode number. The root directory is [`Ino::ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of every file system.
    pub const ROOT: Self = Self(1);
}

/// What kind of file an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileType {
    /// The bits of `st_mode` that tell the type.
    pub const MODE_BITS: u16 = 0o170_000;

    /// Its bits of `st_mode`.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The type that the bits of an `st_mode` tell; `None` if they tell none.
    #[must_use]
    pub const fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode & Self::MODE_BITS {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

/// A time stamp: nanoseconds since 1970, negative before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpec {
    /// Nanoseconds since 1970-01-01T00:00:00Z. The range is 1677 to 2262.
    pub ns: i64,
}

/// The answer to `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Distinguishes files that used the same number one after another.
    pub generation: u32,
    /// Type.
    pub file_type: FileType,
    /// Permission bits, with setuid, setgid and sticky: `0o7777`.
    pub mode: u16,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: TimeSpec,
    /// Last change of contents.
    pub mtime: TimeSpec,
    /// Last change of contents or attributes.
    pub ctime: TimeSpec,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's clock.
    Now,
    /// This time.
    At(TimeSpec),
}

/// Attributes to change; `None` leaves one as it is. All that are given change in one atomic step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits, `0o7777`.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: shorter drops data, longer adds a hole.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; `None` means now if anything else changes.
    pub ctime: Option<TimeSpec>,
}

/// When reading moves a file's access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// If the file has changed since it was last read, or that was a day ago (`relatime`).
    #[default]
    Relative,
    /// Always (`strictatime`).
    Strict,
    /// Never (`noatime`).
    Never,
}

impl AccessTimes {
    /// Whether a read at `now` moves the access time. All times are in ns since 1970.
    #[must_use]
    pub const fn moves(self, atime: i64, mtime: i64, ctime: i64, now: i64) -> bool {
        const DAY_NS: i64 = 86_400_000_000_000;
        match self {
            Self::Never => false,
            Self::Strict => atime != now,
            Self::Relative => atime <= mtime || atime <= ctime || now.saturating_sub(atime) >= DAY_NS,
        }
    }
}

/// The answer to `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes per block in the counts below.
    pub block_bytes: u32,
    /// Blocks for data and metadata that the file system manages.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that an unprivileged user may take.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest file name in bytes.
    pub name_bytes_max: u32,
}
