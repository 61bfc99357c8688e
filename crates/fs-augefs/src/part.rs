//! What AugeFS keeps in an inode: where it stands in the metadata store, the numbers of its nodes, its pages.

use std::collections::{BTreeMap, BTreeSet};

use amphi_page_cache::Since;
use amphi_segments::files::{FilePages, FilePart};
use amphi_vfs::Ino;

use crate::format::{INLINE_NODES, NODES_PER_CHUNK, PAGE};

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// Where an inode stands in the metadata store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// Nowhere yet.
    #[default]
    New,
    /// With its only name: in this directory, under this name.
    Named(Ino, Box<[u8]>),
    /// By its number: it has several names, or none, or had them.
    Own,
}

/// What AugeFS keeps in an inode.
#[derive(Default)]
pub struct Part {
    /// Where it stands.
    pub home: Home,
    /// A symbolic link's target.
    pub target: Box<[u8]>,
    /// Whether the target has a record of its own.
    pub target_apart: bool,
    /// A directory's entries.
    pub entries: u64,
    /// Blocks that its nodes name, and that are held.
    pub blocks: u64,
    /// Numbers of its nodes.
    pub nodes: BTreeMap<u32, u32>,
    /// Chunks of these numbers that have changed.
    pub chunks: BTreeSet<u32>,
    /// Nodes that are promised a block and have no number yet.
    pub promised_nodes: BTreeSet<u32>,
    /// Cached pages.
    pub file: FilePages,
    /// Dirty ones that were promised a block.
    pub promised: u64,
}

impl amphi_names::Part for Part {
    type Beside = Since;

    fn sectors(state: &State) -> u64 {
        (state.part.blocks + state.part.promised) * (PAGE / 512) as u64
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

fn chunk_of(index: u32) -> Option<u32> {
    Some(index.checked_sub(INLINE_NODES)? / NODES_PER_CHUNK)
}

impl Part {
    /// A part of the file has a node from now on, or none.
    pub fn set_node(&mut self, index: u32, nid: Option<u32>) {
        match nid {
            Some(nid) => self.nodes.insert(index, nid),
            None => self.nodes.remove(&index),
        };
        self.chunks.extend(chunk_of(index));
    }

    pub fn chunk(&self, chunk: u32) -> Option<[u32; NODES_PER_CHUNK as usize]> {
        let first = INLINE_NODES + chunk * NODES_PER_CHUNK;
        let mut nodes = [0; NODES_PER_CHUNK as usize];
        for (index, nid) in self.nodes.range(first..first + NODES_PER_CHUNK) {
            nodes[(index - first) as usize] = *nid;
        }
        nodes.iter().any(|nid| *nid != 0).then_some(nodes)
    }
}
