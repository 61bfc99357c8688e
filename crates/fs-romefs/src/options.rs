//! How a RomeFS is made and how a mount behaves, and how people say so: `threshold=128K,io-threads=4`.

use amphi_vfs::AccessTimes;
use amphi_volume::read_words;

use crate::format::{BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};

/// How to make a file system.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Label, at most 32 bytes.
    pub label: String,
    /// Bytes of a data block: the write splitting threshold (RO-3). A power of two from 4 KB to 1 MB.
    pub block_bytes: u64,
    /// Number of inodes; `None`: one for each 4 KB of the memory area.
    pub inodes: Option<u32>,
    /// Bytes of the block zone, if not all of the device's; it can grow to that.
    pub bytes: Option<u64>,
    /// Bytes of the journal; `None`: a sixteenth of the memory area, 64 MB at the most.
    pub journal_bytes: Option<u64>,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            label: String::new(),
            block_bytes: BLOCK_BYTES_DEFAULT,
            inodes: None,
            bytes: None,
            journal_bytes: None,
        }
    }
}

impl FormatOptions {
    /// Whether a file system can be made so.
    ///
    /// # Errors
    /// A sentence about what cannot be.
    pub fn check(&self) -> Result<(), String> {
        if self.label.len() > crate::format::LABEL_BYTES {
            return Err(format!("the label has {} bytes; it can have 32", self.label.len()));
        }
        check_threshold(self.block_bytes)
    }
}

fn check_threshold(bytes: u64) -> Result<(), String> {
    if bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(format!("a threshold of {bytes} bytes is no power of two from 4K to 1M"))
}

/// When file data become durable (RO-10). Metadata always do at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// Before a write returns.
    #[default]
    Persist,
    /// With `fsync`, `sync`, or some time later.
    Lazy,
}

/// How a mount behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// When file data become durable.
    pub data: Data,
    /// Parts of a write that fill so many bytes go by blocks; at least the size of a data block, which 0
    /// means. A power of two.
    pub threshold: u64,
    /// Free log pages, in hundredths of all, below which logs are written back (RO-8: 10).
    pub write_back_below_percent: u64,
    /// Threads for the block path; 0: commands are submitted by the caller's task.
    pub io_threads: usize,
    /// Pages of data blocks in host memory.
    pub page_cache_pages: usize,
    /// Inodes to cache in host memory.
    pub inode_cache: usize,
    /// How often the background task makes a checkpoint, ns; 0: there is no background task.
    pub checkpoint_interval_ns: u64,
    /// When reading moves access times.
    pub access_times: AccessTimes,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            data: Data::Persist,
            threshold: 0,
            write_back_below_percent: 10,
            io_threads: 0,
            page_cache_pages: 65_536,
            inode_cache: 262_144,
            checkpoint_interval_ns: 5_000_000_000,
            access_times: AccessTimes::default(),
        }
    }
}

impl MountOptions {
    /// The words that [`set_all`](Self::set_all) understands, for people.
    pub const WORDS: &'static str = "data=persist|lazy, threshold=SIZE, write-back=PERCENT, io-threads=N, cache=SIZE, inodes=N, checkpoint=SECONDS";

    /// Takes over options as people write them, separated by commas.
    ///
    /// # Errors
    /// A sentence about one that is unknown or impossible.
    pub fn set_all(&mut self, words: &str) -> Result<(), String> {
        read_words(words, ("RomeFS", Self::WORDS), |word| {
            match word.key {
                "data" => self.data = word.one_of(&[("persist", Data::Persist), ("lazy", Data::Lazy)])?,
                "threshold" => {
                    let bytes = word.bytes(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)?;
                    check_threshold(bytes).map_err(|_| "SIZE, a power of two".to_owned())?;
                    self.threshold = bytes;
                }
                "write-back" => self.write_back_below_percent = word.number(0, 90)?,
                "io-threads" => self.io_threads = word.number(0, 64)? as usize,
                "cache" => self.page_cache_pages = word.pages(256 << 10)?,
                "inodes" => self.inode_cache = word.cached()?,
                "checkpoint" => self.checkpoint_interval_ns = word.seconds(0.001, 3600.0)?,
                _ => return Ok(false),
            }
            Ok(true)
        })
    }
}
