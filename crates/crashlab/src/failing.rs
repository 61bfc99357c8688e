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
use amphi_rt::hash::HashSet;
use amphi_vfs::{Error, Failure, FileType, Ino};

use crate::difference::difference;
use crate::judge;
use crate::make;
use crate::oracle::{Legal, Oracle, waver};
use crate::rig::{Fault, Next, Rig, Way};
use crate::run::Run;
use crate::state::State;
use crate::tree::{Node, Tree, Unread};
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
    /// A part of what it writes; or nobody can tell.
    Between,
    /// The file system takes no changes any more.
    Sick,
}

/// The names in a tree of what an operation changes: of the files and directories that it names, of what is
/// below them, of the directories that they are in.
fn changed(tree: &Tree, operation: &Operation) -> HashSet<String> {
    let named = operation.changed_paths();
    let parents = named.iter().map(|path| path.rsplit_once('/').map_or(".", |(parent, _)| parent));
    let paths: HashSet<&str> = named.iter().copied().chain(parents).collect();
    let inodes: HashSet<u64> = paths.iter().filter_map(|path| tree.names.get(*path).copied()).collect();
    let is_below =
        |path: &str| named.iter().any(|of| path.strip_prefix(of).is_some_and(|rest| rest.starts_with('/')));
    let is_changed = |(path, ino): &(&String, &u64)| inodes.contains(*ino) || is_below(path);
    let of_tree = tree.names.iter().filter(is_changed).map(|(path, _)| path.clone());
    of_tree.chain(paths.iter().map(|path| (*path).to_owned())).collect()
}

/// A file, of those at these paths, that holds what none of them held or should have held there, if one does.
fn foreign(found: &Tree, due: &[&Tree], paths: &HashSet<String>) -> Option<String> {
    let is_file = |node: &&Node| node.file_type == FileType::Regular;
    let of_trees = due.iter().flat_map(|tree| paths.iter().filter_map(|path| tree.get(path)));
    let due: Vec<&Node> = of_trees.filter(is_file).collect();
    let is_due = |at: usize, byte: u8| byte == 0 || due.iter().any(|node| node.data.get(at) == Some(&byte));
    paths.iter().find_map(|path| {
        let node = found.get(path).filter(is_file)?;
        let at = node.data.iter().enumerate().position(|(at, byte)| !is_due(at, *byte))?;
        Some(format!("{path} holds what is none of its own at byte {at}"))
    })
}

/// Whether an error is what a file system answers that cannot go on since something failed.
const fn is_sick(error: &Error) -> bool {
    matches!(error, Error::ReadOnly | Error::Io(Failure::Earlier(_) | Failure::Stuck(_)))
}

/// A workload on a device that fails a command.
pub(crate) struct Failing<'a> {
    pub(crate) run: Run<'a>,
    way: Way,
    progress: Progress,
    /// What has failed after the workload, if anything has.
    failed_later: Option<&'static str>,
    /// The file system takes no changes any more.
    pub(crate) gave_up: bool,
}

impl<'a> Failing<'a> {
    /// The workload, whose first watched operation may meet the first command.
    pub(crate) const fn new(run: Run<'a>, fault: Fault) -> Self {
        let progress = Progress::Planned(fault);
        Self { run, way: fault.way, progress, failed_later: None, gave_up: false }
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
        let failed = self.run.rig.failed().is_some();
        let legal = match self.take(&operation, after, (&answer, due)) {
            Ok(legal) => legal,
            Err(what) => return self.wrong(&format!("{text} answers {answer:?}, and {what}")),
        };
        self.run.lab.moment(&text, legal, failed);
        self.run.rig.end(place);
        if self.way == Way::Lasting && self.progress == Progress::Stopped {
            // What comes of it is not looked at.
            self.run.lab.moment(&text, Legal::default(), false);
            self.go_on_regardless();
        }
    }

    /// Takes what there is after `operation`, which the model says leads to `after`, or is `due` to fail, as
    /// what there is. Returns what a crash may leave of it.
    fn take(
        &mut self,
        operation: &Operation,
        mut after: Oracle,
        (answer, due): (&amphi_vfs::Result<()>, amphi_vfs::Result<()>),
    ) -> Result<Legal, String> {
        if answer.is_ok() == due.is_ok() {
            self.run.oracle = after;
            return Ok(self.run.oracle.legal());
        }
        let is_failure = matches!(answer, Err(Error::Io(_) | Error::ReadOnly));
        if !is_failure || self.run.rig.failed().is_none() {
            return Err(format!("the model {due:?}"));
        }
        let meanwhile = self.run.oracle.legal_until(&after, operation);
        match self.left(operation, &after, answer)? {
            Left::Before => self.run.oracle.waver(&after, operation),
            Left::Done => {
                after.waver(&self.run.oracle, operation);
                self.run.oracle = after;
            }
            left @ (Left::Between | Left::Sick) => {
                self.gave_up = matches!(left, Left::Sick);
                self.progress = Progress::Stopped;
                return Ok(meanwhile);
            }
        }
        Ok(self.run.oracle.legal())
    }

    /// Uses the file system while the device does nothing any more. It may refuse whatever it likes, but each
    /// call comes to an end.
    fn go_on_regardless(&self) {
        let fs = &*self.run.fs;
        let any = [
            "create late",
            "write late 0 5000",
            "fsync late",
            "mkdir B",
            "rename foo bar",
            "unlink bar",
            "sync",
        ];
        for operation in any.iter().filter_map(|text| text.parse::<Operation>().ok()) {
            let _any = operation.apply(fs, 0);
        }
        let _any = (Tree::of(fs), fs.statfs());
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
        let is_sick = answer.as_ref().is_err_and(is_sick) || self.refuses_changes();
        if self.way == Way::Lasting {
            return Ok(if is_sick { Left::Sick } else { Left::Between });
        }
        // Nothing fails while the laboratory reads.
        let planned = self.run.rig.planned_fault();
        self.run.rig.fail(None);
        let found = Tree::read(&*self.run.fs);
        self.run.rig.fail(planned);
        if is_sick {
            return self.left_to_readers(found, operation, after).map(|()| Left::Sick);
        }
        let found = found.map_err(|unread| unread.what);
        let strict = Legal { times: true, fsync: self.run.subject.fsync, ..Legal::default() };
        let differs = |due: &Oracle| match &found {
            Ok(found) => difference(found, &due.seen(), &strict),
            Err(what) => Some(what.clone()),
        };
        let Some(from_before) = differs(&self.run.oracle) else { return Ok(Left::Before) };
        let Some(from_after) = differs(after) else { return Ok(Left::Done) };
        if operation.changes_data() {
            let mut between = self.run.oracle.seen();
            waver(&mut between.ranges, &after.seen().ranges);
            if let Ok(found) = &found
                && difference(found, &between, &strict).is_none()
            {
                return Ok(Left::Between);
            }
        }
        Err(format!("then {from_before}; or else, if it was done, {from_after}"))
    }

    /// What a file system reads that takes no changes any more: all that there was, but for what `operation`
    /// would have changed, of which memory and device may have half each, and nothing of anybody else's.
    fn left_to_readers(
        &self,
        found: Result<Tree, Unread>,
        operation: &Operation,
        after: &Oracle,
    ) -> Result<(), String> {
        let (mut due, after) = (self.run.oracle.seen(), after.seen());
        let mut may_be_half = &changed(&due.tree, operation) | &changed(&after.tree, operation);
        let mut found = match found {
            Err(Unread { path, error: Some(Error::Io(_)), .. }) if may_be_half.contains(&path) => {
                return Ok(());
            }
            found => found.map_err(|unread| unread.what)?,
        };
        may_be_half.extend(changed(&found, operation));
        if let Some(what) = foreign(&found, &[&due.tree, &after.tree], &may_be_half) {
            return Err(what);
        }
        for tree in [&mut found, &mut due.tree] {
            tree.names.retain(|path, _| !may_be_half.contains(path));
        }
        let legal = Legal { fsync: self.run.subject.fsync, ..Legal::default() };
        difference(&found, &due, &legal).map_or(Ok(()), Err)
    }

    /// Syncs, cuts the power, mounts and reads everything, where nothing has failed so far.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.step(&Operation::Sync, true);
        let is_over = self.run.lab.is_done() || self.progress != Progress::Going;
        if is_over || self.run.rig.failed().is_some() {
            return Ok(());
        }
        let made = make::make(self.run.rig.ssd(), &Next::Idle, &self.run.rig.units(), &State::Nothing);
        let device = made.map_err(|error| format!("the device does not power up: {error:?}"))?;
        let again = Arc::new(Rig::plain(device));
        again.fail(self.run.rig.planned_fault());
        let subject = self.run.subject;
        let legal = self.run.oracle.legal();
        let fs = match subject.mount_forgetful(&again) {
            Err(_) if again.failed().is_some() => {
                again.fail(None);
                subject
                    .mount_forgetful(&again)
                    .map_err(|error| format!("after a mount that failed: {error}"))?
            }
            mounted => mounted?,
        };
        let failed = again.failed();
        if failed.is_some() {
            again.fail(None);
        }
        match judge::compare(&*fs, &legal) {
            Err(_) if failed.is_none() && again.failed().is_some() => {
                again.fail(None);
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
