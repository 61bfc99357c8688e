//! [`Extents`]: where the pages of a file lie, for whoever reaches them past the file system.

use crate::{Allocate, FileSystem, Ino, Result};

/// Pages of a device that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The first.
    pub first: u64,
    /// How many of 4096 bytes, at least one.
    pub pages: u64,
}

/// A file system that can step aside from a range of a file.
pub trait Extents: FileSystem {
    /// Makes `length` bytes at `offset` of a file durable in their place, both multiples of 4096 and inside
    /// of the file, forgets what host memory holds of them, and says where they lie, in order.
    ///
    /// The pages stay the file's as long as it is open and nobody cuts it or frees the range. As long as
    /// nobody reads or writes the range through the file system either, it reads and writes nothing there.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a range with a page that was never written;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the file system may write there by itself.
    fn settle(&self, ino: Ino, offset: u64, length: u64) -> Result<Vec<PageRun>>;

    /// As [`settle`](Extents::settle), for pages that may be reserved only, and may lie behind the end of the
    /// file ([`Allocate::Reserve`](crate::Allocate::Reserve)).
    ///
    /// # Errors
    /// As there; [`Error::Invalid`](crate::Error::Invalid) for a page that is not even reserved.
    fn place(&self, ino: Ino, offset: u64, length: u64) -> Result<Vec<PageRun>>;

    /// Says that whoever reached `length` bytes at `offset` past the file system has written them: they are
    /// not reserved only any more, and the file has at least `size` bytes. Durable on return.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a page that is not even reserved;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::Io`](crate::Error::Io).
    fn landed(&self, ino: Ino, offset: u64, length: u64, size: u64) -> Result<()>;

    /// Reserves or frees pages, as [`FileSystem::allocate`] does. Nobody has written: no time stamp moves.
    ///
    /// # Errors
    /// As there.
    fn allocate_unnoticed(&self, ino: Ino, offset: u64, length: u64, what: Allocate) -> Result<()>;

    /// A number that no other file system has, on this device or another.
    fn identity(&self) -> [u8; 16];
}
