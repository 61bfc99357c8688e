//! What the file system keeps in an inode.

use amphi_page_cache::Since;
use amphi_vfs::{Error, Result};

use crate::data::body::FileBody;
use crate::format::{FLAG_INDEXED, FLAG_INLINE_TARGET, INLINE_TARGET_MAX};
use crate::index::extent::Extents;
use crate::index::xattr::Xattrs;

/// What is particular to a type.
pub enum Body {
    /// A regular file's pages.
    File(FileBody),
    /// A directory; whether it has an index.
    Dir {
        /// Its block 0 is an index of hashes.
        indexed: bool,
    },
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// Nothing.
    Special,
}

/// What the file system keeps of an inode beside its lock.
#[derive(Default)]
pub struct Beside {
    /// Since when it has writes to come.
    pub dirty: Since,
}

/// What the file system keeps in an inode.
pub struct Part {
    /// Length that the journal knows: data behind it have not been written yet.
    pub size_on_disk: u64,
    /// Blocks allocated: data, extent blocks, attributes.
    pub blocks: u32,
    /// Where its blocks are.
    pub extents: Extents,
    /// Where its extended attributes are.
    pub xattrs: Xattrs,
    /// The transaction that changed it last.
    pub sync_tid: u32,
    /// The transaction that changed last what is needed to read its data.
    pub datasync_tid: u32,
    /// What is particular to its type.
    pub body: Body,
}

impl Part {
    /// What a new inode starts with: `size` bytes that the device holds.
    pub fn new(body: Body, size: u64) -> Self {
        Self {
            size_on_disk: size,
            blocks: 0,
            extents: Extents::default(),
            xattrs: Xattrs::default(),
            sync_tid: 0,
            datasync_tid: 0,
            body,
        }
    }

    /// The regular file's part.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`].
    pub fn file(&self) -> Result<&FileBody> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Dir { .. } => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// As [`file`](Self::file), to change it.
    ///
    /// # Errors
    /// As there.
    pub fn file_mut(&mut self) -> Result<&mut FileBody> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Dir { .. } => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Whether a directory has an index.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub const fn dir(&self) -> Result<bool> {
        match &self.body {
            Body::Dir { indexed } => Ok(*indexed),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Blocks of a directory.
    pub const fn dir_blocks(&self) -> u32 {
        (self.size_on_disk / crate::format::BLOCK as u64) as u32
    }

    /// Its flags on the device.
    pub fn flags(&self) -> u16 {
        match &self.body {
            Body::Dir { indexed: true } => FLAG_INDEXED,
            Body::Symlink(target) if target.len() <= INLINE_TARGET_MAX => FLAG_INLINE_TARGET,
            _ => 0,
        }
    }
}
