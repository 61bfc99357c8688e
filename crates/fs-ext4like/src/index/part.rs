//! What the file system keeps in an inode.

use amphi_page_cache::Since;

use crate::data::body::FileBody;
use crate::format::{BLOCK, FLAG_INDEXED, FLAG_INLINE_TARGET, INLINE_TARGET_MAX};
use crate::index::extent::Extents;
use crate::index::xattr::Xattrs;

/// What is particular to a type: a file's pages, of a directory whether block 0 is an index of hashes, a
/// link's target.
pub type Body = amphi_names::Body<FileBody, bool, Vec<u8>>;

/// What the file system keeps of an inode beside its lock.
#[derive(Default)]
pub struct Beside {
    /// Since when it has writes to come.
    pub dirty: Since,
}

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

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

impl amphi_names::Part for Part {
    type Beside = Beside;

    fn sectors(state: &State) -> u64 {
        let reserved = if let Body::File(file) = &state.body { file.unmapped } else { 0 };
        (u64::from(state.blocks) + reserved) * (BLOCK / 512) as u64
    }
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

    /// Blocks of a directory.
    pub const fn dir_blocks(&self) -> u32 {
        (self.size_on_disk / BLOCK as u64) as u32
    }

    /// Its flags on the device.
    pub fn flags(&self) -> u16 {
        match &self.body {
            Body::Dir(true) => FLAG_INDEXED,
            Body::Symlink(target) if target.len() <= INLINE_TARGET_MAX => FLAG_INLINE_TARGET,
            _ => 0,
        }
    }
}
