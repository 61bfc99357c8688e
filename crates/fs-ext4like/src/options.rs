//! Mount options.

use amphi_vfs::AccessTimes;
use amphi_volume::size;

use crate::format::BLOCK;

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
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if !self.set(key, value) {
                return Err(format!(
                    "`{word}` is not an option of the ext4-like file system; there are {}",
                    Self::WORDS
                ));
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> bool {
        let pages = || {
            size::parse(value)
                .ok()
                .map(|bytes| (bytes / BLOCK as u64) as usize)
                .filter(|pages| (1..=1 << 34).contains(pages))
        };
        match (key, value) {
            ("data", "ordered") => self.data = DataMode::Ordered,
            ("data", "journal") => self.data = DataMode::Journal,
            ("barrier", "0") => self.barrier = false,
            ("barrier", "1") => self.barrier = true,
            ("commit", _) => match value.parse::<u64>().ok().filter(|seconds| *seconds <= 86_400) {
                Some(seconds) => self.commit_interval_ns = seconds * 1_000_000_000,
                None => return false,
            },
            ("cache", _) => match pages().filter(|pages| *pages >= 16) {
                Some(pages) => self.page_cache_pages = pages,
                None => return false,
            },
            ("dirty", _) => match pages() {
                Some(pages) => self.dirty_pages = Some(pages),
                None => return false,
            },
            ("inodes", _) => match value.parse().ok().filter(|n| *n >= 16) {
                Some(inodes) => self.inode_cache = inodes,
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// Dirty pages from which on writers write back themselves.
    pub(crate) fn dirty_limit(&self) -> usize {
        self.dirty_pages.unwrap_or(self.page_cache_pages / 5).clamp(1, self.page_cache_pages.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_people_write_them() {
        let mut options = MountOptions::default();
        options.set_all("data=journal,barrier=0,commit=0,cache=64M,dirty=1M,inodes=100").unwrap();
        let due = MountOptions {
            data: DataMode::Journal,
            barrier: false,
            commit_interval_ns: 0,
            page_cache_pages: 16_384,
            dirty_pages: Some(256),
            inode_cache: 100,
            ..MountOptions::default()
        };
        assert_eq!(options, due);
    }

    #[test]
    fn impossible_options_are_refused_with_what_would_do() {
        for bad in ["data=writeback", "cache=1", "cache=99999999999G", "dirty=x", "commit=-1", "fast"] {
            let error = MountOptions::default().set_all(bad).unwrap_err();
            assert!(error.contains(bad) && error.contains("data=ordered"), "{error}");
        }
    }
}
