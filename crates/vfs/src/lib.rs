//! What POSIX means here: the inode-level [`FileSystem`] trait that every file system implements, its
//! attributes, errors and credentials. Front ends (FUSE, preload, the library) sit above it; devices below
//! are none of its business.
#![forbid(unsafe_code)]

pub mod acl;
mod attr;
mod calls;
mod checked;
mod cred;
mod error;
mod extents;
mod failure;
mod fs;
mod name;
pub mod permission;

pub use attr::{AccessTimes, Attr, FileType, Ino, SetAttr, SetTime, StatFs, TimeSpec};
pub use calls::{
    Allocate, DirEntry, DirSink, Entry, OpenFlags, PinnedRange, Promise, Removed, RenameMode, Renamed, Seek,
    WriteMode, XattrMode,
};
pub use checked::{Checked, may_remove};
pub use cred::{Capabilities, Cred};
pub use error::{Error, Result};
pub use extents::{Extents, PageRun};
pub use failure::{Damage, Failure};
pub use fs::FileSystem;
pub use name::{NAME_BYTES_MAX, Name};
