//! A file system through the C library, by paths, as most programs use it: what is preloaded in front of that
//! library sees these calls.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::operation::{
    DATA_BYTES, Desk, FILES, LARGE, Names, Operation, PAGE, contents, fill, large_place, place, place_of,
};

/// A directory of its own below a mount, and its paths, made beforehand.
pub(crate) struct Paths {
    directory: File,
    data: File,
    /// The file that grows.
    appended: Option<File>,
    appended_path: PathBuf,
    old: Vec<PathBuf>,
    new: Vec<PathBuf>,
    inner: Vec<PathBuf>,
    buffer: Vec<u8>,
    room: Vec<u8>,
    /// Changes what is written from batch to batch: equal bytes would be nothing to write.
    round: u8,
}

fn create(path: &Path) -> Result<File> {
    Ok(OpenOptions::new().write(true).create_new(true).open(path)?)
}

impl Paths {
    /// Makes `directory` and what the operations need in it.
    pub(crate) fn make(directory: &Path) -> Result<Self> {
        fs::create_dir(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        let below = |names: &[String]| names.iter().map(|name| directory.join(name)).collect::<Vec<_>>();
        let names = Names::default();
        fs::create_dir(directory.join("inner"))?;
        let inner: Vec<_> =
            (0..FILES).map(|number| directory.join(format!("inner/file-{number:06}"))).collect();
        inner.iter().try_for_each(|path| create(path).map(drop))?;
        let mut options = OpenOptions::new();
        let data = options.read(true).write(true).create_new(true).open(directory.join("data"))?;
        let buffer = contents(0);
        for number in 0..DATA_BYTES / LARGE {
            data.write_all_at(&buffer, large_place(number))?;
        }
        data.sync_all()?;
        let opened = File::open(directory)?;
        opened.sync_all()?;
        Ok(Self {
            directory: opened,
            data,
            appended: None,
            appended_path: directory.join("appended"),
            old: below(&names.old),
            new: below(&names.new),
            inner,
            buffer,
            room: vec![0; LARGE],
            round: 0,
        })
    }
}

impl Desk for Paths {
    fn prepare(&mut self, operation: Operation, calls: usize) -> Result<()> {
        self.round = self.round.wrapping_add(1);
        fill(&mut self.buffer, self.round);
        match operation {
            Operation::Rename | Operation::RenameDurable | Operation::Unlink | Operation::UnlinkDurable => {
                self.old[..calls].iter().try_for_each(|path| create(path).map(drop))?;
                self.directory.sync_all()?;
            }
            Operation::AppendSync => {
                let file = create(&self.appended_path)?;
                file.sync_all()?;
                self.appended = Some(file);
            }
            Operation::CachedRead(_) => {
                for number in 0..DATA_BYTES / PAGE {
                    self.data.read_exact_at(&mut self.room[..PAGE], place(number))?;
                }
            }
            Operation::DirectRead(_) => bail!("direct reads are not made this way"),
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, operation: Operation, number: usize) -> Result<()> {
        let old = &self.old[number];
        let is_durable = operation.is_durable();
        match operation {
            Operation::Create | Operation::CreateDurable => drop(create(old)?),
            Operation::Mkdir | Operation::MkdirDurable => fs::create_dir(old)?,
            Operation::Rename | Operation::RenameDurable => fs::rename(old, &self.new[number])?,
            Operation::Unlink | Operation::UnlinkDurable => fs::remove_file(old)?,
            Operation::Stat => {
                fs::metadata(&self.inner[number % FILES])?;
            }
            Operation::Open => drop(File::open(&self.inner[number % FILES])?),
            Operation::CreateWriteSync => {
                let file = create(old)?;
                file.write_all_at(&self.buffer[..PAGE], 0)?;
                return Ok(file.sync_all()?);
            }
            Operation::AppendSync => {
                let file = self.appended.as_ref().context("append was not prepared")?;
                file.write_all_at(&self.buffer[..PAGE], (number * PAGE) as u64)?;
                return Ok(file.sync_all()?);
            }
            Operation::OverwriteSync(bytes) => {
                self.data.write_all_at(&self.buffer[..bytes], place(number))?;
                return Ok(self.data.sync_all()?);
            }
            Operation::Write(bytes) => self.data.write_all_at(&self.buffer[..bytes], place(number))?,
            Operation::CachedRead(bytes) => {
                self.data.read_exact_at(&mut self.room[..bytes], place_of(bytes, number))?;
            }
            Operation::LargeWriteSync => {
                self.data.write_all_at(&self.buffer, large_place(number))?;
                return Ok(self.data.sync_all()?);
            }
            Operation::DirectRead(_) => bail!("direct reads are not made this way"),
        }
        if is_durable {
            self.directory.sync_all()?;
        }
        Ok(())
    }

    fn clear(&mut self, operation: Operation, calls: usize) -> Result<()> {
        let remove = |path: &PathBuf| fs::remove_file(path);
        match operation {
            Operation::Create | Operation::CreateDurable | Operation::CreateWriteSync => {
                self.old[..calls].iter().try_for_each(remove)?;
            }
            Operation::Mkdir | Operation::MkdirDurable => {
                self.old[..calls].iter().try_for_each(fs::remove_dir)?;
            }
            Operation::Rename | Operation::RenameDurable => {
                self.new[..calls].iter().try_for_each(remove)?;
            }
            Operation::AppendSync => {
                self.appended = None;
                fs::remove_file(&self.appended_path)?;
            }
            Operation::Write(_) => self.data.sync_all()?,
            _ => {}
        }
        Ok(())
    }
}
