//! What file systems cost in software: ours on an SSD without delays, as a library and through FUSE, beside
//! the kernel's on memory.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};

use crate::interleave::{self, Seat};
use crate::kernel::Mounted;
use crate::operation::{ALL, Operation};
use crate::peer::{
    AUGEFS_RANGE, DEVFS_ALL, LIBRARY, MOUNTED, PATHS, Peer, QUEUE, QUEUE_ALL, RANGE_ALL, RANGE_KEYS, RINGS,
};
use crate::peers::{self, Backing, Daemon, Disk, Tmpfs, Workspace};
use crate::remote::{Remote, Run};
use crate::report::{Line, Report, SCHEMA, Unavailable};
use crate::{idle, rest, rings};

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
    /// The file systems whose names contain one of these words, and the library; none means all.
    pub peers: Vec<String>,
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
    /// What daemons take whose programs do little is known too.
    Rested(&'a Report),
}

/// What else is called in this process, beside ByteFS. Each one's name is its column's.
const LIBRARIES: [amphi_volumes::Kind; 2] = [amphi_volumes::Kind::Romefs, amphi_volumes::Kind::Augefs];

/// The name of ours where writes need no `fsync`.
const SYNC: &str = "fuse-sync";

/// A mount whose programs are processes of their own, one for each thread, that use paths.
struct Apart {
    name: &'static str,
    description: &'static str,
    mkfs: &'static [&'static str],
    options: &'static str,
    run: Run,
}

const APART: [Apart; 7] = [
    Apart {
        name: PATHS,
        description: "as fuse, by programs that use whole paths, a process for each thread",
        mkfs: &[],
        options: "transport=device",
        run: Run::Plain,
    },
    Apart {
        name: QUEUE,
        description: "the same programs, run by `amphi run --real-descriptors`",
        mkfs: &[],
        options: "transport=device",
        run: Run::RealDescriptors,
    },
    Apart {
        name: QUEUE_ALL,
        description: "the same, run by `amphi run`",
        mkfs: &[],
        options: "transport=device",
        run: Run::Preloaded,
    },
    Apart {
        name: RANGE_ALL,
        description: "the same; ByteFS lies in a range that the processes share, without protection",
        mkfs: &[],
        options: "transport=device,shared=unprotected",
        run: Run::Preloaded,
    },
    Apart {
        name: RANGE_KEYS,
        description: "as range-all, behind a protection key",
        mkfs: &[],
        options: "transport=device,shared",
        run: Run::Preloaded,
    },
    Apart {
        name: AUGEFS_RANGE,
        description: "as range-all, with AugeFS",
        mkfs: &["--fs", "augefs"],
        options: "transport=device,shared=unprotected",
        run: Run::Preloaded,
    },
    Apart {
        name: DEVFS_ALL,
        description: "as queue-all, on DevFS: the queue is a command buffer of the device",
        mkfs: &["--fs", "devfs"],
        options: "transport=device",
        run: Run::Preloaded,
    },
];

/// The name of the file system that shows what FUSE costs.
const TRIVIAL: &str = "trivial";

/// The name of memory alone.
const TMPFS: &str = "tmpfs";

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
    /// The seats whose processes have a daemon that polls for them, and its process.
    resting: Vec<(usize, u32)>,
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
        rests: Vec::new(),
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
            let mut line = Line::of(operation, threads, &report.peers, &samples);
            line.scale(&report.operations);
            tell(Progress::Done(&line));
            report.operations.push(line);
        }
    }
    let is_asked = rest::is_counted() && chosen(&settings.only).any(|operation| operation == rest::ASKED);
    for (at, daemon) in made.resting.iter().filter(|_| is_asked) {
        let Some(Some(seat)) = made.seats.get_mut(*at) else { continue };
        report.rests.push(rest::of(&report.peers[*at].name, seat, *daemon)?);
    }
    tell(Progress::Rested(&report));
    Ok(report)
}

/// Whether the kernel offers protection keys, without which a mount that asks for them has no range.
fn has_keys() -> bool {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processors.split_whitespace().any(|flag| flag == "ospke")
}

/// The operations whose names contain one of the words.
pub fn chosen(words: &[String]) -> impl Iterator<Item = Operation> + '_ {
    let is_wanted = |name: String| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    ALL.into_iter().filter(move |operation| is_wanted(operation.name()))
}

fn make(settings: &Settings, go_on: &dyn Fn() -> bool, report: &mut Report) -> Result<Made> {
    peers::reclaim();
    let workspace = Workspace::new()?;
    let mut making = Making { settings, report, seats: Vec::new() };
    let library = Seat::take(&peers::library()?, making.threads())?;
    making.take(LIBRARY, "ByteFS called in this process, on an SSD without delays", OURS, Ok(library));
    for kind in LIBRARIES {
        if making.is_wanted(kind.name()) {
            let title = kind.identity().title;
            let what =
                format!("{title} called in this process, on an SSD without delays that has a memory area");
            let seat = Seat::take(&peers::library_of(kind)?, making.threads())?;
            making.take(kind.name(), &what, OURS, Ok(seat));
        }
    }
    let mut daemons = Vec::new();
    let amphi = &*settings.amphi;
    let mut mount = |making: &mut Making<'_>, name: &str, what: &str, options: &str| {
        if making.is_wanted(name) {
            let daemon = peers::mounted(&workspace, amphi, name, &[], options);
            making.take_at(name, what, OURS, daemon.as_ref().map(Daemon::directory));
            daemons.extend(daemon);
        }
    };
    let what = "ByteFS mounted through FUSE, on an SSD without delays; requests come through /dev/fuse";
    mount(&mut making, MOUNTED, what, "transport=device");
    let what = "the same; requests come through io_uring, to the processor they are made on";
    if rings::are_offered() {
        mount(&mut making, RINGS, what, "transport=ring");
    } else if making.is_wanted(RINGS) {
        let why = "the kernel's FUSE driver offers no io_uring; --offer-rings has it do so for the run";
        making.take(RINGS, what, OURS, Err(anyhow!(why)));
    }
    let what = "as fuse, mounted with -o sync: every write is durable when it returns";
    mount(&mut making, SYNC, what, "sync,transport=device");
    let mut resting = Vec::new();
    for one in &APART {
        if making.is_wanted(one.name) {
            let daemon = match one.name {
                RANGE_KEYS if !has_keys() => Err(anyhow!("this processor has no protection keys")),
                _ => peers::mounted(&workspace, amphi, one.name, one.mkfs, one.options),
            };
            let seat = daemon.as_ref().map_err(|error| anyhow!("{error:#}")).and_then(|daemon| {
                if one.run != Run::Plain {
                    resting.push((making.seats.len(), daemon.pid()));
                }
                let start = |number| {
                    let at = daemon.directory().join(format!("process-{number}"));
                    Remote::start(amphi, &at, one.run)
                };
                (0..making.threads()).map(start).collect::<Result<_>>().map(Seat::Apart)
            });
            if seat.is_err() {
                resting.retain(|(at, _)| *at != making.seats.len());
            }
            making.take(one.name, one.description, OURS, seat);
            daemons.extend(daemon);
        }
    }
    if making.is_wanted(TRIVIAL) {
        let trivial = peers::trivial(&workspace, amphi);
        let what = "the least a file system can do behind FUSE: memory, nothing durable; requests come through /dev/fuse";
        making.take_at(TRIVIAL, what, NOTHING_DURABLE, trivial.as_ref().map(Daemon::directory));
        daemons.extend(trivial);
    }
    let mut disks = Vec::new();
    for (name, kind, backing) in DISKS {
        if !go_on() {
            break;
        }
        if making.is_wanted(name) {
            let disk = Disk::new(&workspace, name, kind, backing);
            let on = if backing == Backing::Loop { "a loop device over a file in memory" } else { "zram" };
            let what = format!("{kind} on {on}");
            making.take_at(name, &what, RIVAL, disk.as_ref().map(Disk::directory));
            disks.extend(disk);
        }
    }
    let mut memory = Vec::new();
    if making.is_wanted(TMPFS) {
        let tmpfs = Tmpfs::new(&workspace);
        let what = "tmpfs, which nothing survives";
        making.take_at(TMPFS, what, NOTHING_DURABLE, tmpfs.as_ref().map(Tmpfs::directory));
        memory.extend(tmpfs);
    }
    let seats = making.seats;
    Ok(Made { seats, resting, _disks: disks, _tmpfs: memory, _daemons: daemons, _workspace: workspace })
}

/// Whether a peer is ours, and whether what it calls durable is.
type Kind = (bool, bool);
const OURS: Kind = (true, true);
const RIVAL: Kind = (false, true);
const NOTHING_DURABLE: Kind = (false, false);

/// What has been made so far.
struct Making<'a> {
    settings: &'a Settings,
    report: &'a mut Report,
    seats: Vec<Option<Seat>>,
}

impl Making<'_> {
    fn threads(&self) -> usize {
        self.settings.threads.iter().copied().max().unwrap_or(1)
    }

    fn is_wanted(&self, name: &str) -> bool {
        let words = &self.settings.peers;
        words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
    }

    fn take(&mut self, name: &str, description: &str, (ours, durable): Kind, seat: Result<Seat>) {
        let name = name.to_owned();
        match seat {
            Ok(seat) => {
                self.seats.push(Some(seat));
                let (description, trivial) = (description.to_owned(), name == TRIVIAL);
                self.report.peers.push(Peer { name, description, ours, durable, trivial });
            }
            Err(error) => {
                self.report.unavailable.push(Unavailable { name, reason: format!("{error:#}") });
            }
        }
    }

    fn take_at(&mut self, name: &str, description: &str, kind: Kind, at: Result<&Path, &Error>) {
        let seat = at
            .map_err(|error| anyhow!("{error:#}"))
            .and_then(|path| Seat::take(&Mounted::new(path), self.threads()));
        self.take(name, description, kind, seat);
    }
}
