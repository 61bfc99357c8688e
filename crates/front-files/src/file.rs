//! [`File`]: an open file, and what is done with it at offsets.

use std::io;
use std::sync::Arc;

use amphi_queue::format::{Attributes, Change, Completion, Submission, change, flag, kind, op};
use zerocopy::IntoBytes;

use crate::errno::error;
use crate::request::{DATA_BYTES_MAX, Data, Request};
use crate::way::Shared;

/// What to do with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Reserves room. The file becomes longer, unless its size is kept.
    Reserve {
        /// The size stays.
        keep_size: bool,
    },
    /// Frees it; it reads as zeros and the size stays.
    PunchHole,
    /// Makes it read as zeros.
    Zero {
        /// The size stays.
        keep_size: bool,
    },
}

/// What to look for from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// Data.
    Data,
    /// A hole; the end of the file is one.
    Hole,
}

/// How reads and writes of a file go, as it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub sync_data: bool,
    pub sync_all: bool,
    pub direct: bool,
}

/// An open file. Threads may share it. It is closed when it is dropped.
pub struct File {
    shared: Arc<Shared>,
    handle: u64,
    access: Access,
    is_directory: bool,
}

impl File {
    pub(crate) fn new(shared: Arc<Shared>, handle: u64, access: Access, is: &Attributes) -> Self {
        let is_directory = is.kind.get() == kind::DIRECTORY;
        Self { shared, handle, access, is_directory }
    }

    pub(crate) fn handle(&self) -> u64 {
        self.handle
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn appends(&self) -> bool {
        self.access.append
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    fn command(&self, operation: u16) -> Submission {
        Submission { operation: operation.into(), handle: self.handle.into(), ..Submission::default() }
    }

    fn plain(&self, command: Submission) -> io::Result<Completion> {
        self.shared.run(Request { command, ..Request::default() })
    }

    /// Reads up to `room.len()` bytes at `offset`. Fewer: the file ends there.
    ///
    /// # Errors
    /// It is not open for reading, is a directory, or the device fails before the first byte was read.
    pub fn read_at(&self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.is_directory {
            return Err(error(libc::EISDIR));
        }
        let flags = if self.access.direct { flag::DIRECT } else { 0 };
        let mut done = 0;
        for part in room.chunks_mut(DATA_BYTES_MAX) {
            let at = offset.checked_add(done as u64).ok_or_else(|| error(libc::EINVAL))?;
            let command = Submission { flags: flags.into(), offset: at.into(), ..self.command(op::READ) };
            let asked = part.len();
            let read = self.shared.run(Request { command, data: Data::Room(part), ..Request::default() });
            match read {
                Ok(read) => done += (read.len.get() as usize).min(asked),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            if done % DATA_BYTES_MAX != 0 || done == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Writes at `offset`; at the end, if the file was opened to append. Up to 1016 KiB are one operation of
    /// the file system; more are several, one after the other. Fewer bytes than given: the rest failed.
    ///
    /// # Errors
    /// It is not open for writing, there is no space, or the device fails before the first byte was written.
    pub fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(self.write(data, offset, self.access.append)?.0)
    }

    /// Writes at the end, wherever that is by then. How much was written, and where the file ends now.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> io::Result<(usize, u64)> {
        self.write(data, 0, true)
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64, append: bool) -> io::Result<(usize, u64)> {
        let Access { sync_data, sync_all, direct, .. } = self.access;
        let mut flags = 0;
        for (is_set, bit) in [
            (append, flag::APPEND),
            (sync_data, flag::SYNC_DATA),
            (sync_all, flag::SYNC_ALL),
            (direct, flag::DIRECT),
        ] {
            flags |= if is_set { bit } else { 0 };
        }
        let (mut done, mut end) = (0, offset);
        for part in data.chunks(DATA_BYTES_MAX) {
            let at = if append { Some(0) } else { offset.checked_add(done as u64) };
            let at = at.ok_or_else(|| error(libc::EFBIG))?;
            let command = Submission { flags: flags.into(), offset: at.into(), ..self.command(op::WRITE) };
            let request = Request { command, data: Data::Given(part), ..Request::default() };
            match self.shared.run(request) {
                Ok(written) => {
                    let bytes = written.value.get() as usize;
                    done += bytes;
                    end = if append { written.other.get() } else { offset + done as u64 };
                    if bytes < part.len() {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((done, end))
    }

    /// Makes what was written, and the attributes, durable.
    ///
    /// # Errors
    /// The device fails.
    pub fn sync(&self) -> io::Result<()> {
        self.plain(self.command(op::SYNC_FILE)).map(drop)
    }

    /// Makes what was written durable, and of the attributes what is needed to read it.
    ///
    /// # Errors
    /// The device fails.
    pub fn sync_data(&self) -> io::Result<()> {
        self.plain(Submission { flags: flag::DATA_ONLY.into(), ..self.command(op::SYNC_FILE) }).map(drop)
    }

    /// Its attributes.
    ///
    /// # Errors
    /// The device fails.
    pub fn attributes(&self) -> io::Result<Attributes> {
        Ok(self.plain(self.command(op::ATTRIBUTES))?.attributes)
    }

    /// Makes the file `bytes` long.
    ///
    /// # Errors
    /// It is not open for writing (`EINVAL`), or cannot have that size.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        if !self.access.write {
            return Err(error(libc::EINVAL));
        }
        let change = Change { which: change::SIZE.into(), size: bytes.into(), ..Change::default() };
        let command = self.command(op::SET_ATTRIBUTES);
        let data = Data::Given(change.as_bytes());
        self.shared.run(Request { command, data, ..Request::default() }).map(drop)
    }

    /// Reserves, frees or zeroes `length` bytes at `offset`.
    ///
    /// # Errors
    /// It is not open for writing, there is no space, the range is empty or the file system has no such
    /// operation.
    pub fn allocate(&self, what: Allocate, offset: u64, length: u64) -> io::Result<()> {
        let keep = |keep_size| if keep_size { flag::KEEP_SIZE } else { 0 };
        let flags = match what {
            Allocate::Reserve { keep_size } => keep(keep_size),
            Allocate::PunchHole => flag::PUNCH_HOLE | flag::KEEP_SIZE,
            Allocate::Zero { keep_size } => flag::ZERO | keep(keep_size),
        };
        let command = Submission {
            flags: flags.into(),
            offset: offset.into(),
            length: length.into(),
            ..self.command(op::ALLOCATE)
        };
        self.plain(command).map(drop)
    }

    /// Where the next data, or the next hole, begins, at `offset` or behind.
    ///
    /// # Errors
    /// `ENXIO` if there is none.
    pub fn seek(&self, whence: Whence, offset: u64) -> io::Result<u64> {
        let flags = if whence == Whence::Hole { flag::HOLE } else { 0 };
        let command = Submission { flags: flags.into(), offset: offset.into(), ..self.command(op::SEEK) };
        match self.plain(command) {
            Err(why) if why.raw_os_error() == Some(libc::ENODATA) => Err(error(libc::ENXIO)),
            found => Ok(found?.value.get()),
        }
    }

    /// Copies up to `length` bytes at `from` to `there` of `to`, a file of the same file system. How many:
    /// fewer at the end of the file, and after 16 MiB.
    ///
    /// # Errors
    /// `EXDEV` if it is of another one; `EISDIR`; `EBADF` if this is not open for reading, or that not for
    /// writing or to append; `EINVAL` if the ranges are of one file and overlap.
    pub fn copy_to(&self, from: u64, to: &Self, there: u64, length: u64) -> io::Result<u64> {
        if self.is_directory || to.is_directory {
            return Err(error(libc::EISDIR));
        }
        if !self.access.read || !to.access.write || to.access.append {
            return Err(error(libc::EBADF));
        }
        if !Arc::ptr_eq(&self.shared, &to.shared) {
            return Err(error(libc::EXDEV));
        }
        let command = Submission {
            other: to.handle.into(),
            offset: from.into(),
            argument: there.into(),
            length: length.into(),
            ..self.command(op::COPY)
        };
        Ok(self.plain(command)?.value.get())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A daemon that has ended has closed it.
        let _ = self.plain(self.command(op::CLOSE));
    }
}
