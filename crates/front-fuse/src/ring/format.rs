//! The FUSE protocol's structures, as they lie in a ring's buffers and elsewhere: fields, sizes and values
//! are the kernel's (`include/uapi/linux/fuse.h`, version 7.42; what fuser agrees to is 7.40), in this
//! machine's byte order.

use amphi_vfs::{Attr, StatFs, TimeSpec};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Operations that come through a ring and are served. The others are answered with "not implemented".
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
}

/// `FUSE_NOTIFY_INVAL_INODE`
pub(crate) const INVALIDATE_INODE: i32 = 2;

/// Declares structures with the size that the kernel gives them, in bytes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident, $bytes:literal { $($field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $kind,)* }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

structures! {
    /// `struct fuse_in_header`: begins every request.
    InHeader, 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// `struct fuse_out_header`: begins every answer. The error is zero or a negative errno.
    OutHeader, 16 { len: u32, error: i32, unique: u64, }
    /// `struct fuse_notify_inval_inode_out` with its header, whose error says what it is and whose `unique`
    /// is zero: what the kernel is told without having asked.
    InvalidateInode, 40 { header: OutHeader, ino: u64, offset: i64, length: i64, }
    /// `struct fuse_uring_ent_in_out`: what the rings add to a request and its answer.
    RingHeader, 32 { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64, }
    /// `struct fuse_uring_req_header`: what stands before the payload, in a buffer of its own.
    RequestHeader, 288 { in_out: [u8; 128], op_in: [u8; 128], ring: RingHeader, }
    /// `struct fuse_uring_cmd_req`: the part of a submission that FUSE reads.
    Command, 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
    /// `struct fuse_attr`
    AttrOut, 88 {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// `struct fuse_attr_out`
    AttrAnswer, 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrOut, }
    /// `struct fuse_entry_out`
    EntryAnswer, 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: AttrOut,
    }
    /// `struct fuse_setattr_in`
    SetAttrIn, 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// `struct fuse_mknod_in`
    MknodIn, 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// `struct fuse_mkdir_in`
    MkdirIn, 8 { mode: u32, umask: u32, }
    /// `struct fuse_rename_in`
    RenameIn, 8 { newdir: u64, }
    /// `struct fuse_rename2_in`
    Rename2In, 16 { newdir: u64, flags: u32, padding: u32, }
    /// `struct fuse_link_in`
    LinkIn, 8 { oldnodeid: u64, }
    /// `struct fuse_read_in`, of directories too
    ReadIn, 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// `struct fuse_write_in`
    WriteIn, 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// `struct fuse_write_out`, and that of the size of an extended attribute
    SizeAnswer, 8 { size: u32, padding: u32, }
    /// `struct fuse_fsync_in`
    FsyncIn, 16 { fh: u64, fsync_flags: u32, padding: u32, }
    /// `struct fuse_setxattr_in` without `FUSE_SETXATTR_EXT`
    SetXattrIn, 8 { size: u32, flags: u32, }
    /// `struct fuse_getxattr_in`, of lists too
    GetXattrIn, 8 { size: u32, padding: u32, }
    /// `struct fuse_open_out`
    OpenAnswer, 16 { fh: u64, open_flags: u32, backing_id: i32, }
    /// `struct fuse_ioctl_in`
    IoctlIn, 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    /// `struct fuse_ioctl_out`
    IoctlAnswer, 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// `struct fuse_fallocate_in`
    FallocateIn, 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// `struct fuse_lseek_in`
    LseekIn, 24 { fh: u64, offset: i64, whence: u32, padding: u32, }
    /// `struct fuse_lseek_out`
    LseekAnswer, 8 { offset: u64, }
    /// `struct fuse_statfs_out`
    StatfsAnswer, 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// `struct fuse_dirent` without the name, which follows, filled up to 8 bytes
    Dirent, 24 { ino: u64, off: u64, namelen: u32, kind: u32, }
}

/// Bits of [`SetAttrIn::valid`].
pub(crate) mod valid {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
}

/// Bit of [`FsyncIn::fsync_flags`].
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;

/// Bit of [`IoctlIn::flags`]: the server may read and write wherever it likes, which the kernel allows nobody
/// but CUSE.
pub(crate) const IOCTL_UNRESTRICTED: u32 = 1 << 1;

/// Preferred I/O size shown by `stat`, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// Seconds and nanoseconds of a time; before 1970 the seconds are negative and the nanoseconds are not.
const fn split(time: TimeSpec) -> (i64, u32) {
    (time.ns.div_euclid(1_000_000_000), time.ns.rem_euclid(1_000_000_000) as u32)
}

/// A time that came in a request, at the ends of the range if it lies beyond.
pub(crate) fn joined(seconds: i64, ns: u32) -> TimeSpec {
    let whole = i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    TimeSpec { ns: whole.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64 }
}

impl From<&Attr> for AttrOut {
    fn from(attr: &Attr) -> Self {
        let ((atime, atimensec), (mtime, mtimensec), (ctime, ctimensec)) =
            (split(attr.atime), split(attr.mtime), split(attr.ctime));
        Self {
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            atime,
            mtime,
            ctime,
            atimensec,
            mtimensec,
            ctimensec,
            mode: u32::from(attr.file_type.mode_bits() | attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }
}

impl AttrAnswer {
    /// Attributes that may be believed for so many seconds.
    pub(crate) fn new(attr: &Attr, valid_s: u64) -> Self {
        Self { attr_valid: valid_s, attr_valid_nsec: 0, dummy: 0, attr: attr.into() }
    }
}

impl EntryAnswer {
    /// An inode whose name and attributes may be believed for so many seconds.
    pub(crate) fn new(attr: &Attr, valid_s: u64) -> Self {
        Self {
            nodeid: attr.ino.0,
            generation: u64::from(attr.generation),
            attr_valid: valid_s,
            attr: attr.into(),
            ..Self::absent(valid_s)
        }
    }

    /// What stands for "there is no such name, and you may remember that for so many seconds" in the answer
    /// to a lookup: inode number zero.
    pub(crate) fn absent(valid_s: u64) -> Self {
        Self { entry_valid: valid_s, ..Self::new_zeroed() }
    }
}

impl From<&StatFs> for StatfsAnswer {
    fn from(stat: &StatFs) -> Self {
        Self {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.inodes,
            ffree: stat.inodes_free,
            bsize: stat.block_bytes,
            namelen: stat.name_bytes_max,
            frsize: stat.block_bytes,
            padding: 0,
            spare: [0; 6],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_there_and_back() {
        for ns in [0, 1, -1, -750_000_000, 1_999_999_999, i64::MIN, i64::MAX] {
            let (seconds, rest) = split(TimeSpec { ns });
            assert!(rest < 1_000_000_000);
            assert_eq!(joined(seconds, rest), TimeSpec { ns });
        }
        assert_eq!(joined(i64::MAX, 0), TimeSpec { ns: i64::MAX });
        assert_eq!(joined(i64::MIN, 0), TimeSpec { ns: i64::MIN });
    }
}
