//! What an inode says of itself, whatever else a format has of it.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What every inode says.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeHead {
    /// Its type's code.
    pub kind: u8,
    /// 1: it was made without a name and has had none since.
    pub unnamed: u8,
    /// Permission bits.
    pub mode: U16,
    /// Names.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Device number.
    pub rdev: U32,
    /// Distinguishes successive files of one number.
    pub generation: U32,
    /// Bytes.
    pub size: U64,
    /// Access time, ns since 1970.
    pub atime: I64,
    /// Modification time.
    pub mtime: I64,
    /// Change time.
    pub ctime: I64,
}

const _: () = assert!(size_of::<InodeHead>() == 56);
