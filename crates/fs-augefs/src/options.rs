//! How an AugeFS is made and how a mount behaves.

use amphi_vfs::AccessTimes;
use amphi_volume::read_words;

use crate::format::{DOMAINS_MAX, LABEL_BYTES, PAGE, SEGMENT_BLOCKS_MAX};

/// Bytes of tables for each inode that there can be.
pub const BYTES_PER_INODE: u64 = 2048;
/// Fewest pages of a metadata store for so many inodes.
const META_PAGES_LEAST: u32 = 256;
/// Blocks of the smallest segment.
const SEGMENT_BLOCKS_LEAST: u32 = 8;
/// Most tasks that share the metadata store's log, and most groups that are written at once.
const FEW: u64 = 64;
/// Segments that a file system of few domains cannot do without.
const SEGMENTS_LEAST: u32 = 14;

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
    /// Bytes of the memory area for the store's log and the write versions; `None`: all of it, 256 MB at the
    /// most.
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
    /// As usual, but for a small device: segments, and then domains unless their number is wanted, become
    /// smaller until those that cannot be filled take an eighth of it.
    pub fn for_device(pages: u64, wanted: &amphi_volume::FormatOptions) -> Self {
        let domains = wanted.domains.unwrap_or(Self::default().domains);
        let mut own = Self { label: wanted.label.clone(), domains, ..Self::default() };
        own.meta_pages =
            wanted.inodes.map(|inodes| (u64::from(inodes) * BYTES_PER_INODE).div_ceil(PAGE as u64) as u32);
        own.meta_pages = own.meta_pages.map(|meta| meta.max(META_PAGES_LEAST));
        while own.segment_blocks > SEGMENT_BLOCKS_LEAST && own.idle() > pages / 8 {
            own.segment_blocks /= 2;
        }
        while wanted.domains.is_none() && own.domains > 1 && own.idle() > pages / 8 {
            own.domains /= 2;
        }
        own
    }

    /// Blocks of segments that cannot be filled.
    const fn idle(&self) -> u64 {
        (4 * self.domains + SEGMENTS_LEAST) as u64 * self.segment_blocks as u64
    }

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
    /// Refuse every change, and write nothing: what recovery would write stays in host memory.
    pub read_only: bool,
    /// Pages of files in host memory; as many nodes may be there, too.
    pub page_cache_pages: usize,
    /// Inodes to cache in host memory.
    pub inode_cache: usize,
    /// Names to cache in host memory.
    pub name_cache: usize,
    /// How often pages are written back and checkpoints are made, ns; 0: there is no background task.
    pub checkpoint_interval_ns: u64,
    /// How the metadata store behaves.
    pub meta: amphi_lsm::Options,
    /// Nodes are submitted once the data that they name have arrived, and not with them: what the
    /// asynchronous stack (AU-9) is measured beside.
    pub nodes_after_data: bool,
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
            nodes_after_data: false,
            access_times: AccessTimes::default(),
        }
    }
}

impl MountOptions {
    /// The words that [`set_all`](Self::set_all) understands, for people.
    pub const WORDS: &'static str = "cache=SIZE, inodes=N, names=N, checkpoint=SECONDS, \
                                     nodes=with-data|after-data, writes=parallel|grouped, \
                                     groups=N, log-tasks=N, memtable=SIZE";

    /// Takes over options as people write them, separated by commas.
    ///
    /// # Errors
    /// A sentence about one that is unknown or impossible.
    pub fn set_all(&mut self, words: &str) -> Result<(), String> {
        read_words(words, ("AugeFS", Self::WORDS), |word| {
            match word.key {
                "cache" => self.page_cache_pages = word.pages(256 << 10)?,
                "inodes" => self.inode_cache = word.cached()?,
                "names" => self.name_cache = word.cached()?,
                "checkpoint" => self.checkpoint_interval_ns = word.seconds(0.001, 3600.0)?,
                "nodes" => {
                    self.nodes_after_data = word.one_of(&[("with-data", false), ("after-data", true)])?;
                }
                "groups" => self.meta.groups = word.number(1, FEW)? as usize,
                "log-tasks" => self.meta.log_tasks = word.number(1, FEW)? as usize,
                "memtable" => {
                    self.meta = self.meta.with_memtable(word.bytes(64 << 10, 1 << 30)?);
                }
                "writes" => self.meta.grouped = word.one_of(&[("parallel", false), ("grouped", true)])?,
                _ => return Ok(false),
            }
            Ok(true)
        })
    }
}
