//! What file systems cost in software: ours on an SSD without delays, as a library and through FUSE, beside
//! the kernel's on memory.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};

use crate::idle;
use crate::interleave::{self, Seat};
use crate::kernel::Mounted;
use crate::operation::{ALL, Operation};
use crate::peers::{self, Backing, Daemon, Disk, Tmpfs, Workspace};
use crate::report::{LIBRARY, Line, MOUNTED, Peer, RINGS, ROMEFS, Report, SCHEMA, Unavailable};
use crate::rings;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that serves our mount.
    pub amphi: PathBuf,
    /// Numbers of threads to run with.
    pub threads: Vec<usize>,
    /// Rounds that count.
    pub rounds: usize,
    /// The operations whose names contain one of these words; none means all.
    pub only: Vec<String>,
    /// Whether idle processors of a virtual machine poll before they halt, for as long as the run takes.
    pub poll_idle: bool,
    /// Whether the kernel offers rings, for as long as the run takes.
    pub offer_rings: bool,
}

/// What a run tells while it goes on.
pub enum Progress<'a> {
    /// The peers are there.
    Begun(&'a Report),
    /// One operation is done.
    Done(&'a Line),
}

/// The name of ours where writes need no `fsync`.
const SYNC: &str = "fuse-sync";

/// The name of the file system that shows what FUSE costs.
const TRIVIAL: &str = "trivial";

/// The kernel's file systems, each on what.
const DISKS: [(&str, &str, Backing); 6] = [
    ("ext4-loop", "ext4", Backing::Loop),
    ("ext4-zram", "ext4", Backing::Zram),
    ("xfs-loop", "xfs", Backing::Loop),
    ("xfs-zram", "xfs", Backing::Zram),
    ("btrfs-loop", "btrfs", Backing::Loop),
    ("btrfs-zram", "btrfs", Backing::Zram),
];

/// Everything that was made for a run. Dropped in this order: mounts before the memory below them.
struct Made {
    seats: Vec<Option<Seat>>,
    _disks: Vec<Disk>,
    _tmpfs: Vec<Tmpfs>,
    _daemons: Vec<Daemon>,
    _workspace: Workspace,
}

/// Runs the operations on every file system that this machine has.
///
/// # Errors
/// Ours cannot be made, idle processors cannot be told to poll, or the kernel cannot be told to offer rings.
/// What else cannot is in the report.
pub fn run(
    settings: &Settings,
    go_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Report> {
    let _polling = settings.poll_idle.then(idle::begin_polling).transpose()?;
    let _offer = settings.offer_rings.then(rings::offer).transpose()?;
    let mut report = Report {
        schema: SCHEMA,
        rounds: settings.rounds,
        interrupted: false,
        idle_polling_ns: idle::polling_ns(),
        peers: Vec::new(),
        unavailable: Vec::new(),
        operations: Vec::new(),
    };
    let mut made = make(settings, go_on, &mut report)?;
    tell(Progress::Begun(&report));
    for operation in chosen(&settings.only) {
        for &threads in &settings.threads {
            let samples = interleave::run(&mut made.seats, operation, threads, settings.rounds, go_on);
            if !go_on() {
                report.interrupted = true;
                return Ok(report);
            }
            let line = Line::of(operation, threads, &report.peers, &samples);
            tell(Progress::Done(&line));
            report.operations.push(line);
        }
    }
    Ok(report)
}

/// The operations whose names contain one of the words.
pub fn chosen(words: &[String]) -> impl Iterator<Item = Operation> + '_ {
    let is_wanted = |name: String| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    ALL.into_iter().filter(move |operation| is_wanted(operation.name()))
}

fn make(settings: &Settings, go_on: &dyn Fn() -> bool, report: &mut Report) -> Result<Made> {
    peers::reclaim();
    let most = settings.threads.iter().copied().max().unwrap_or(1);
    let workspace = Workspace::new()?;
    let library = peers::library()?;
    let mut seats = vec![Some(Seat::take(&library, most)?)];
    report.peers.push(peer(LIBRARY, "ByteFS called in this process, on an SSD without delays", true, true));
    seats.push(Some(Seat::take(&peers::romefs()?, most)?));
    let what = "RomeFS called in this process, on an SSD without delays that has a memory area";
    report.peers.push(peer(ROMEFS, what, true, true));
    let mut take = |name: &str, description: String, ours: bool, durable: bool, at: Result<&Path, &Error>| {
        let seat = at
            .map_err(|error| format!("{error:#}"))
            .and_then(|path| Seat::take(&Mounted::new(path), most).map_err(|error| format!("{error:#}")));
        match seat {
            Ok(seat) => {
                seats.push(Some(seat));
                report.peers.push(peer(name, &description, ours, durable));
            }
            Err(reason) => report.unavailable.push(Unavailable { name: name.to_owned(), reason }),
        }
    };
    let daemon = peers::mounted(&workspace, &settings.amphi, MOUNTED, "transport=device");
    let what =
        "ByteFS mounted through FUSE, on an SSD without delays; requests come through /dev/fuse".to_owned();
    take(MOUNTED, what, true, true, daemon.as_ref().map(Daemon::directory));
    let ring = if rings::are_offered() {
        peers::mounted(&workspace, &settings.amphi, RINGS, "transport=ring")
    } else {
        Err(anyhow!("the kernel's FUSE driver offers no io_uring; --offer-rings has it do so for the run"))
    };
    let what = "the same; requests come through io_uring, to the processor they are made on".to_owned();
    take(RINGS, what, true, true, ring.as_ref().map(Daemon::directory));
    let sync = peers::mounted(&workspace, &settings.amphi, SYNC, "sync,transport=device");
    let what = "as fuse, mounted with -o sync: every write is durable when it returns".to_owned();
    take(SYNC, what, true, true, sync.as_ref().map(Daemon::directory));
    let trivial = peers::trivial(&workspace, &settings.amphi);
    let what = "the least a file system can do behind FUSE: memory, nothing durable; requests come through /dev/fuse".to_owned();
    take(TRIVIAL, what, false, false, trivial.as_ref().map(Daemon::directory));
    let mut disks = Vec::new();
    for (name, kind, backing) in DISKS {
        if !go_on() {
            break;
        }
        let disk = Disk::new(&workspace, name, kind, backing);
        let on = if backing == Backing::Loop { "a loop device over a file in memory" } else { "zram" };
        take(name, format!("{kind} on {on}"), false, true, disk.as_ref().map(Disk::directory));
        disks.extend(disk);
    }
    let tmpfs = Tmpfs::new(&workspace);
    let what = "tmpfs, which nothing survives".to_owned();
    take("tmpfs", what, false, false, tmpfs.as_ref().map(Tmpfs::directory));
    Ok(Made {
        seats,
        _disks: disks,
        _tmpfs: tmpfs.into_iter().collect(),
        _daemons: daemon.into_iter().chain(ring).chain(sync).chain(trivial).collect(),
        _workspace: workspace,
    })
}

fn peer(name: &str, description: &str, ours: bool, durable: bool) -> Peer {
    Peer {
        name: name.to_owned(),
        description: description.to_owned(),
        ours,
        durable,
        trivial: name == TRIVIAL,
    }
}
