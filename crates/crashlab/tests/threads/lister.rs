//! A thread that lists a directory in which others make, move and remove names: what stays is listed once.

use std::collections::BTreeMap;

use amphi_rt::random::Generator;
use amphi_vfs::{Cred, DirEntry, Error, FileSystem, FileType, Ino, RenameMode, Result};

use crate::writer::{Stop, name, toggle, with};

const DIR: &str = "listed";
/// Names that stay.
const STAY: u64 = 30;
/// Names of each lister that come and go.
const GO: u64 = 10;

fn staying(number: u64) -> String {
    format!("stays-{number}")
}

/// A lister, and the file that all the names are of.
pub struct Lister {
    number: u64,
    dir: Ino,
    file: Ino,
    /// Something has been begun that has not come to its end.
    pub is_busy: bool,
}

impl Lister {
    pub const fn new(number: u64) -> Self {
        Self { number, dir: Ino::ROOT, file: Ino::ROOT, is_busy: false }
    }

    /// Makes the directory.
    pub fn make(fs: &dyn FileSystem) -> Result<()> {
        let dir = fs.mkdir(Ino::ROOT, name(DIR), 0o755, &Cred::ROOT)?;
        with(fs, dir, |dir| {
            let file = fs.create(dir, name(&staying(0)), FileType::Regular, 0o644, 0, &Cred::ROOT)?;
            with(fs, file, |file| {
                (1..STAY).try_for_each(|number| {
                    let entry = fs.link(file, dir, name(&staying(number)))?;
                    with(fs, entry, |_| Ok(()))
                })
            })
        })?;
        fs.sync()
    }

    /// Looks for it after a mount.
    pub fn find(&mut self, fs: &dyn FileSystem) -> Result<()> {
        self.is_busy = false;
        self.dir = fs.lookup(Ino::ROOT, name(DIR))?.attr.ino;
        self.file = fs.lookup(self.dir, name(&staying(0)))?.attr.ino;
        Ok(())
    }

    /// One of its names that go, short or long.
    fn going(&self, dice: &mut Generator) -> String {
        let which = dice.below(GO);
        let long =
            if which.is_multiple_of(2) { "" } else { "-by-a-name-that-takes-more-room-in-its-directory" };
        format!("goes-{}-{which}{long}", self.number)
    }

    pub fn step(&mut self, fs: &dyn FileSystem, dice: &mut Generator) -> std::result::Result<(), Stop> {
        self.is_busy = true;
        let (from, to) = (self.going(dice), self.going(dice));
        match dice.below(8) {
            0 => self.list(fs, 1 + dice.below(20))?.map_err(Stop::Wrong)?,
            1..4 => match fs.rename(self.dir, name(&from), self.dir, name(&to), RenameMode::Replace) {
                Err(Error::NotFound) => {}
                moved => moved.map(drop)?,
            },
            _ => {
                let made = fs.link(self.file, self.dir, name(&from));
                toggle(fs, made, || fs.unlink(self.dir, name(&from)).map(drop))?;
            }
        }
        self.is_busy = false;
        Ok(())
    }

    /// Lists the directory, so many entries at a time.
    fn list(&self, fs: &dyn FileSystem, at_once: u64) -> Result<std::result::Result<(), String>> {
        let mut seen = BTreeMap::<Vec<u8>, u64>::new();
        let mut cookie = 0;
        loop {
            let mut taken = 0;
            fs.readdir(self.dir, cookie, &mut |entry: DirEntry<'_>| {
                if taken < at_once {
                    cookie = entry.next_cookie;
                    *seen.entry(entry.name.to_owned()).or_default() += 1;
                }
                taken += 1;
                taken <= at_once
            })?;
            if taken == 0 {
                break;
            }
        }
        let wrong = (0..STAY).map(staying).find_map(|stays| {
            let times = seen.get(stays.as_bytes()).copied().unwrap_or(0);
            (times != 1).then(|| format!("{stays} is listed {times} times, {at_once} at once"))
        });
        Ok(wrong.map_or(Ok(()), Err))
    }

    /// Lists it while nobody does anything. Where changing it has failed, nobody may know what it has.
    pub fn judge(&self, fs: &dyn FileSystem, half_changed: bool) -> std::result::Result<(), String> {
        match self.list(fs, 7) {
            Err(Error::Io(_)) if half_changed => Ok(()),
            listed => listed.map_err(|error| format!("listing: {error}"))?,
        }
    }
}
