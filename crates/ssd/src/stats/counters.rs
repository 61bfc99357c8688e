//! Counters kept in the image, so that they survive with it: host traffic by path and structure, flash
//! traffic by cause, and single counts.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::Structure;

use super::report::{FlashTraffic, PathTraffic, Stats, StructureTraffic, sum};
use crate::format;
use crate::image::Image;

/// Why flash was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Host,
    LogCleaning,
    GarbageCollection,
    Recovery,
    /// Mapping checkpoints, and finding the mapping again at power-up.
    Mapping,
}

impl Cause {
    /// Every cause, in the order of its discriminant.
    pub(crate) const ALL: [Self; 5] =
        [Self::Host, Self::LogCleaning, Self::GarbageCollection, Self::Recovery, Self::Mapping];

    /// The name used in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::LogCleaning => "log-cleaning",
            Self::GarbageCollection => "garbage-collection",
            Self::Recovery => "recovery",
            Self::Mapping => "mapping",
        }
    }
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
    CacheHits,
    CacheMisses,
    CacheEvictions,
    CacheWriteBacks,
    ReadRetries,
    UncorrectableReads,
    ProgramFailures,
    EraseFailures,
    Pins,
    EntryFlushes,
    EntrySyncs,
    BlockCommandsGated,
    Dumps,
    Restores,
}

const TRAFFIC_WORDS: u64 = 4 * 8 * 2;
const FLASH_WORDS: u64 = 5 * 2;

/// Copies of the counters in the image: processors count in one of them, so that they do not wait for each
/// other's cache lines.
const COPIES: u64 = 4;
/// Words from one copy to the next.
const COPY_WORDS: u64 = format::COUNTERS as u64 / COPIES;
const _: () = assert!(TRAFFIC_WORDS + FLASH_WORDS + (Counter::Restores as u64) < COPY_WORDS);

/// The counters of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters<'a> {
    image: &'a Image,
    /// The copy in which this processor counts.
    copy: u64,
}

impl<'a> Counters<'a> {
    /// The counters of an image, for the processor that asks.
    pub(crate) fn of(image: &'a Image) -> Self {
        Self { image, copy: amphi_rt::cpu::current() as u64 % COPIES }
    }

    fn add_at(self, word: u64, by: u64) {
        self.word(self.copy, word).fetch_add(by, Ordering::Relaxed);
    }

    fn word(&self, copy: u64, word: u64) -> &AtomicU64 {
        self.image.word(format::COUNTERS_AT + (copy * COPY_WORDS + word) * 8)
    }

    fn at(self, word: u64) -> u64 {
        // A damaged image may hold any counts.
        (0..COPIES).map(|copy| self.word(copy, word).load(Ordering::Relaxed)).fold(0, u64::saturating_add)
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

    /// A single counter.
    pub(crate) fn get(self, counter: Counter) -> u64 {
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
            flash_mapping: flash(Cause::Mapping),
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
            cache_hits: self.get(Counter::CacheHits),
            cache_misses: self.get(Counter::CacheMisses),
            cache_evictions: self.get(Counter::CacheEvictions),
            cache_write_backs: self.get(Counter::CacheWriteBacks),
            read_retries: self.get(Counter::ReadRetries),
            uncorrectable_reads: self.get(Counter::UncorrectableReads),
            program_failures: self.get(Counter::ProgramFailures),
            erase_failures: self.get(Counter::EraseFailures),
            pins: self.get(Counter::Pins),
            entry_flushes: self.get(Counter::EntryFlushes),
            entry_syncs: self.get(Counter::EntrySyncs),
            block_commands_gated: self.get(Counter::BlockCommandsGated),
            dumps: self.get(Counter::Dumps),
            restores: self.get(Counter::Restores),
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
            stats.flash_mapping,
        ];
        let bytes =
            |pages: fn(&FlashTraffic) -> u64| sum(causes.iter().map(pages)).saturating_mul(format::PAGE);
        stats.flash_bytes_written = bytes(|cause| cause.pages_written);
        stats.flash_bytes_read = bytes(|cause| cause.pages_read);
        stats.write_amplification =
            if host == 0 { 0.0 } else { stats.flash_bytes_written as f64 / host as f64 };
        stats
    }
}
