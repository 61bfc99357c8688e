//! What POSIX means here: the inode-level [`FileSystem`] trait that every file system implements, its attributes, errors and
//! credentials. Front ends (FUSE, preload, the library) sit above it; devices below are none of its business.
#![forbid(unsafe_code)]

mod attr;
mod cred;
mod error;
mod fs;
mod name;

pub use attr::{Attr, FileType, Ino, SetAttr, SetTime, StatFs, TimeSpec};
pub use cred::Cred;
pub use error::{Error, Result};
pub use fs::{
    Allocate, DirEntry, DirSink, Entry, FileSystem, OpenFlags, Promise, RenameMode, Seek, WriteMode,
    XattrMode,
};
pub use name::{NAME_BYTES_MAX, Name};
