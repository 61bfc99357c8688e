//! The operations of a range, and how attributes become numbers and come back.

use amphi_vfs::{Attr, FileType, Ino, SetAttr, SetTime, TimeSpec};

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// An operation of the call table: the methods of [`amphi_vfs::FileSystem`], commands of the queue's
        /// format, what a mount needs, and two that say what crossing costs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Operation {
            $($(#[$doc])* $name = $number,)*
        }

        impl Operation {
            /// The operation of a number.
            #[must_use]
            pub const fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// Does nothing: what crossing costs.
    Nothing = 0,
    /// Waits until it is the caller's turn (`numbers[0]` of `numbers[1]`), then makes it the next one's: a
    /// lock and a condition variable of the range's, between processes.
    Turn = 1,
    /// See the trait.
    Promise = 2,
    /// See the trait.
    Lookup = 3,
    /// See the trait.
    Reference = 4,
    /// See the trait.
    Parent = 5,
    /// See the trait.
    Forget = 6,
    /// See the trait.
    Getattr = 7,
    /// See the trait.
    Setattr = 8,
    /// See the trait.
    Create = 9,
    /// See the trait.
    Tmpfile = 10,
    /// See the trait.
    Mkdir = 11,
    /// See the trait.
    Symlink = 12,
    /// See the trait.
    Readlink = 13,
    /// See the trait.
    Link = 14,
    /// See the trait.
    Unlink = 15,
    /// See the trait.
    Rmdir = 16,
    /// See the trait.
    Rename = 17,
    /// See the trait.
    Open = 18,
    /// See the trait.
    Release = 19,
    /// See the trait.
    Read = 20,
    /// See the trait.
    Write = 21,
    /// See the trait.
    Fsync = 22,
    /// See the trait.
    Sync = 23,
    /// See the trait.
    Readdir = 24,
    /// See the trait.
    Statfs = 25,
    /// See the trait.
    Seek = 26,
    /// See the trait.
    Allocate = 27,
    /// See the trait.
    DiscardFree = 28,
    /// See the trait.
    Getxattr = 29,
    /// See the trait.
    Setxattr = 30,
    /// See the trait.
    Listxattr = 31,
    /// See the trait.
    Removexattr = 32,
    /// See the trait.
    UnlinkAs = 33,
    /// See the trait.
    RmdirAs = 34,
    /// See the trait.
    AccessTimes = 35,
    /// Carries out a command of the queue's format: `first` is the submission, `room` the payload, and the
    /// answer is the completion's bytes. It is carried out for whom the kernel says that the client is.
    Command = 36,
    /// Of who serves the range's mount to the kernel: says what came of an errand (its number, whether there
    /// is an answer, and the answer in two words), and waits for the next one. The answer is its number (0:
    /// there will be none), its kind, an inode, how many renames by the kernel had ended before a name
    /// changed, and that name in `room`.
    Errand = 37,
    /// Text of JSON about the range: what (`told`), and a number.
    Tell = 38,
}

/// What a range tells about itself.
pub mod told {
    /// What the device and the file system are.
    pub const INFO: u64 = 0;
    /// What they count.
    pub const STATS: u64 = 1;
    /// Nothing: the device loses its power, with a seed that decides what is left, and the range dies.
    pub const POWER_CUT: u64 = 2;
}

/// Kinds of errands.
pub mod errand {
    /// The kernel is to forget an inode.
    pub const INODE: u64 = 1;
    /// The kernel is to forget a name.
    pub const NAME: u64 = 2;
    /// A pass for an inode is wanted.
    pub const PASS: u64 = 3;
}

const TYPES: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
];

/// Numbers out of what the trait speaks of.
pub mod pack {
    use super::{Attr, FileType, SetAttr, SetTime, TYPES};

    /// A file type.
    #[must_use]
    pub fn file_type(file_type: FileType) -> u64 {
        TYPES.iter().position(|one| *one == file_type).unwrap_or(0) as u64
    }

    /// Attributes.
    #[must_use]
    pub fn attr(attr: &Attr) -> [u64; 16] {
        [
            attr.ino.0,
            u64::from(attr.generation),
            file_type(attr.file_type),
            u64::from(attr.mode),
            u64::from(attr.nlink),
            u64::from(attr.uid),
            u64::from(attr.gid),
            u64::from(attr.rdev),
            attr.size,
            attr.blocks,
            attr.atime.ns as u64,
            attr.mtime.ns as u64,
            attr.ctime.ns as u64,
            0,
            0,
            0,
        ]
    }

    /// Attributes to change: which are given, a bit each, mode and user and group, size, times.
    #[must_use]
    pub fn set_attr(change: &SetAttr) -> [u64; 7] {
        let mut given = 0;
        let mut number = |bit: u32, value: Option<u64>| {
            given |= u64::from(value.is_some()) << bit;
            value.unwrap_or(0)
        };
        let time = |time: Option<SetTime>| match time {
            Some(SetTime::At(at)) => (Some(at.ns as u64), false),
            Some(SetTime::Now) => (Some(0), true),
            None => (None, false),
        };
        let (atime, atime_now) = time(change.atime);
        let (mtime, mtime_now) = time(change.mtime);
        let mode = number(0, change.mode.map(u64::from));
        let owner = number(1, change.uid.map(u64::from)) | number(2, change.gid.map(u64::from)) << 32;
        let size = number(3, change.size);
        let times = [number(4, atime), number(5, mtime), number(6, change.ctime.map(|time| time.ns as u64))];
        given |= u64::from(atime_now) << 7 | u64::from(mtime_now) << 8;
        [given, mode, owner, size, times[0], times[1], times[2]]
    }
}

/// What the trait speaks of, out of numbers.
pub mod unpack {
    use super::{Attr, FileType, Ino, SetAttr, SetTime, TYPES, TimeSpec};

    /// A file type.
    #[must_use]
    pub fn file_type(number: u64) -> FileType {
        TYPES.get(number as usize).copied().unwrap_or(FileType::Regular)
    }

    /// Attributes.
    #[must_use]
    pub fn attr(numbers: &[u64; 16]) -> Attr {
        let time = |index: usize| TimeSpec { ns: numbers[index] as i64 };
        Attr {
            ino: Ino(numbers[0]),
            generation: numbers[1] as u32,
            file_type: file_type(numbers[2]),
            mode: numbers[3] as u16,
            nlink: numbers[4] as u32,
            uid: numbers[5] as u32,
            gid: numbers[6] as u32,
            rdev: numbers[7] as u32,
            size: numbers[8],
            blocks: numbers[9],
            atime: time(10),
            mtime: time(11),
            ctime: time(12),
        }
    }

    /// Attributes to change.
    #[must_use]
    pub fn set_attr(numbers: &[u64]) -> SetAttr {
        let given = |bit: u32| numbers[0] >> bit & 1 == 1;
        let at = |index: usize| TimeSpec { ns: numbers[index] as i64 };
        let time = |bit: u32, now: u32, index: usize| {
            given(bit).then(|| if given(now) { SetTime::Now } else { SetTime::At(at(index)) })
        };
        SetAttr {
            mode: given(0).then_some(numbers[1] as u16),
            uid: given(1).then_some(numbers[2] as u32),
            gid: given(2).then_some((numbers[2] >> 32) as u32),
            size: given(3).then_some(numbers[3]),
            atime: time(4, 7, 4),
            mtime: time(5, 8, 5),
            ctime: given(6).then(|| at(6)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_out_as_they_went_in() {
        let attr = Attr {
            ino: Ino(9),
            generation: 3,
            file_type: FileType::Fifo,
            mode: 0o4755,
            nlink: 2,
            uid: 1,
            gid: u32::MAX,
            rdev: 7,
            size: 1 << 40,
            blocks: 8,
            atime: TimeSpec { ns: -1 },
            mtime: TimeSpec { ns: 5 },
            ctime: TimeSpec { ns: i64::MAX },
        };
        assert_eq!(unpack::attr(&pack::attr(&attr)), attr);
    }

    #[test]
    fn changes_come_out_as_they_went_in() {
        let all = SetAttr {
            mode: Some(0o700),
            uid: Some(u32::MAX),
            gid: Some(4),
            size: Some(0),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::At(TimeSpec { ns: -7 })),
            ctime: Some(TimeSpec { ns: 8 }),
        };
        let none = SetAttr::default();
        let one = SetAttr { gid: Some(0), mtime: Some(SetTime::Now), ..none };
        for change in [all, none, one] {
            assert_eq!(unpack::set_attr(&pack::set_attr(&change)), change);
        }
    }
}
