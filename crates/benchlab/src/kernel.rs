//! A file system through system calls: the kernel's own, or ours through FUSE. Paths start at an open
//! directory, so that what lies above the mount does not count.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};

use crate::operation::{
    DATA_BYTES, Desk, FILES, LARGE, Names, Operation, PAGE, Place, contents, fill, large_place, place,
    place_of,
};

/// A mounted directory.
#[derive(Clone, Debug)]
pub struct Mounted {
    directory: PathBuf,
}

impl Mounted {
    /// The file system mounted at, or holding, `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }
}

impl Place for Mounted {
    fn desk(&self, thread: usize) -> Result<Box<dyn Desk>> {
        let path = self.directory.join(format!("thread-{thread}"));
        std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        let directory = File::open(&path)?;
        mkdirat(&directory, "inner", Mode::from_raw_mode(0o755))?;
        let inner = openat(&directory, "inner", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        for number in 0..FILES {
            drop(openat(&inner, format!("file-{number:06}"), CREATE, FILE_MODE)?);
        }
        let data: File = openat(&directory, "data", OFlags::RDWR | OFlags::CREATE, FILE_MODE)?.into();
        let buffer = contents(0);
        for number in 0..DATA_BYTES / LARGE {
            data.write_all_at(&buffer, large_place(number))?;
        }
        data.sync_all()?;
        directory.sync_all()?;
        let direct = openat(&directory, "data", OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).ok();
        let inner_paths = (0..FILES).map(|number| format!("inner/file-{number:06}")).collect();
        let room = Room::new();
        let names = Names::default();
        Ok(Box::new(Calls {
            directory,
            data,
            direct,
            appended: None,
            inner_paths,
            names,
            buffer,
            room,
            round: 0,
        }))
    }
}

const CREATE: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY).union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);

/// [`LARGE`] bytes where the kernel's direct reads can put them: at the beginning of a page.
struct Room {
    bytes: Vec<u8>,
    begin: usize,
}

impl Room {
    fn new() -> Self {
        let bytes = vec![0_u8; LARGE + PAGE];
        let begin = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, begin }
    }

    fn first(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.bytes[self.begin..][..bytes]
    }
}

struct Calls {
    directory: File,
    data: File,
    /// The data file past the page cache, where that is allowed.
    direct: Option<OwnedFd>,
    /// The file that grows.
    appended: Option<File>,
    inner_paths: Vec<String>,
    names: Names,
    buffer: Vec<u8>,
    room: Room,
    /// Changes what is written from batch to batch: equal bytes would be nothing to write.
    round: u8,
}

impl Calls {
    fn create(&self, name: &str) -> Result<OwnedFd> {
        Ok(openat(&self.directory, name, CREATE, FILE_MODE)?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }
}

impl Desk for Calls {
    fn prepare(&mut self, operation: Operation, calls: usize) -> Result<()> {
        self.round = self.round.wrapping_add(1);
        fill(&mut self.buffer, self.round);
        match operation {
            Operation::Rename | Operation::RenameDurable | Operation::Unlink | Operation::UnlinkDurable => {
                for name in &self.names.old[..calls] {
                    drop(self.create(name)?);
                }
                self.directory.sync_all()?;
            }
            Operation::AppendSync => {
                let file: File = self.create("appended")?.into();
                file.sync_all()?;
                self.appended = Some(file);
            }
            Operation::CachedRead(_) => {
                for number in 0..DATA_BYTES / PAGE {
                    self.data.read_exact_at(self.room.first(PAGE), place(number))?;
                }
            }
            Operation::DirectRead(_) if self.direct.is_none() => {
                anyhow::bail!("this file system has no direct reads")
            }
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, operation: Operation, number: usize) -> Result<()> {
        let directory = &self.directory;
        let old = self.names.old[number].as_str();
        match operation {
            Operation::Create => drop(self.create(old)?),
            Operation::CreateDurable => {
                drop(self.create(old)?);
                directory.sync_all()?;
            }
            Operation::Mkdir => mkdirat(directory, old, Mode::from_raw_mode(0o755))?,
            Operation::MkdirDurable => {
                mkdirat(directory, old, Mode::from_raw_mode(0o755))?;
                directory.sync_all()?;
            }
            Operation::Rename => renameat(directory, old, directory, self.names.new[number].as_str())?,
            Operation::RenameDurable => {
                renameat(directory, old, directory, self.names.new[number].as_str())?;
                directory.sync_all()?;
            }
            Operation::Unlink => self.remove(old)?,
            Operation::UnlinkDurable => {
                self.remove(old)?;
                directory.sync_all()?;
            }
            Operation::Stat => {
                statat(directory, self.inner_paths[number % FILES].as_str(), AtFlags::empty())?;
            }
            Operation::Open => {
                let path = self.inner_paths[number % FILES].as_str();
                drop(openat(directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
            }
            Operation::CreateWriteSync => {
                let file: File = self.create(old)?.into();
                file.write_all_at(&self.buffer[..PAGE], 0)?;
                file.sync_all()?;
            }
            Operation::AppendSync => {
                let file = self.appended.as_ref().context("append was not prepared")?;
                file.write_all_at(&self.buffer[..PAGE], (number * PAGE) as u64)?;
                file.sync_all()?;
            }
            Operation::OverwriteSync(bytes) => {
                self.data.write_all_at(&self.buffer[..bytes], place(number))?;
                self.data.sync_all()?;
            }
            Operation::Write(bytes) => self.data.write_all_at(&self.buffer[..bytes], place(number))?,
            Operation::CachedRead(bytes) => {
                self.data.read_exact_at(self.room.first(bytes), place_of(bytes, number))?;
            }
            Operation::DirectRead(bytes) => {
                let direct = self.direct.as_ref().context("direct reads were not prepared")?;
                let read = rustix::io::pread(direct, self.room.first(bytes), place_of(bytes, number))?;
                anyhow::ensure!(read == bytes, "a direct read returned {read} bytes");
            }
            Operation::LargeWriteSync => {
                self.data.write_all_at(&self.buffer, large_place(number))?;
                self.data.sync_all()?;
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
                    unlinkat(&self.directory, name.as_str(), AtFlags::REMOVEDIR).context("a directory stays")
                })
            }
            Operation::Rename | Operation::RenameDurable => {
                self.names.new[..calls].iter().try_for_each(|name| self.remove(name))
            }
            Operation::AppendSync => {
                self.appended = None;
                self.remove("appended")
            }
            Operation::Write(_) => Ok(self.data.sync_all()?),
            _ => Ok(()),
        }
    }
}
