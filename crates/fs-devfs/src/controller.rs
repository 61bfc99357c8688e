//! The controller: what DevFS keeps inside of the device.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::Names;
use amphi_rt::sync::Mutex;
use amphi_vfs::Result;

use crate::away::AwayTable;
use crate::format::{Layout, Use};
use crate::media::Media;
use crate::memory::DeviceMemory;
use crate::meta::Meta;
use crate::open_files::OpenFiles;
use crate::options::OnClose;
use crate::part::{Inode, Part, State};
use crate::pool::Pool;
use crate::slots::{Owner, Slots};
use crate::stats::Counters;

/// The controller.
pub struct Controller<D: BlockPort + MemoryArea + 'static> {
    pub names: Names<Part>,
    pub media: Arc<Media<D>>,
    pub memory: Arc<DeviceMemory>,
    pub meta: Meta<D>,
    pub slots: Slots<D>,
    pub layout: Layout,
    pub blocks: Pool,
    pub inodes: Pool,
    /// Metadata pages that are free once all journals are empty.
    pub freed_pages: Mutex<Vec<u64>>,
    pub away: AwayTable,
    pub counters: Arc<Counters>,
    /// What leaves device memory when a file is closed, and what is needed to know when.
    pub on_close: OnClose,
    pub open_files: OpenFiles,
    pub hash: amphi_rt::hash::State,
}

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// Empties all journals, and makes metadata pages that were freed free for everybody. Returns how many.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; the file system is read-only from then on, as nobody knows what a
    /// slot holds whose head may have been written.
    pub fn empty_journals(&self) -> Result<usize> {
        let pages = std::mem::take(&mut *self.freed_pages.lock());
        self.names.health.judge(self.slots.commit_all(&self.meta, Use::Journal))?;
        for page in &pages {
            self.meta.forget(*page);
            self.blocks.put(*page, 1);
        }
        Ok(pages.len())
    }

    /// Brings everything in place.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn settle(&self) -> Result<()> {
        self.slots.commit_all(&self.meta, Use::Queue)?;
        self.empty_journals().map(drop)
    }
}

/// Whose queue it is.
pub fn queue_of(inode: &Inode, state: &State) -> Owner {
    Owner { ino: inode.ino.0, generation: state.generation, purpose: Use::Queue }
}
