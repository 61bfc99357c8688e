//! A workload on a device that fails one command: what the operation that meets it answers, what there is
//! then, and what of it a crash leaves.
//!
//! An operation that fails has had no effect, or all of it, or, of a write, a part. Either the file system
//! goes on with that, and what it promises later it keeps; or it refuses all changes from then on, and a
//! crash may leave what one in the middle of the operation may. It answers with the failure, and neither with
//! an error that is not the case nor with success and something else. Where nothing has failed by the end of
//! the workload, the power is cut, and it is the mount's turn, or a reader's.

use std::sync::Arc;

use amphi_model::Model;
use amphi_vfs::{Error, Failure, Ino};

use crate::judge;
use crate::oracle::{Legal, Oracle, difference};
use crate::rig::{Fault, Next, Rig};
use crate::run::Run;
use crate::state::{self, State};
use crate::tree::Tree;
use crate::workload::{How, Operation};

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It has not begun to count commands.
    Planned(Fault),
    /// The command may be the next, or has failed.
    Going,
    /// The file system, or what is known of it, does not let the workload go on.
    Stopped,
}

/// What there is after an operation that failed.
enum Left {
    /// What there was before.
    Before,
    /// All that it should do.
    Done,
    /// A part of what it writes.
    Between,
    /// The file system takes no changes any more.
    Sick,
}

/// Whether an error is what a file system answers that cannot go on since something failed.
const fn is_sick(error: &Error) -> bool {
    matches!(error, Error::ReadOnly | Error::Io(Failure::Earlier(_) | Failure::Stuck(_)))
}

/// A workload on a device that fails a command.
pub(crate) struct Failing<'a> {
    pub(crate) run: Run<'a>,
    progress: Progress,
    /// What has failed after the workload, if anything has.
    failed_later: Option<&'static str>,
    /// The file system takes no changes any more.
    pub(crate) gave_up: bool,
}

impl<'a> Failing<'a> {
    /// The workload, whose first watched operation may meet the first command.
    pub(crate) const fn new(run: Run<'a>, fault: Fault) -> Self {
        Self { run, progress: Progress::Planned(fault), failed_later: None, gave_up: false }
    }

    /// Which kind of command has failed, if one has.
    pub(crate) fn failed(&self) -> Option<&'static str> {
        self.failed_later.or(self.run.rig.failed())
    }

    /// Does an operation; the device fails a command now, or at another time.
    pub(crate) fn step(&mut self, operation: &Operation, watched: bool) {
        if self.run.lab.is_done() {
            return;
        }
        match self.progress {
            Progress::Stopped => return,
            Progress::Planned(_) if !watched => return self.run.step(operation, false),
            Progress::Planned(fault) => {
                if let Err(what) = self.begin_anew() {
                    return self.wrong(&what);
                }
                self.run.rig.fail(Some(fault));
                self.progress = Progress::Going;
            }
            Progress::Going => {}
        }
        if let Operation::Write(path, How::Mapped, at, bytes) = operation {
            // Either half may fail.
            self.step(&Operation::Write(path.clone(), How::Buffered, *at, *bytes), true);
            return self.step(&Operation::Fsync(path.clone(), false), true);
        }
        let (number, place) = self.run.turn();
        let operation = operation.resolved(&self.run.oracle.model);
        let mut after = self.run.oracle.clone();
        let due = after.apply(&operation, number);
        let text = format!("operation {place}: {operation}");
        self.run.lab.moment(&text, Legal::default(), false);
        self.run.rig.begin(place);
        let answer = operation.apply(&*self.run.fs, number);
        self.run.script.push(operation.clone());
        let failed = self.run.rig.failed();
        let legal = match (&answer, due) {
            (Ok(()), Ok(())) | (Err(_), Err(_)) => {
                self.run.oracle = after;
                self.run.oracle.legal()
            }
            (Err(Error::Io(_) | Error::ReadOnly), Ok(())) if failed.is_some() => {
                let meanwhile = self.run.oracle.legal_until(&after, &operation);
                match self.left(&operation, &after, &answer) {
                    Ok(Left::Before) => {
                        self.run.oracle.waver(&after, &operation);
                        self.run.oracle.legal()
                    }
                    Ok(Left::Done) => {
                        after.waver(&self.run.oracle, &operation);
                        self.run.oracle = after;
                        self.run.oracle.legal()
                    }
                    Ok(Left::Between) => {
                        self.progress = Progress::Stopped;
                        meanwhile
                    }
                    Ok(Left::Sick) => {
                        self.gave_up = true;
                        self.progress = Progress::Stopped;
                        meanwhile
                    }
                    Err(what) => return self.wrong(&format!("{text} answers {answer:?}, and {what}")),
                }
            }
            (_, due) => return self.wrong(&format!("{text} answers {answer:?}, and the model {due:?}")),
        };
        self.run.lab.moment(&text, legal, failed.is_some());
        self.run.rig.end(place);
    }

    /// Mounts the file system again: nothing of it is cached, and little will be.
    fn begin_anew(&mut self) -> Result<(), String> {
        let (number, _) = self.run.turn();
        self.run.oracle.apply(&Operation::Sync, number).map_err(|error| error.to_string())?;
        self.run.fs.sync().map_err(|error| error.to_string())?;
        // Two mounts of one device would be in each other's way.
        self.run.fs = Box::new(Model::new());
        self.run.fs = self.run.subject.mount_forgetful(self.run.rig)?;
        Ok(())
    }

    fn wrong(&mut self, what: &str) {
        let failed = self.run.rig.failed().unwrap_or("nothing");
        self.run.lab.wrong_without_crash(format!("{what}; what failed is {failed}"));
        self.progress = Progress::Stopped;
    }

    /// Whether the file system takes no changes any more; found out by one that would change nothing.
    fn refuses_changes(&self) -> bool {
        self.run.fs.removexattr(Ino::ROOT, b"user.nobody-has-it").as_ref().is_err_and(is_sick)
    }

    /// Finds out what there is after `operation`, which failed and should have led to `after`.
    fn left(
        &self,
        operation: &Operation,
        after: &Oracle,
        answer: &amphi_vfs::Result<()>,
    ) -> Result<Left, String> {
        if answer.as_ref().is_err_and(is_sick) || self.refuses_changes() {
            return Ok(Left::Sick);
        }
        let found = Tree::of(&*self.run.fs);
        let strict = Legal { times: true, fsync: self.run.subject.fsync, ..Legal::default() };
        let differs = |due: &Oracle| match &found {
            Ok(found) => difference(found, &due.seen(), &strict),
            Err(what) => Some(what.clone()),
        };
        let Some(from_before) = differs(&self.run.oracle) else { return Ok(Left::Before) };
        let Some(from_after) = differs(after) else { return Ok(Left::Done) };
        if operation.changes_data() {
            let mut wide = self.run.oracle.clone();
            wide.see_alone();
            wide.waver(after, operation);
            if let Ok(found) = &found
                && difference(found, &wide.candidate(), &strict).is_none()
            {
                return Ok(Left::Between);
            }
        }
        Err(format!("then {from_before}; or else, if it was done, {from_after}"))
    }

    /// Syncs, cuts the power, mounts and reads everything, where nothing has failed so far.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.step(&Operation::Sync, true);
        let is_over = self.run.lab.is_done() || self.progress != Progress::Going;
        if is_over || self.run.rig.failed().is_some() {
            return Ok(());
        }
        let made = state::make(self.run.rig.ssd(), &Next::Idle, &self.run.rig.units(), &State::Nothing);
        let device = made.map_err(|error| format!("the device does not power up: {error:?}"))?;
        let again = Arc::new(Rig::plain(device));
        again.fail(self.run.rig.planned_fault());
        let subject = self.run.subject;
        let legal = self.run.oracle.legal();
        let fs = match subject.mount_forgetful(&again) {
            Err(_) if again.failed().is_some() => subject
                .mount_forgetful(&again)
                .map_err(|error| format!("after a mount that failed: {error}"))?,
            mounted => mounted?,
        };
        let failed = again.failed();
        match judge::compare(&*fs, &legal) {
            Err(_) if failed.is_none() && again.failed().is_some() => {
                judge::compare(&*fs, &legal).map_err(|what| format!("after reading failed, {what}"))?
            }
            compared => compared?,
        };
        again.fail(None);
        judge::clean(subject, &again)?;
        self.failed_later = again.failed();
        Ok(())
    }
}
