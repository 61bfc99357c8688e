//! A file system called directly, as a program does that links it.

use std::sync::Arc;

use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, WriteMode};
use anyhow::{Context, Result, bail};

use crate::operation::{
    DATA_BYTES, Desk, FILES, LARGE, Names, Operation, PAGE, Place, contents, fill, large_place, place,
    place_of,
};

/// A file system in this process.
#[derive(Clone)]
pub struct Library {
    fs: Arc<dyn FileSystem>,
}

impl Library {
    /// The file system.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self { fs }
    }
}

impl Place for Library {
    fn desk(&self, thread: usize) -> Result<Box<dyn Desk>> {
        if !self.fs.promise().metadata_durable_on_return {
            bail!("what this file system's library needs to make a name durable is not known here");
        }
        let fs = Arc::clone(&self.fs);
        let cred = Cred::ROOT;
        let directory =
            fs.mkdir(Ino::ROOT, Name::new(format!("thread-{thread}").as_bytes())?, 0o755, &cred)?.attr.ino;
        let inner = fs.mkdir(directory, Name::new(b"inner")?, 0o755, &cred)?.attr.ino;
        let mut desk = Calls {
            directory,
            data: fs.create(directory, Name::new(b"data")?, FileType::Regular, 0o644, 0, &cred)?.attr.ino,
            appended: None,
            names: Names::default(),
            inner_names: (0..FILES).map(|number| format!("file-{number:06}")).collect(),
            buffer: contents(0),
            room: vec![0; LARGE],
            round: 0,
            cred,
            fs,
        };
        for name in &desk.inner_names {
            desk.make(inner, name)?;
        }
        for number in 0..DATA_BYTES / LARGE {
            desk.write(desk.data, large_place(number), LARGE)?;
        }
        desk.fs.fsync(desk.data, false)?;
        desk.round = 1;
        Ok(Box::new(desk))
    }
}

struct Calls {
    fs: Arc<dyn FileSystem>,
    cred: Cred,
    directory: Ino,
    data: Ino,
    /// The file that grows.
    appended: Option<Ino>,
    names: Names,
    inner_names: Vec<String>,
    buffer: Vec<u8>,
    room: Vec<u8>,
    /// Changes what is written from batch to batch: equal bytes would be nothing to write.
    round: u8,
}

impl Calls {
    fn create(&self, dir: Ino, name: &str) -> Result<Ino> {
        let name = Name::new(name.as_bytes())?;
        Ok(self.fs.create(dir, name, FileType::Regular, 0o644, 0, &self.cred)?.attr.ino)
    }

    /// Creates and closes.
    fn make(&self, dir: Ino, name: &str) -> Result<()> {
        let ino = self.create(dir, name)?;
        self.fs.forget(ino, 1);
        Ok(())
    }

    fn write(&self, file: Ino, at: u64, bytes: usize) -> Result<()> {
        let written = self.fs.write(file, at, &self.buffer[..bytes], WriteMode::default(), &self.cred)?;
        anyhow::ensure!(written == bytes, "{written} of {bytes} bytes were written");
        Ok(())
    }

    fn read(&mut self, at: u64, bytes: usize, direct: bool) -> Result<()> {
        let read = self.fs.read(self.data, at, &mut self.room[..bytes], direct)?;
        anyhow::ensure!(read == bytes, "{read} of {bytes} bytes were read");
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.fs.unlink(self.directory, Name::new(name.as_bytes())?)?;
        Ok(())
    }

    /// Walks a path of two names and calls `then` with the file.
    fn at_path(&self, number: usize, then: impl FnOnce(Ino) -> Result<()>) -> Result<()> {
        let inner = self.fs.lookup(self.directory, Name::new(b"inner")?)?.attr.ino;
        let name = Name::new(self.inner_names[number % FILES].as_bytes())?;
        let file = self.fs.lookup(inner, name)?.attr.ino;
        let outcome = then(file);
        self.fs.forget(file, 1);
        self.fs.forget(inner, 1);
        outcome
    }
}

impl Desk for Calls {
    fn prepare(&mut self, operation: Operation, calls: usize) -> Result<()> {
        self.round = self.round.wrapping_add(1);
        fill(&mut self.buffer, self.round);
        match operation {
            Operation::Rename | Operation::RenameDurable | Operation::Unlink | Operation::UnlinkDurable => {
                self.names.old[..calls].iter().try_for_each(|name| self.make(self.directory, name))?;
            }
            Operation::AppendSync => self.appended = Some(self.create(self.directory, "appended")?),
            Operation::CachedRead(_) => {
                (0..DATA_BYTES / PAGE).try_for_each(|number| self.read(place(number), PAGE, false))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, operation: Operation, number: usize) -> Result<()> {
        let old = &self.names.old[number];
        match operation {
            // Durable on return: `desk` has made sure of that.
            Operation::Create | Operation::CreateDurable => self.make(self.directory, old)?,
            Operation::Mkdir | Operation::MkdirDurable => {
                let made = self.fs.mkdir(self.directory, Name::new(old.as_bytes())?, 0o755, &self.cred)?;
                self.fs.forget(made.attr.ino, 1);
            }
            Operation::Rename | Operation::RenameDurable => {
                let new = Name::new(self.names.new[number].as_bytes())?;
                let old = Name::new(old.as_bytes())?;
                self.fs.rename(self.directory, old, self.directory, new, RenameMode::Replace)?;
            }
            Operation::Unlink | Operation::UnlinkDurable => self.remove(old)?,
            Operation::Stat => self.at_path(number, |file| Ok(self.fs.getattr(file).map(drop)?))?,
            Operation::Open => self.at_path(number, |file| {
                self.fs.open(file, OpenFlags::default())?;
                self.fs.release(file);
                Ok(())
            })?,
            Operation::CreateWriteSync => {
                let file = self.create(self.directory, old)?;
                self.write(file, 0, PAGE)?;
                self.fs.fsync(file, false)?;
                self.fs.forget(file, 1);
            }
            Operation::AppendSync => {
                let file = self.appended.context("append was not prepared")?;
                self.write(file, (number * PAGE) as u64, PAGE)?;
                self.fs.fsync(file, false)?;
            }
            Operation::OverwriteSync(bytes) => {
                self.write(self.data, place(number), bytes)?;
                self.fs.fsync(self.data, false)?;
            }
            Operation::Write(bytes) => self.write(self.data, place(number), bytes)?,
            Operation::CachedRead(bytes) => self.read(place_of(bytes, number), bytes, false)?,
            Operation::DirectRead(bytes) => self.read(place_of(bytes, number), bytes, true)?,
            Operation::LargeWriteSync => {
                self.write(self.data, large_place(number), LARGE)?;
                self.fs.fsync(self.data, false)?;
            }
        }
        Ok(())
    }

    fn clear(&mut self, operation: Operation, calls: usize) -> Result<()> {
        match operation {
            Operation::Create | Operation::CreateDurable | Operation::CreateWriteSync => {
                self.names.old[..calls].iter().try_for_each(|name| self.remove(name))
            }
            Operation::Mkdir | Operation::MkdirDurable => {
                self.names.old[..calls].iter().try_for_each(|name| {
                    Ok(self.fs.rmdir(self.directory, Name::new(name.as_bytes())?).map(drop)?)
                })
            }
            Operation::Rename | Operation::RenameDurable => {
                self.names.new[..calls].iter().try_for_each(|name| self.remove(name))
            }
            Operation::AppendSync => {
                let file = self.appended.take().context("append was not prepared")?;
                self.remove("appended")?;
                self.fs.forget(file, 1);
                Ok(())
            }
            Operation::Write(_) => Ok(self.fs.fsync(self.data, false)?),
            _ => Ok(()),
        }
    }
}
