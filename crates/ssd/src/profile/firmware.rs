//! What the firmware does with the device's memory, and the processors it runs on.

use amphi_device::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::{Rule, TIME};

/// What the firmware does with the device's memory, and the processors it runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FirmwareProfile {
    /// Which firmware the device runs.
    pub kind: Firmware,
    /// Bytes of device memory that the page cache or the memory area takes: a multiple of 4096, 64 KiB to 32
    /// GiB. Default 256 MiB, as much as a log region (ByteFS §5.1). Images made before there were memory
    /// areas call it `cache_bytes`.
    #[serde(alias = "cache_bytes")]
    pub memory_bytes: u64,
    /// Dirty share of the page cache, in percent, above which it is written back in the background, 1 to 95.
    pub write_back_at_percent: u64,
    /// How long each page that a read brings into the page cache keeps the reader waiting, in ns: a cache
    /// that answers from its frames stores the page there first. 0: the page goes to host and frame beside
    /// each other.
    pub fill_page_ns: u64,
    /// Pages that a load which finds several missing in the page cache has brought in at once, 0 to 4096; 0:
    /// all of them. A processor whose loads wait for each other has one.
    pub fill_at_once: u64,
    /// Processors, 0 to 64; 0: the firmware's work takes no time.
    pub cores: u64,
    /// What a block or vendor command, or one to a file system inside, takes one of them, in ns.
    pub command_cpu_ns: u64,
    /// What taking in a byte write takes one of them, in ns.
    pub entry_cpu_ns: u64,
    /// What cleaning a page of the log or writing back a page of the cache takes one of them, in ns; of a
    /// file system inside, a transfer from or to flash, and moving 4 KB for a command.
    pub page_cpu_ns: u64,
}

impl Default for FirmwareProfile {
    fn default() -> Self {
        Self {
            kind: Firmware::Log,
            memory_bytes: 256 << 20,
            write_back_at_percent: 50,
            fill_page_ns: 0,
            fill_at_once: 0,
            cores: 0,
            command_cpu_ns: 0,
            entry_cpu_ns: 0,
            page_cpu_ns: 0,
        }
    }
}

impl FirmwareProfile {
    /// Frames of the page cache; none with another firmware.
    pub(crate) fn cache_frames(&self) -> u64 {
        match self.kind {
            Firmware::Log | Firmware::Memory | Firmware::BaBuffer | Firmware::FileSystem => 0,
            Firmware::PageCache => self.memory_bytes / PAGE_BYTES as u64,
        }
    }

    /// The ranges of its values.
    pub(super) fn rules(&self) -> [Rule; 8] {
        [
            (
                "firmware.memory_bytes",
                self.memory_bytes,
                self.memory_bytes.is_multiple_of(PAGE_BYTES as u64)
                    && (64 << 10..=32 << 30).contains(&self.memory_bytes),
                "a multiple of 4096 from 64 KiB to 32 GiB",
            ),
            (
                "firmware.write_back_at_percent",
                self.write_back_at_percent,
                (1..=95).contains(&self.write_back_at_percent),
                "1 to 95",
            ),
            ("firmware.cores", self.cores, self.cores <= 64, "0 to 64"),
            TIME.rule("firmware.fill_page_ns", self.fill_page_ns),
            ("firmware.fill_at_once", self.fill_at_once, self.fill_at_once <= 4096, "0 to 4096"),
            TIME.rule("firmware.command_cpu_ns", self.command_cpu_ns),
            TIME.rule("firmware.entry_cpu_ns", self.entry_cpu_ns),
            TIME.rule("firmware.page_cpu_ns", self.page_cpu_ns),
        ]
    }

    /// Whether its work takes no time.
    pub(super) fn is_free(&self) -> bool {
        self.cores == 0 || self.command_cpu_ns + self.entry_cpu_ns + self.page_cpu_ns == 0
    }
}

/// A firmware, as profiles spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Firmware {
    /// A transactional write log (ByteFS §4.3).
    Log,
    /// A page cache with write-back (what ByteFS §5.1 runs its peers on).
    PageCache,
    /// A memory area that the host reaches by bytes alone, beside a block side without a cache (RomeFS §3.2).
    Memory,
    /// A window that pages of the block side are pinned onto (2B-SSD §III).
    BaBuffer,
    /// A file system (DevFS §4). Its ports are the firmware's own: flash and protected memory without the
    /// link.
    FileSystem,
}
