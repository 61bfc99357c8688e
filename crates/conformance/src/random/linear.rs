//! Calls at the same time take effect one after another: linearizability, as Herlihy and Wing have it.
//!
//! Tasks call the file system about a few files and names, and note what they were answered and when. There
//! must be an order of the calls, with none before one that had returned when it began, in which a [`Model`]
//! gives the same answers, and has the same tree and files at the end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_model::Model;
use amphi_rt::task;
use amphi_vfs::{
    Allocate, Attr, Cred, Error, FileSystem, FileType, Ino, Name, RenameMode, Result, SetAttr, WriteMode,
    XattrMode,
};

use super::apply::{brief, class};
use super::compare::{SharedAttr, trees};
use super::numbers::Numbers;
use super::operation::Data;
use crate::harness::Fs;

/// Tasks, and calls of each between two looks at the whole tree.
const TASKS: usize = 3;
const CALLS: usize = 3;
/// Files that are held, directories that stay, and names that may be in each of those.
const FILES: usize = 2;
const DIRS: usize = 2;
const NAMES: u64 = 3;
/// Bytes of a page, and pages that are overwritten while the tasks are at work.
const PAGE: usize = 4096;
const CHURN: u64 = 12;
/// Largest offset and length of what is read and written: a few pages.
const BYTES: u64 = 9000;

/// A name in one of the directories.
#[derive(Clone, Copy, Debug)]
struct Place {
    dir: usize,
    name: u64,
}

/// One call, about files that are held by their numbers.
#[derive(Clone, Copy, Debug)]
enum Call {
    Create(Place),
    Mkdir(Place),
    Lookup(Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place, RenameMode),
    Link(usize, Place),
    Write { file: usize, offset: u64, data: Data, append: bool, direct: bool },
    Read { file: usize, offset: u64, length: u64, direct: bool },
    Resize(usize, u64),
    Punch { file: usize, offset: u64, length: u64 },
    SetMode(usize, u16),
    GetAttr(usize),
    SetXattr(usize, u8, XattrMode),
    GetXattr(usize),
    RemoveXattr(usize),
    Fsync(usize),
}

/// What a call was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Attr(SharedAttr),
    /// What a name names, and which of the files that are held it is.
    Found(SharedAttr, Option<usize>),
    /// What has lost a name has so many left, if anything has.
    Removed(Option<u32>),
    Written(usize),
    Bytes(Vec<u8>),
    Failed(&'static str),
}

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

/// The inodes of a file system that calls are about, held all the time.
#[derive(Clone, Copy)]
struct World {
    dirs: [Ino; DIRS],
    files: [Ino; FILES],
}

const CRED: &Cred = &Cred::ROOT;

fn attr(attr: &Attr) -> Answer {
    Answer::Attr(SharedAttr::of(attr))
}

impl World {
    /// Makes them; each file has its first name in one of the directories.
    fn furnish(fs: &dyn FileSystem) -> Result<Self> {
        let mut world = Self { dirs: [Ino::ROOT; DIRS], files: [Ino::ROOT; FILES] };
        for (dir, name) in world.dirs.iter_mut().zip([b"x", b"y"]) {
            *dir = fs.mkdir(Ino::ROOT, Name::new(name)?, 0o755, CRED)?.attr.ino;
        }
        for (file, dir) in world.files.iter_mut().zip(world.dirs) {
            *file = fs.create(dir, Name::new(b"0")?, FileType::Regular, 0o644, 0, CRED)?.attr.ino;
        }
        Ok(world)
    }

    fn answer(&self, fs: &dyn FileSystem, call: Call) -> Answer {
        self.call(fs, call).unwrap_or_else(|error| Answer::Failed(class(&error)))
    }

    fn call(&self, fs: &dyn FileSystem, call: Call) -> Result<Answer> {
        let names = |place: Place| (self.dirs[place.dir], place.name.to_string());
        let at = |place: Place, body: &dyn Fn(Ino, Name<'_>) -> Result<Answer>| {
            let (dir, name) = names(place);
            body(dir, Name::new(name.as_bytes())?)
        };
        let given_back = |found: Attr| {
            fs.forget(found.ino, 1);
            Ok(attr(&found))
        };
        let set = |file: usize, change: SetAttr| fs.setattr(self.files[file], &change, CRED);
        match call {
            Call::Create(place) => at(place, &|dir, name| {
                given_back(fs.create(dir, name, FileType::Regular, 0o644, 0, CRED)?.attr)
            }),
            Call::Mkdir(place) => at(place, &|dir, name| given_back(fs.mkdir(dir, name, 0o755, CRED)?.attr)),
            Call::Lookup(place) => at(place, &|dir, name| {
                let found = fs.lookup(dir, name)?.attr;
                fs.forget(found.ino, 1);
                let file = self.files.iter().position(|file| *file == found.ino);
                Ok(Answer::Found(SharedAttr::of(&found), file))
            }),
            Call::Unlink(place) => {
                at(place, &|dir, name| Ok(Answer::Removed(Some(fs.unlink(dir, name)?.nlink))))
            }
            Call::Rmdir(place) => {
                at(place, &|dir, name| Ok(Answer::Removed(Some(fs.rmdir(dir, name)?.nlink))))
            }
            Call::Rename(from, to, mode) => at(from, &|dir, name| {
                at(to, &|to_dir, to_name| {
                    let renamed = fs.rename(dir, name, to_dir, to_name, mode)?;
                    Ok(Answer::Removed(renamed.target.map(|lost| lost.nlink)))
                })
            }),
            Call::Link(file, place) => {
                at(place, &|dir, name| given_back(fs.link(self.files[file], dir, name)?.attr))
            }
            Call::Write { file, offset, data, append, direct } => {
                let how = WriteMode { append, direct, ..WriteMode::default() };
                fs.write(self.files[file], offset, &data.bytes(), how, CRED).map(Answer::Written)
            }
            Call::Read { file, offset, length, direct } => {
                let mut bytes = vec![0xEE; length as usize];
                let read = fs.read(self.files[file], offset, &mut bytes, direct)?;
                bytes.truncate(read);
                Ok(Answer::Bytes(bytes))
            }
            Call::Resize(file, size) => {
                Ok(attr(&set(file, SetAttr { size: Some(size), ..SetAttr::default() })?))
            }
            Call::Punch { file, offset, length } => {
                fs.allocate(self.files[file], offset, length, Allocate::PunchHole, CRED)?;
                Ok(Answer::Done)
            }
            Call::SetMode(file, mode) => {
                Ok(attr(&set(file, SetAttr { mode: Some(mode), ..SetAttr::default() })?))
            }
            Call::GetAttr(file) => Ok(attr(&fs.getattr(self.files[file])?)),
            Call::SetXattr(file, value, mode) => {
                fs.setxattr(self.files[file], b"user.it", &[value; 40], mode)?;
                Ok(Answer::Done)
            }
            Call::GetXattr(file) => fs.getxattr(self.files[file], b"user.it").map(Answer::Bytes),
            Call::RemoveXattr(file) => {
                fs.removexattr(self.files[file], b"user.it")?;
                Ok(Answer::Done)
            }
            Call::Fsync(file) => {
                fs.fsync(self.files[file], false)?;
                Ok(Answer::Done)
            }
        }
    }
}

/// Draws a call.
fn draw(dice: &mut Numbers) -> Call {
    let file = dice.below(FILES as u64) as usize;
    let mut place = || Place { dir: dice.below(DIRS as u64) as usize, name: dice.below(NAMES) };
    let (one, other) = (place(), place());
    let (offset, length) = (dice.below(BYTES), 1 + dice.below(BYTES));
    let direct = dice.one_in(6);
    match dice.below(24) {
        0 | 1 => Call::Create(one),
        2 => Call::Mkdir(one),
        3 | 4 => Call::Lookup(one),
        5 | 6 => Call::Unlink(one),
        7 => Call::Rmdir(one),
        8 | 9 => Call::Rename(one, other, RenameMode::Replace),
        10 => Call::Rename(one, other, dice.pick(&[RenameMode::NoReplace, RenameMode::Exchange])),
        11 => Call::Link(file, one),
        12..=14 => {
            let data = Data { seed: dice.next() as u8, length: length as u32 };
            Call::Write { file, offset, data, append: dice.one_in(3), direct }
        }
        15..=17 => Call::Read { file, offset: offset / 4, length: 2 * BYTES, direct },
        18 => Call::Resize(file, offset),
        19 => Call::Punch { file, offset, length },
        20 => Call::SetMode(file, dice.pick(&[0o644, 0o600, 0o4755])),
        21 => Call::GetAttr(file),
        22 => {
            let mode = dice.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
            dice.pick(&[
                Call::SetXattr(file, offset as u8, mode),
                Call::GetXattr(file),
                Call::RemoveXattr(file),
            ])
        }
        _ => Call::Fsync(file),
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
        let order = Order { fs: Fs::new(Arc::clone(fs)), ours, models, history: &history };
        model = order.explain(model).map_err(|what| format!("round {round}: {what}"))?;
    }
    if let Some(ballast) = ballast {
        fs.forget(ballast.file, 1);
    }
    Ok(())
}

/// The search for an order.
struct Order<'a> {
    fs: Fs,
    ours: World,
    models: World,
    history: &'a [Event],
}

impl Order<'_> {
    /// Finds one, and returns what it leaves.
    fn explain(&self, model: Model) -> std::result::Result<Model, String> {
        let mut last = None;
        self.search(&model, 0, &mut last).ok_or_else(|| {
            let lines: Vec<String> = self.history.iter().map(|event| format!("  {event}")).collect();
            let why = last.unwrap_or_else(|| "no order gives these answers".to_owned());
            format!("{why}\n{}", lines.join("\n"))
        })
    }

    /// Goes on behind the calls in `done`, a set of bits.
    fn search(&self, model: &Model, done: u64, last: &mut Option<String>) -> Option<Model> {
        let open = || self.history.iter().enumerate().filter(|(at, _)| done >> at & 1 == 0);
        let Some(first_return) = open().map(|(_, event)| event.returned).min() else {
            return match self.same_files(model).and_then(|()| trees(&self.fs, model, Ino::ROOT)) {
                Ok(()) => Some(model.clone()),
                Err(what) => {
                    *last = Some(format!("orders with these answers leave something else: {what}"));
                    None
                }
            };
        };
        for (at, event) in open().filter(|(_, event)| event.began < first_return) {
            let next = model.clone();
            // What is not offered, or has no room, has no effect.
            let has_effect = !matches!(event.answer, Answer::Failed("unsupported" | "full"));
            if has_effect && self.models.answer(&next, event.call) != event.answer {
                continue;
            }
            if let Some(found) = self.search(&next, done | 1 << at, last) {
                return Some(found);
            }
        }
        None
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
