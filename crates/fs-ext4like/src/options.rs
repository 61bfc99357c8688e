//! Mount options.

use amphi_vfs::AccessTimes;
use amphi_volume::read_words;

/// How file data and the journal go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// Data are written in place before the transaction that makes them reachable commits.
    #[default]
    Ordered,
    /// Data go through the journal.
    Journal,
}

/// How a mount behaves. The defaults are those of ext4 and of the kernel's write-back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing may be changed.
    pub read_only: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
    /// Ordered or journaled data.
    pub data: DataMode,
    /// Whether commits and `fsync` flush the device's cache.
    pub barrier: bool,
    /// Age at which a transaction is committed, ns. 0: nothing runs in the background.
    pub commit_interval_ns: u64,
    /// How often dirty pages are looked at, ns.
    pub write_back_interval_ns: u64,
    /// Age at which they are written, ns.
    pub dirty_expire_ns: u64,
    /// Most file pages cached.
    pub page_cache_pages: usize,
    /// Dirty pages from which on writers write back themselves; `None`: a fifth of the cache.
    pub dirty_pages: Option<usize>,
    /// Metadata blocks cached, about.
    pub buffer_blocks: usize,
    /// Inodes cached, about.
    pub inode_cache: usize,
    /// Most blocks read ahead.
    pub read_ahead_blocks: u32,
    /// Time stamps move in steps of so many ns, as those of a kernel with 250 ticks a second: of many writes
    /// within a step only the first changes the inode.
    pub tick_ns: i64,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            access_times: AccessTimes::default(),
            data: DataMode::Ordered,
            barrier: true,
            commit_interval_ns: 5_000_000_000,
            write_back_interval_ns: 5_000_000_000,
            dirty_expire_ns: 30_000_000_000,
            page_cache_pages: 262_144,
            dirty_pages: None,
            buffer_blocks: 65_536,
            inode_cache: 65_536,
            read_ahead_blocks: 32,
            tick_ns: 4_000_000,
        }
    }
}

impl MountOptions {
    /// The words there are, for messages.
    pub const WORDS: &'static str =
        "data=ordered|journal, barrier=0|1, commit=SECONDS, cache=SIZE, dirty=SIZE, inodes=N";

    /// Takes over options separated by commas.
    ///
    /// # Errors
    /// A sentence about the first one that is unknown or impossible.
    pub fn set_all(&mut self, text: &str) -> Result<(), String> {
        read_words(text, ("the ext4-like file system", Self::WORDS), |word| {
            match word.key {
                "data" => {
                    let modes = [("ordered", DataMode::Ordered), ("journal", DataMode::Journal)];
                    self.data = word.one_of(&modes)?;
                }
                "barrier" => self.barrier = word.one_of(&[("0", false), ("1", true)])?,
                "commit" => self.commit_interval_ns = word.number(0, 86_400)? * 1_000_000_000,
                "cache" => self.page_cache_pages = word.pages(64 << 10)?,
                "dirty" => self.dirty_pages = Some(word.pages(4 << 10)?),
                "inodes" => self.inode_cache = word.cached()?,
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    /// Dirty pages from which on writers write back themselves.
    pub(crate) fn dirty_limit(&self) -> usize {
        self.dirty_pages.unwrap_or(self.page_cache_pages / 5).clamp(1, self.page_cache_pages.max(1))
    }
}
