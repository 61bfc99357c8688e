//! Tasks that get in each other's way in one small tree: they rename, link and remove each other's files and
//! directories, also into each other. What each is answered depends on the others; that the tree stays one,
//! that nobody waits for ever and that nothing is lost does not.
//!
//! Meant for `amphi_rt::Sim` and as many seeds as there is time for: [`for_seeds`].

use amphi_rt::random::Generator;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use amphi_rt::{Schedule, Sim, task};
use amphi_vfs::{
    Checked, Cred, Error, FileSystem, FileType, Ino, Name, RenameMode, Result, SetAttr, WriteMode, XattrMode,
};

use crate::harness::USER;

const TASKS: u64 = 16;

/// Runs `body` in virtual time with each of `seeds`, a preemption at every seventh lock or so, some of them
/// long. `AMPHI_SEED` in the environment replays one.
///
/// # Panics
/// If `body` does, with `command`, which runs the test that this is, and the seed before it.
pub fn for_seeds(seeds: Range<u64>, command: &str, body: fn(u64)) {
    let seeds = match std::env::var("AMPHI_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("AMPHI_SEED is a number");
            seed..seed + 1
        }
        Err(_) => seeds,
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let schedule = Schedule::Random { per_mille: 150, delay_ns: 1000 };
            Sim::new(seed).schedule(schedule).run(move || body(seed));
        });
        if outcome.is_err() {
            panic!("replay with: AMPHI_SEED={seed} {command}");
        }
    }
}

/// Three tasks that would wait for one another in a circle if a rename locked unrelated directories by their
/// numbers: one across two directories, one within a directory above them, and a lookup.
///
/// # Panics
/// If an operation fails; inside `Sim`, if they wait for ever.
pub fn circle<F: FileSystem + 'static>(fs: &Arc<F>) {
    let cred = &Cred::ROOT;
    let name = |name: &'static [u8]| Name::new(name).expect("a plain name");
    let mut dirs = [b"x", b"y", b"z"].map(|text| {
        let name = name(text);
        (fs.mkdir(Ino::ROOT, name, 0o755, cred).expect("there is room").attr.ino, name)
    });
    // The numbers ascend from a to c, and a comes to lie in c.
    dirs.sort_by_key(|(ino, _)| *ino);
    let [(a, a_name), (b, b_name), (c, c_name)] = dirs;
    fs.rename(Ino::ROOT, a_name, c, a_name, RenameMode::Replace).expect("it moves");
    let file = name(b"file");
    fs.create(a, file, FileType::Regular, 0o644, 0, cred).expect("there is room");
    type Work<F> = Box<dyn Fn(&F) -> Result<()> + Send>;
    let tasks: [Work<F>; 3] = [
        Box::new(move |fs| {
            fs.rename(a, file, b, file, RenameMode::Replace)?;
            fs.rename(b, file, a, file, RenameMode::Replace).map(drop)
        }),
        Box::new(move |fs| fs.rename(Ino::ROOT, b_name, Ino::ROOT, c_name, RenameMode::Exchange).map(drop)),
        Box::new(move |fs| fs.lookup(c, a_name).map(|entry| fs.forget(entry.attr.ino, 1))),
    ];
    let running: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let fs = Arc::clone(fs);
            task::spawn("circle", move || (0..20).try_for_each(|_| task(&fs)))
        })
        .collect();
    running.into_iter().for_each(|task| task.join().expect("each of them always succeeds"));
}

/// Makes file `f` for [`attribute_of_what_goes`], and returns its number.
///
/// # Panics
/// If that fails.
pub fn with_attribute<F: FileSystem>(fs: &F) -> Ino {
    let name = Name::new(b"f").expect("a plain name");
    let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let file = made.expect("it can be made").attr.ino;
    fs.setxattr(file, ATTRIBUTE, &[7; 2000], XattrMode::Set).expect("attributes are offered");
    fs.forget(file, 1);
    file
}

const ATTRIBUTE: &[u8] = b"user.attribute";

/// A task that reads an attribute of `file` by number while another removes the file: it has the attribute,
/// or it is gone. Meant for a file system that has been mounted since [`with_attribute`] made the file, so
/// that the attribute is not in memory.
///
/// # Panics
/// If the file is there without its attribute.
pub fn attribute_of_what_goes<F: FileSystem + 'static>(fs: &Arc<F>, file: Ino) {
    let reader = {
        let fs = Arc::clone(fs);
        task::spawn("reader", move || match fs.getxattr(file, ATTRIBUTE) {
            Ok(value) => assert!(value == [7; 2000], "another value"),
            Err(Error::Stale(_) | Error::NotFound) => {}
            Err(error) => panic!("the attribute of a file that goes: {error}"),
        })
    };
    fs.unlink(Ino::ROOT, Name::new(b"f").expect("a plain name")).expect("it can be removed");
    reader.join();
}

/// A task that removes a file while another takes the permission for that away: once that is done and the
/// file is still there, it stays.
///
/// # Panics
/// If the file goes afterwards, or an answer is none that the other task's doing explains.
pub fn removal_without_permission<F: FileSystem + 'static>(fs: &Arc<F>) {
    let name = Name::new(b"f").expect("a plain name");
    let dir = Name::new(b"d").expect("a plain name");
    let dir = fs.mkdir(Ino::ROOT, dir, 0o777, &Cred::ROOT).expect("it can be made").attr.ino;
    let made = fs.create(dir, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("it can be made");
    let remover = {
        let checked = Checked::new(Arc::clone(fs));
        task::spawn("remover", move || match checked.unlink(dir, name, &USER).map(drop) {
            Ok(()) | Err(Error::PermissionDenied) => {}
            Err(error) => panic!("a removal: {error}"),
        })
    };
    let change = SetAttr { mode: Some(0o555), ..SetAttr::default() };
    fs.setattr(dir, &change, &Cred::ROOT).expect("it can be changed");
    let is_there = || fs.lookup(dir, name).map(|entry| fs.forget(entry.attr.ino, 1)).is_ok();
    let was_there = is_there();
    remover.join();
    assert!(!was_there || is_there(), "the file went when nobody might remove it any more");
    fs.forget(made.attr.ino, 1);
}

/// Sixteen tasks that make, link, move, write and remove names that all of them use.
///
/// # Panics
/// If one is answered what no other task's doing explains, or the tree is not one afterwards.
pub fn meddle_together<F: FileSystem + 'static>(fs: &Arc<F>, seed: u64) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let fs = Arc::clone(fs);
            task::spawn("meddler", move || {
                let mut numbers = Numbers(Generator::new(seed << 8 | number));
                for step in 0..40 {
                    if let Err(error) = meddle(&*fs, &mut numbers) {
                        assert!(is_legitimate(&error), "seed {seed}, task {number}, step {step}: {error}");
                    }
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(task::JoinHandle::join);
    assert_tree(&**fs, Ino::ROOT, &mut BTreeSet::new());
}

/// Directories that sixteen tasks move into each other: one of two crossing moves must fail, or both would be
/// lost.
///
/// # Panics
/// If a directory is lost, or an answer is none that another task's doing explains.
pub fn crossing_moves<F: FileSystem + 'static>(fs: &Arc<F>, seed: u64) {
    let dirs = [b"a", b"b", b"c", b"d"].map(|name| {
        let name = Name::new(name).expect("a plain name");
        fs.mkdir(Ino::ROOT, name, 0o755, &Cred::ROOT).expect("it can be made").attr.ino
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let fs = Arc::clone(fs);
            task::spawn("mover", move || {
                let mut numbers = Numbers(Generator::new(seed << 8 | number));
                for _ in 0..20 {
                    let place = |n: u64| dirs.get(n as usize).copied().unwrap_or(Ino::ROOT);
                    let (from, to) = (place(numbers.below(5)), place(numbers.below(5)));
                    let (name, new_name) = (some_name(&mut numbers), some_name(&mut numbers));
                    let outcome = fs.rename(from, name, to, new_name, RenameMode::NoReplace);
                    assert!(outcome.as_ref().err().is_none_or(is_legitimate), "seed {seed}: {outcome:?}");
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(task::JoinHandle::join);
    let mut met = BTreeSet::new();
    assert_tree(&**fs, Ino::ROOT, &mut met);
    assert_eq!(met.len(), dirs.len() + 1, "seed {seed}: a directory was lost");
}

struct Numbers(Generator);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next() % bound
    }
}

/// A directory somewhere in the tree, by a walk of up to three steps, with a reference that the caller gives
/// back.
fn wander(fs: &dyn FileSystem, numbers: &mut Numbers) -> Ino {
    let mut at = Ino::ROOT;
    for _ in 0..numbers.below(4) {
        let Ok(entry) = fs.lookup(at, some_name(numbers)) else { break };
        if entry.attr.file_type != FileType::Directory {
            fs.forget(entry.attr.ino, 1);
            break;
        }
        leave(fs, at);
        at = entry.attr.ino;
    }
    at
}

fn leave(fs: &dyn FileSystem, ino: Ino) {
    if ino != Ino::ROOT {
        fs.forget(ino, 1);
    }
}

fn some_name(numbers: &mut Numbers) -> Name<'static> {
    const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
    Name::new(NAMES[numbers.below(5) as usize]).expect("a plain name")
}

/// One operation on names that others use as well. What is answered depends on them; what must never be is
/// checked by the caller.
fn meddle(fs: &dyn FileSystem, numbers: &mut Numbers) -> Result<()> {
    let cred = &Cred::ROOT;
    let dir = wander(fs, numbers);
    let name = some_name(numbers);
    let outcome = match numbers.below(12) {
        0 | 1 => {
            fs.create(dir, name, FileType::Regular, 0o644, 0, cred).map(|entry| fs.forget(entry.attr.ino, 1))
        }
        2 | 3 => fs.mkdir(dir, name, 0o755, cred).map(|entry| fs.forget(entry.attr.ino, 1)),
        4 => fs.unlink(dir, name).map(drop),
        5 => fs.rmdir(dir, name).map(drop),
        6..9 => {
            let to = wander(fs, numbers);
            let mode =
                [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][numbers.below(3) as usize];
            let outcome = fs.rename(dir, name, to, some_name(numbers), mode);
            leave(fs, to);
            outcome.map(drop)
        }
        9 => fs.lookup(dir, name).and_then(|entry| {
            let to = wander(fs, numbers);
            let linked = fs.link(entry.attr.ino, to, some_name(numbers));
            leave(fs, to);
            fs.forget(entry.attr.ino, 1);
            linked.map(|entry| fs.forget(entry.attr.ino, 1))
        }),
        _ => fs.lookup(dir, name).and_then(|entry| {
            let ino = entry.attr.ino;
            let data = vec![numbers.below(256) as u8; numbers.below(9000) as usize];
            let written = fs.write(ino, numbers.below(20_000), &data, WriteMode::default(), cred);
            let synced = if numbers.below(2) == 0 { fs.fsync(ino, false) } else { Ok(()) };
            fs.forget(ino, 1);
            written.and(synced)
        }),
    };
    leave(fs, dir);
    outcome
}

/// Answers that another task's doing can explain.
fn is_legitimate(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::NotDirectory
            | Error::IsDirectory
            | Error::NotEmpty
            | Error::Stale(_)
            | Error::Invalid(_)
            | Error::NotPermitted
            | Error::IntoItself
    )
}

/// Every directory below `dir`, whose parents are where they should be; no directory is met twice.
fn assert_tree(fs: &dyn FileSystem, dir: Ino, met: &mut BTreeSet<Ino>) {
    assert!(met.insert(dir), "directory {dir:?} has two names");
    let mut names = Vec::new();
    let listed = fs.readdir(dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino, entry.file_type));
        true
    });
    assert_eq!(listed, Ok(()));
    for (name, ino, file_type) in names.into_iter().filter(|(name, ..)| name != b"." && name != b"..") {
        let name = Name::new(&name).expect("a listed name is valid");
        assert_eq!(fs.lookup(dir, name).map(|entry| entry.attr.ino), Ok(ino));
        if file_type == FileType::Directory {
            assert_eq!(fs.parent(ino), Ok(dir));
            assert_tree(fs, ino, met);
        }
        fs.forget(ino, 1);
    }
}
