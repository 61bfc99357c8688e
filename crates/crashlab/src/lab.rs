//! The laboratory at work on one workload: at every crash point it makes every state within the bound and has
//! each judged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use amphi_rt::sync::Mutex;
use amphi_ssd::Ssd;
use hashbrown::HashSet;

use crate::id::{CrashId, WorkloadId};
use crate::judge::{self, Room};
use crate::known::{self, Known};
use crate::make::{self, MakeError};
use crate::oracle::Legal;
use crate::rig::{Next, Unit, Watcher};
use crate::state::{self, Bound, State};
use crate::subject::Subject;

/// How a workload is looked at.
#[derive(Clone, Debug)]
pub struct Looking {
    /// How many states.
    pub bound: Bound,
    /// One crash alone.
    pub only: Option<Only>,
    /// Violations after which a workload is given up.
    pub most_violations: usize,
    /// Whether the recording is wanted.
    pub record: bool,
}

/// What was done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Workloads run.
    pub workloads: u64,
    /// Crash points looked at.
    pub points: u64,
    /// Of these, points that were in everything equal to an earlier one, so that nothing was to be made
    /// again: device, next command, what is on its way, what is legal.
    pub repeated: u64,
    /// Crash states made and recovered.
    pub states: u64,
    /// Of these, states that recovered to something not seen before at the same moment: each was compared,
    /// checked, used again.
    pub distinct: u64,
    /// Crashes during recovery, on top of the states.
    pub recoveries: u64,
    /// States that would not fit into the log, so that no device could be in them.
    pub impossible: u64,
    /// Violations.
    pub violations: u64,
    /// Workloads in which the device has failed a command.
    pub failures: u64,
    /// Of these, workloads after which the file system took no changes any more.
    pub gave_up: u64,
}

impl Tally {
    /// Adds another's numbers.
    pub const fn add(&mut self, other: &Self) {
        self.workloads += other.workloads;
        self.points += other.points;
        self.repeated += other.repeated;
        self.states += other.states;
        self.distinct += other.distinct;
        self.recoveries += other.recoveries;
        self.impossible += other.impossible;
        self.violations += other.violations;
        self.failures += other.failures;
        self.gave_up += other.gave_up;
    }

    /// Crashes recovered from: the states and the crashes during their recovery.
    #[must_use]
    pub const fn crashes(&self) -> u64 {
        self.states + self.recoveries
    }
}

/// A crash after which something is not as promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Does it again.
    pub id: CrashId,
    /// The operation that was being done, or had just been done; where the power failed again, the recovery
    /// from a crash in it.
    pub operation: String,
    /// What is wrong.
    pub what: String,
    /// How many events of the recording came before the crash.
    pub events: usize,
}

/// The one crash that a replay is after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    /// Its point.
    pub point: u64,
    /// Its state.
    pub state: State,
    /// The step of recovery at which the power fails again.
    pub again: Option<u32>,
}

/// The moment: what is being done and what is legal.
#[derive(Clone, Default)]
struct Moment {
    legal: Arc<Legal>,
    /// Tells what is legal.
    legal_hash: u64,
    operation: String,
    watched: bool,
    events: usize,
    serial: u64,
}

#[derive(Default)]
struct Inner {
    moment: Moment,
    next_point: u64,
    tally: Tally,
    seen: HashSet<(u64, u64)>,
    violations: Vec<Violation>,
    /// Of a replay: what it shows.
    shown: Option<Shown>,
}

/// What a replay shows of its crash.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The operation that was being done.
    pub operation: String,
    /// Events before the crash.
    pub events: usize,
    /// What the device was about to do.
    pub next: String,
    /// The units on their way, and whether each arrived: nothing where the state does not say.
    pub units: Vec<(Unit, Option<bool>)>,
    /// What was legal.
    pub legal: Arc<Legal>,
    /// The tree found, as far as there is one.
    pub found: Option<crate::tree::Tree>,
    /// What was wrong, if anything was.
    pub wrong: Option<String>,
}

/// The laboratory's work on one workload.
pub struct Lab {
    subject: &'static Subject,
    workload: WorkloadId,
    room: Room,
    bound: Bound,
    only: Option<Only>,
    most_violations: usize,
    known: Arc<Known>,
    origin: Arc<Ssd>,
    inner: Mutex<Inner>,
}

/// How recovery may end besides well.
enum Wrong {
    /// The state cannot be, or is not there.
    NoState,
    /// Something is not as promised; with the step of recovery at which the power failed again, if it did.
    Violated(String, Option<u32>),
}

impl Lab {
    /// Work on a workload, whose device is a fork of `origin`. `room` is what a new file system of the
    /// subject has, `known` what need not be looked at again.
    #[must_use]
    pub fn new(
        subject: &'static Subject,
        workload: WorkloadId,
        (origin, room): (Arc<Ssd>, Room),
        looking: &Looking,
        known: Arc<Known>,
    ) -> Self {
        let moment = Moment { operation: "the first mount".to_owned(), ..Moment::default() };
        let inner = Mutex::new(Inner { moment, ..Inner::default() });
        let Looking { bound, most_violations, .. } = *looking;
        Self {
            subject,
            workload,
            room,
            bound,
            only: looking.only.clone(),
            most_violations,
            known,
            origin,
            inner,
        }
    }

    /// Says what is being done from now on, what a crash may leave meanwhile, and whether crashes are looked
    /// at.
    pub fn moment(&self, operation: &str, legal: Legal, watched: bool) {
        let mut inner = self.inner.lock();
        let serial = inner.moment.serial + 1;
        let events = inner.moment.events;
        operation.clone_into(&mut inner.moment.operation);
        let legal_hash = if watched && self.only.is_none() { known::legal(&legal) } else { 0 };
        let legal = Arc::new(legal);
        inner.moment =
            Moment { legal, legal_hash, watched, serial, events, ..std::mem::take(&mut inner.moment) };
    }

    /// Whether there is any use in going on.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let inner = self.inner.lock();
        inner.violations.len() >= self.most_violations
            || self.only.as_ref().is_some_and(|only| inner.next_point > only.point)
    }

    /// Notes that something is wrong without any crash, such as an answer that differs from the model's.
    pub fn wrong_without_crash(&self, what: String) {
        let (moment, point) = {
            let inner = self.inner.lock();
            (inner.moment.clone(), inner.next_point)
        };
        self.note(&moment, point, State::Nothing, None, what);
    }

    /// What came of it.
    #[must_use]
    pub fn outcome(&self) -> (Tally, Vec<Violation>, Option<Shown>) {
        let inner = self.inner.lock();
        let mut tally = inner.tally;
        tally.workloads = 1;
        (tally, inner.violations.clone(), inner.shown.clone())
    }

    fn note(&self, moment: &Moment, point: u64, state: State, again: Option<u32>, what: String) {
        let id =
            CrashId { subject: self.subject.name.to_owned(), workload: self.workload, point, state, again };
        let operation = match again {
            Some(_) => format!("the recovery from a crash in {}", moment.operation),
            None => moment.operation.clone(),
        };
        let mut inner = self.inner.lock();
        inner.tally.violations += 1;
        inner.violations.push(Violation { id, operation, what, events: moment.events });
    }

    /// Decides whether a crash point is looked at, where not all are.
    fn seed(&self, point: u64) -> u64 {
        self.workload.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ point.wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    fn states(&self, device: &Ssd, next: &Next<'_>, units: &[Unit], seed: u64) -> Result<Vec<State>, String> {
        let memory = |error: amphi_ssd::ImageError| format!("the emulator: {error}");
        let mut states = state::subsets(units.len(), &self.bound, seed);
        let steps = make::command_steps(device, next).map_err(memory)?;
        let midway = if self.bound.recovery == usize::MAX { usize::MAX } else { 4 };
        states.extend(state::spread(steps, midway, seed).into_iter().map(State::Midway));
        if self.bound.cleaning > 0 {
            let mut add_cuts = |steps: u32, seed: u64, cut_at: &dyn Fn(u32, bool) -> State| {
                let cuts = state::spread(steps, self.bound.cleaning, seed);
                states.extend(cuts.iter().map(|step| cut_at(*step, false)));
                if !units.is_empty() {
                    states.extend(cuts.iter().map(|step| cut_at(*step, true)));
                }
            };
            add_cuts(make::cleaning_steps(device).map_err(memory)?, seed >> 3, &State::Cleaning);
            add_cuts(make::collection_steps(device).map_err(memory)?, seed >> 5, &State::Collecting);
        }
        Ok(states)
    }

    /// Has one state judged, and answers whether it was distinct.
    fn judge(
        &self,
        make: &dyn Fn() -> Result<Ssd, Wrong>,
        moment: &Moment,
        again: Option<Option<u32>>,
    ) -> Result<bool, Wrong> {
        let subject = self.subject;
        let violated = |what: String| Wrong::Violated(what, None);
        let first = judge::recover(subject, make()?).map_err(violated)?;
        let fresh = self.inner.lock().seen.insert((moment.serial, first.contents));
        if !fresh {
            return Ok(false);
        }
        let (contents, steps) = (first.contents, first.steps);
        if !matches!(again, Some(Some(_))) {
            self.examine(&first, moment).map_err(|what| violated(self.with_blame(what, make, moment)))?;
        }
        drop(first);
        let cuts = match again {
            Some(only) => only.into_iter().collect(),
            None => state::spread(steps, self.bound.recovery, contents),
        };
        for step in cuts {
            let second = |what: String| Wrong::Violated(what, Some(step));
            self.inner.lock().tally.recoveries += 1;
            let recovered = judge::recover_twice(subject, make()?, step).map_err(second)?;
            if recovered.contents != contents {
                self.examine(&recovered, moment).map_err(second)?;
            }
        }
        Ok(true)
    }

    fn examine(&self, recovered: &judge::Recovered, moment: &Moment) -> Result<(), String> {
        let subject = self.subject;
        let tree = judge::compare(&*recovered.fs, &moment.legal).inspect_err(|_| {
            if self.only.is_some() {
                let found = crate::tree::Tree::of(&*recovered.fs).ok();
                self.show(|shown| shown.found = found);
            }
        })?;
        judge::clean(subject, &recovered.rig)?;
        judge::use_again(&*recovered.fs, &tree, self.room, &mut |_| Ok(()))?;
        judge::clean(subject, &recovered.rig)
            .map_err(|what| format!("after everything was removed, {what}"))?;
        if self.only.is_some() {
            self.show(|shown| shown.found = Some(tree));
        }
        Ok(())
    }

    /// What is wrong, and if it came of what was done after the crash, of which operation: the recovery, or
    /// one of the laboratory's.
    fn with_blame(&self, what: String, make: &dyn Fn() -> Result<Ssd, Wrong>, moment: &Moment) -> String {
        let again = make().ok().and_then(|device| judge::recover(self.subject, device).ok());
        let blamed = again.and_then(|again| judge::blamed(self.subject, &again, &moment.legal, self.room));
        match blamed {
            Some(first) => format!("{what}; it began after the crash: after {first}"),
            None => what,
        }
    }

    /// Notes what a replay shows; nothing where many crashes are looked at.
    fn show(&self, how: impl FnOnce(&mut Shown)) {
        if self.only.is_some() {
            how(self.inner.lock().shown.get_or_insert_default());
        }
    }

    fn look(&self, device: &Ssd, next: &Next<'_>, units: &[Unit], moment: &Moment, point: u64) {
        let states = match &self.only {
            Some(only) => vec![only.state.clone()],
            None => {
                // What decides which states are drawn is what the point is like, so that points that are
                // alike have the same.
                let like = known::point(device, &self.origin, next, units);
                if !self.known.is_new(moment.legal_hash, like) {
                    self.inner.lock().tally.repeated += 1;
                    return;
                }
                match self.states(device, next, units, like) {
                    Ok(states) => states,
                    Err(what) => return self.note(moment, point, State::Nothing, None, what),
                }
            }
        };
        for state in states {
            let make = || match make::make(device, next, units, &state) {
                Ok(device) => Ok(device),
                Err(MakeError::NoRoom | MakeError::Ended) => Err(Wrong::NoState),
                Err(MakeError::Image(error)) => {
                    Err(Wrong::Violated(format!("the device does not power up: {error}"), None))
                }
            };
            self.show_crash(next, units, &state, moment);
            let again = self.only.as_ref().map(|only| only.again);
            let judged = catch_unwind(AssertUnwindSafe(|| self.judge(&make, moment, again)));
            let judged = judged.unwrap_or_else(|cause| {
                let text = cause.downcast_ref::<String>().cloned();
                let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Err(Wrong::Violated(format!("panic: {}", text.unwrap_or_default()), None))
            });
            let mut inner = self.inner.lock();
            match judged {
                Err(Wrong::NoState) => {
                    inner.tally.impossible += 1;
                    continue;
                }
                Ok(distinct) => inner.tally.distinct += u64::from(distinct),
                Err(Wrong::Violated(what, again)) => {
                    drop(inner);
                    self.show(|shown| shown.wrong = Some(what.clone()));
                    self.note(moment, point, state, again, what);
                    inner = self.inner.lock();
                    if inner.violations.len() >= self.most_violations {
                        inner.tally.states += 1;
                        return;
                    }
                }
            }
            inner.tally.states += 1;
        }
    }

    fn show_crash(&self, next: &Next<'_>, units: &[Unit], state: &State, moment: &Moment) {
        self.show(|shown| {
            shown.operation.clone_from(&moment.operation);
            shown.events = moment.events;
            shown.next = next.to_string();
            shown.legal = Arc::clone(&moment.legal);
            shown.units =
                units.iter().enumerate().map(|(number, unit)| (unit.clone(), state.keeps(number))).collect();
        });
    }
}

/// The watcher that a rig keeps while the laboratory goes on with the workload.
pub struct Watching(pub Arc<Lab>);

impl Watcher for Watching {
    fn crash_point(&self, device: &Ssd, next: &Next<'_>, units: &[Unit], events: usize) {
        let lab = &*self.0;
        let (moment, point) = {
            let mut inner = lab.inner.lock();
            if !inner.moment.watched || inner.violations.len() >= lab.most_violations {
                return;
            }
            let point = inner.next_point;
            inner.next_point += 1;
            let skipped = match &lab.only {
                Some(only) => only.point != point,
                None => {
                    lab.bound.one_point_in > 1
                        && lab.seed(point) >> 7 & 0xffff_ffff >= (1 << 32) / lab.bound.one_point_in
                }
            };
            if skipped {
                return;
            }
            inner.tally.points += 1;
            (Moment { events, ..inner.moment.clone() }, point)
        };
        lab.look(device, next, units, &moment, point);
    }
}
