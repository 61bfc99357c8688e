//! Running one workload from beginning to end in virtual time, with the laboratory watching.

use std::sync::Arc;

use amphi_rt::Sim;
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_vfs::{FileSystem, Ino};

use crate::aged;
use crate::failing::Failing;
use crate::id::{Kind, WorkloadId};
use crate::judge::Room;
use crate::known::Known;
use crate::lab::{Lab, Looking, Only, Shown, Tally, Violation, Watching};
use crate::oracle::{Legal, Oracle};
use crate::rig::{Event, Fault, Rig};
use crate::state::Bound;
use crate::subject::{self, Size, Subject};
use crate::tree::{Node, Tree};
use crate::workload::{Operation, Sequences, additions, operations, prerequisites, random};

/// Virtual time between two operations, so that each has a time stamp of its own.
const BETWEEN_NS: u64 = 1000;
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
    /// may fail, once refused and once carried out. Gives up after `looking.most_violations`.
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
            for done in [false, true] {
                let id = WorkloadId { fault: Some(Fault { command, done }), ..id };
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
        let mut run = Run {
            subject: self.subject,
            lab,
            rig: &rig,
            fs,
            oracle,
            script: Vec::new(),
            next_number: 0,
            failing: id.fault.map(Failing::Planned),
            fault_met: None,
            gave_up: false,
        };
        if let Some(script) = script {
            for (place, operation) in script.iter().enumerate() {
                run.step(operation, place + 2 >= script.len());
            }
            let script = std::mem::take(&mut run.script);
            return Ok(Done { script, events: rig.events(), failed: rig.failed(), gave_up: run.gave_up });
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
                    if let Some(room_maker) = run.oracle.room_maker(&*run.fs) {
                        run.step(&room_maker, true);
                    }
                    run.step(operation, true);
                }
            }
            Kind::Trace => self.trace.iter().for_each(|operation| run.step(operation, true)),
            Kind::Pairs => run.pair(id.number),
        }
        if id.fault.is_some() {
            run.failing_end()?;
        }
        let failed = run.fault_met.or(rig.failed());
        let script = std::mem::take(&mut run.script);
        let events = if looking.record { rig.events() } else { Vec::new() };
        Ok(Done { script, events, failed, gave_up: run.gave_up })
    }
}

/// A workload being run.
pub(crate) struct Run<'a> {
    pub(crate) subject: &'static Subject,
    pub(crate) lab: &'a Arc<Lab>,
    pub(crate) rig: &'a Arc<Rig>,
    pub(crate) fs: Box<dyn FileSystem>,
    pub(crate) oracle: Oracle,
    pub(crate) script: Vec<Operation>,
    /// Of the next step: decides when it is done, and what it writes.
    next_number: u64,
    /// Where the device fails a command: how far it has come.
    pub(crate) failing: Option<Failing>,
    /// Which kind of command has failed after the workload, if one has.
    pub(crate) fault_met: Option<&'static str>,
    /// The file system takes no changes any more since something failed.
    pub(crate) gave_up: bool,
}

impl Run<'_> {
    /// Does a sequence; crashes are looked at from operation `watched_from` on.
    fn sequence(&mut self, steps: Vec<(Operation, Option<Operation>)>, watched_from: usize) {
        for (position, (operation, sync)) in steps.into_iter().enumerate() {
            for (part, operation) in [Some(operation), sync].into_iter().enumerate() {
                let Some(operation) = operation else { continue };
                // Whatever went before, so that a sync that had nothing to do leaves no trace of it.
                self.next_number = (2 * position + part) as u64 * NUMBERS_APART;
                for needed in prerequisites(&operation, &self.oracle.model) {
                    self.step(&needed, false);
                }
                self.step(&operation, position >= watched_from);
            }
        }
    }

    /// Lets the time of the next operation come: the number that decides what it writes, and its place.
    pub(crate) fn turn(&mut self) -> (u64, usize) {
        let number = self.next_number;
        self.next_number += 1;
        let now = amphi_rt::time::now_ns();
        amphi_rt::time::sleep_until_ns(((number + 1) * BETWEEN_NS).max(now + BETWEEN_NS));
        (number, self.script.len())
    }

    fn step(&mut self, operation: &Operation, watched: bool) {
        if self.lab.is_done() {
            return;
        }
        if self.failing.is_some_and(|failing| watched || failing.has_begun()) {
            return self.failing_step(operation);
        }
        let (number, place) = self.turn();
        let operation = operation.resolved(&self.oracle.model);
        let mut after = self.oracle.clone();
        let due = after.apply(&operation, number);
        let text = format!("operation {place}: {operation}");
        let legal = match (&due, watched) {
            (_, false) => Legal::default(),
            (Ok(()), true) => self.oracle.legal_until(&after, &operation),
            (Err(_), true) => self.oracle.legal(),
        };
        self.lab.moment(&text, legal, watched);
        self.rig.begin(place);
        let answer = operation.apply(&*self.fs, number);
        self.script.push(operation);
        if answer.is_ok() != due.is_ok() {
            self.lab.wrong_without_crash(format!("{text} answers {answer:?}, and the model {due:?}"));
        }
        self.oracle = after;
        let legal = if watched { self.oracle.legal() } else { Legal::default() };
        self.lab.moment(&text, legal, watched);
        self.rig.end(place);
    }

    /// Does two operations at the same time, drawn by the seed.
    fn pair(&mut self, seed: u64) {
        let mut dice = Generator::new(seed ^ 0x9a17);
        let all: Vec<Operation> =
            operations().into_iter().chain(additions()).map(|bounded| bounded.operation).collect();
        let mut draw = || all[dice.below(all.len() as u64) as usize].clone();
        let two = [draw(), draw()];
        for operation in &two {
            for needed in prerequisites(operation, &self.oracle.model) {
                self.step(&needed, false);
            }
        }
        let two = two.map(|operation| operation.resolved(&self.oracle.model));
        let overlap = Arc::new(Overlap::new(&self.oracle, &two, self.script.len()));
        self.script.extend(two.iter().cloned());
        let names = format!("{} while {}", two[0], two[1]);
        self.lab.moment(&names, overlap.legal(), true);
        self.rig.interleave(Some(seed));
        amphi_rt::task::scope(|scope| {
            for (who, operation) in two.iter().enumerate() {
                let (overlap, names) = (Arc::clone(&overlap), names.clone());
                let (lab, rig, fs) = (self.lab, self.rig, &*self.fs);
                scope.spawn("operation", move || {
                    rig.begin(overlap.first + who);
                    let answer = operation.apply(fs, (overlap.first + who) as u64);
                    overlap.returned(who, answer.is_ok());
                    lab.moment(&names, overlap.legal(), true);
                    rig.end(overlap.first + who);
                });
            }
        });
        self.rig.interleave(None);
    }
}

/// What two overlapping operations may have done.
struct Overlap {
    first: usize,
    /// Each order in which they, or one of them, or none may have been done: who was done with what answer,
    /// and the oracle after.
    outcomes: Vec<(Vec<(usize, bool)>, Legal)>,
    returned: amphi_rt::sync::Mutex<[Option<bool>; 2]>,
}

impl Overlap {
    fn new(before: &Oracle, two: &[Operation; 2], first: usize) -> Self {
        let mut outcomes = Vec::new();
        for order in [&[][..], &[0], &[1], &[0, 1], &[1, 0]] {
            let mut oracle = before.clone();
            let mut done = Vec::new();
            let mut between = None;
            for who in order {
                between = Some(oracle.clone()).filter(|_| !done.is_empty());
                let answer = oracle.apply(&two[*who], (first + who) as u64);
                done.push((*who, answer.is_ok()));
            }
            // While they run, contents may be anything between.
            let legal = match two.iter().find(|operation| operation.changes_data()) {
                Some(operation) => {
                    let mut legal = before.legal_overlapped(&oracle, operation);
                    between.iter().for_each(|moment| legal.pass(moment));
                    legal
                }
                None => oracle.legal(),
            };
            outcomes.push((done, legal));
        }
        Self { first, outcomes, returned: amphi_rt::sync::Mutex::new([None; 2]) }
    }

    fn returned(&self, who: usize, ok: bool) {
        self.returned.lock()[who] = Some(ok);
    }

    /// What is legal now: any order that has in it, with the answers they gave, the operations that have
    /// returned.
    fn legal(&self) -> Legal {
        let returned = *self.returned.lock();
        let fits = |done: &[(usize, bool)]| {
            returned.iter().enumerate().all(|(who, answer)| answer.is_none_or(|ok| done.contains(&(who, ok))))
        };
        let mut all = Legal::default();
        for (done, legal) in &self.outcomes {
            if fits(done) {
                all.candidates.extend(legal.candidates.iter().cloned());
                all.atomic_writes = legal.atomic_writes;
            }
        }
        all
    }
}

/// The one crash of `id` again, with all that can be shown of it.
#[must_use]
pub fn replay(session: &Session, id: &crate::id::CrashId) -> Outcome {
    let only = Some(Only { point: id.point, state: id.state.clone(), again: id.again });
    let looking = Looking { bound: Bound::EXHAUSTIVE, only, most_violations: 1, record: true };
    session.run(id.workload, &looking)
}
