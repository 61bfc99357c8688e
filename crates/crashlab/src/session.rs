//! Running one workload from beginning to end in virtual time, with the laboratory watching.

use std::sync::Arc;

use amphi_rt::Sim;
use amphi_ssd::Ssd;
use amphi_vfs::Ino;

use crate::aged;
use crate::failing::Failing;
use crate::id::{Kind, WorkloadId};
use crate::judge::Room;
use crate::known::Known;
use crate::lab::{Lab, Looking, Only, Shown, Tally, Violation, Watching};
use crate::oracle::Oracle;
use crate::rig::{Event, Fault, Rig, Way};
use crate::run::Run;
use crate::state::Bound;
use crate::subject::{self, Size, Subject};
use crate::tree::{Node, Tree};
use crate::workload::{Operation, Sequences, prerequisites, random};

/// Numbers that an operation of a sequence has for itself and what must be done before it, and its sync as
/// many.
const NUMBERS_APART: u64 = 64;

/// What came of one workload.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In numbers.
    pub tally: Tally,
    /// What was violated.
    pub violations: Vec<Violation>,
    /// Every operation done, prerequisites included.
    pub script: Vec<Operation>,
    /// Everything asked of the device.
    pub events: Vec<Event>,
    /// Of a replay: its crash.
    pub shown: Option<Shown>,
    /// Which kind of command has failed, if one has.
    pub failed: Option<&'static str>,
}

/// What is left of a workload that was run.
#[derive(Default)]
struct Done {
    script: Vec<Operation>,
    events: Vec<Event>,
    failed: Option<&'static str>,
    gave_up: bool,
}

/// Everything that workloads of one subject share: a formatted device to fork, and the numbered sequences.
pub struct Session {
    subject: &'static Subject,
    profile: String,
    origin: Arc<Ssd>,
    cramped: Arc<Ssd>,
    root: Node,
    room: [Room; 2],
    seq1: Sequences,
    seq2: Sequences,
    extra1: Sequences,
    extra2: Sequences,
    mixed2: Sequences,
    trace: Vec<Operation>,
}

fn world(number: u64) -> Sim {
    Sim::new(number).stack_bytes(4 << 20).blocking_limit(None)
}

/// A new device with a new file system, to fork; the file system's root, and what room it has.
fn prepared(subject: &Subject, profile: &str, size: Size) -> Result<(Ssd, Node, Room), String> {
    world(0).run(|| {
        let rig = Arc::new(Rig::plain(subject::device(profile, subject.firmware, size)?));
        subject.format(&rig)?;
        let fs = subject.mount(&rig)?;
        if size == Size::Cramped {
            aged::age(&*fs, &rig)?;
        }
        let room = Room::of(&*fs)?;
        let tree = Tree::of(&*fs)?;
        let root = tree.nodes.get(&Ino::ROOT.0).ok_or("a new file system has no root")?.clone();
        drop(fs);
        let ssd = Arc::into_inner(rig).ok_or("a mount that is gone still holds the device")?.into_ssd();
        Ok((ssd.forkable().map_err(|error| error.to_string())?, root, room))
    })
}

/// What a trace may write at most on the cramped device, in bytes and in operations, and on the roomy one, in
/// bytes.
const CRAMPED_BYTES: u64 = 1 << 20;
const CRAMPED_OPERATIONS: usize = 300;
const ROOMY_BYTES: u64 = 40 << 20;

impl Session {
    /// Prepares a subject on devices of a profile.
    ///
    /// # Errors
    /// The profile or the file system is not possible, in words.
    pub fn new(subject: &'static Subject, profile: &str) -> Result<Self, String> {
        let (origin, root, room) = prepared(subject, profile, Size::Small)?;
        let (cramped, _, cramped_room) = prepared(subject, profile, Size::Cramped)?;
        Ok(Self {
            subject,
            profile: profile.to_owned(),
            origin: Arc::new(origin),
            cramped: Arc::new(cramped),
            root,
            room: [room, cramped_room],
            seq1: Sequences::published(1),
            seq2: Sequences::published(2),
            extra1: Sequences::extended(1),
            extra2: Sequences::extended(2),
            mixed2: Sequences::mixed(),
            trace: Vec::new(),
        })
    }

    /// The operations that the one workload of kind [`Kind::Trace`] does: on the cramped device, unless they
    /// need more room than that has.
    ///
    /// # Errors
    /// They need more room than any has.
    pub fn with_trace(mut self, operations: Vec<Operation>) -> Result<Self, String> {
        let bytes: u64 = operations.iter().map(Operation::bytes).sum();
        if bytes > ROOMY_BYTES {
            return Err(format!(
                "the trace writes {bytes} bytes, and the laboratory's device takes {ROOMY_BYTES}; shorten it"
            ));
        }
        if bytes > CRAMPED_BYTES || operations.len() > CRAMPED_OPERATIONS {
            let (roomy, _, room) = prepared(self.subject, &self.profile, Size::Roomy)?;
            (self.cramped, self.room[1]) = (Arc::new(roomy), room);
        }
        self.trace = operations;
        Ok(self)
    }

    /// The subject.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        self.subject
    }

    /// How many workloads of a kind there are; nothing where the number is a seed.
    #[must_use]
    pub fn count(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Seq1 => Some(self.seq1.len()),
            Kind::Seq2 => Some(self.seq2.len()),
            Kind::Extra1 => Some(self.extra1.len()),
            Kind::Extra2 => Some(self.extra2.len()),
            Kind::Mixed2 => Some(self.mixed2.len()),
            Kind::Trace => Some(1),
            Kind::Seq3 | Kind::Pairs | Kind::Random => None,
        }
    }

    /// Runs operations as they are, without prerequisites, as if they were workload `id`; crashes are looked
    /// at from the last but one on.
    pub fn run_script(&self, id: WorkloadId, script: &[Operation], looking: &Looking) -> Outcome {
        self.observe(id, looking, Some(script), &Arc::default())
    }

    /// Runs one workload.
    pub fn run(&self, id: WorkloadId, looking: &Looking) -> Outcome {
        self.observe(id, looking, None, &Arc::default())
    }

    /// Runs one workload but for the crash points that are `known`, and adds its own to them.
    pub fn run_beyond(&self, known: &Arc<Known>, id: WorkloadId, looking: &Looking) -> Outcome {
        self.observe(id, looking, None, known)
    }

    /// Runs one workload on devices of which each fails another command: every one in `every` of those that
    /// may fail, in each [`Way`]. Gives up after `looking.most_violations`.
    pub fn run_failing(
        &self,
        known: &Arc<Known>,
        id: WorkloadId,
        looking: &Looking,
        every: u64,
    ) -> (Tally, Vec<Violation>) {
        let (mut tally, mut violations) = (Tally::default(), Vec::new());
        for command in (0..).step_by(every.max(1) as usize) {
            let mut met = false;
            for way in Way::ALL {
                let id = WorkloadId { fault: Some(Fault { command, way }), ..id };
                let outcome = self.observe(id, looking, None, known);
                met |= outcome.failed.is_some();
                tally.add(&outcome.tally);
                violations.extend(outcome.violations);
                if violations.len() >= looking.most_violations {
                    return (tally, violations);
                }
            }
            if !met {
                break;
            }
        }
        (tally, violations)
    }

    /// The first number after those of the workloads of a kind that do the same operations as number
    /// `number`, with other syncs.
    #[must_use]
    pub fn after_family(&self, kind: Kind, number: u64) -> u64 {
        match kind {
            Kind::Seq1 => self.seq1.after_family(number),
            Kind::Seq2 => self.seq2.after_family(number),
            Kind::Extra1 => self.extra1.after_family(number),
            Kind::Extra2 => self.extra2.after_family(number),
            Kind::Mixed2 => self.mixed2.after_family(number),
            Kind::Seq3 | Kind::Pairs | Kind::Random | Kind::Trace => number + 1,
        }
    }

    fn observe(
        &self,
        id: WorkloadId,
        looking: &Looking,
        script: Option<&[Operation]>,
        known: &Arc<Known>,
    ) -> Outcome {
        let cramped = matches!(id.kind, Kind::Random | Kind::Trace);
        let (origin, room) =
            if cramped { (&self.cramped, self.room[1]) } else { (&self.origin, self.room[0]) };
        let lab =
            Arc::new(Lab::new(self.subject, id, (Arc::clone(origin), room), looking, Arc::clone(known)));
        // Sequences draw nothing: those of one family differ in nothing but their syncs.
        let drawn = matches!(id.kind, Kind::Seq3 | Kind::Pairs | Kind::Random);
        let outcome = world(if drawn { id.number ^ (id.kind as u64) << 56 } else { 0 })
            .try_run(|| self.within(origin, &lab, id, looking, script));
        let Done { script, events, failed, gave_up } = match outcome {
            Ok(Ok(done)) => done,
            Ok(Err(what)) => {
                lab.wrong_without_crash(what);
                Default::default()
            }
            Err(failure) => {
                lab.wrong_without_crash(failure.to_string());
                Default::default()
            }
        };
        let (mut tally, violations, shown) = lab.outcome();
        (tally.failures, tally.gave_up) = (failed.is_some().into(), gave_up.into());
        Outcome { tally, violations, script, events, shown, failed }
    }

    fn within(
        &self,
        origin: &Ssd,
        lab: &Arc<Lab>,
        id: WorkloadId,
        looking: &Looking,
        script: Option<&[Operation]>,
    ) -> Result<Done, String> {
        let ssd = origin.fork_device().map_err(|error| error.to_string())?;
        let rig = Arc::new(Rig::watched(ssd, Box::new(Watching(Arc::clone(lab)))));
        let fs = self.subject.mount(&rig)?;
        let oracle = Oracle::new(fs.promise(), &self.root).map_err(|error| error.to_string())?;
        let oracle = oracle.with_fsync(self.subject.fsync);
        let run =
            Run { subject: self.subject, lab, rig: &rig, fs, oracle, script: Vec::new(), next_number: 0 };
        let mut run = match id.fault {
            Some(fault) => Doing::Failing(Failing::new(run, fault)),
            None => Doing::Sound(run),
        };
        if let Some(script) = script {
            for (place, operation) in script.iter().enumerate() {
                run.step(operation, place + 2 >= script.len());
            }
            return Ok(run.done(rig.events()));
        }
        match id.kind {
            Kind::Seq1 => run.sequence(self.seq1.get(id.number), 0),
            Kind::Extra1 => run.sequence(self.extra1.get(id.number), 0),
            // What goes before the last operation is a shorter sequence, whose crashes are looked at there.
            Kind::Seq2 => run.sequence(self.seq2.get(id.number), 1),
            Kind::Extra2 => run.sequence(self.extra2.get(id.number), 1),
            Kind::Mixed2 => run.sequence(self.mixed2.get(id.number), 1),
            Kind::Seq3 => run.sequence(Sequences::sample_of_three(id.number), 2),
            Kind::Random => {
                for operation in &random::operations(id.number) {
                    let Run { oracle, fs, .. } = run.run();
                    if let Some(room_maker) = oracle.room_maker(&**fs) {
                        run.step(&room_maker, true);
                    }
                    run.step(operation, true);
                }
            }
            Kind::Trace => self.trace.iter().for_each(|operation| run.step(operation, true)),
            Kind::Pairs => run.run().pair(id.number),
        }
        if let Doing::Failing(failing) = &mut run {
            failing.end()?;
        }
        Ok(run.done(if looking.record { rig.events() } else { Vec::new() }))
    }
}

/// A workload, on a device that fails nothing or fails a command.
enum Doing<'a> {
    Sound(Run<'a>),
    Failing(Failing<'a>),
}

impl<'a> Doing<'a> {
    const fn run(&mut self) -> &mut Run<'a> {
        match self {
            Self::Sound(run) => run,
            Self::Failing(failing) => &mut failing.run,
        }
    }

    fn step(&mut self, operation: &Operation, watched: bool) {
        match self {
            Self::Sound(run) => run.step(operation, watched),
            Self::Failing(failing) => failing.step(operation, watched),
        }
    }

    /// Does a sequence; crashes are looked at from operation `watched_from` on.
    fn sequence(&mut self, steps: Vec<(Operation, Option<Operation>)>, watched_from: usize) {
        for (position, (operation, sync)) in steps.into_iter().enumerate() {
            for (part, operation) in [Some(operation), sync].into_iter().enumerate() {
                let Some(operation) = operation else { continue };
                // Whatever went before, so that a sync that had nothing to do leaves no trace of it.
                self.run().next_number = (2 * position + part) as u64 * NUMBERS_APART;
                for needed in prerequisites(&operation, &self.run().oracle.model) {
                    self.step(&needed, false);
                }
                self.step(&operation, position >= watched_from);
            }
        }
    }

    fn done(self, events: Vec<Event>) -> Done {
        match self {
            Self::Sound(run) => Done { script: run.script, events, ..Done::default() },
            Self::Failing(failing) => Done {
                events,
                failed: failing.failed(),
                gave_up: failing.gave_up,
                script: failing.run.script,
            },
        }
    }
}

/// The one crash of `id` again, with all that can be shown of it.
#[must_use]
pub fn replay(session: &Session, id: &crate::id::CrashId) -> Outcome {
    let only = Some(Only { point: id.point, state: id.state.clone(), again: id.again });
    let looking = Looking { bound: Bound::EXHAUSTIVE, only, most_violations: 1, record: true };
    session.run(id.workload, &looking)
}
