//! What the controller counts.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

/// Counters since the mount.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commands that came in command buffers, whatever became of them.
    pub buffered: AtomicU64,
    /// Slots that were committed.
    pub commits: AtomicU64,
    /// Slots that were taken away from their owner, because others needed them more.
    pub slots_taken_away: AtomicU64,
    /// Inodes that went to host memory, and that came back.
    pub inodes_away: AtomicU64,
    pub inodes_back: AtomicU64,
    /// Directories whose entries went to host memory, and that came back.
    pub dentries_away: AtomicU64,
    pub dentries_back: AtomicU64,
    /// What the host had no room for.
    pub host_full: AtomicU64,
    /// How often a command found device memory short and made room.
    pub reliefs: AtomicU64,
    /// Files that were not opened because those that are open take all the memory that inodes may have.
    pub refused_opens: AtomicU64,
    /// What the host returned and was not what it had been given.
    pub host_damage: AtomicU64,
}

impl Counters {
    /// By name, for reports.
    pub fn report(&self) -> Map<String, Value> {
        let counters = [
            ("buffered_commands", &self.buffered),
            ("commits", &self.commits),
            ("slots_taken_away", &self.slots_taken_away),
            ("inodes_away", &self.inodes_away),
            ("inodes_back", &self.inodes_back),
            ("dentries_away", &self.dentries_away),
            ("dentries_back", &self.dentries_back),
            ("host_full", &self.host_full),
            ("reliefs", &self.reliefs),
            ("refused_opens", &self.refused_opens),
            ("host_damage", &self.host_damage),
        ];
        counters
            .map(|(name, count)| (name.to_owned(), json!(count.load(Ordering::Relaxed))))
            .into_iter()
            .collect()
    }
}
