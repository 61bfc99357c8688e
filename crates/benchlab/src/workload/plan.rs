//! A personality checked and made ready to run: names became positions, and each step has what its operation
//! needs.

use super::personality::{Fileset, Kind, Operation, Personality, PersonalityError, Run, Step};
use super::size::Size;

/// A personality that can run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    pub(super) run: Run,
    pub(super) filesets: Vec<Fileset>,
    pub(super) groups: Vec<PlannedGroup>,
    pub(super) semaphores: Vec<PlannedSemaphore>,
}

#[derive(Clone, Debug)]
pub(super) struct PlannedSemaphore {
    name: String,
    pub(super) high_water: u64,
    /// Groups whose threads wait on it.
    pub(super) waiting: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct PlannedGroup {
    pub(super) name: String,
    pub(super) threads: usize,
    pub(super) round_ns: Option<f64>,
    pub(super) steps: Vec<PlannedStep>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedStep {
    pub(super) op: Operation,
    pub(super) target: Target,
    pub(super) size: Size,
    pub(super) random: bool,
    pub(super) unaligned: bool,
    pub(super) aligned: u64,
    pub(super) own: bool,
    pub(super) again: bool,
    pub(super) direct: bool,
    pub(super) sync_data: bool,
    pub(super) durable: bool,
    pub(super) data_only: bool,
    pub(super) times: u64,
    pub(super) every: u64,
    pub(super) ns: u64,
    pub(super) value: u64,
}

/// What a step is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Nothing,
    /// An open file.
    Fd(usize),
    /// A file of a set.
    Set(usize),
    /// A file of a set, opened as an open file's number.
    Opened {
        set: usize,
        fd: usize,
    },
    Semaphore(usize),
}

/// Open files that a thread can number.
pub(super) const FDS: usize = 8;
/// Bytes of the longest transfer.
pub(super) const TRANSFER_MAX: u64 = 16 << 20;

impl Plan {
    /// Checks a personality.
    ///
    /// # Errors
    /// The first thing in it that is impossible.
    pub fn new(personality: &Personality) -> Result<Self, PersonalityError> {
        let impossible = |what: String| PersonalityError::Impossible { name: personality.name.clone(), what };
        let run = personality.run;
        let ends = [run.seconds.is_some(), run.operations.is_some(), run.until_exhausted]
            .iter()
            .filter(|e| **e)
            .count();
        let times = [run.seconds.unwrap_or(1.0), run.warm_up_seconds + 1.0];
        if ends != 1 || times.iter().any(|seconds| !(*seconds > 0.0 && *seconds < 1e6)) {
            return Err(impossible("say in [run] one of seconds, operations, until_exhausted".to_owned()));
        }
        if run.seconds.is_none() && run.warm_up_seconds > 0.0 {
            return Err(impossible("only a run of some seconds can warm up".to_owned()));
        }
        for set in &personality.filesets {
            let fine = !set.name.is_empty()
                && !set.name.contains('/')
                && (1..=1 << 28).contains(&set.files)
                && set.dir_width >= 2
                && set.existing_percent <= 100
                && set.size.is_valid()
                && set.overwritten.is_none_or(|of| (1..=TRANSFER_MAX).contains(&of.size.longest()));
            if !fine {
                return Err(impossible(format!("the values of fileset {} are out of range", set.name)));
            }
        }
        let mut planner = Planner { personality, semaphores: Vec::new() };
        let mut groups = Vec::new();
        for (number, group) in personality.groups.iter().enumerate() {
            if !(1..=4096).contains(&group.threads) || group.steps.is_empty() {
                return Err(impossible(format!("group {} needs 1 to 4096 threads, and steps", group.name)));
            }
            let mut steps = Vec::new();
            for step in &group.steps {
                let planned = planner.step(number, step).map_err(|what| {
                    impossible(format!("{} of group {}: {what}", step.op.name(), group.name))
                })?;
                steps.push(planned);
            }
            let round_ns = group.rounds_per_second.map(|rate| 1e9 / rate);
            if round_ns.is_some_and(|ns| !(ns > 0.0 && ns < 1e15)) {
                return Err(impossible(format!("group {} cannot do so many rounds a second", group.name)));
            }
            groups.push(PlannedGroup { name: group.name.clone(), threads: group.threads, round_ns, steps });
        }
        if groups.is_empty() || run.until_exhausted && !planner.semaphores.is_empty() {
            return Err(impossible("it needs a group, and a run of some length to wait in".to_owned()));
        }
        if let Some(unheard) = planner.semaphores.iter().find(|semaphore| semaphore.waiting.is_empty()) {
            return Err(impossible(format!("no thread waits on the semaphore {}", unheard.name)));
        }
        Ok(Self {
            name: personality.name.clone(),
            run,
            filesets: personality.filesets.clone(),
            groups,
            semaphores: planner.semaphores,
        })
    }

    /// Threads over all groups.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.groups.iter().map(|group| group.threads).sum()
    }
}

struct Planner<'a> {
    personality: &'a Personality,
    semaphores: Vec<PlannedSemaphore>,
}

impl Planner<'_> {
    fn step(&mut self, group: usize, step: &Step) -> Result<PlannedStep, String> {
        let target = self.target(group, step)?;
        let transfers = matches!(
            step.op,
            Operation::Read
                | Operation::Write
                | Operation::Append
                | Operation::ReadWhole
                | Operation::WriteWhole
        );
        if transfers != step.size.is_some() {
            return Err(format!("it {} a size", if transfers { "needs" } else { "takes no" }));
        }
        let size = step.size.unwrap_or(Size::Bytes(0));
        let largest = match size {
            Size::Bytes(bytes) => bytes,
            Size::UpTo(size) => size.up_to,
            Size::Around(size) => size.most(),
            Size::Gamma(_) => {
                return Err("a transfer has a size, one up to a most, or one around a mean".to_owned());
            }
        };
        if transfers && !(1..=TRANSFER_MAX).contains(&largest) {
            return Err(format!("a transfer has 1 to {TRANSFER_MAX} bytes"));
        }
        if (step.unaligned || step.aligned > 0) && !step.random {
            return Err("unaligned and aligned go with random".to_owned());
        }
        if step.aligned > 0 && (step.unaligned || step.aligned > largest) {
            return Err("aligned is at most the size, and not unaligned".to_owned());
        }
        let changes_a_name =
            [Operation::Delete, Operation::Mkdir, Operation::Rmdir, Operation::Rename].contains(&step.op);
        if step.durable && !changes_a_name {
            return Err("durable goes with delete, mkdir, rmdir and rename".to_owned());
        }
        if step.again && step.op != Operation::Open {
            return Err("again goes with open".to_owned());
        }
        if step.times == 0 || step.every == 0 || step.value == 0 {
            return Err("times, every and value are at least 1".to_owned());
        }
        Ok(PlannedStep {
            op: step.op,
            target,
            size,
            random: step.random,
            unaligned: step.unaligned,
            aligned: step.aligned,
            own: step.own,
            again: step.again,
            direct: step.direct,
            sync_data: step.sync_data,
            durable: step.durable,
            data_only: step.data_only,
            times: step.times,
            every: step.every,
            ns: step.ns,
            value: step.value,
        })
    }

    fn target(&mut self, group: usize, step: &Step) -> Result<Target, String> {
        let set = step.fileset.as_deref().map(|name| self.set(name, step.op)).transpose()?;
        if step.fd.is_some_and(|fd| fd >= FDS) {
            return Err(format!("fd is below {FDS}"));
        }
        let needs = |what: &str| Err(format!("it needs {what}"));
        match step.op {
            Operation::Create | Operation::Open => match (set, step.fd) {
                (Some(set), Some(fd)) => Ok(Target::Opened { set, fd }),
                _ => needs("a fileset and an fd"),
            },
            Operation::Delete
            | Operation::Mkdir
            | Operation::Rmdir
            | Operation::Stat
            | Operation::SetAttribute
            | Operation::Rename
            | Operation::List => set.map_or_else(|| needs("a fileset"), |set| Ok(Target::Set(set))),
            Operation::Read | Operation::Write => match (set, step.fd) {
                (Some(set), None) => Ok(Target::Set(set)),
                (None, Some(fd)) => Ok(Target::Fd(fd)),
                _ => needs("either a fileset or an fd"),
            },
            Operation::Close
            | Operation::ReadWhole
            | Operation::WriteWhole
            | Operation::Append
            | Operation::Fsync => match (set, step.fd) {
                (None, Some(fd)) => Ok(Target::Fd(fd)),
                // A log that all threads append to.
                (Some(set), None) if matches!(step.op, Operation::Append | Operation::Fsync) => {
                    Ok(Target::Set(set))
                }
                _ => needs("an fd"),
            },
            Operation::Sync | Operation::Think => Ok(Target::Nothing),
            Operation::Post | Operation::Wait => {
                let Some(name) = &step.semaphore else { return needs("a semaphore") };
                let index = self.semaphore(name, step.high_water);
                if step.op == Operation::Wait {
                    self.semaphores[index].waiting.push(group);
                }
                Ok(Target::Semaphore(index))
            }
        }
    }

    fn set(&self, name: &str, op: Operation) -> Result<usize, String> {
        let sets = &self.personality.filesets;
        let Some(index) = sets.iter().position(|set| set.name == name) else {
            return Err(format!("there is no fileset {name}"));
        };
        let wants_directories = matches!(op, Operation::Mkdir | Operation::Rmdir);
        let is_directories = sets[index].kind == Kind::Directories;
        let either = matches!(op, Operation::Stat | Operation::Rename | Operation::List);
        if wants_directories != is_directories && !either {
            return Err(format!("fileset {name} does not hold what it is for"));
        }
        Ok(index)
    }

    fn semaphore(&mut self, name: &str, high_water: Option<u64>) -> usize {
        let known = self.semaphores.iter().position(|semaphore| semaphore.name == name);
        let index = known.unwrap_or_else(|| {
            let name = name.to_owned();
            self.semaphores.push(PlannedSemaphore { name, high_water: u64::MAX, waiting: Vec::new() });
            self.semaphores.len() - 1
        });
        if let Some(high_water) = high_water {
            self.semaphores[index].high_water = high_water;
        }
        index
    }
}
