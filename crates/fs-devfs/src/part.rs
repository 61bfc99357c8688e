//! What DevFS keeps with an inode in device memory.

use std::sync::Arc;

use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, Result};

use crate::dir::Dir;
use crate::filemap::Filemap;
use crate::format::PAGE;
use crate::memory::{DeviceMemory, Hold, Kind};
use crate::open_files::CountedIn;

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// What DevFS keeps under an inode's lock.
#[derive(Debug)]
pub struct Part {
    pub levels: u8,
    /// A directory's names have changed since it came to device memory.
    pub has_changed: bool,
    /// The pointer page of the highest level; 0: none.
    pub root: u32,
    /// Blocks of all kinds.
    pub blocks: u64,
    pub attributes: u32,
    pub attributes_crc: u32,
    pub target_block: u32,
    pub target_crc: u32,
    pub target: Vec<u8>,
    /// A directory's entries, while they are in device memory.
    pub dir: Option<Box<Dir>>,
    /// The memory that the inode takes: itself, and a target.
    hold: Hold,
    inode_bytes: u64,
}

impl amphi_names::Part for Part {
    type Beside = PerFile;

    fn sectors(state: &State) -> u64 {
        state.part.blocks * (PAGE / 512) as u64
    }
}

impl Part {
    /// Of an inode that has nothing, and takes so many bytes of device memory.
    pub fn new(memory: &Arc<DeviceMemory>, inode_bytes: u64) -> Self {
        Self {
            levels: 0,
            has_changed: false,
            root: 0,
            blocks: 0,
            attributes: 0,
            attributes_crc: 0,
            target_block: 0,
            target_crc: 0,
            target: Vec::new(),
            dir: None,
            hold: Hold::new(memory, Kind::Inodes, 1, inode_bytes),
            inode_bytes,
        }
    }

    /// Counts a symbolic link's target too.
    pub fn weigh(&mut self) {
        self.hold.resize(1, self.inode_bytes + self.target.len() as u64);
    }

    /// Has so many blocks less. An inode that counts fewer than it has would be freed without end.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn give_up(&mut self, blocks: u64) -> Result<()> {
        let left = self.blocks.checked_sub(blocks);
        self.blocks = left.ok_or_else(|| {
            Error::corrupt("pointer page", u64::from(self.root), "an inode has more blocks than it counts")
        })?;
        Ok(())
    }
}

/// What it keeps beside the lock.
#[derive(Default)]
pub struct PerFile {
    /// Which blocks of flash the file's are. Its lock serialises who changes the file (§4.2).
    pub filemap: Mutex<Filemap>,
    /// Where it counts as open, while it is.
    pub counted_in: CountedIn,
}
