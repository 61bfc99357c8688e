//! A thread that replaces a file as editors and databases do: it writes a new one, syncs it, and renames it
//! over the old one. Whoever looks finds one version or another, and all of it.

use amphi_rt::random::Generator;
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, RenameMode, Result, WriteMode};

use crate::file::{bytes_of, words_of};
use crate::writer::{Stop, name, with};

/// Most words of a version.
const LONGEST: u64 = 2500;

/// A file that is replaced, and the versions that it may be.
pub struct Publisher {
    number: u64,
    /// The version that is durable (0: none), the one whose rename has returned, and the last one begun.
    durable: u64,
    shown: u64,
    begun: u64,
}

impl Publisher {
    pub const fn new(number: u64) -> Self {
        Self { number, durable: 0, shown: 0, begun: 0 }
    }

    fn target(number: u64) -> String {
        format!("published-by-{number}")
    }

    /// What a version holds: a number that says which, as often as it says.
    fn content(number: u64, version: u64) -> Vec<u8> {
        let words = 1 + version.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) % LONGEST;
        bytes_of(1 << 63 | number << 32 | version, words as usize * 8)
    }

    /// Replaces its file, or reads that of any publisher, of which there are so many.
    pub fn step(
        &mut self,
        fs: &dyn FileSystem,
        dice: &mut Generator,
        publishers: u64,
    ) -> std::result::Result<(), Stop> {
        if dice.below(3) == 0 {
            let number = dice.below(publishers);
            let found = Self::read(fs, number)?.map_err(Stop::Wrong)?;
            let is_due = number != self.number || found == self.shown;
            let wrong = || format!("publisher {number} shows {found} and should show {}", self.shown);
            return if is_due { Ok(()) } else { Err(Stop::Wrong(wrong())) };
        }
        let (new, target) = (format!("new-of-{}", self.number), Self::target(self.number));
        let (new, target) = (name(&new), name(&target));
        match fs.unlink(Ino::ROOT, new) {
            Err(Error::NotFound) => {}
            gone => gone.map(drop)?,
        }
        self.begun += 1;
        let content = Self::content(self.number, self.begun);
        let made = fs.create(Ino::ROOT, new, FileType::Regular, 0o644, 0, &Cred::ROOT)?;
        let data_only = dice.below(2) == 0;
        with(fs, made, |ino| {
            let written = fs.write(ino, 0, &content, WriteMode::default(), &Cred::ROOT)?;
            assert_eq!(written, content.len(), "a write is whole");
            fs.fsync(ino, data_only)
        })?;
        fs.rename(Ino::ROOT, new, Ino::ROOT, target, RenameMode::Replace)?;
        self.shown = self.begun;
        if dice.below(4) == 0 {
            fs.sync()?;
            self.durable = self.shown;
        } else if fs.promise().metadata_durable_on_return {
            self.durable = self.shown;
        }
        Ok(())
    }

    /// The version that a publisher shows; 0 if none.
    fn read(fs: &dyn FileSystem, number: u64) -> Result<std::result::Result<u64, String>> {
        let entry = match fs.lookup(Ino::ROOT, name(&Self::target(number))) {
            Err(Error::NotFound) => return Ok(Ok(0)),
            entry => entry?,
        };
        let mut bytes = vec![0; LONGEST as usize * 8 + 8];
        let size = entry.attr.size;
        let read = with(fs, entry, |ino| fs.read(ino, 0, &mut bytes, false))?;
        bytes.truncate(read);
        let version = words_of(&bytes).first().map_or(0, |word| word & 0xffff_ffff);
        let is_whole = bytes == Self::content(number, version) && size == bytes.len() as u64;
        let words = || bytes.chunk_by(|a, b| a == b).count();
        let wrong = || {
            format!(
                "publisher {number} shows {read} bytes of {size} from version {version}, {} runs",
                words()
            )
        };
        Ok(if is_whole { Ok(version) } else { Err(wrong()) })
    }

    /// Reads what it shows while nobody does anything.
    pub fn judge_reader(&self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        self.judge_versions(fs, self.shown)
    }

    /// Compares what a crash has left.
    pub fn judge(&mut self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        self.judge_versions(fs, self.durable)?;
        let found = Self::read(fs, self.number).map_err(|error| error.to_string())??;
        (self.durable, self.shown) = (found, found);
        Ok(())
    }

    fn judge_versions(&self, fs: &dyn FileSystem, oldest: u64) -> std::result::Result<(), String> {
        let found = Self::read(fs, self.number).map_err(|error| error.to_string())??;
        if (oldest..=self.begun).contains(&found) {
            return Ok(());
        }
        Err(format!("publisher {} shows {found}, not {oldest} to {}", self.number, self.begun))
    }
}
