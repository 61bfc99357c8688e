//! A thread that uses a file system, and what it finds after a mount.

use amphi_crashlab::subject::Fsync;
use amphi_rt::random::Generator;
use amphi_vfs::{
    Allocate, Cred, Entry, Error, FileSystem, FileType, Ino, Name, RenameMode, Result, SetAttr, WriteMode,
};

use crate::file::{File, MADE_BITS, Place, VERSION_BITS, Versions, bytes_of, word, words_of};

pub const WRITERS: u64 = 3;
/// Bytes of each writer's files, every one of which is written as a whole.
const SIZES: [usize; 5] = [96, 4096, 5000, 12_296, 40_960];
/// Slices that each writer has of a file that all share, and their bytes: pages have slices of several.
pub const SLICES: usize = 6;
pub const SLICE: usize = 1000;
pub const SHARED: &str = "shared";

/// Names that a file may have: one that fits where the other was, and one that does not, in its writer's
/// directory; one in the root.
pub const PLACES: usize = 3;

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a plain name")
}

/// Does something with what was looked up, and lets go of it.
pub fn with<T>(fs: &dyn FileSystem, entry: Entry, body: impl FnOnce(Ino) -> Result<T>) -> Result<T> {
    let outcome = body(entry.attr.ino);
    fs.forget(entry.attr.ino, 1);
    outcome
}

/// Makes a name, or removes it if it is there.
pub fn toggle(fs: &dyn FileSystem, made: Result<Entry>, remove: impl FnOnce() -> Result<()>) -> Result<()> {
    match made {
        Ok(entry) => with(fs, entry, |_| Ok(())),
        Err(Error::Exists) => remove(),
        Err(other) => Err(other),
    }
}

/// Why a writer does not go on.
#[derive(Debug)]
pub enum Stop {
    Failed(Error),
    /// It has found what it should not.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What is being done, and may be half done where it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    File(usize),
    Slice(usize),
}

/// What a thread has: files in a directory of its own, and slices of the file that all share.
pub struct Writer {
    pub number: u64,
    pub dir: Ino,
    pub files: Vec<File>,
    pub shared: Ino,
    pub slices: [Versions; SLICES],
    /// The slices that were written since the last crash.
    known: [bool; SLICES],
    doing: Doing,
}

impl Writer {
    pub fn new(number: u64) -> Self {
        let files = (0..).zip(SIZES).map(|(file, size)| File::new(number << 4 | file, size)).collect();
        Self {
            number,
            dir: Ino::ROOT,
            files,
            shared: Ino::ROOT,
            slices: Default::default(),
            known: [false; SLICES],
            doing: Doing::Nothing,
        }
    }

    /// One of the places of a file: directory and name.
    pub fn place(&self, file: usize, which: usize) -> (Ino, String) {
        match which {
            0 => (self.dir, format!("a-name-of-{file}")),
            1 => (
                self.dir,
                format!("another-name-that-is-so-long-that-it-takes-more-room-in-a-directory-{file}"),
            ),
            _ => (Ino::ROOT, format!("file{file}-of-{}", self.number)),
        }
    }

    pub fn dir_name(&self) -> String {
        format!("writer{}", self.number)
    }

    /// Looks for what it has after a mount.
    pub fn find(&mut self, fs: &dyn FileSystem) -> Result<()> {
        self.dir = fs.lookup(Ino::ROOT, name(&self.dir_name()))?.attr.ino;
        self.shared = fs.lookup(Ino::ROOT, name(SHARED))?.attr.ino;
        Ok(())
    }

    /// Where one of its slices is in the file that all share.
    pub fn slice_at(&self, slice: usize) -> usize {
        (slice * WRITERS as usize + self.number as usize) * SLICE
    }

    /// Each eighth version of a slice is a hole.
    pub fn slice_word(&self, slice: usize, version: u64) -> u64 {
        if version.is_multiple_of(8) {
            return 0;
        }
        word(self.number << 4 | SIZES.len() as u64, slice as u64 + 1, version)
    }

    /// Does one operation: a write of the file that all share, a read, or one on one of its files.
    pub fn step(
        &mut self,
        fs: &dyn FileSystem,
        dice: &mut Generator,
        fsync: Fsync,
    ) -> std::result::Result<(), Stop> {
        match dice.below(6) {
            0 => self.step_shared(fs, dice)?,
            1 => {
                let number = dice.below(self.files.len() as u64) as usize;
                self.read_own(fs, number)?.map_err(Stop::Wrong)?;
                self.read_slice(fs, dice.below(SLICES as u64) as usize)?.map_err(Stop::Wrong)?;
                self.read_others(fs, dice)?.map_err(Stop::Wrong)?;
            }
            _ => self.step_own(fs, dice, fsync)?,
        }
        self.doing = Doing::Nothing;
        Ok(())
    }

    /// Writes a slice of the file that all share, and syncs the file or does not.
    fn step_shared(&mut self, fs: &dyn FileSystem, dice: &mut Generator) -> Result<()> {
        let slice = dice.below(SLICES as u64) as usize;
        self.doing = Doing::Slice(slice);
        self.slices[slice].begun += 1;
        let word = self.slice_word(slice, self.slices[slice].begun);
        let (at, cred) = (self.slice_at(slice) as u64, &Cred::ROOT);
        let is_hole = word == 0
            && match fs.allocate(self.shared, at, SLICE as u64, Allocate::PunchHole, cred) {
                Err(Error::Unsupported(_)) => false,
                punched => punched.map(|()| true)?,
            };
        if !is_hole {
            let written = fs.write(self.shared, at, &bytes_of(word, SLICE), WriteMode::default(), cred)?;
            assert_eq!(written, SLICE, "a write is whole");
        }
        self.slices[slice].written = self.slices[slice].begun;
        self.known[slice] = true;
        let how = dice.below(3);
        if how > 0 {
            fs.fsync(self.shared, how == 2)?;
            self.slices.iter_mut().for_each(|versions| versions.synced = versions.written);
        } else if fs.promise().data_durable_on_return && !is_hole {
            self.slices[slice].synced = self.slices[slice].written;
        }
        Ok(())
    }

    fn judge_shared(&mut self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        for slice in 0..SLICES {
            let wrong = |what: String| format!("slice {slice} of writer {}: {what}", self.number);
            let mut bytes = vec![0; SLICE];
            let read = fs.read(self.shared, self.slice_at(slice) as u64, &mut bytes, false);
            // The file ends where the last slice does that was written.
            read.map_err(|error| wrong(error.to_string()))?;
            let (words, versions) = (words_of(&bytes), self.slices[slice]);
            if let Some(at) = versions.wrong(&words, |version| self.slice_word(slice, version)) {
                return Err(wrong(format!("its word {at} is {:#x}; {versions:?}", words[at])));
            }
            let written = words.iter().filter(|word| **word != 0).collect::<Vec<_>>();
            if fs.promise().atomic_writes && written.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(wrong("it holds parts of two writes".to_owned()));
            }
            self.slices[slice] = versions.found(&words);
            self.known[slice] = false;
        }
        Ok(())
    }

    /// Does one operation on one of the files. What it may have done is noted before, what it has promised
    /// after.
    fn step_own(&mut self, fs: &dyn FileSystem, dice: &mut Generator, fsync: Fsync) -> Result<()> {
        let (cred, promise) = (&Cred::ROOT, fs.promise());
        let number = dice.below(self.files.len() as u64) as usize;
        self.doing = Doing::File(number);
        let Place::Under(which, made) = self.files[number].now() else {
            let which = dice.below(PLACES as u64) as usize;
            let (dir, called) = self.place(number, which);
            let file = &mut self.files[number];
            file.made += 1;
            file.places.push(Place::Under(which, file.made));
            let entry = fs.create(dir, name(&called), FileType::Regular, 0o644, 0, cred)?;
            fs.forget(entry.attr.ino, 1);
            file.holds = Some((0, 0));
            if promise.metadata_durable_on_return {
                file.settle();
            }
            return Ok(());
        };
        let (dir, called) = self.place(number, which);
        let other = (which + 1 + dice.below(PLACES as u64 - 1) as usize) % PLACES;
        let (to_dir, to) = self.place(number, other);
        let (own_dir, owner) = (self.dir, self.number);
        let file = &mut self.files[number];
        let kind = dice.below(16);
        match kind {
            0 => {
                file.places.push(Place::Nowhere);
                fs.unlink(dir, name(&called))?;
                if fsync != Fsync::Before {
                    // Syncing what is made in its place does not make this durable.
                    fs.sync()?;
                    file.settle();
                }
            }
            1 | 2 => {
                file.places.push(Place::Under(other, made));
                fs.rename(dir, name(&called), to_dir, name(&to), RenameMode::Replace)?;
            }
            3 => {
                // Directories that nobody compares: the check counts their names and links.
                let sub = format!("sub{}", dice.below(3));
                let moved = format!("{sub}-of-{owner}");
                let (sub, moved) = (name(&sub), name(&moved));
                let outcome = match dice.below(4) {
                    0 => fs.rename(own_dir, sub, Ino::ROOT, moved, RenameMode::Replace).map(drop),
                    1 => fs.rename(Ino::ROOT, moved, own_dir, sub, RenameMode::Replace).map(drop),
                    _ => {
                        let made = fs.mkdir(own_dir, sub, 0o755, cred);
                        toggle(fs, made, || fs.rmdir(own_dir, sub).map(drop))
                    }
                };
                return if outcome == Err(Error::NotFound) { Ok(()) } else { outcome };
            }
            4 => {
                let other = format!("link{owner}-{number}");
                let entry = fs.lookup(dir, name(&called))?;
                let made = with(fs, entry, |ino| fs.link(ino, Ino::ROOT, name(&other)));
                return toggle(fs, made, || fs.unlink(Ino::ROOT, name(&other)).map(drop));
            }
            5 => {
                file.is_cut = true;
                let size = Some(file.half() as u64);
                let entry = fs.lookup(dir, name(&called))?;
                let cut = |ino| fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }, cred);
                with(fs, entry, cut)?;
                file.holds = file.holds.map(|(_, version)| (file.half(), version));
                return Ok(());
            }
            _ => {
                let versions = file.versions.entry(made).or_default();
                versions.begun += 1;
                let bytes = bytes_of(word(file.owner, made, versions.begun), file.size);
                // `fdatasync` brings what it takes to find the contents, and no more.
                let (syncs, data_only) = (kind > 8, kind > 13 && file.places.len() == 1);
                let entry = fs.lookup(dir, name(&called))?;
                with(fs, entry, |ino| {
                    let written = fs.write(ino, 0, &bytes, WriteMode::default(), cred)?;
                    assert_eq!(written, bytes.len(), "a write is whole");
                    versions.written = versions.begun;
                    file.holds = Some((file.size, versions.written));
                    if syncs { fs.fsync(ino, data_only) } else { Ok(()) }
                })?;
                if syncs && fsync != Fsync::Contents {
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

    /// All that is found of one of its files: under which name, and what it holds.
    fn found(&self, fs: &dyn FileSystem, number: usize) -> Result<Vec<(usize, Vec<u8>)>> {
        let mut found = Vec::new();
        for which in 0..PLACES {
            let (dir, called) = self.place(number, which);
            let entry = match fs.lookup(dir, name(&called)) {
                Err(Error::NotFound) => continue,
                other => other?,
            };
            let mut bytes = vec![0; entry.attr.size as usize];
            let read = with(fs, entry, |ino| fs.read(ino, 0, &mut bytes, false))?;
            bytes.truncate(read);
            found.push((which, bytes));
        }
        Ok(found)
    }

    /// Reads one of its files.
    fn read_own(&self, fs: &dyn FileSystem, number: usize) -> Result<std::result::Result<(), String>> {
        let (found, file) = (self.found(fs, number)?, &self.files[number]);
        Ok(file.judge_reader(&found).map_err(|what| self.of_file(number, &format!("{what}; it is {file:?}"))))
    }

    /// Reads one of its slices of the file that all share.
    fn read_slice(&self, fs: &dyn FileSystem, slice: usize) -> Result<std::result::Result<(), String>> {
        let mut bytes = vec![0; SLICE];
        // Where the file ends before it, it is a hole.
        fs.read(self.shared, self.slice_at(slice) as u64, &mut bytes, false)?;
        let due = self.slice_word(slice, self.slices[slice].written);
        let wrong = words_of(&bytes).into_iter().find(|word| *word != due);
        Ok(match wrong {
            Some(word) if self.known[slice] => {
                let who = self.number;
                Err(format!("slice {slice} of writer {who} holds {word:#x} and should hold {due:#x}"))
            }
            _ => Ok(()),
        })
    }

    /// Reads a file of another writer, who may be doing anything to it: what it holds is its own.
    fn read_others(
        &self,
        fs: &dyn FileSystem,
        dice: &mut Generator,
    ) -> Result<std::result::Result<(), String>> {
        let mut other = Self::new((self.number + 1 + dice.below(WRITERS - 1)) % WRITERS);
        let entry = fs.lookup(Ino::ROOT, name(&other.dir_name()))?;
        other.dir = entry.attr.ino;
        let number = dice.below(SIZES.len() as u64) as usize;
        let found = with(fs, entry, |_| other.found(fs, number))?;
        let owner = other.files[number].owner;
        let foreign = |word: &u64| *word != 0 && *word >> (VERSION_BITS + MADE_BITS) != owner;
        let wrong = found.iter().find_map(|(_, bytes)| words_of(bytes).into_iter().find(foreign));
        Ok(wrong.map_or(Ok(()), |word| Err(other.of_file(number, &format!("it holds {word:#x}")))))
    }

    /// Whether it was writing a slice when that failed.
    pub fn has_begun_slice(&self) -> bool {
        matches!(self.doing, Doing::Slice(_))
    }

    /// Reads all that it has while nobody does anything to it, but what it was doing when that failed. Of the
    /// file that all share, where writing it has failed, nobody may know.
    pub fn judge_reader(&self, fs: &dyn FileSystem, half_written: bool) -> std::result::Result<(), String> {
        for number in (0..self.files.len()).filter(|number| self.doing != Doing::File(*number)) {
            self.read_own(fs, number).map_err(|error| self.of_file(number, &error.to_string()))??;
        }
        for slice in (0..SLICES).filter(|slice| self.doing != Doing::Slice(*slice)) {
            match self.read_slice(fs, slice) {
                Err(Error::Io(_)) if half_written => {}
                read => read.map_err(|error| format!("slice {slice}: {error}"))??,
            }
        }
        Ok(())
    }

    fn of_file(&self, number: usize, what: &str) -> String {
        format!("file {number} of writer {}: {what}", self.number)
    }

    /// Compares what a crash has left.
    pub fn judge(&mut self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        let promise = fs.promise();
        self.doing = Doing::Nothing;
        for number in 0..self.files.len() {
            let found = self.found(fs, number).map_err(|error| self.of_file(number, &error.to_string()))?;
            let was = self.files[number].clone();
            let judged = self.files[number].judge(&found, promise);
            judged.map_err(|what| self.of_file(number, &format!("{what}; it was {was:?}")))?;
        }
        self.judge_shared(fs)
    }
}
