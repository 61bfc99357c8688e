//! How a mount behaves, and how people say so: `data=journal,threshold=16,cache=256M`.

use amphi_vfs::AccessTimes;
use amphi_volume::size;

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

/// Bytes per page of the cache.
const PAGE: u64 = crate::format::PAGE as u64;

impl MountOptions {
    /// The words that [`set`](Self::set) understands, for people.
    pub const WORDS: &'static str = "data=ordered|journal, metadata=durable|grouped, group=SIZE, \
                                     variant=full|log|dual, threshold=1..64, cache=SIZE, dirty=SIZE, \
                                     inodes=N, commit=SECONDS, writes=async|sync";

    /// Takes over one option as people write it. False if it is none of ByteFS.
    ///
    /// # Errors
    /// A sentence about a value that is impossible.
    pub fn set(&mut self, word: &str) -> Result<bool, String> {
        let Some((key, value)) = word.split_once('=') else { return Ok(false) };
        let one_of = |what: &str| format!("{word}: write {key}={what}");
        match key {
            "data" => {
                self.data = match value {
                    "ordered" => DataMode::Ordered,
                    "journal" => DataMode::Journal,
                    _ => return Err(one_of("ordered or journal")),
                };
            }
            "metadata" => {
                self.metadata = match value {
                    "durable" => MetadataMode::Durable,
                    "grouped" => MetadataMode::Grouped,
                    _ => return Err(one_of("durable or grouped")),
                };
            }
            "group" => {
                let bytes = size::parse(value).ok().filter(|bytes| (4 << 10..=1 << 20).contains(bytes));
                self.group_bytes = bytes.ok_or_else(|| one_of("SIZE, as in 16K, from 4K to 1M"))? as usize;
            }
            "variant" => {
                self.variant = match value {
                    "full" => Variant::Full,
                    "log" => Variant::Log,
                    "dual" => Variant::Dual,
                    _ => return Err(one_of("full, log or dual")),
                };
            }
            "threshold" => {
                let threshold = value.parse().ok().filter(|n| (1..=64).contains(n));
                self.byte_threshold = threshold.ok_or_else(|| one_of("N with N from 1 to 64"))?;
            }
            "cache" => {
                let bytes = size::parse(value).ok().filter(|bytes| (64 << 10..=1 << 46).contains(bytes));
                self.page_cache_pages =
                    (bytes.ok_or_else(|| one_of("SIZE, as in 256M, at least 64K"))? / PAGE) as usize;
            }
            "dirty" => {
                let bytes = size::parse(value).ok().filter(|bytes| (4 << 10..=1 << 46).contains(bytes));
                self.dirty_pages =
                    Some((bytes.ok_or_else(|| one_of("SIZE, as in 64M, at least 4K"))? / PAGE) as usize);
            }
            "inodes" => {
                let inodes = value.parse().ok().filter(|n| *n >= 16);
                self.inode_cache = inodes.ok_or_else(|| one_of("N, at least 16"))?;
            }
            "commit" => {
                let seconds = value.parse::<u64>().ok().filter(|n| *n <= 86_400);
                self.write_back_interval_ns =
                    seconds.ok_or_else(|| one_of("SECONDS, at most 86400; 0 for never"))? * 1_000_000_000;
            }
            "writes" => {
                self.sync_writes = match value {
                    "async" => false,
                    "sync" => true,
                    _ => return Err(one_of("async or sync")),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes over options separated by commas.
    ///
    /// # Errors
    /// A sentence about the first one that is unknown or impossible.
    pub fn set_all(&mut self, text: &str) -> Result<(), String> {
        for word in text.split(',').filter(|word| !word.is_empty()) {
            if !self.set(word)? {
                return Err(format!("`{word}` is not an option of ByteFS; there are {}", Self::WORDS));
            }
        }
        Ok(())
    }

    /// Dirty pages from which on writers wait.
    pub(crate) fn dirty_limit(&self) -> usize {
        self.dirty_pages.unwrap_or(self.page_cache_pages / 4).clamp(1, self.page_cache_pages.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_people_write_them() {
        let mut options = MountOptions::default();
        options
            .set_all(
                "data=journal,metadata=grouped,group=64K,variant=log,threshold=16,cache=64M,dirty=1M,\
                 inodes=100,commit=0,writes=sync",
            )
            .unwrap();
        let due = MountOptions {
            read_only: false,
            data: DataMode::Journal,
            metadata: MetadataMode::Grouped,
            group_bytes: 64 << 10,
            variant: Variant::Log,
            byte_threshold: 16,
            page_cache_pages: 16_384,
            dirty_pages: Some(256),
            inode_cache: 100,
            write_back_interval_ns: 0,
            sync_writes: true,
            ..MountOptions::default()
        };
        assert_eq!(options, due);
        assert_eq!(options.set("ro"), Ok(false), "what is not ByteFS's is left to others");
    }

    #[test]
    fn impossible_options_are_refused_with_what_would_do() {
        for bad in [
            "data=writeback",
            "metadata=lazy",
            "group=1K",
            "variant=",
            "threshold=0",
            "threshold=65",
            "cache=1",
            "cache=99999999999G",
            "dirty=x",
            "commit=-1",
            "writes=",
        ] {
            let error = MountOptions::default().set_all(bad).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
        assert!(MountOptions::default().set_all("fast").unwrap_err().contains("`fast`"));
    }
}
