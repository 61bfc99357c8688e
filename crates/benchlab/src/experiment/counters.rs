//! What a device counted during a part of a run.

use amphi_ssd::{FlashTraffic, PathTraffic, Stats};
use serde::{Deserialize, Serialize};

/// Transfers between host and device on one path, for one structure of the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    /// `byte-read`, `byte-write`, `block-read` or `block-write`.
    pub path: String,
    /// The structure.
    pub structure: String,
    /// Commands.
    pub commands: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Flash pages moved for one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashCount {
    /// The cause.
    pub cause: String,
    /// Pages read.
    pub pages_read: u64,
    /// Pages programmed.
    pub pages_written: u64,
}

/// What a device counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Host traffic.
    pub host: Vec<Transfers>,
    /// Flash traffic.
    pub flash: Vec<FlashCount>,
    /// COMMIT commands.
    pub commits: u64,
    /// Write-verify reads.
    pub verify_reads: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Log regions cleaned.
    pub log_cleanings: u64,
    /// Blocks that garbage collection emptied.
    pub gc_runs: u64,
    /// Accesses that found their page in the firmware's cache.
    pub cache_hits: u64,
    /// Accesses that did not.
    pub cache_misses: u64,
}

/// Bytes of a flash page.
const PAGE: u64 = 4096;

impl Counters {
    /// What `stats` say.
    #[must_use]
    pub fn of(stats: &Stats) -> Self {
        let paths = [
            ("byte-read", &stats.byte_read),
            ("byte-write", &stats.byte_write),
            ("block-read", &stats.block_read),
            ("block-write", &stats.block_write),
        ];
        let causes = [
            ("host", stats.flash_host),
            ("log-cleaning", stats.flash_log_cleaning),
            ("garbage-collection", stats.flash_garbage_collection),
            ("recovery", stats.flash_recovery),
            ("mapping", stats.flash_mapping),
        ];
        let flushes = stats.latencies.iter().filter(|latency| latency.command == "flush");
        Self {
            host: paths.iter().flat_map(|(path, traffic)| of_path(path, traffic)).collect(),
            flash: causes.iter().map(|(cause, traffic)| of_cause(cause, *traffic)).collect(),
            commits: stats.commits,
            verify_reads: stats.verify_reads,
            flushes: flushes.map(|latency| latency.device.count).sum(),
            log_cleanings: stats.log_cleanings,
            gc_runs: stats.gc_runs,
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
        }
    }

    /// What was counted since `before`; transfers of nothing are left out.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (now, then) in self.host.iter_mut().zip(&before.host) {
            now.commands -= then.commands;
            now.bytes -= then.bytes;
        }
        for (now, then) in self.flash.iter_mut().zip(&before.flash) {
            now.pages_read -= then.pages_read;
            now.pages_written -= then.pages_written;
        }
        self.host.retain(|transfers| transfers.commands > 0);
        self.flash.retain(|flash| flash.pages_read + flash.pages_written > 0);
        self.commits -= before.commits;
        self.verify_reads -= before.verify_reads;
        self.flushes -= before.flushes;
        self.log_cleanings -= before.log_cleanings;
        self.gc_runs -= before.gc_runs;
        self.cache_hits -= before.cache_hits;
        self.cache_misses -= before.cache_misses;
        self
    }

    /// Bytes the host read (`"read"`) or wrote (`"write"`), of the structures that `which` accepts.
    pub fn bytes(&self, direction: &str, which: impl Fn(&str) -> bool) -> u64 {
        let chosen = self.host.iter().filter(|t| t.path.ends_with(direction) && which(&t.structure));
        chosen.map(|transfers| transfers.bytes).sum()
    }

    /// Bytes read from flash.
    #[must_use]
    pub fn flash_read(&self) -> u64 {
        self.flash.iter().map(|flash| flash.pages_read * PAGE).sum()
    }

    /// Bytes programmed to flash.
    #[must_use]
    pub fn flash_written(&self) -> u64 {
        self.flash.iter().map(|flash| flash.pages_written * PAGE).sum()
    }
}

/// Whether a structure is the content of files, whatever way it travels.
pub(super) fn is_data(structure: &str) -> bool {
    structure == "data"
}

fn of_path(path: &str, traffic: &PathTraffic) -> Vec<Transfers> {
    let of = |structure: &amphi_ssd::StructureTraffic| Transfers {
        path: path.to_owned(),
        structure: structure.structure.to_owned(),
        commands: structure.commands,
        bytes: structure.bytes,
    };
    traffic.structures.iter().map(of).collect()
}

fn of_cause(cause: &str, traffic: FlashTraffic) -> FlashCount {
    FlashCount {
        cause: cause.to_owned(),
        pages_read: traffic.pages_read,
        pages_written: traffic.pages_written,
    }
}
