//! Every file system used by real threads while its device loses power, again and again. In virtual time
//! tasks take turns only where they wait; threads meet anywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_crashlab::judge;
use amphi_crashlab::rig::{Fault, Rig, Way};
use amphi_crashlab::subject::{self, Fsync, Size, Subject};
use amphi_rt::random::Generator;
use amphi_vfs::{
    Cred, Entry, Error, FileSystem, FileType, Ino, Name, Promise, RenameMode, Result, WriteMode,
};

const WRITERS: u64 = 3;
const OPERATIONS: u64 = 120;
/// Bytes of each writer's files: each write is of all of them.
const SIZES: [usize; 5] = [96, 4096, 5000, 12_296, 40_960];

/// Where a file is: nowhere, or under one of its two names, the file that was made as the so-manyeth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Under(usize, u64),
}

/// Versions that a file may hold: from the last that was synced, or 0, to the last that was begun.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    synced: u64,
    begun: u64,
}

/// What a crash may leave of a file.
#[derive(Clone, Debug)]
struct File {
    size: usize,
    /// The oldest is durable.
    places: Vec<Place>,
    versions: BTreeMap<u64, Versions>,
    made: u64,
}

impl File {
    fn new(size: usize) -> Self {
        Self { size, places: vec![Place::Nowhere], versions: BTreeMap::new(), made: 0 }
    }

    fn now(&self) -> Place {
        *self.places.last().expect("there is one at least")
    }

    fn settle(&mut self) {
        self.places.drain(..self.places.len() - 1);
    }

    fn settle_contents(&mut self) {
        if let Place::Under(_, made) = self.now() {
            let versions = self.versions.entry(made).or_default();
            versions.synced = versions.begun;
        }
    }
}

fn name_of(file: usize, which: usize) -> String {
    format!(
        "{}{file}",
        ["first-name-of-", "the-other-name-that-is-longer-so-that-it-takes-more-room-"][which]
    )
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a plain name")
}

fn with<T>(fs: &dyn FileSystem, entry: Entry, body: impl FnOnce(Ino) -> Result<T>) -> Result<T> {
    let outcome = body(entry.attr.ino);
    fs.forget(entry.attr.ino, 1);
    outcome
}

struct Writer {
    number: u64,
    dir: Ino,
    files: Vec<File>,
}

impl Writer {
    /// Does one operation.
    fn step(
        &mut self,
        fs: &dyn FileSystem,
        dice: &mut Generator,
        (promise, brings_alone): (Promise, bool),
    ) -> Result<()> {
        let number = dice.below(self.files.len() as u64) as usize;
        let (dir, file) = (self.dir, &mut self.files[number]);
        let cred = &Cred::ROOT;
        let Place::Under(which, made) = file.now() else {
            let which = dice.below(2) as usize;
            file.made += 1;
            file.places.push(Place::Under(which, file.made));
            let entry = fs.create(dir, name(&name_of(number, which)), FileType::Regular, 0o644, 0, cred)?;
            fs.forget(entry.attr.ino, 1);
            if promise.metadata_durable_on_return {
                file.settle();
            }
            return Ok(());
        };
        let called = name_of(number, which);
        let find = || fs.lookup(dir, name(&called));
        match dice.below(16) {
            0 => {
                file.places.push(Place::Nowhere);
                fs.unlink(dir, name(&called))?;
                if brings_alone {
                    // A sync of what is made in its place does not make this durable.
                    fs.sync()?;
                    file.settle();
                }
            }
            1 | 2 => {
                file.places.push(Place::Under(1 - which, made));
                let to = name_of(number, 1 - which);
                fs.rename(dir, name(&called), dir, name(&to), RenameMode::Replace)?;
            }
            3 => {
                let sub = format!("sub{}", dice.below(3));
                match fs.mkdir(dir, name(&sub), 0o755, cred) {
                    Ok(entry) => fs.forget(entry.attr.ino, 1),
                    Err(Error::Exists) => drop(fs.rmdir(dir, name(&sub))?),
                    Err(other) => return Err(other),
                }
                return Ok(());
            }
            4 => {
                let other = format!("link{}-{number}", self.number);
                match with(fs, find()?, |ino| fs.link(ino, Ino::ROOT, name(&other))) {
                    Ok(entry) => fs.forget(entry.attr.ino, 1),
                    Err(Error::Exists) => drop(fs.unlink(Ino::ROOT, name(&other))?),
                    Err(other) => return Err(other),
                }
                return Ok(());
            }
            kind => {
                let versions = file.versions.entry(made).or_default();
                versions.begun += 1;
                let word = made << 32 | self.number << 48 | (number as u64) << 56 | versions.begun;
                let bytes: Vec<u8> = word.to_le_bytes().into_iter().cycle().take(file.size).collect();
                // `fdatasync` brings what it takes to find the contents, and no more.
                let (syncs, data_only) = (kind > 7, kind > 13 && file.places.len() == 1);
                with(fs, find()?, |ino| {
                    let written = fs.write(ino, 0, &bytes, WriteMode::default(), cred)?;
                    assert_eq!(written, bytes.len(), "a write is whole");
                    if syncs { fs.fsync(ino, data_only) } else { Ok(()) }
                })?;
                if syncs {
                    file.settle();
                }
                if syncs || promise.data_durable_on_return {
                    file.settle_contents();
                }
                return Ok(());
            }
        }
        if promise.metadata_durable_on_return {
            file.settle();
        }
        Ok(())
    }

    /// Compares what a crash has left, and goes on from there.
    fn judge(&mut self, fs: &dyn FileSystem, promise: Promise) -> std::result::Result<(), String> {
        for (number, file) in self.files.iter_mut().enumerate() {
            let mut found = Vec::new();
            for which in 0..2 {
                match fs.lookup(self.dir, name(&name_of(number, which))) {
                    Ok(entry) => found.push((which, entry.attr.ino, entry.attr.size)),
                    Err(Error::NotFound) => {}
                    Err(other) => return Err(format!("file {number}: {other}")),
                }
            }
            let wrong = |what: String| format!("writer {} file {number}: {what}; {file:?}", self.number);
            let [] = found[..] else {
                let [(which, ino, size)] = found[..] else {
                    return Err(wrong("it has both names".to_owned()));
                };
                let mut bytes = vec![0; size as usize];
                fs.read(ino, 0, &mut bytes, false).map_err(|error| wrong(error.to_string()))?;
                fs.forget(ino, 1);
                let words: Vec<u64> =
                    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
                let made = words.iter().map(|word| word >> 32 & 0xffff).max().filter(|made| *made > 0);
                let fits = |place: &&Place| matches!(place, Place::Under(there, of) if *there == which && made.is_none_or(|made| made == *of));
                // Nothing in it: of all that it may be, the one that promises least.
                let place = file.places.iter().rev().filter(fits).min_by_key(|place| match place {
                    Place::Under(_, made) => file.versions.get(made).map_or(0, |versions| versions.synced),
                    Place::Nowhere => 0,
                });
                let Some(place) = place.copied() else {
                    let runs: Vec<std::collections::BTreeMap<u64, usize>> = words
                        .chunks(512)
                        .map(|page| {
                            let mut of = std::collections::BTreeMap::new();
                            page.iter().for_each(|word| *of.entry(*word).or_default() += 1);
                            of
                        })
                        .collect();
                    return Err(wrong(format!("it is {which} of {made:?}: {runs:x?}")));
                };
                let Place::Under(_, made) = place else { unreachable!("it has a name") };
                let versions = file.versions.get(&made).copied().unwrap_or_default();
                let legal = |word: &u64| {
                    *word == 0 && versions.synced == 0
                        || word >> 32 & 0xffff == made
                            && (versions.synced..=versions.begun).contains(&(word & u64::from(u32::MAX)))
                };
                if let Some(at) = words.iter().position(|word| !legal(word)) {
                    let runs: Vec<std::collections::BTreeMap<u64, usize>> = words
                        .chunks(512)
                        .map(|page| {
                            let mut of = std::collections::BTreeMap::new();
                            page.iter().for_each(|word| *of.entry(*word).or_default() += 1);
                            of
                        })
                        .collect();
                    return Err(wrong(format!("word {at} is {:#x}: {runs:x?}", words[at])));
                }
                if versions.synced > 0 && bytes.len() != file.size || bytes.len() > file.size {
                    return Err(wrong(format!("it has {} bytes", bytes.len())));
                }
                if promise.atomic_writes && words.windows(2).any(|pair| pair[0] != pair[1]) {
                    return Err(wrong(format!("it is torn: {words:x?}")));
                }
                let least = words.iter().map(|word| word & u64::from(u32::MAX)).min().unwrap_or(0);
                let synced = if bytes.len() == file.size { least } else { 0 };
                file.versions = [(made, Versions { synced, begun: versions.begun })].into();
                file.places = vec![place];
                continue;
            };
            if !file.places.contains(&Place::Nowhere) {
                return Err(wrong("it is missing".to_owned()));
            }
            file.places = vec![Place::Nowhere];
            file.versions.clear();
        }
        Ok(())
    }
}

fn use_it(subject: &Subject, seed: u64, rounds: u64, fails: bool) {
    let device = subject::device("free", subject.firmware, Size::Cramped).expect("it can be made");
    let mut rig = Arc::new(Rig::plain(device));
    subject.format(&rig).expect("it is large enough");
    let mut fs = subject.mount(&rig).expect("it was just made");
    let promise = fs.promise();
    let brings_alone = subject.fsync == Fsync::File;
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| {
            let dir = fs.mkdir(Ino::ROOT, name(&format!("writer{number}")), 0o755, &Cred::ROOT);
            let dir = dir.expect("there is room").attr.ino;
            Writer { number, dir, files: SIZES.into_iter().map(File::new).collect() }
        })
        .collect();
    fs.sync().expect("it can be synced");
    let mut dice = Generator::new(seed);
    for round in 0..rounds {
        let of = format!("{} seed {seed} round {round}", subject.name);
        if fails {
            let way = Way::ALL[dice.below(3) as usize];
            rig.fail(Some(Fault { command: dice.below(600), way }));
        } else {
            rig.ssd().cut_after_steps(dice.below(4000), round);
        }
        let shared: Arc<dyn FileSystem> = Arc::from(fs);
        let tasks: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                let (fs, mut dice) = (Arc::clone(&shared), Generator::new(dice.next()));
                amphi_rt::task::spawn("writer", move || {
                    let mut outcome = Ok(());
                    for _ in 0..OPERATIONS {
                        outcome = writer.step(&*fs, &mut dice, (promise, brings_alone));
                        if outcome.is_err() {
                            break;
                        }
                    }
                    (writer, outcome)
                })
            })
            .collect();
        writers = Vec::new();
        for task in tasks {
            let (writer, outcome) = task.join();
            let expected = matches!(outcome, Ok(()) | Err(Error::Io(_) | Error::ReadOnly));
            assert!(expected, "{of}: writer {}: {outcome:?}", writer.number);
            writers.push(writer);
        }
        rig.ssd().power_cut(round);
        drop(shared);
        let ssd = Arc::into_inner(rig).expect("the file system is gone").into_ssd();
        let ssd = ssd.restart().expect("it powers up");
        let recovered = judge::recover(subject, ssd).unwrap_or_else(|error| panic!("{of}: {error}"));
        (rig, fs) = (recovered.rig, recovered.fs);
        if let Err(error) = judge::clean(subject, &rig) {
            eprintln!("{of} CHECK {error}");
        }
        for writer in &mut writers {
            let dir = fs.lookup(Ino::ROOT, name(&format!("writer{}", writer.number)));
            writer.dir = dir.unwrap_or_else(|error| panic!("{of}: {error}")).attr.ino;
            writer.judge(&*fs, promise).unwrap_or_else(|error| panic!("{of}: {error}"));
        }
        judge::clean(subject, &rig).unwrap_or_else(|error| panic!("{of}: {error}"));
    }
}

#[test]
fn threads() {
    let only = std::env::var("ONLY").ok();
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let seed = std::env::var("SEED").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    for subject in &subject::ALL {
        if subject.fsync != Fsync::Contents && only.as_ref().is_none_or(|only| only == subject.name) {
            let begin = std::time::Instant::now();
            use_it(subject, seed, rounds, std::env::var_os("FAILS").is_some());
            eprintln!("{}: {:?}", subject.name, begin.elapsed());
        }
    }
}
