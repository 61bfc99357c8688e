//! Attributes, file types and times between the kernel's terms and the file system's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amphi_vfs::{Attr, FileType, SetTime, TimeSpec};
use fuser::{FileAttr, INodeNo, TimeOrNow};

/// Preferred I/O size shown by `stat`, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// Type bits of a mode.
const S_IFMT: u32 = 0o170_000;

pub(crate) const fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// The type that `mknod` was asked for; none for those it cannot make.
pub(crate) const fn node_type(mode: u32) -> Option<FileType> {
    match mode & S_IFMT {
        0 | 0o100_000 => Some(FileType::Regular),
        0o010_000 => Some(FileType::Fifo),
        0o140_000 => Some(FileType::Socket),
        0o020_000 => Some(FileType::CharDevice),
        0o060_000 => Some(FileType::BlockDevice),
        _ => None,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attr.file_type),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// What stands for "there is no such name, and you may remember that" in the answer to a lookup: inode number
/// zero.
pub(crate) const fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn system_time(time: TimeSpec) -> SystemTime {
    let distance = Duration::from_nanos(time.ns.unsigned_abs());
    if time.ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Nanoseconds since 1970 of a time that came in a request, at the ends of the range if it lies beyond.
///
/// fuser turns seconds -s and nanoseconds n into -(s + n) before 1970; the kernel means -s + n.
pub(crate) fn time_spec(time: SystemTime) -> TimeSpec {
    let ns = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            seconds
                .checked_mul(-1_000_000_000)
                .and_then(|ns| ns.checked_add(i64::from(before.subsec_nanos())))
                .unwrap_or(i64::MIN)
        }
    };
    TimeSpec { ns }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(time_spec(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        // The kernel's -1 s + 250 ms, as fuser hands it over.
        let as_received = UNIX_EPOCH - Duration::new(1, 250_000_000);
        assert_eq!(time_spec(as_received), TimeSpec { ns: -750_000_000 });
        assert_eq!(system_time(TimeSpec { ns: -750_000_000 }), UNIX_EPOCH - Duration::from_millis(750));
    }

    #[test]
    fn times_out_of_range_stay_at_its_ends() {
        let late = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(time_spec(late), TimeSpec { ns: i64::MAX });
        let early = UNIX_EPOCH - Duration::from_secs(1 << 40);
        assert_eq!(time_spec(early), TimeSpec { ns: i64::MIN });
    }

    #[test]
    fn mknod_makes_no_directories() {
        assert_eq!(node_type(0o644), Some(FileType::Regular));
        assert_eq!(node_type(0o010_600), Some(FileType::Fifo));
        assert_eq!(node_type(0o040_755), None);
        assert_eq!(node_type(0o120_777), None);
    }
}
