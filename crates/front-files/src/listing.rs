//! The entries of a directory, a batch after the other.

use std::io;

use amphi_queue::first_listed;
use amphi_queue::format::{Submission, op};

use crate::file::File;
use crate::request::{Data, Request};

/// Bytes of a batch.
const BATCH_BYTES: usize = 32 << 10;

/// One entry. `.` and `..` are among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// A [`kind`](crate::kind).
    pub kind: u16,
    /// Its name.
    pub name: Vec<u8>,
    /// Where the listing goes on behind it.
    pub next: u64,
}

/// A directory, being listed. What is made or removed meanwhile may or may not be shown, all else is, once.
pub struct Listing {
    directory: File,
    cookie: u64,
    batch: Vec<u8>,
    /// What of the batch was shown.
    shown: usize,
    ended: bool,
}

impl Listing {
    pub(crate) fn new(directory: File) -> Self {
        Self { directory, cookie: 0, batch: Vec::new(), shown: 0, ended: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.batch.resize(BATCH_BYTES, 0);
        let command = Submission {
            operation: op::LIST.into(),
            handle: self.directory.handle().into(),
            offset: self.cookie.into(),
            ..Submission::default()
        };
        let request = Request { command, data: Data::Room(&mut self.batch), ..Request::default() };
        let listed = self.directory.shared().run(request)?;
        self.batch.truncate(listed.len.get() as usize);
        (self.cookie, self.shown) = (listed.other.get(), 0);
        Ok(())
    }
}

impl Iterator for Listing {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.shown >= self.batch.len() {
            let filled = self.fill();
            self.ended = filled.is_err() || self.batch.is_empty();
            if let Err(error) = filled {
                return Some(Err(error));
            }
        }
        let Some((head, name, bytes)) = first_listed(self.batch.get(self.shown..)?) else {
            self.ended = true;
            return None;
        };
        self.shown += bytes;
        Some(Ok(Entry {
            ino: head.ino.get(),
            kind: head.kind.get(),
            name: name.to_vec(),
            next: head.next.get(),
        }))
    }
}
