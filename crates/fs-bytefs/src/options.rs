//! How a mount behaves, and how people say so: `data=journal,threshold=16,cache=256M`.

use amphi_vfs::AccessTimes;
use amphi_volume::{Word, read_words};

/// What becomes durable together with a transaction (BY-16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// File data is durable before the transaction that makes it part of the file; pages are overwritten in
    /// place, and a crash may leave part of an overwrite.
    #[default]
    Ordered,
    /// What one write-back brings to the device counts all at once, data and attributes: a crash leaves a
    /// file as it was at one moment.
    Journal,
}

/// When an operation on metadata is durable (§4.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataMode {
    /// When it returns.
    #[default]
    Durable,
    /// With the group of operations that it joins, which `fsync` of what it changed, `sync`, the next
    /// interval or a full group commit: never before an operation that was done before it.
    Grouped,
}

/// The paper's ablations (BY-18, §5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// The dual interface on firmware that caches whole pages: no write log, so transactions are made by the
    /// host, which logs every update in the data journal first.
    Dual,
    /// The dual interface and the write log; cached file data always goes by block.
    Log,
    /// All of it: cached file data goes by bytes or by block, whichever its modified ratio asks for.
    #[default]
    Full,
}

/// How a mount behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// What becomes durable together.
    pub data: DataMode,
    /// When operations on metadata are durable.
    pub metadata: MetadataMode,
    /// Bytes of changed metadata with which a group is full, far below the firmware's smallest log.
    pub group_bytes: usize,
    /// Which of the paper's variants this is.
    pub variant: Variant,
    /// A page goes by bytes if fewer than one in so many of its lines were modified (BY-14: 8), 1 to 64.
    pub byte_threshold: u32,
    /// Pages of file data in host DRAM, duplicates of modified ones included.
    pub page_cache_pages: usize,
    /// Dirty pages from which on writers wait for write-back; `None`: a quarter of the cache.
    pub dirty_pages: Option<usize>,
    /// Inodes to cache in host DRAM.
    pub inode_cache: usize,
    /// How often dirty files are written back in the background, ns; 0: never.
    pub write_back_interval_ns: u64,
    /// Age at which a dirty file is written back then, ns; 0: whatever its age.
    pub dirty_expire_ns: u64,
    /// Every write is durable when it returns, attributes included, as if each were followed by `fsync`.
    pub sync_writes: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            data: DataMode::Ordered,
            metadata: MetadataMode::Durable,
            group_bytes: 16 << 10,
            variant: Variant::Full,
            byte_threshold: 8,
            page_cache_pages: 65_536,
            dirty_pages: None,
            inode_cache: 262_144,
            write_back_interval_ns: 5_000_000_000,
            dirty_expire_ns: 0,
            sync_writes: false,
            access_times: AccessTimes::default(),
        }
    }
}

impl MountOptions {
    /// The words that [`set_all`](Self::set_all) understands, for people.
    pub const WORDS: &'static str = "data=ordered|journal, metadata=durable|grouped, group=SIZE, \
                                     variant=full|log|dual, threshold=1..64, cache=SIZE, dirty=SIZE, \
                                     inodes=N, commit=SECONDS, writes=async|sync";

    /// Takes over one option. False if it is none of ByteFS.
    fn set(&mut self, word: Word<'_>) -> Result<bool, String> {
        match word.key {
            "data" => {
                self.data = word.one_of(&[("ordered", DataMode::Ordered), ("journal", DataMode::Journal)])?;
            }
            "metadata" => {
                let modes = [("durable", MetadataMode::Durable), ("grouped", MetadataMode::Grouped)];
                self.metadata = word.one_of(&modes)?;
            }
            "group" => self.group_bytes = word.bytes(4 << 10, 1 << 20)? as usize,
            "variant" => {
                let variants = [("full", Variant::Full), ("log", Variant::Log), ("dual", Variant::Dual)];
                self.variant = word.one_of(&variants)?;
            }
            "threshold" => self.byte_threshold = word.number(1, 64)? as u32,
            "cache" => self.page_cache_pages = word.pages(64 << 10)?,
            "dirty" => self.dirty_pages = Some(word.pages(4 << 10)?),
            "inodes" => self.inode_cache = word.cached()?,
            "commit" => self.write_back_interval_ns = word.number(0, 86_400)? * 1_000_000_000,
            "writes" => self.sync_writes = word.one_of(&[("async", false), ("sync", true)])?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes over options separated by commas.
    ///
    /// # Errors
    /// A sentence about the first one that is unknown or impossible.
    pub fn set_all(&mut self, text: &str) -> Result<(), String> {
        read_words(text, ("ByteFS", Self::WORDS), |word| self.set(word))
    }

    /// Dirty pages from which on writers wait.
    pub(crate) fn dirty_limit(&self) -> usize {
        self.dirty_pages.unwrap_or(self.page_cache_pages / 4).clamp(1, self.page_cache_pages.max(1))
    }
}
