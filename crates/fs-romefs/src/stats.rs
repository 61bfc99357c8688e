//! What happened since the file system was mounted: which path bytes took (RO-3), what merging, write-back
//! and look-ups did.

use std::sync::atomic::{AtomicU64, Ordering};

/// Something that is counted.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts up.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of writes that went to data logs.
    pub log_bytes: Counter,
    /// Bytes that went to data blocks.
    pub block_bytes: Counter,
    /// Data logs that were merged into others.
    pub merges: Counter,
    /// Merges for which a leaf had too few entries.
    pub merges_failed: Counter,
    /// Data blocks that were put together anew.
    pub write_backs: Counter,
    /// Look-ups that the logs ended (RO-6).
    pub ended_early: Counter,
    /// Data blocks that were not looked up because of that.
    pub slots_spared: Counter,
    /// Bytes of write requests that write splitting gave to the memory path (RO-3).
    pub split_to_memory: Counter,
    /// Bytes that it gave to the block path.
    pub split_to_blocks: Counter,
    /// Time of writes on the memory path until what they stored was durable, ns.
    pub memory_path_ns: Counter,
    /// Time from the first command of a write on the block path until the last was seen done, ns.
    pub block_path_ns: Counter,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// Bytes of writes that went to data logs.
    pub log_bytes: u64,
    /// Bytes that went to data blocks.
    pub block_bytes: u64,
    /// Data logs that were merged into others.
    pub merges: u64,
    /// Merges for which a leaf had too few entries.
    pub merges_failed: u64,
    /// Data blocks that were put together anew.
    pub write_backs: u64,
    /// Look-ups that the logs ended.
    pub ended_early: u64,
    /// Data blocks that were not looked up because of that.
    pub slots_spared: u64,
    /// Bytes of write requests that write splitting gave to the memory path.
    pub split_to_memory: u64,
    /// Bytes that it gave to the block path.
    pub split_to_blocks: u64,
    /// Time of writes on the memory path until what they stored was durable, ns.
    pub memory_path_ns: u64,
    /// Time from the first command of a write on the block path until the last was seen done, ns.
    pub block_path_ns: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

impl Counters {
    /// As they are now.
    pub fn stats(&self, checkpoints: u64) -> Stats {
        Stats {
            log_bytes: self.log_bytes.get(),
            block_bytes: self.block_bytes.get(),
            merges: self.merges.get(),
            merges_failed: self.merges_failed.get(),
            write_backs: self.write_backs.get(),
            ended_early: self.ended_early.get(),
            slots_spared: self.slots_spared.get(),
            split_to_memory: self.split_to_memory.get(),
            split_to_blocks: self.split_to_blocks.get(),
            memory_path_ns: self.memory_path_ns.get(),
            block_path_ns: self.block_path_ns.get(),
            checkpoints,
        }
    }
}
