//! The machine of an experiment: host, device and their memory, all made small together by a scale.
//!
//! A scaled machine is the published one made small: capacity, the device's log, cache and transaction log,
//! the host's page cache, background intervals and run length are multiplied by the scale, as the number of
//! files is. Latencies, bandwidths, processors and what follows from parallelism (the write buffer in front
//! of the dies) stay, so that what one operation meets is the same.

use amphi_rt::cpu::HostProfile;
use amphi_ssd::Profile;
use serde::Deserialize;

use super::definition::{ComputingOf, Variation};
use super::system::System;
use crate::files::{Computing, HostCosts};

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The host's processors.
    pub host: HostProfile,
    /// What file operations cost them.
    pub costs: HostCosts,
    /// The device.
    pub device: Profile,
    /// Its capacity.
    pub capacity_bytes: u64,
    /// Pages of the host's page cache.
    pub cache_pages: usize,
    /// Of those, dirty ones from which on writers wait.
    pub dirty_pages: usize,
    /// Inodes of a new file system.
    pub inodes: u32,
    /// Pages of a new file system's journal.
    pub journal_pages: u32,
    /// Bytes of a new file system's data blocks, if not as usual for it.
    pub block_bytes: Option<u64>,
    /// Domains of a new AugeFS, if not as usual for it.
    pub domains: Option<u32>,
    /// Tasks at the log of a new AugeFS's metadata store, if not as usual for it.
    pub log_tasks: Option<usize>,
    /// Bytes of that store's memtable.
    pub memtable_bytes: u64,
    /// The share of modified lines from which on ByteFS sends a page by block, if not as usual for it.
    pub byte_threshold: Option<u32>,
    /// How often what is dirty is written back, ns.
    pub commit_interval_ns: u64,
    /// Age at which a dirty page is written back where that is done by age, ns.
    pub dirty_expire_ns: u64,
}

/// `experiments/machine.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    capacity_bytes: u64,
    memory_bytes: u64,
    dirty_percent: u64,
    inodes: u64,
    journal_bytes: u64,
    commit_interval_ns: u64,
    dirty_expire_ns: u64,
    computing: ComputingOf,
    host: toml::Table,
    costs: HostCosts,
    kernel: Computing,
    library: Computing,
    /// What calls cost that are commands to a device.
    commands: HostCosts,
    /// What calls cost that are calls of functions.
    shared: HostCosts,
}

const TEXT: &str = include_str!("../../../../experiments/machine.toml");
const PAGE: u64 = 4096;
/// The smallest values with which everything still works: room for a few transactions, and for what all
/// threads do at once.
const CAPACITY_MIN: u64 = 192 << 20;
const LOG_MIN: u64 = 256 << 10;
/// Two halves of AugeFS's log with room for a batch each, and its write versions.
const AUGEFS_LOG_MIN: u64 = 48 << 10;
/// RocksDB's memtable, which AugeFS's is as large as (section V-B), and the smallest.
const MEMTABLE_BYTES: u64 = 64 << 20;
const MEMTABLE_MIN: u64 = 256 << 10;
const CACHE_MIN: u64 = 16 << 20;
const JOURNAL_MIN: u64 = 4 << 20;
const INODES_MIN: u64 = 16_384;
/// An inode of RomeFS, and as much again for names and mappings, twice.
const ROMEFS_BYTES_PER_INODE: u64 = 1024;

impl Machine {
    /// The machine of the paper's evaluation with a device profile, for a file system, at `scale`, with what
    /// a variation changes.
    ///
    /// # Errors
    /// A sentence about the profile that does not exist or the value that is out of range.
    pub fn new(profile: &str, system: System, scale: f64, variation: &Variation) -> Result<Self, String> {
        let text: Text = toml::from_str(TEXT).map_err(|error| error.to_string())?;
        let mut host = HostProfile::from_toml(&text.host.to_string()).map_err(|error| error.to_string())?;
        let scaled = |value: u64| (value as f64 * scale) as u64;
        let pages = |bytes: u64, least: u64| scaled(bytes).max(least).next_multiple_of(PAGE);
        let mut device = Profile::named(variation.profile.as_deref().unwrap_or(profile))
            .map_err(|error| error.to_string())?;
        if let Some(read_ns) = variation.flash_read_ns {
            device.flash.read_ns = read_ns;
        }
        if let Some(program_ns) = variation.flash_program_ns {
            device.flash.program_ns = program_ns;
        }
        if let Some(command_ns) = variation.command_ns {
            device.link.command_ns = command_ns;
        }
        if let Some(line_write_ns) = variation.line_write_ns {
            device.link.line_write_ns = line_write_ns;
        }
        if let Some(delay_ns) = variation.line_delay_ns {
            device.link.line_write_ns += delay_ns;
            device.link.store_gap_ps += 1000 * delay_ns;
        }
        if let Some(fill_ns) = variation.fill_page_ns {
            device.firmware.fill_page_ns = fill_ns;
        }
        if let Some(pages) = variation.fill_at_once {
            device.firmware.fill_at_once = pages;
        }
        if let Some(cores) = variation.host_cores {
            host.cores = cores;
        }
        if let Some(wake_ns) = variation.wake_ns {
            host.wake_ns = wake_ns;
        }
        if let Some(cores) = variation.device_cores {
            device.firmware.cores = cores;
        }
        if let Some(entry_ns) = variation.entry_ns {
            device.firmware.entry_cpu_ns = entry_ns;
        }
        if let Some(percent) = variation.device_speed_percent {
            let firmware = &mut device.firmware;
            firmware.command_cpu_ns = firmware.command_cpu_ns * 100 / percent.max(1);
            firmware.page_cpu_ns = firmware.page_cpu_ns * 100 / percent.max(1);
            firmware.entry_cpu_ns = firmware.entry_cpu_ns * 100 / percent.max(1);
        }
        device.firmware.kind = system.firmware();
        let log_bytes = variation.log_bytes.unwrap_or(device.log.region_bytes);
        device.log.region_bytes = pages(log_bytes, LOG_MIN);
        device.log.txlog_bytes = pages(device.log.txlog_bytes, LOG_MIN / 4);
        let cache_bytes = variation.cache_bytes.unwrap_or(device.firmware.memory_bytes);
        let inodes = variation.inodes.unwrap_or_else(|| scaled(text.inodes).max(INODES_MIN));
        let least = match system {
            // Of RomeFS also all metadata.
            System::Romefs => LOG_MIN + ROMEFS_BYTES_PER_INODE * inodes,
            _ if system.is_augefs() => AUGEFS_LOG_MIN,
            _ => LOG_MIN,
        };
        device.firmware.memory_bytes = pages(cache_bytes, least);
        let checkpoint_pages = || scaled(device.flash.checkpoint_pages).max(1024);
        device.flash.checkpoint_pages = variation.mapping_checkpoint_pages.unwrap_or_else(checkpoint_pages);
        device.check().map_err(|error| error.to_string())?;
        let memory = pages(variation.memory_bytes.unwrap_or(text.memory_bytes), CACHE_MIN) / PAGE;
        let computing = match (variation.computing.unwrap_or(text.computing), system) {
            (ComputingOf::Free, _) => Computing::FREE,
            (ComputingOf::Kernel, _)
            | (ComputingOf::Own, System::Ext4 | System::Ext4Journal | System::F2fslike) => text.kernel,
            (ComputingOf::Own, _) => text.library,
        };
        let costs = match system {
            System::Devfs | System::DevfsInodeDirect => text.commands,
            // Calls are calls of functions, in a range of addresses that processes share.
            _ if system.is_augefs() && variation.computing == Some(ComputingOf::Own) => {
                HostCosts { computing, ..text.shared }
            }
            // The device computes, and there are no pages in the host's memory.
            _ if system.is_inside() => HostCosts { page_ns: 0, ..text.costs },
            _ => HostCosts { computing, ..text.costs },
        };
        Ok(Self {
            host,
            costs,
            device,
            capacity_bytes: pages(variation.capacity_bytes.unwrap_or(text.capacity_bytes), CAPACITY_MIN),
            cache_pages: memory as usize,
            dirty_pages: (memory * text.dirty_percent / 100) as usize,
            inodes: inodes as u32,
            journal_pages: (pages(variation.journal_bytes.unwrap_or(text.journal_bytes), JOURNAL_MIN) / PAGE)
                as u32,
            block_bytes: variation.threshold_bytes,
            domains: variation.domains,
            log_tasks: variation.log_tasks,
            memtable_bytes: pages(variation.memtable_bytes.unwrap_or(MEMTABLE_BYTES), MEMTABLE_MIN),
            byte_threshold: variation.byte_threshold,
            commit_interval_ns: scaled(variation.commit_interval_ns.unwrap_or(text.commit_interval_ns)),
            dirty_expire_ns: scaled(variation.dirty_expire_ns.unwrap_or(text.dirty_expire_ns)),
        })
    }
}
