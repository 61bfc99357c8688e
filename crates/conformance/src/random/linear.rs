//! Calls at the same time take effect one after another: linearizability, as Herlihy and Wing have it.
//!
//! Tasks call the file system about a few files and names, and note what they were answered and when. There
//! must be an order of the calls, with none before one that had returned when it began, in which a [`Model`]
//! gives the same answers, and has the same tree and files at the end.

mod calls;
mod events;
mod lines;
mod order;
mod programs;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_model::Model;
use amphi_rt::task;
use amphi_vfs::{Allocate, Error, FileSystem, FileType, Ino, Name, Result, WriteMode};

use self::calls::{Answer, BYTES, CRED, Call, FILES, World, draw};
pub use self::events::Door;
use self::order::Order;
pub use self::programs::Programs;
use super::apply::{FULL, brief};
use super::compare::trees;
use super::numbers::Numbers;
use crate::harness::Fs;

/// Tasks, and calls of each between two looks at the whole tree.
const TASKS: usize = 3;
const CALLS: usize = 3;
/// Bytes of a page, and pages that are overwritten while the tasks are at work.
const PAGE: usize = 4096;
const CHURN: u64 = 12;

/// A call that has returned.
struct Event {
    task: usize,
    call: Call,
    answer: Answer,
    began: u64,
    returned: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, call, answer, began, returned } = self;
        write!(f, "task {task}, moments {began} to {returned}: {call:?}: {}", brief(answer))
    }
}

/// A file without names that leaves little room, and is overwritten all the time: a file system has to clean,
/// collect and write back while calls meet.
struct Ballast {
    file: Ino,
    pages: u64,
}

impl Ballast {
    /// Fills the file system, and makes a hole for each fifth page.
    fn load(fs: &dyn FileSystem) -> Result<Self> {
        let name = Name::new(b"ballast")?;
        let file = fs.create(Ino::ROOT, name, FileType::Regular, 0o600, 0, CRED)?.attr.ino;
        fs.unlink(Ino::ROOT, name)?;
        let mut pages = 0;
        for pages_at_once in [16, 1] {
            let bytes = vec![pages_at_once; PAGE * usize::from(pages_at_once)];
            while fs.write(file, pages * PAGE as u64, &bytes, WriteMode::default(), CRED).is_ok() {
                pages += u64::from(pages_at_once);
            }
        }
        fs.sync()?;
        for page in (0..pages).step_by(5) {
            // Where no holes are made, it is full.
            let _any = fs.allocate(file, page * PAGE as u64, PAGE as u64, Allocate::PunchHole, CRED);
        }
        Ok(Self { file, pages })
    }

    /// Overwrites pages, which may find no room.
    fn churn(&self, fs: &dyn FileSystem, mut dice: Numbers) {
        for _ in 0..CHURN {
            task::yield_now();
            let page = dice.below(self.pages.max(1)) / 5 * 5 + 1;
            let bytes = [dice.next() as u8; PAGE];
            let _any = fs.write(self.file, page * PAGE as u64, &bytes, WriteMode::default(), CRED);
            if dice.one_in(4) {
                let _any = fs.fsync(self.file, true);
            }
        }
    }
}

/// Has tasks call a file system that is empty, `rounds` times a few calls each, and looks for an order. In
/// real time tasks meet as it happens; inside `amphi_rt::Sim` as its seed decides. If it is to be `full`, one
/// task more overwrites a file that leaves little room.
///
/// # Errors
/// The calls that no order explains, with their answers.
pub fn linearizable(
    fs: &Arc<dyn FileSystem>,
    seed: u64,
    rounds: u64,
    full: bool,
) -> std::result::Result<(), String> {
    let mut model = Model::new();
    model.set_access_times(fs.access_times());
    let failed = |error: Error| error.to_string();
    let ours = World::furnish(&**fs).map_err(failed)?;
    let models = World::furnish(&model).map_err(failed)?;
    let pair = Pair { fs: Fs::new(Arc::clone(fs)), ours, models };
    let mut dice = Numbers::new(seed);
    let clock = Arc::new(AtomicU64::new(0));
    let ballast = if full { Some(Arc::new(Ballast::load(&**fs).map_err(failed)?)) } else { None };
    for round in 0..rounds {
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let calls: Vec<Call> = (0..CALLS).map(|_| draw(&mut dice)).collect();
                let (fs, clock) = (Arc::clone(fs), Arc::clone(&clock));
                task::spawn("caller", move || {
                    let one = |call| {
                        // In virtual time all start at the same moment.
                        task::yield_now();
                        let began = clock.fetch_add(1, Ordering::SeqCst);
                        let answer = ours.answer(&*fs, call);
                        let returned = clock.fetch_add(1, Ordering::SeqCst);
                        Event { task: number, call, answer, began, returned }
                    };
                    calls.into_iter().map(one).collect::<Vec<_>>()
                })
            })
            .collect();
        let churn = ballast.clone().map(|ballast| {
            let (fs, dice) = (Arc::clone(fs), Numbers::new(dice.next()));
            task::spawn("churn", move || ballast.churn(&*fs, dice))
        });
        let history: Vec<Event> = tasks.into_iter().flat_map(task::JoinHandle::join).collect();
        churn.map(task::JoinHandle::join);
        model = pair.explain(&model, &history).map_err(|what| format!("round {round}: {what}"))?;
    }
    if let Some(ballast) = ballast {
        fs.forget(ballast.file, 1);
    }
    Ok(())
}

/// A file system and what is called of it, beside a model's.
struct Pair {
    fs: Fs,
    ours: World,
    models: World,
}

impl Pair {
    /// Finds an order of what has happened, and returns what it leaves.
    fn explain(&self, model: &Model, history: &[Event]) -> std::result::Result<Model, String> {
        Order {
            events: history,
            is_before: &|one, other| one.returned < other.began,
            may_be_nothing: &|_| false,
            is_explained: &|model, event| {
                // What is not offered, or has no room, has no effect.
                matches!(event.answer, Answer::Failed("unsupported" | FULL))
                    || self.models.answer(model, event.call) == event.answer
            },
            is_left: &|model| self.same_files(model).and_then(|()| trees(&self.fs, model, Ino::ROOT)),
        }
        .explain(model)
    }

    /// Compares what the files that are held have, which may have no names.
    fn same_files(&self, model: &Model) -> std::result::Result<(), String> {
        for file in 0..FILES {
            let whole = Call::Read { file, offset: 0, length: 4 * BYTES, direct: false };
            for call in [Call::GetAttr(file), whole] {
                let (found, due) = (self.ours.answer(&*self.fs, call), self.models.answer(model, call));
                if found != due {
                    return Err(format!("file {file}: {}", apart(&found, &due)));
                }
            }
        }
        Ok(())
    }
}

/// What is found, and where it differs from what is due.
fn apart(found: &Answer, due: &Answer) -> String {
    match (found, due) {
        (Answer::Bytes(found), Answer::Bytes(due)) => {
            let at = found.iter().zip(due).take_while(|(one, other)| one == other).count();
            let (lengths, byte) = ((found.len(), due.len()), (found.get(at), due.get(at)));
            format!("lengths {lengths:?}, and at {at} bytes {byte:?}, found and due")
        }
        _ => format!("found {}, and due is {}", brief(found), brief(due)),
    }
}
