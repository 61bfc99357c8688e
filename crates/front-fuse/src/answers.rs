//! Results of file-system operations as answers to the kernel.

use std::time::Duration;

use amphi_vfs::{Attr, Entry, Error, Result};
use fuser::{Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};

use crate::attributes::{absent, file_attr};
use crate::errno::{errno, errno_or_absent};

/// How long the kernel may believe names and attributes: as good as for ever, since all changes go through it.
pub(crate) const VALID: Duration = Duration::from_secs(86_400);

pub(crate) fn answer_entry(reply: ReplyEntry, result: Result<Entry>) {
    match result {
        Ok(entry) => {
            let generation = Generation(u64::from(entry.attr.generation));
            reply.entry(&VALID, &file_attr(&entry.attr), generation);
        }
        Err(error) => reply.error(errno(&error)),
    }
}

pub(crate) fn answer_empty(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Answers with a value, or its size if the caller offers no room.
pub(crate) fn answer_xattr(reply: ReplyXattr, room: u32, result: Result<Vec<u8>>) {
    match result {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= room as usize => reply.data(&value),
        Ok(_) => reply.error(errno(&Error::BufferTooSmall)),
        Err(error) => reply.error(errno_or_absent(&error)),
    }
}

/// Answers with attributes.
pub(crate) fn answer_attr(reply: ReplyAttr, result: Result<Attr>) {
    match result {
        Ok(attr) => reply.attr(&VALID, &file_attr(&attr)),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Answers a lookup; that a name is absent may be remembered, too.
pub(crate) fn answer_lookup(reply: ReplyEntry, result: Result<Entry>) {
    match result {
        Err(Error::NotFound) => reply.entry(&VALID, &absent(), Generation(0)),
        result => answer_entry(reply, result),
    }
}
