//! What is measured while the device has power: latencies of commands and flash operations, the depth of the
//! block queue, and what the firmware does beside commands. It is gone when power goes, unlike the counters.
//!
//! Recording is a few relaxed atomic additions; where no time passes (a free device), latencies are not
//! recorded and no clock is read.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::Structure;

use super::counters::Cause;
use super::histogram::Table;
use super::report::{ActivityStats, CommandLatency, FlashLatency, Queue, Stats};

/// A command of the host, as latencies tell them apart. A store is none: it ends in the processor's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Load,
    DmaRead,
    BlockRead,
    BlockWrite,
    Fence,
    VerifyRead,
    Flush,
    Trim,
    Commit,
    Recover,
    CleanLog,
    Pin,
    FlushEntry,
}

impl Command {
    const ALL: [Self; 13] = [
        Self::Load,
        Self::DmaRead,
        Self::BlockRead,
        Self::BlockWrite,
        Self::Fence,
        Self::VerifyRead,
        Self::Flush,
        Self::Trim,
        Self::Commit,
        Self::Recover,
        Self::CleanLog,
        Self::Pin,
        Self::FlushEntry,
    ];

    /// Path and command, as JSON names them.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Load => ("byte", "load"),
            Self::DmaRead => ("byte", "dma-read"),
            Self::BlockRead => ("block", "read"),
            Self::BlockWrite => ("block", "write"),
            Self::Fence => ("byte", "fence"),
            Self::VerifyRead => ("byte", "verify-read"),
            Self::Flush => ("block", "flush"),
            Self::Trim => ("block", "trim"),
            Self::Commit => ("vendor", "commit"),
            Self::Recover => ("vendor", "recover"),
            Self::CleanLog => ("vendor", "clean-log"),
            Self::Pin => ("vendor", "pin"),
            Self::FlushEntry => ("vendor", "flush-entry"),
        }
    }
}

/// A flash operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlashOperation {
    Read,
    Program,
    Erase,
}

impl FlashOperation {
    const ALL: [Self; 3] = [Self::Read, Self::Program, Self::Erase];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Program => "program",
            Self::Erase => "erase",
        }
    }
}

/// What the firmware does beside commands, and what makes commands wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// A log region is emptied.
    LogCleaning,
    /// A block is emptied and erased.
    GarbageCollection,
    /// A command waits because the log is full.
    LogFull,
    /// A command collects because no block is free.
    NoFreeBlock,
}

impl Activity {
    const ALL: [Self; 4] = [Self::LogCleaning, Self::GarbageCollection, Self::LogFull, Self::NoFreeBlock];

    const fn name(self) -> &'static str {
        match self {
            Self::LogCleaning => "log-cleaning",
            Self::GarbageCollection => "garbage-collection",
            Self::LogFull => "waiting-for-log",
            Self::NoFreeBlock => "waiting-for-block",
        }
    }
}

const STRUCTURES: usize = Structure::ALL.len();
/// A command's histograms: one for each structure, one without; each for device time and wait.
const PER_COMMAND: usize = (STRUCTURES + 1) * 2;
const FLASH_AT: usize = Command::ALL.len() * PER_COMMAND;
const ACTIVITIES_AT: usize = FLASH_AT + FlashOperation::ALL.len() * Cause::ALL.len();
const HISTOGRAMS: usize = ACTIVITIES_AT + Activity::ALL.len();

/// Depths that are told apart.
const DEPTHS: usize = 128;

const fn command_at(command: Command, structure: Option<Structure>) -> usize {
    let structure = match structure {
        Some(structure) => structure as usize,
        None => STRUCTURES,
    };
    command as usize * PER_COMMAND + structure * 2
}

const fn flash_at(operation: FlashOperation, cause: Cause) -> usize {
    FLASH_AT + operation as usize * Cause::ALL.len() + cause as usize
}

/// The meters of a powered device.
#[derive(Debug)]
pub(crate) struct Meters {
    /// Every histogram; none where no time passes.
    table: Option<Table>,
    since_ns: u64,
    depth: AtomicU64,
    depth_max: AtomicU64,
    depths: [AtomicU64; DEPTHS],
    running: [AtomicU64; Activity::ALL.len()],
    begun: [AtomicU64; Activity::ALL.len()],
}

impl Meters {
    /// Meters of a device that is powered up now; without latencies if no time passes on it.
    pub(crate) fn new(free: bool) -> Self {
        Self {
            table: if free { None } else { Table::new(HISTOGRAMS) },
            since_ns: amphi_rt::time::now_ns(),
            depth: AtomicU64::new(0),
            depth_max: AtomicU64::new(0),
            depths: [const { AtomicU64::new(0) }; DEPTHS],
            running: [const { AtomicU64::new(0) }; Activity::ALL.len()],
            begun: [const { AtomicU64::new(0) }; Activity::ALL.len()],
        }
    }

    /// A command ended: the device took `device_ns`, and the host was held since `called_at`.
    pub(crate) fn command(
        &self,
        command: Command,
        structure: Option<Structure>,
        device_ns: u64,
        called_at: u64,
    ) {
        let Some(table) = &self.table else { return };
        let at = command_at(command, structure);
        table.at(at).record(device_ns);
        table.at(at + 1).record(amphi_rt::time::now_ns().saturating_sub(called_at));
    }

    /// A flash operation took `ns`.
    pub(crate) fn flash(&self, operation: FlashOperation, cause: Cause, ns: u64) {
        let Some(table) = &self.table else { return };
        table.at(flash_at(operation, cause)).record(ns);
    }

    /// A block command was submitted.
    pub(crate) fn submitted(&self) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        if depth > self.depth_max.load(Ordering::Relaxed) {
            self.depth_max.fetch_max(depth, Ordering::Relaxed);
        }
        self.depths[(depth as usize).min(DEPTHS) - 1].fetch_add(1, Ordering::Relaxed);
    }

    /// A block command was completed.
    pub(crate) fn completed(&self) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }

    /// An activity begins; it ends when the answer is dropped.
    pub(crate) fn begin(&self, activity: Activity) -> Running<'_> {
        self.running[activity as usize].fetch_add(1, Ordering::Relaxed);
        self.begun[activity as usize].fetch_add(1, Ordering::Relaxed);
        let began_at = if self.table.is_some() { amphi_rt::time::now_ns() } else { 0 };
        Running { meters: self, activity, began_at }
    }

    /// Adds what was measured to a report.
    pub(crate) fn report(&self, stats: &mut Stats) {
        stats.uptime_ns = amphi_rt::time::now_ns().saturating_sub(self.since_ns);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let depths = || self.depths.iter().enumerate().map(|(at, n)| (at as u64 + 1, count(n)));
        stats.queue = Queue {
            depth: count(&self.depth),
            depth_max: count(&self.depth_max),
            submitted: depths().map(|(_, commands)| commands).sum(),
            depth_sum: depths().map(|(depth, commands)| depth * commands).sum(),
            depths: depths().filter(|(_, commands)| *commands > 0).collect(),
        };
        let read = |at| self.table.as_ref().map(|table| table.at(at).read()).unwrap_or_default();
        stats.activities = Activity::ALL
            .iter()
            .map(|&activity| ActivityStats {
                activity: activity.name(),
                running: count(&self.running[activity as usize]),
                begun: count(&self.begun[activity as usize]),
                duration: read(ACTIVITIES_AT + activity as usize),
            })
            .collect();
        if self.table.is_none() {
            return;
        }
        let structures = || Structure::ALL.into_iter().map(Some).chain([None]);
        stats.latencies = Command::ALL
            .iter()
            .flat_map(|&command| structures().map(move |structure| (command, structure)))
            .map(|(command, structure)| {
                let at = command_at(command, structure);
                let (path, name) = command.names();
                CommandLatency {
                    path,
                    command: name,
                    structure: structure.map(Structure::name),
                    device: read(at),
                    wait: read(at + 1),
                }
            })
            .filter(|latency| latency.device.count > 0)
            .collect();
        stats.flash_latencies = FlashOperation::ALL
            .iter()
            .flat_map(|&operation| Cause::ALL.map(|cause| (operation, cause)))
            .map(|(operation, cause)| FlashLatency {
                operation: operation.name(),
                cause: cause.name(),
                device: read(flash_at(operation, cause)),
            })
            .filter(|latency| latency.device.count > 0)
            .collect();
    }
}

/// An activity that goes on.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    meters: &'a Meters,
    activity: Activity,
    began_at: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.meters.running[self.activity as usize].fetch_sub(1, Ordering::Relaxed);
        if let Some(table) = &self.meters.table {
            let ns = amphi_rt::time::now_ns().saturating_sub(self.began_at);
            table.at(ACTIVITIES_AT + self.activity as usize).record(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo test --release -p amphi-ssd --lib recording -- --nocapture` prints the figures. The bound is
    /// far above them: it is for a lock or an allocation.
    #[test]
    fn recording_takes_nanoseconds() {
        const TIMES: u64 = 1_000_000;
        let meters = Meters::new(false);
        let each = |what: &str, record: &dyn Fn(u64)| {
            let began = amphi_rt::time::now_ns();
            (0..TIMES).for_each(record);
            let ns = (amphi_rt::time::now_ns() - began) as f64 / TIMES as f64;
            println!("{what}: {ns:.1} ns");
            assert!(ns < 2000.0, "{what} takes {ns} ns");
        };
        each("a latency", &|turn| meters.flash(FlashOperation::Read, Cause::Host, turn % 100_000));
        each("a command: two latencies and a look at the clock", &|turn| {
            meters.command(Command::BlockRead, Some(Structure::Data), turn % 100_000, 0);
        });
        each("a place in the queue, taken and left", &|_| {
            meters.submitted();
            meters.completed();
        });
        let mut stats = Stats::default();
        meters.report(&mut stats);
        assert_eq!((stats.queue.submitted, stats.latencies[0].device.count), (TIMES, TIMES));
    }
}
