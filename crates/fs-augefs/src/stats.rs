//! What happened since the file system was mounted.

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
    /// Blocks of data written back.
    pub data_blocks: Counter,
    /// Nodes written.
    pub node_blocks: Counter,
    /// Names looked for in the metadata store.
    pub names_looked_up: Counter,
    /// Checkpoints of a domain.
    pub checkpoints: Counter,
    /// Segments collected.
    pub collected: Counter,
    /// Blocks that were moved for it.
    pub moved: Counter,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks of data written back.
    pub data_blocks: u64,
    /// Nodes written.
    pub node_blocks: u64,
    /// Names looked for in the metadata store.
    pub names_looked_up: u64,
    /// Checkpoints of a domain.
    pub checkpoints: u64,
    /// Segments collected.
    pub collected: u64,
    /// Blocks that were moved for it.
    pub moved: u64,
}

impl Counters {
    /// As they are now.
    pub fn stats(&self) -> Stats {
        Stats {
            data_blocks: self.data_blocks.get(),
            node_blocks: self.node_blocks.get(),
            names_looked_up: self.names_looked_up.get(),
            checkpoints: self.checkpoints.get(),
            collected: self.collected.get(),
            moved: self.moved.get(),
        }
    }
}
