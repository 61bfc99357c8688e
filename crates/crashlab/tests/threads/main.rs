//! Every file system used by threads while its device loses its power, or fails a command: by threads that
//! meet anywhere, so that no run is like another, and in virtual time, where tasks meet at locks and at steps
//! of the firmware and a seed brings a failure back (`AMPHI_SEED`).

mod appender;
mod crew;
mod file;
mod lister;
mod publisher;
mod writer;

use std::sync::Arc;

use amphi_conformance::random;
use amphi_crashlab::judge;
use amphi_crashlab::rig::{Fault, Rig, Way};
use amphi_crashlab::subject::{self, Size, Subject};
use amphi_fs_devfs::planted::{Bug, plant};
use amphi_rt::random::Generator;
use amphi_rt::{Schedule, Sim};
use amphi_ssd::{Firmware, Ssd};
use amphi_vfs::FileSystem;

use crate::crew::Crew;

/// Firmware steps and commands that the writers do together, about.
const STEPS: u64 = 4000;
const COMMANDS: u64 = 600;

/// Seeds that have shown what was wrong once.
const SHOWN: [(&str, u64); 20] = [
    // New pages that a failed write had not reached were read.
    ("novalike", 4),
    // So was an inode that a failed `create` had not reached.
    ("bytefs", 58),
    // Allocating waited for ever for what had failed.
    ("ext4like", 20),
    // A block left the journal between the device's answer and the question for it.
    ("ext4like-journal", 173),
    // Readers were told why a part of a log could not be flushed.
    ("ext4like-pins", 34),
    // Of a buffered append and one that went to the device at once, one was lost.
    ("romefs-lazy", 131),
    // What was buffered lay over what was written at once after it.
    ("romefs-lazy", 274),
    // Making room in device memory failed, and readers were told so.
    ("devfs-naive", 147),
    // A directory that a failed change had not given its first pointer page could not be read again.
    ("devfs", 161),
    // So was one of which memory had a page more than flash.
    ("devfs-naive", 1482),
    // Reading ahead overwrote what a log had made durable behind the end of its file.
    ("ext4like-pins", 353),
    // A file had the size of the log whose name it had taken.
    ("ext4like-pins", 1027),
    // Logs were put in the order of their last syncs while they synced, which panicked.
    ("ext4like-pins", 1244),
    // A log flushed the entry that another had pinned under the same number since.
    ("ext4like-pins", 3306),
    // Two logs that made room for each other waited for each other.
    ("ext4like-pins", 30_016),
    // A log wrote to a window that it had given up.
    ("ext4like-pins", 30_029),
    // What was known of a log went with its name, although its number was another file's already.
    ("ext4like-pins", 40_069),
    // New pages were read that a write had not reached, since another one had failed meanwhile.
    ("pmfslike", 40_100),
    // The metadata store took for flushed what only a manifest said that could not be written.
    ("augefs", 40_335),
    // The journal was written over behind a tail that could not be written.
    ("ext4like", 40_176),
];

/// Which task runs next, with seeds from these on: at random, by the method that finds what takes few events
/// in order, and with tasks held up for as long as others take for many commands.
const SCHEDULES: [(u64, Schedule); 5] = [
    (0, Schedule::Random { per_mille: 100, delay_ns: 1000 }),
    (10_000, Schedule::Pct { depth: 3, points: 0 }),
    (20_000, Schedule::Random { per_mille: 300, delay_ns: 200_000 }),
    (WITH_LOGS, Schedule::Random { per_mille: 100, delay_ns: 1000 }),
    (WITH_OTHERS, Schedule::Random { per_mille: 100, delay_ns: 1000 }),
];
/// From this seed on there are threads that keep logs, too.
const WITH_LOGS: u64 = 30_000;
/// And from this one on such as replace files and list directories.
const WITH_OTHERS: u64 = 40_000;

/// What goes wrong in each round.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    PowerLost,
    CommandFails,
    /// One after the other.
    CommandsFail,
}

impl Trouble {
    fn plan(self, rig: &Rig, dice: &mut Generator) {
        match self {
            Self::PowerLost => rig.ssd().cut_after_steps(dice.below(STEPS), dice.next()),
            Self::CommandFails => {
                let ways = [Way::Refused, Way::Done, Way::Lasting];
                let way = ways[dice.below(ways.len() as u64) as usize];
                rig.fail(Some(Fault { command: dice.below(COMMANDS), way }));
            }
            Self::CommandsFail => {
                rig.fail(Some(Fault { command: dice.below(COMMANDS), way: Way::Recurring }));
            }
        }
    }
}

/// What one seed decides.
#[derive(Clone, Copy, Debug)]
struct Run {
    trouble: Trouble,
    seed: u64,
    rounds: u64,
    /// The device's profile where its firmware can have it, else `free`.
    profile: &'static str,
    /// Whether the device takes the time that the profile says.
    is_timed: bool,
    /// One in how many steps of the firmware takes long; 0 for none.
    slow_one_in: u64,
    habit: Habit,
}

impl Run {
    /// What a seed decides in virtual time: every other one has a volatile write buffer, every fourth byte
    /// stores that last without a verify read, every fifth a device that takes time.
    const fn by(trouble: Trouble, seed: u64) -> Self {
        Self {
            trouble,
            seed,
            rounds: 12,
            profile: ["nvme", "free", "nvme", "mssd-cxl"][(seed % 4) as usize],
            is_timed: seed.is_multiple_of(5),
            slow_one_in: 8,
            habit: [Habit::Forgetful, Habit::Plain, Habit::Busy][(seed % 3) as usize],
        }
    }

    const fn appenders(&self) -> u64 {
        if self.seed < WITH_LOGS { 0 } else { 2 }
    }

    const fn others(&self) -> u64 {
        if self.seed < WITH_OTHERS { 0 } else { 2 }
    }

    fn device(&self, subject: &Subject) -> Result<Ssd, String> {
        let has_buffer = subject.firmware == Firmware::Log;
        let profile = if self.profile == "nvme" && !has_buffer { "free" } else { self.profile };
        let make = if self.is_timed { subject::timed_device } else { subject::device };
        make(profile, subject.firmware, Size::Cramped)
    }
}

/// How the file system is mounted.
#[derive(Clone, Copy, Debug)]
enum Habit {
    Plain,
    /// With little cached.
    Forgetful,
    /// And with background work all the time.
    Busy,
}

impl Habit {
    fn mount(self, subject: &Subject, rig: &Arc<Rig>) -> Result<Box<dyn FileSystem>, String> {
        match self {
            Self::Plain => subject.mount(rig),
            Self::Forgetful => subject.mount_forgetful(rig),
            Self::Busy => subject.mount_busy(rig),
        }
    }
}

fn pass(name: &str) {
    let long = std::env::var_os("AMPHI_TEST_LONG").is_some();
    let subject = subject::named(name).expect("the subject exists");
    let rounds = if long { 1000 } else { 12 };
    let one = std::env::var("AMPHI_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let of_threads = if one.is_some() { 1..1 } else { 1..3 };
    let each = if long { 150 } else { 3 };
    let of_tasks = one.map_or_else(
        || SCHEDULES.iter().flat_map(|(first, _)| first + 1..first + 1 + each).collect(),
        |seed| vec![seed],
    );
    let test = name.replace('-', "_");
    let shown = || SHOWN.iter().filter(|(of, _)| one.is_none() && *of == name).map(|(_, seed)| *seed);
    let replay = |seed| format!("AMPHI_SEED={seed} cargo test -p amphi-crashlab --test threads {test}");
    for seed in one.map_or(0..if long { 2000 } else { 200 }, |seed| seed..seed + 1).chain(shown()) {
        let fits = simulated(seed, || fit_one_order(subject, seed, 4));
        fits.unwrap_or_else(|error| panic!("{name}: {error}\nreplay with: {}", replay(seed)));
    }
    for seed in of_threads.clone().chain(one.is_none().then_some(3)) {
        let fits = fit_one_order(subject, seed, 4 * rounds);
        fits.unwrap_or_else(|error| panic!("{name}, by threads, seed {seed}: {error}"));
    }
    for trouble in [Trouble::PowerLost, Trouble::CommandFails, Trouble::CommandsFail] {
        for seed in of_threads.clone().chain(one.is_none().then_some(WITH_OTHERS)) {
            let slow_one_in = if seed == 2 { 64 } else { 0 };
            let run = Run { rounds, is_timed: false, slow_one_in, ..Run::by(trouble, seed) };
            go_through(subject, &run).unwrap_or_else(|error| panic!("{name}, {run:?}, {error}"));
        }
        for seed in of_tasks.iter().copied().chain(shown()) {
            in_virtual_time(subject, trouble, seed).unwrap_or_else(|error| {
                panic!("{name}, {trouble:?}, {error}; replay with: {}", replay(seed));
            });
        }
    }
}

/// What tasks do by a seed, which replays.
fn in_virtual_time(subject: &Subject, trouble: Trouble, seed: u64) -> Result<(), String> {
    let run = Run::by(trouble, seed);
    simulated(seed, || go_through(subject, &run))
}

fn simulated(seed: u64, body: impl FnOnce() -> Result<(), String> + Send) -> Result<(), String> {
    let schedule = SCHEDULES.iter().rev().find(|(first, _)| *first <= seed).expect("the first begins at 0").1;
    let outcome = Sim::new(seed).schedule(schedule).try_run(body);
    outcome.unwrap_or_else(|failure| Err(failure.to_string()))
}

/// Calls of tasks about a few files and names, while nothing fails: their answers fit one order. With every
/// fourth seed, the file system is full.
fn fit_one_order(subject: &Subject, seed: u64, rounds: u64) -> Result<(), String> {
    let run = Run::by(Trouble::PowerLost, seed);
    let rig = Arc::new(Rig::plain(run.device(subject)?));
    subject.format(&rig)?;
    let fs: Arc<dyn FileSystem> = Arc::from(run.habit.mount(subject, &rig)?);
    random::linearizable(&fs, seed, rounds, seed % 4 == 3)?;
    drop(fs);
    judge::clean(subject, &rig)
}

fn go_through(subject: &Subject, run: &Run) -> Result<(), String> {
    let mut rig = Arc::new(Rig::plain(run.device(subject)?));
    subject.format(&rig)?;
    let mut crew = Crew::new(run.appenders(), run.others());
    let mut fs = run.habit.mount(subject, &rig)?;
    crew.make(&*fs).map_err(|error| error.to_string())?;
    let mut dice = Generator::new(run.seed);
    for round in 0..run.rounds {
        let of = |what: String| format!("round {round}: {what}");
        crew.find(&*fs).map_err(|error| of(error.to_string()))?;
        run.trouble.plan(&rig, &mut dice);
        if run.slow_one_in > 0 {
            rig.ssd().slow_down_steps(dice.next(), run.slow_one_in);
        }
        let shared: Arc<dyn FileSystem> = Arc::from(fs);
        crew = crew.work(&shared, &mut dice, subject.fsync).map_err(of)?;
        if rig.failed().is_some() && rig.planned_fault().is_none() {
            // What one command has failed to bring to the device is still there for readers.
            crew.judge_reader(&*shared).map_err(of)?;
        }
        drop(shared);
        rig.ssd().power_cut(round);
        let ssd = Arc::into_inner(rig).ok_or("a file system that is gone still holds the device")?.into_ssd();
        let ssd = ssd.restart().map_err(|error| of(error.to_string()))?;
        let recovered = judge::recover(subject, ssd).map_err(of)?;
        rig = recovered.rig;
        crew.find(&*recovered.fs).map_err(|error| of(error.to_string()))?;
        crew.judge(&*recovered.fs).map_err(of)?;
        // Nothing is at work in the background then.
        drop(recovered.fs);
        judge::clean(subject, &rig).map_err(of)?;
        fs = run.habit.mount(subject, &rig).map_err(of)?;
    }
    Ok(())
}

/// A test for each subject.
macro_rules! subjects {
    ($($test:ident: $name:literal,)*) => {
        const NAMES: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            pass($name);
        })*
    };
}

subjects! {
    bytefs: "bytefs",
    bytefs_journal: "bytefs-journal",
    bytefs_grouped: "bytefs-grouped",
    bytefs_log: "bytefs-log",
    bytefs_dual: "bytefs-dual",
    ext4like: "ext4like",
    ext4like_journal: "ext4like-journal",
    ext4like_pins: "ext4like-pins",
    romefs: "romefs",
    romefs_lazy: "romefs-lazy",
    romefs_threads: "romefs-threads",
    augefs: "augefs",
    devfs: "devfs",
    devfs_naive: "devfs-naive",
    novalike: "novalike",
    pmfslike: "pmfslike",
    f2fslike: "f2fslike",
    toy: "toy",
}

/// A record that failed on its way into DevFS's journal may be there: what others write meanwhile must not
/// have half of it count. Some seeds show it.
#[test]
fn pages_of_a_failed_record_are_written_by_nobody() {
    let naive = subject::named("devfs-naive").expect("the subject exists");
    let is_wrong = |seed| in_virtual_time(naive, Trouble::CommandFails, seed).is_err();
    plant(Some(Bug::DoubtForgotten));
    let found = (1..400).find(|seed| is_wrong(*seed));
    plant(None);
    let found = found.expect("a seed shows what was wrong");
    assert!(!is_wrong(found), "seed {found}");
}

#[test]
fn all_subjects_are_here() {
    assert!(subject::ALL.iter().map(|subject| subject.name).eq(NAMES.iter().copied()));
}
