//! What the file system of F2FS's kind keeps in memory of an inode, and of a directory's block.

use amphi_page_cache::Since;
use amphi_segments::Referenced;
use amphi_segments::files::{FilePages, FilePart};

use crate::format::{DentryBlock, PAGE};

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// What is kept in an inode.
#[derive(Default)]
pub struct Part {
    /// A symbolic link's target.
    pub target: Box<[u8]>,
    /// The node of its end; 0: its inode has room for it.
    pub rest: u32,
    /// A directory's entries.
    pub entries: u64,
    /// A directory's levels.
    pub levels: u32,
    /// Blocks of pages, and those that are held.
    pub blocks: u64,
    /// The node of its extended attributes; 0: it has none.
    pub xattr: u32,
    /// The directory of its last name, and that name.
    pub parent: u32,
    /// See `parent`.
    pub name: Box<[u8]>,
    /// Cached pages.
    pub file: FilePages,
}

impl amphi_names::Part for Part {
    type Beside = Since;

    fn sectors(state: &State) -> u64 {
        state.part.blocks * (PAGE / 512) as u64
    }
}

impl FilePart for Part {
    fn file(&self) -> &FilePages {
        &self.file
    }

    fn file_mut(&mut self) -> &mut FilePages {
        &mut self.file
    }
}

/// A block of entries in memory.
pub struct Dent {
    /// What it holds.
    pub block: Box<DentryBlock>,
    /// Changed since the last checkpoint.
    pub dirty: bool,
    /// Whether it was used lately.
    pub used: Referenced,
}
