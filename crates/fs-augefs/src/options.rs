//! How an AugeFS is made and how a mount behaves.

use amphi_vfs::AccessTimes;

use crate::format::{DOMAINS_MAX, LABEL_BYTES, SEGMENT_BLOCKS_MAX};

/// How to make a file system.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Label, at most 32 bytes.
    pub label: String,
    /// Domains (AU-8: 16), at most 64.
    pub domains: u32,
    /// Blocks of a segment: 512, the paper's 2 MB, or a smaller power of two from 8 on.
    pub segment_blocks: u32,
    /// Pages of the metadata store; `None`: a sixteenth of the device, 16 MB at the least.
    pub meta_pages: Option<u32>,
    /// Bytes of the memory area for the store's log and the write versions; `None`: all of it, 256 MB at the most.
    pub memory_bytes: Option<u64>,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            label: String::new(),
            domains: 16,
            segment_blocks: SEGMENT_BLOCKS_MAX as u32,
            meta_pages: None,
            memory_bytes: None,
        }
    }
}

impl FormatOptions {
    /// Whether a file system can be made so.
    ///
    /// # Errors
    /// A sentence about what cannot be.
    pub fn check(&self) -> Result<(), String> {
        if self.label.len() > LABEL_BYTES {
            return Err(format!("the label has {} bytes; it can have {LABEL_BYTES}", self.label.len()));
        }
        if !(1..=DOMAINS_MAX).contains(&self.domains) {
            return Err(format!("{} domains: there can be 1 to {DOMAINS_MAX}", self.domains));
        }
        let blocks = self.segment_blocks as usize;
        if !blocks.is_power_of_two() || !(8..=SEGMENT_BLOCKS_MAX).contains(&blocks) {
            return Err(format!(
                "segments of {blocks} blocks: a power of two from 8 to {SEGMENT_BLOCKS_MAX}"
            ));
        }
        Ok(())
    }
}

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Refuse every change. The metadata store still brings its log into tables.
    pub read_only: bool,
    /// Pages of files in host memory.
    pub page_cache_pages: usize,
    /// Inodes to cache in host memory.
    pub inode_cache: usize,
    /// Names to cache in host memory.
    pub name_cache: usize,
    /// How often pages are written back and checkpoints are made, ns; 0: there is no background task.
    pub checkpoint_interval_ns: u64,
    /// How the metadata store behaves.
    pub meta: amphi_lsm::Options,
    /// When reading moves access times.
    pub access_times: AccessTimes,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            page_cache_pages: 65_536,
            inode_cache: 262_144,
            name_cache: 262_144,
            checkpoint_interval_ns: 5_000_000_000,
            meta: amphi_lsm::Options::default(),
            access_times: AccessTimes::default(),
        }
    }
}
