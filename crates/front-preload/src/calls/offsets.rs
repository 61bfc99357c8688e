//! Where a descriptor reads and writes: the kernel's offset, or a placeholder's, which is kept here.
//!
//! A call moves the offset before it begins, by all that it was asked for, and corrects that afterwards. So a
//! handler of a signal that comes in between, and reads or writes the same descriptor, goes on behind it.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use amphi_queue::format::{Submission, flag, op};
use libc::{c_int, off_t};
use rustix::fs::SeekFrom;

use super::{next_on, open_place};
use crate::command;
use crate::descriptors::{self, Moving, Opened, PLACEHOLDER, SHARED};
use crate::errno::{Verdict, fail};
use crate::placeholder;
use crate::report::{self, Call};

/// The right to move a descriptor's offset, which was moved.
#[derive(Debug)]
pub(super) struct Position {
    _moving: Moving,
    fd: c_int,
    /// Where the call begins.
    pub(super) offset: u64,
    /// Where the offset is now.
    end: u64,
}

/// A descriptor that the program calls with.
fn borrowed(fd: c_int) -> BorrowedFd<'static> {
    // SAFETY: it is open as long as the program's call lasts.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn is_placeholder(fd: c_int) -> bool {
    descriptors::get(fd).is_some_and(|opened| opened.flags & PLACEHOLDER != 0)
}

impl Position {
    /// Moves the descriptor's offset by `len`. None if it is not this process's alone.
    pub(super) fn reserve(fd: c_int, opened: &Opened, len: usize) -> Option<Self> {
        if opened.flags & SHARED != 0 {
            return None;
        }
        let moving = descriptors::moving(fd)?;
        let len = len as u64;
        let offset = if is_placeholder(fd) {
            descriptors::offset_of(fd)?.fetch_add(len, Ordering::SeqCst)
        } else {
            let end = rustix::fs::seek(borrowed(fd), SeekFrom::Current(i64::try_from(len).ok()?)).ok()?;
            end.checked_sub(len)?
        };
        Some(Self { _moving: moving, fd, offset, end: offset + len })
    }

    /// The call has moved `len` bytes.
    pub(super) fn settle(self, len: usize) {
        let end = self.offset + len as u64;
        if end == self.end {
            return;
        }
        // Unless somebody has moved it meanwhile, who was there later.
        if is_placeholder(self.fd) {
            let _ = descriptors::offset_of(self.fd)
                .map(|offset| offset.compare_exchange(self.end, end, Ordering::SeqCst, Ordering::SeqCst));
        } else if rustix::fs::seek(borrowed(self.fd), SeekFrom::Current(0)) == Ok(self.end) {
            let _ = rustix::fs::seek(borrowed(self.fd), SeekFrom::Start(end));
        }
    }

    /// The call has ended at `end`, an append's.
    pub(super) fn put(self, end: u64) {
        put(self.fd, end);
    }
}

fn put(fd: c_int, offset: u64) {
    if is_placeholder(fd) {
        let _ = descriptors::offset_of(fd).map(|known| known.store(offset, Ordering::SeqCst));
    } else {
        let _ = rustix::fs::seek(borrowed(fd), SeekFrom::Start(offset));
    }
}

/// Where data or a hole is, by the queue.
fn find(opened: &Opened, offset: off_t, hole: bool) -> Result<u64, Verdict> {
    let offset = u64::try_from(offset).map_err(|_| Verdict::Errno(libc::ENXIO))?;
    let seek = Submission {
        operation: op::SEEK.into(),
        flags: if hole { flag::HOLE } else { 0 }.into(),
        handle: opened.handle.into(),
        offset: offset.into(),
        ..Submission::default()
    };
    match command::plain(opened.mount, b"", b"", seek) {
        Ok(answer) => Ok(answer.value.get()),
        Err(Verdict::Errno(libc::ENODATA)) => Err(Verdict::Errno(libc::ENXIO)),
        Err(other) => Err(other),
    }
}

/// Where a seek leads, of a placeholder or to the end.
fn target(fd: c_int, opened: &Opened, offset: off_t, whence: c_int) -> Result<u64, Verdict> {
    let from = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => descriptors::offset_of(fd).ok_or(Verdict::AskKernel)?.load(Ordering::SeqCst),
        libc::SEEK_END => {
            let place = open_place(opened);
            let ask = Submission {
                operation: op::ATTRIBUTES.into(),
                handle: place.handle.into(),
                ..Submission::default()
            };
            command::plain(place.mount, place.path, b"", ask)?.attributes.size.get()
        }
        _ => return Err(Verdict::AskKernel),
    };
    let to = i64::try_from(from).ok().and_then(|from| from.checked_add(offset));
    // What is too large for any file is the kernel's to refuse.
    to.and_then(|to| u64::try_from(to).ok()).ok_or(Verdict::AskKernel)
}

fn seek(fd: c_int, offset: off_t, whence: c_int) -> Option<off_t> {
    let opened = descriptors::get(fd)?;
    let is_placeholder = opened.flags & PLACEHOLDER != 0;
    let is_for_queue = match whence {
        libc::SEEK_DATA | libc::SEEK_HOLE => true,
        // Asking makes the kernel remember the end, which it must be told to forget at the next write.
        libc::SEEK_END => is_placeholder || descriptors::is_for_queue(fd),
        _ => is_placeholder,
    };
    if !is_for_queue || opened.flags & (SHARED | descriptors::DIRECTORY) != 0 {
        return None;
    }
    let _moving = descriptors::moving(fd)?;
    if is_placeholder && !self::is_placeholder(fd) && matches!(whence, libc::SEEK_SET | libc::SEEK_CUR) {
        return None;
    }
    let found = match whence {
        libc::SEEK_DATA => find(&opened, offset, false),
        libc::SEEK_HOLE => find(&opened, offset, true),
        _ => target(fd, &opened, offset, whence),
    };
    report::count(Call::Seek, found != Err(Verdict::AskKernel));
    match found {
        Ok(to) => {
            put(fd, to);
            Some(to as off_t)
        }
        Err(Verdict::Errno(errno)) => Some(fail(errno) as off_t),
        Err(Verdict::AskKernel) => None,
    }
}

macro_rules! seeks {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off_t, whence: c_int) -> off_t {
            seek(fd, offset, whence).unwrap_or_else(|| {
                if whence == libc::SEEK_END && placeholder::make_real(fd).is_ok() {
                    descriptors::let_kernel_know(fd);
                }
                next_on!(fd, $name(fd: c_int, offset: off_t, whence: c_int) -> off_t)
            })
        }
    )*};
}

seeks! { lseek lseek64 }
