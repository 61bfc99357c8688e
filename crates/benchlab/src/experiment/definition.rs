//! An experiment as it is written down: question, configuration, claim, published values with their places,
//! explanations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::system::System;
use crate::gridgraph::Graph;
use crate::workload::preset;
use crate::ycsb;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Short name: `fig6`.
    pub name: String,
    /// Title.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// What was published.
    pub claim: String,
    /// The row in `docs/papers.md` that it belongs to.
    pub claim_row: String,
    /// What is measured, and how.
    pub method: String,
    /// How cells become bars.
    pub measure: Measure,
    /// Unit of the bars; empty for ratios.
    #[serde(default)]
    pub unit: String,
    /// Whether bars span decades.
    #[serde(default)]
    pub logarithmic: bool,
    /// Seed unless told otherwise.
    pub seed: u64,
    /// Scale unless told otherwise.
    pub scale: f64,
    /// The device's profile.
    pub profile: String,
    /// The file systems; the first one is what the others are compared with.
    pub systems: Vec<System>,
    /// The workloads.
    #[serde(rename = "case", default)]
    pub cases: Vec<Case>,
    /// The workloads that take longest, the longest first: they are begun in this order before the others, so
    /// that no job is left alone with one at the end.
    #[serde(default)]
    pub begin_with: Vec<String>,
    /// What is changed of the device; nothing, if there is none.
    #[serde(rename = "variation", default)]
    pub variations: Vec<Variation>,
    /// The published values.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What is changed, one thing at a time, to see what decides where ours differ.
    #[serde(rename = "ablation", default)]
    pub ablations: Vec<Ablation>,
    /// What else there is to say about a difference.
    #[serde(rename = "explained", default)]
    pub explained: Vec<Explained>,
}

/// One thing that is changed of an experiment, and the values that are measured again with it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ablation {
    /// What is different, as it stands after "with".
    pub name: String,
    /// The values of the figure that are measured again, each as `varmail / ByteFS`.
    pub places: Vec<String>,
    /// The cases that it is run with, by label. None: those whose group is in `places`, or all for what sums
    /// up several.
    #[serde(default)]
    pub cases: Vec<String>,
    /// Another workload, for all of these cases.
    #[serde(default)]
    pub workload: Option<String>,
    /// What of machine and device is changed, in all cells.
    #[serde(default)]
    pub change: Variation,
}

/// How cells become bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Operations a second, as a multiple of the first file system's.
    Throughput,
    /// Time of an operation, as a multiple of the first file system's.
    Time,
    /// Bytes between host and device for an operation, metadata and data apart, as a share of all of the
    /// first file system's.
    HostTraffic,
    /// Bytes read from and written to flash for an operation, as a share of all of the first file system's.
    FlashTraffic,
    /// Bytes between host and device for each byte that the workload reads and writes.
    Amplification,
    /// Bytes between host and device by structure, in percent.
    Structures,
    /// Operations a second, as a multiple of those with the first variation.
    Sensitivity,
    /// Which path of two what was written took, and the time on each beside the other, in percent; of a file
    /// system that counts it.
    PathShares,
    /// Device memory that inodes, directories' entries and maps of files have at the end, as a share of the
    /// first file system's.
    DeviceMemory,
    /// The published points of the device's profile.
    DevicePoints,
    /// RECOVER of a full log.
    Recovery,
    /// Mounting after a power cut while threads append and sync.
    Remount,
    /// Databases by where their log goes.
    Commits,
}

/// A workload of an experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name in the figure; the workload's if there is none.
    #[serde(default)]
    pub label: Option<String>,
    /// The personality.
    pub workload: String,
    /// Parameters of it to change.
    #[serde(default)]
    pub parameters: BTreeMap<String, u64>,
    /// Threads of its largest group, where no variation says otherwise.
    #[serde(default)]
    pub threads: Option<usize>,
}

impl Case {
    /// Its name in the figure.
    #[must_use]
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.workload)
    }
}

/// Which table of `experiments/machine.toml` says what a file system computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputingOf {
    /// Nothing is charged.
    Free,
    /// The kernel's ext4 for every file system.
    Kernel,
    /// The kernel's ext4 for the block-only one, our library for ByteFS.
    Own,
}

/// What is in the host's memory of a workload's files when it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostCache {
    /// Nothing: the file system has been mounted anew.
    #[default]
    Cold,
    /// What making them has left there. A store of YCSB is always cold.
    Warm,
}

/// What is changed of the machine and its device. What is given of sizes and times is at scale 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variation {
    /// Its name in the figure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Another scale, for files and machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Other numbers of threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// What is charged for computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computing: Option<ComputingOf>,
    /// Processors of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_cores: Option<usize>,
    /// From waking a waiting task until it runs, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_ns: Option<u64>,
    /// What is in the host's memory of the files when a workload begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_cache: Option<HostCache>,
    /// Memory of the host that the page cache may take, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Time between commits and between looks for what is to be written back, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_interval_ns: Option<u64>,
    /// Age at which dirty pages are written back, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_expire_ns: Option<u64>,
    /// Bytes of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Inodes of a new file system, whatever the scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Processors of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_cores: Option<u64>,
    /// How fast they are, in percent of what the profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_speed_percent: Option<u64>,
    /// Time of a device's processor for a structure that it moves to or from host memory, or an entry of its
    /// log, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_ns: Option<u64>,
    /// Bytes of a new file system's journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_bytes: Option<u64>,
    /// Domains of a new AugeFS. Not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<u32>,
    /// Tasks of an AugeFS that share what loads and zeros the log of its metadata store. Not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_tasks: Option<usize>,
    /// Bytes of changes after which AugeFS's metadata store brings them into tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memtable_bytes: Option<u64>,
    /// Time that each cache line that is stored by bytes takes beyond what the profile says, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_delay_ns: Option<u64>,
    /// Bytes of a new file system's data blocks, which are RomeFS's write splitting threshold. Not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_bytes: Option<u64>,
    /// ByteFS sends a page by bytes if fewer than one in so many of its lines were modified, 1 to 64 (BY-14:
    /// 8). Not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_threshold: Option<u32>,
    /// Parameters of the workload, beside those of the case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, u64>,
    /// Bytes of device memory that one of a kind counts with, in the place of what it takes: `inodes`,
    /// `inodes_away`, `dentries`, `filemaps`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub structure_bytes: BTreeMap<String, u64>,
    /// Another profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Bytes of a log region, at scale 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Time of a flash read, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash_read_ns: Option<u64>,
    /// Time of a flash program, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash_program_ns: Option<u64>,
    /// Pages that the SSD programs between two checkpoints of its mapping. Not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping_checkpoint_pages: Option<u64>,
    /// Time of a block command on the link, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_ns: Option<u64>,
    /// Time of writing a cache line by bytes, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_write_ns: Option<u64>,
    /// How long each page that a read brings into the device's page cache keeps the reader waiting, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill_page_ns: Option<u64>,
    /// Pages that a load which finds several missing in the device's page cache has brought in at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill_at_once: Option<u64>,
    /// Bytes of the device's memory: the page cache of the peers' firmware, RomeFS's memory area.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
}

impl Variation {
    /// Both changes; where both say something, `other` holds.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let both = |first: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            first.iter().chain(then).map(|(name, value)| (name.clone(), *value)).collect()
        };
        Self {
            label: if other.label.is_empty() { self.label.clone() } else { other.label.clone() },
            scale: other.scale.or(self.scale),
            threads: other.threads.or(self.threads),
            computing: other.computing.or(self.computing),
            host_cores: other.host_cores.or(self.host_cores),
            wake_ns: other.wake_ns.or(self.wake_ns),
            host_cache: other.host_cache.or(self.host_cache),
            memory_bytes: other.memory_bytes.or(self.memory_bytes),
            commit_interval_ns: other.commit_interval_ns.or(self.commit_interval_ns),
            dirty_expire_ns: other.dirty_expire_ns.or(self.dirty_expire_ns),
            capacity_bytes: other.capacity_bytes.or(self.capacity_bytes),
            inodes: other.inodes.or(self.inodes),
            device_cores: other.device_cores.or(self.device_cores),
            device_speed_percent: other.device_speed_percent.or(self.device_speed_percent),
            entry_ns: other.entry_ns.or(self.entry_ns),
            journal_bytes: other.journal_bytes.or(self.journal_bytes),
            domains: other.domains.or(self.domains),
            log_tasks: other.log_tasks.or(self.log_tasks),
            memtable_bytes: other.memtable_bytes.or(self.memtable_bytes),
            line_delay_ns: other.line_delay_ns.or(self.line_delay_ns),
            threshold_bytes: other.threshold_bytes.or(self.threshold_bytes),
            byte_threshold: other.byte_threshold.or(self.byte_threshold),
            parameters: both(&self.parameters, &other.parameters),
            structure_bytes: both(&self.structure_bytes, &other.structure_bytes),
            profile: other.profile.clone().or_else(|| self.profile.clone()),
            log_bytes: other.log_bytes.or(self.log_bytes),
            flash_read_ns: other.flash_read_ns.or(self.flash_read_ns),
            flash_program_ns: other.flash_program_ns.or(self.flash_program_ns),
            mapping_checkpoint_pages: other.mapping_checkpoint_pages.or(self.mapping_checkpoint_pages),
            command_ns: other.command_ns.or(self.command_ns),
            line_write_ns: other.line_write_ns.or(self.line_write_ns),
            fill_page_ns: other.fill_page_ns.or(self.fill_page_ns),
            fill_at_once: other.fill_at_once.or(self.fill_at_once),
            cache_bytes: other.cache_bytes.or(self.cache_bytes),
        }
    }

    /// Takes over one change as it is written on the command line, `memory_bytes=1073741824` or
    /// `computing=free`.
    ///
    /// # Errors
    /// A sentence about the name or value that there is not.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
        let quoted = if value.parse::<f64>().is_ok() { value.to_owned() } else { format!("{value:?}") };
        let change: Self =
            toml::from_str(&format!("{name} = {quoted}")).map_err(|error| error.message().to_owned())?;
        *self = self.and(&change);
        Ok(())
    }

    /// What it changes, each as [`Variation::set`] takes it. Parameters of workloads cannot be given so.
    ///
    /// # Panics
    /// Never: its fields are numbers and words.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let value = serde_json::to_value(self).expect("a variation is numbers and words");
        let fields = value.as_object().expect("a variation has fields");
        let word = |(name, value): (&String, &serde_json::Value)| match value {
            serde_json::Value::String(text) => Some(format!("{name}={text}")),
            serde_json::Value::Number(number) => Some(format!("{name}={number}")),
            _ => None,
        };
        fields.iter().filter_map(word).collect()
    }
}

/// A published value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The group of bars.
    pub group: String,
    /// The bar.
    pub series: String,
    /// The value; none where the paper says something in words only.
    #[serde(default)]
    pub value: Option<f64>,
    /// Figure, table or page.
    pub source: String,
    /// Whether it was read off a drawing rather than printed.
    #[serde(default)]
    pub read_off: bool,
}

/// An explanation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explained {
    /// Group and series, as `varmail / ByteFS`.
    #[serde(rename = "where")]
    pub place: String,
    /// Why.
    pub why: String,
}

impl Definition {
    /// Reads an experiment.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let mut read: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for case in &read.cases {
            let parameters: Vec<_> =
                case.parameters.iter().map(|(name, value)| (name.clone(), *value)).collect();
            let is_file_workload = !ycsb::PRESETS.iter().any(|(name, _)| *name == case.workload)
                && Graph::named(&case.workload).is_none();
            if is_file_workload {
                preset(&case.workload, &parameters).map_err(|error| error.to_string())?;
            }
        }
        if read.systems.is_empty() {
            return Err("it names no file system".to_owned());
        }
        if let Some(unknown) =
            read.begin_with.iter().find(|name| !read.cases.iter().any(|case| case.workload == **name))
        {
            return Err(format!("it begins with {unknown}, which is none of its cases"));
        }
        if read.variations.is_empty() {
            read.variations.push(Variation::default());
        }
        for ablation in &read.ablations {
            if let Some(workload) = &ablation.workload {
                preset(workload, &[]).map_err(|error| error.to_string())?;
            }
            if let Some(unknown) =
                ablation.cases.iter().find(|label| !read.cases.iter().any(|case| case.label() == *label))
            {
                return Err(format!(
                    "the ablation `{}` names the case {unknown}, which is none",
                    ablation.name
                ));
            }
        }
        Ok(read)
    }
}
