//! Many workloads, on several processors, with progress, and in pieces: what is done is kept in a file, so
//! that a campaign of days can be stopped and gone on with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_rt::sync::Mutex;

use crate::id::{Kind, WorkloadId};
use crate::known::Known;
use crate::lab::{Looking, Tally, Violation};
use crate::session::Session;
use crate::state::Bound;
use crate::subject::Subject;
use crate::workload::Operation;

/// What is to be done.
pub struct Campaign {
    /// The file system.
    pub subject: &'static Subject,
    /// The device's profile.
    pub profile: String,
    /// The kind of workload.
    pub kind: Kind,
    /// Numbers of the workloads: from this one on, up to but without that one.
    pub numbers: std::ops::Range<u64>,
    /// Only numbers that are multiples of this.
    pub every: u64,
    /// How many states of each.
    pub bound: Bound,
    /// If given, each is run on devices of which each fails another of its commands, one in so many.
    pub fail_every: Option<u64>,
    /// Processors used.
    pub jobs: usize,
    /// Violations after which the campaign ends.
    pub most_violations: usize,
    /// The operations, where the kind is a trace.
    pub trace: Vec<Operation>,
    /// Where it is kept what is done.
    pub checkpoint: Option<PathBuf>,
}

/// What came of a campaign, or has so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In numbers.
    pub tally: Tally,
    /// What was violated.
    pub violations: Vec<Violation>,
    /// Real time spent, ns, former parts of a campaign that was gone on with included.
    pub elapsed_ns: u64,
    /// Every workload with a lower number is done.
    pub next: u64,
    /// Whether all workloads are done.
    pub complete: bool,
}

/// Workloads that one processor takes at a time, at least; families are not divided.
const CHUNK: u64 = 32;

struct Shared<'a> {
    campaign: &'a Campaign,
    /// The first workload that nobody has taken.
    next: Mutex<u64>,
    stop: &'a AtomicBool,
    state: Mutex<State>,
    /// When this part began, and the time that former parts took.
    began_ns: u64,
    former_ns: u64,
}

impl Shared<'_> {
    /// Takes whole families of workloads, so that what is judged does not depend on who does it or when: the
    /// first number, and the first that is left.
    fn take(&self, session: &Session) -> (u64, u64) {
        let end = self.campaign.numbers.end;
        let mut next = self.next.lock();
        let from = *next;
        while *next < end && *next < from + CHUNK {
            *next = session.after_family(self.campaign.kind, *next).min(end);
        }
        (from, *next)
    }
}

#[derive(Default)]
struct State {
    report: Report,
    /// Chunks done out of order, by their first number.
    done: BTreeMap<u64, (u64, Tally)>,
    /// What is in the report, up to `next`.
    kept: Tally,
    failure: Option<String>,
    saved_ns: u64,
}

/// Runs a campaign. `progress` is told, now and then, what was done so far; when `stop` is set, the workloads
/// that are being run are finished.
///
/// # Errors
/// The device or the checkpoint is not possible, in words.
pub fn run(
    campaign: &Campaign,
    progress: &(dyn Fn(&Report) + Sync),
    stop: &AtomicBool,
) -> Result<Report, String> {
    let mut first = Report { next: campaign.numbers.start, ..Report::default() };
    if let Some(path) = campaign.checkpoint.as_deref().filter(|path| path.exists()) {
        load(campaign, path, &mut first)?;
    }
    let (began_ns, former_ns) = (amphi_rt::time::now_ns(), first.elapsed_ns);
    let kept = first.tally;
    let shared = Shared {
        campaign,
        next: Mutex::new(first.next),
        stop,
        state: Mutex::new(State { report: first, kept, ..State::default() }),
        began_ns,
        former_ns,
    };
    amphi_rt::task::scope(|scope| {
        for _job in 0..campaign.jobs.max(1) {
            scope.spawn("crash-job", || {
                if let Err(what) = work(&shared, progress) {
                    shared.state.lock().failure.get_or_insert(what);
                }
            });
        }
    });
    let mut state = shared.state.into_inner();
    if let Some(what) = state.failure {
        return Err(what);
    }
    state.report.elapsed_ns = former_ns + amphi_rt::time::now_ns() - began_ns;
    state.report.complete = state.report.next >= campaign.numbers.end;
    save(campaign, &state.report, &state.kept)?;
    Ok(state.report)
}

fn work(shared: &Shared<'_>, progress: &(dyn Fn(&Report) + Sync)) -> Result<(), String> {
    let campaign = shared.campaign;
    let session = Session::new(campaign.subject, &campaign.profile)?.with_trace(campaign.trace.clone())?;
    loop {
        let (from, to) = shared.take(&session);
        if from >= campaign.numbers.end || shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut chunk = Tally::default();
        let (mut known, mut family_ends) = (Arc::new(Known::default()), from);
        for number in (from..to).filter(|number| number % campaign.every.max(1) == 0) {
            if number >= family_ends {
                known = Arc::default();
                family_ends = session.after_family(campaign.kind, number);
            }
            let left = campaign.most_violations.saturating_sub(shared.state.lock().report.violations.len());
            if left == 0 {
                shared.stop.store(true, Ordering::Relaxed);
                return Ok(());
            }
            let looking =
                Looking { bound: campaign.bound, only: None, most_violations: left.min(3), record: false };
            let id = WorkloadId::new(campaign.kind, number);
            let (tally, violations) = match campaign.fail_every {
                Some(every) => session.run_failing(&known, id, &looking, every),
                None => {
                    let outcome = session.run_beyond(&known, id, &looking);
                    (outcome.tally, outcome.violations)
                }
            };
            chunk.add(&tally);
            let report = {
                let mut state = shared.state.lock();
                state.report.tally.add(&tally);
                state.report.violations.extend(violations);
                state.report.elapsed_ns = shared.former_ns + amphi_rt::time::now_ns() - shared.began_ns;
                state.report.clone()
            };
            progress(&report);
        }
        finish(shared, from, to, chunk)?;
    }
}

/// Notes that a chunk is done, and keeps what is done without gaps.
fn finish(shared: &Shared<'_>, from: u64, to: u64, chunk: Tally) -> Result<(), String> {
    const SAVE_EVERY_NS: u64 = 5_000_000_000;
    let mut state = shared.state.lock();
    let state = &mut *state;
    state.done.insert(from, (to, chunk));
    while let Some((to, tally)) = state.done.remove(&state.report.next) {
        state.report.next = to;
        state.kept.add(&tally);
    }
    let now = amphi_rt::time::now_ns();
    if now - state.saved_ns > SAVE_EVERY_NS {
        state.saved_ns = now;
        save(shared.campaign, &state.report, &state.kept)?;
    }
    Ok(())
}

/// What a checkpoint has to have in common with the campaign that goes on with it.
fn terms(campaign: &Campaign) -> String {
    let Campaign { subject, profile, kind, numbers, every, bound, fail_every, .. } = campaign;
    let fail = fail_every.map_or_else(String::new, |every| format!(" fail {every}"));
    format!(
        "{} {profile} {kind} {}..{} every {every} {bound:?}{fail}",
        subject.name, numbers.start, numbers.end
    )
}

fn save(campaign: &Campaign, report: &Report, kept: &Tally) -> Result<(), String> {
    let Some(path) = &campaign.checkpoint else { return Ok(()) };
    let mut text = format!(
        "amphi crash campaign 2\n{}\nnext {}\nelapsed_ns {}\n",
        terms(campaign),
        report.next,
        report.elapsed_ns
    );
    for (name, value) in fields(kept) {
        text += &format!("{name} {value}\n");
    }
    for violation in &report.violations {
        text += &format!(
            "violation {} | {} | {}\n",
            violation.id,
            violation.operation,
            violation.what.replace('\n', " ")
        );
    }
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn fields(tally: &Tally) -> [(&'static str, u64); 10] {
    [
        ("workloads", tally.workloads),
        ("points", tally.points),
        ("repeated", tally.repeated),
        ("states", tally.states),
        ("distinct", tally.distinct),
        ("recoveries", tally.recoveries),
        ("impossible", tally.impossible),
        ("violations", tally.violations),
        ("failures", tally.failures),
        ("gave_up", tally.gave_up),
    ]
}

fn load(campaign: &Campaign, path: &Path, report: &mut Report) -> Result<(), String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let mut lines = text.lines();
    if lines.next() != Some("amphi crash campaign 2") {
        return Err(format!("{shown} is not the state of a campaign; choose another file"));
    }
    if lines.next() != Some(&terms(campaign)) {
        return Err(format!(
            "{shown} is the state of another campaign; choose another file, or remove it to begin anew"
        ));
    }
    for line in lines {
        let (name, value) = line.split_once(' ').ok_or_else(|| format!("{shown} is damaged at '{line}'"))?;
        if name == "violation" {
            let mut parts = value.splitn(3, " | ");
            let mut part = || parts.next().unwrap_or_default().to_owned();
            let id = part().parse().map_err(|error| format!("{shown}: {error}"))?;
            report.violations.push(Violation { id, operation: part(), what: part(), events: 0 });
            continue;
        }
        let value: u64 = value.parse().map_err(|_| format!("{shown} is damaged at '{line}'"))?;
        let tally = &mut report.tally;
        match name {
            "next" => report.next = value,
            "elapsed_ns" => report.elapsed_ns = value,
            "workloads" => tally.workloads = value,
            "points" => tally.points = value,
            "repeated" => tally.repeated = value,
            "states" => tally.states = value,
            "distinct" => tally.distinct = value,
            "recoveries" => tally.recoveries = value,
            "impossible" => tally.impossible = value,
            "violations" => tally.violations = value,
            "failures" => tally.failures = value,
            "gave_up" => tally.gave_up = value,
            _ => {}
        }
    }
    Ok(())
}
