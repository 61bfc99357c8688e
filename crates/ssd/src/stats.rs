//! Counters, kept in the image so that they survive with it, and their report.

use std::sync::atomic::Ordering;

use amphi_device::Structure;
use serde::Serialize;

use crate::format;
use crate::image::Image;

/// Why flash was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Host,
    LogCleaning,
    GarbageCollection,
    Recovery,
}

/// How bytes travelled between host and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    ByteRead,
    ByteWrite,
    BlockRead,
    BlockWrite,
}

/// A single counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Commits,
    LogEntries,
    LogBytes,
    EntriesCarried,
    Cleanings,
    Recoveries,
    GcRuns,
    BlocksErased,
    PagesTrimmed,
    VerifyReads,
    PowerCuts,
    HostCrashes,
    ForegroundGc,
}

const TRAFFIC_WORDS: u64 = 4 * 8 * 2;
const FLASH_WORDS: u64 = 4 * 2;

/// The counters of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters<'a>(pub(crate) &'a Image);

impl Counters<'_> {
    fn add_at(self, word: u64, by: u64) {
        self.0.word(format::COUNTERS_AT + word * 8).fetch_add(by, Ordering::Relaxed);
    }

    fn at(self, word: u64) -> u64 {
        self.0.word(format::COUNTERS_AT + word * 8).load(Ordering::Relaxed)
    }

    /// One transfer between host and device.
    pub(crate) fn transfer(self, path: Path, tag: Structure, bytes: u64) {
        let word = (path as u64 * 8 + tag as u64) * 2;
        self.add_at(word, 1);
        self.add_at(word + 1, bytes);
    }

    /// Pages read from flash.
    pub(crate) fn flash_read(self, cause: Cause, pages: u64) {
        self.add_at(TRAFFIC_WORDS + cause as u64 * 2, pages);
    }

    /// Pages programmed to flash.
    pub(crate) fn flash_write(self, cause: Cause, pages: u64) {
        self.add_at(TRAFFIC_WORDS + cause as u64 * 2 + 1, pages);
    }

    /// Adds to a single counter.
    pub(crate) fn add(self, counter: Counter, by: u64) {
        self.add_at(TRAFFIC_WORDS + FLASH_WORDS + counter as u64, by);
    }

    fn get(self, counter: Counter) -> u64 {
        self.at(TRAFFIC_WORDS + FLASH_WORDS + counter as u64)
    }

    /// Everything, with what the image alone cannot say left at zero.
    pub(crate) fn report(self) -> Stats {
        let path = |path: Path| PathTraffic {
            structures: Structure::ALL.map(|tag| {
                let word = (path as u64 * 8 + tag as u64) * 2;
                StructureTraffic { structure: tag.name(), commands: self.at(word), bytes: self.at(word + 1) }
            }),
        };
        let flash = |cause: Cause| FlashTraffic {
            pages_read: self.at(TRAFFIC_WORDS + cause as u64 * 2),
            pages_written: self.at(TRAFFIC_WORDS + cause as u64 * 2 + 1),
        };
        let mut stats = Stats {
            byte_read: path(Path::ByteRead),
            byte_write: path(Path::ByteWrite),
            block_read: path(Path::BlockRead),
            block_write: path(Path::BlockWrite),
            flash_host: flash(Cause::Host),
            flash_log_cleaning: flash(Cause::LogCleaning),
            flash_garbage_collection: flash(Cause::GarbageCollection),
            flash_recovery: flash(Cause::Recovery),
            blocks_erased: self.get(Counter::BlocksErased),
            gc_runs: self.get(Counter::GcRuns),
            gc_foreground_runs: self.get(Counter::ForegroundGc),
            pages_trimmed: self.get(Counter::PagesTrimmed),
            commits: self.get(Counter::Commits),
            verify_reads: self.get(Counter::VerifyReads),
            log_entries: self.get(Counter::LogEntries),
            log_bytes: self.get(Counter::LogBytes),
            log_entries_carried: self.get(Counter::EntriesCarried),
            log_cleanings: self.get(Counter::Cleanings),
            recoveries: self.get(Counter::Recoveries),
            power_cuts: self.get(Counter::PowerCuts),
            host_crashes: self.get(Counter::HostCrashes),
            ..Stats::default()
        };
        // Saturating: a damaged image may hold any counts.
        let host = stats.byte_write.bytes().saturating_add(stats.block_write.bytes());
        stats.host_bytes_written = host;
        stats.host_bytes_read = stats.byte_read.bytes().saturating_add(stats.block_read.bytes());
        let causes = [
            stats.flash_host,
            stats.flash_log_cleaning,
            stats.flash_garbage_collection,
            stats.flash_recovery,
        ];
        stats.flash_bytes_written =
            causes.iter().map(|cause| cause.pages_written).sum::<u64>() * format::PAGE;
        stats.flash_bytes_read = causes.iter().map(|cause| cause.pages_read).sum::<u64>() * format::PAGE;
        stats.write_amplification =
            if host == 0 { 0.0 } else { stats.flash_bytes_written as f64 / host as f64 };
        stats
    }
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// What a device did since its image was made. Byte counts are exact; a *command* is one load, store or block command.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Loads on the byte port.
    pub byte_read: PathTraffic,
    /// Stores on the byte port, counted when they reach the device.
    pub byte_write: PathTraffic,
    /// Reads on the block port.
    pub block_read: PathTraffic,
    /// Writes on the block port.
    pub block_write: PathTraffic,
    /// Bytes the host read, on both ports.
    pub host_bytes_read: u64,
    /// Bytes the host wrote, on both ports.
    pub host_bytes_written: u64,
    /// Flash traffic of the host's own commands.
    pub flash_host: FlashTraffic,
    /// Flash traffic of log cleaning.
    pub flash_log_cleaning: FlashTraffic,
    /// Flash traffic of garbage collection.
    pub flash_garbage_collection: FlashTraffic,
    /// Flash traffic of RECOVER.
    pub flash_recovery: FlashTraffic,
    /// Bytes read from flash, for every cause.
    pub flash_bytes_read: u64,
    /// Bytes programmed to flash, for every cause.
    pub flash_bytes_written: u64,
    /// Flash bytes written per host byte written; 0 before the host wrote anything.
    pub write_amplification: f64,
    /// Erase blocks erased.
    pub blocks_erased: u64,
    /// Erase blocks that garbage collection emptied.
    pub gc_runs: u64,
    /// Times that a write found no free block and had to collect before it went on.
    pub gc_foreground_runs: u64,
    /// Fewest and most erases of one block.
    pub erase_count_min: u32,
    /// See [`erase_count_min`](Self::erase_count_min).
    pub erase_count_max: u32,
    /// Pages the host trimmed.
    pub pages_trimmed: u64,
    /// COMMIT commands.
    pub commits: u64,
    /// Write-verify reads.
    pub verify_reads: u64,
    /// Entries appended to the write log for the host.
    pub log_entries: u64,
    /// Bytes of log those entries took, headers and padding included.
    pub log_bytes: u64,
    /// Entries of open transactions that cleaning carried over to the fresh region.
    pub log_entries_carried: u64,
    /// Regions cleaned.
    pub log_cleanings: u64,
    /// RECOVER commands.
    pub recoveries: u64,
    /// Bytes in use in the active log region.
    pub log_used: u64,
    /// Bytes of one log region.
    pub log_capacity: u64,
    /// Bytes of memory the log's index holds; 0 when the device is not powered up.
    pub index_bytes: u64,
    /// Commits in the transaction log.
    pub txlog_used: u64,
    /// Simulated power cuts.
    pub power_cuts: u64,
    /// Simulated host crashes.
    pub host_crashes: u64,
}

/// Transfers on one path in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathTraffic {
    /// By the file-system structure they serve.
    pub structures: [StructureTraffic; 8],
}

impl PathTraffic {
    /// Bytes over all structures.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        sum(self.structures.iter().map(|structure| structure.bytes))
    }

    /// Commands over all structures.
    #[must_use]
    pub fn commands(&self) -> u64 {
        sum(self.structures.iter().map(|structure| structure.commands))
    }
}

/// Transfers for one file-system structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StructureTraffic {
    /// The structure's name.
    pub structure: &'static str,
    /// Transfers.
    pub commands: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Flash pages read and written for one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlashTraffic {
    /// Pages read.
    pub pages_read: u64,
    /// Pages programmed.
    pub pages_written: u64,
}
