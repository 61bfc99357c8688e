//! What a device did, as its owner reads it: for `amphi stats --json` (documented in docs/command.md), tests
//! and measurements.

use serde::Serialize;

use super::histogram::Latency;
use super::wear::{EraseBucket, Wear};

/// The sum, or as much as fits: a damaged image may hold any counts.
pub(super) fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// What a device did since its image was made. Byte counts are exact; a *command* is one load, store or block
/// command.
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
    /// Flash traffic of mapping checkpoints, and of finding the mapping again at power-up.
    pub flash_mapping: FlashTraffic,
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
    /// Fewest erases of one block.
    pub erase_count_min: u32,
    /// Most erases of one block.
    pub erase_count_max: u32,
    /// Erases of a block on average.
    pub erase_count_mean: f64,
    /// How many blocks were erased how often, in ranges that double.
    pub erase_counts: Vec<EraseBucket>,
    /// Reads that ECC corrected only after a retry.
    pub read_retries: u64,
    /// Reads that ECC could not correct.
    pub uncorrectable_reads: u64,
    /// Programs that failed, each of which retired a block.
    pub program_failures: u64,
    /// Erases that failed, each of which retired a block.
    pub erase_failures: u64,
    /// Blocks that are not used because they are bad, from the factory or since; 0 when the device is not
    /// powered up.
    pub bad_blocks: u64,
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
    /// Bytes that the region being cleaned, or left by an interrupted cleaning, still takes.
    pub log_cleaning_used: u64,
    /// Bytes of one log region.
    pub log_capacity: u64,
    /// Bytes of memory the log's index holds; 0 when the device is not powered up.
    pub index_bytes: u64,
    /// Slots of the transaction log in use: its commits, and up to 16 for each processor that are taken for
    /// commits to come.
    pub txlog_used: u64,
    /// Simulated power cuts.
    pub power_cuts: u64,
    /// Simulated host crashes.
    pub host_crashes: u64,
    /// Accesses that found their page in the page cache.
    pub cache_hits: u64,
    /// Accesses that brought their page into the page cache.
    pub cache_misses: u64,
    /// Pages evicted from the page cache.
    pub cache_evictions: u64,
    /// Dirty pages that the page cache wrote to flash; they count as the host's flash traffic.
    pub cache_write_backs: u64,
    /// Pages of the page cache that flash does not hold yet; 0 when the device is not powered up.
    pub cache_dirty: u64,
    /// Pages that the page cache has room for; 0 with another firmware.
    pub cache_capacity: u64,
    /// Bytes of the memory area or the BA-buffer that were ever stored to, in chunks of 256 KiB.
    pub memory_used: u64,
    /// Bytes of the memory area or the BA-buffer; 0 with another firmware.
    pub memory_capacity: u64,
    /// BA_PIN commands that pinned their pages.
    pub pins: u64,
    /// BA_FLUSH commands that wrote their entry.
    pub entry_flushes: u64,
    /// BA_SYNC commands.
    pub entry_syncs: u64,
    /// Block commands that the LBA checker refused, because a page of theirs was pinned.
    pub block_commands_gated: u64,
    /// Times that the BA-buffer was dumped at a loss of power.
    pub dumps: u64,
    /// Times that it was restored from a dump.
    pub restores: u64,
    /// Entries of the BA-buffer's table in use; 0 when the device is not powered up.
    pub pinned_entries: u64,
    /// Entries that the table has room for; 0 with another firmware.
    pub pin_capacity: u64,
    /// Nanoseconds since the device was powered up; 0 when it is not. What follows counts from then.
    pub uptime_ns: u64,
    /// Block commands in flight.
    pub queue: Queue,
    /// How long the host's commands took, for those that were issued; empty where no time passes.
    pub latencies: Vec<CommandLatency>,
    /// How long flash operations took, for those that took place; empty where no time passes.
    pub flash_latencies: Vec<FlashLatency>,
    /// What the firmware does beside commands, and what made commands wait for it.
    pub activities: Vec<ActivityStats>,
}

/// Transfers on one path in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathTraffic {
    /// By the file-system structure they serve.
    pub structures: [StructureTraffic; 8],
}

impl Stats {
    /// Takes over how blocks are worn.
    pub(crate) fn take_wear(&mut self, wear: Wear) {
        self.erase_count_min = wear.min;
        self.erase_count_max = wear.max;
        self.erase_count_mean = wear.mean;
        self.erase_counts = wear.buckets;
    }
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

/// Block commands that were submitted and not yet completed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// Commands in flight now.
    pub depth: u64,
    /// Most commands ever in flight.
    pub depth_max: u64,
    /// Commands submitted.
    pub submitted: u64,
    /// The sum, over all commands submitted, of the commands then in flight, each itself included: divided by
    /// `submitted`, the mean depth.
    pub depth_sum: u64,
    /// Commands submitted at each depth, itself included, as pairs of a depth and a count. The last depth,
    /// 128, takes all above.
    pub depths: Vec<(u64, u64)>,
}

/// How long one kind of command took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandLatency {
    /// `byte`, `block` or `vendor`.
    pub path: &'static str,
    /// The command.
    pub command: &'static str,
    /// The structure it served; none for commands that serve several.
    pub structure: Option<&'static str>,
    /// From submission until the device had completed it, by the device's own time.
    pub device: Latency,
    /// As long as the host was held: from its call, or for a submitted command from its wait, to the return.
    pub wait: Latency,
}

/// How long flash operations took, queueing for the die and the channel included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlashLatency {
    /// `read`, `program` or `erase`.
    pub operation: &'static str,
    /// On whose account.
    pub cause: &'static str,
    /// From when it was asked for until the die was done; for a program, until the write buffer admitted it.
    pub device: Latency,
}

/// Something the firmware does beside commands, or what made commands wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ActivityStats {
    /// What it is.
    pub activity: &'static str,
    /// How often it runs now.
    pub running: u64,
    /// How often it has begun.
    pub begun: u64,
    /// How long it took, where time passes.
    pub duration: Latency,
}
