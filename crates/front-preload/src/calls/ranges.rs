//! Ranges of open files: space for them, copies of them, and making them durable.
#![allow(unsafe_code)]

use amphi_queue::format::{Submission, flag, op};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};

use super::{changed, next_on, told};
use crate::descriptors::{self, APPEND, DIRECT, Opened, READ, SYNC_DATA, WRITE};
use crate::errno::{Verdict, fail};
use crate::pointers::may_be;
use crate::report::{self, Call};
use crate::{command, placeholder};

fn allocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> Option<c_int> {
    let flags = match mode {
        0 => 0,
        libc::FALLOC_FL_KEEP_SIZE => flag::KEEP_SIZE,
        _ if mode == libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE => {
            flag::KEEP_SIZE | flag::PUNCH_HOLE
        }
        libc::FALLOC_FL_ZERO_RANGE => flag::ZERO,
        _ if mode == libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_ZERO_RANGE => flag::KEEP_SIZE | flag::ZERO,
        _ => return None,
    };
    let opened = descriptors::get(fd).filter(|opened| opened.flags & WRITE != 0)?;
    let (offset, len) = (u64::try_from(offset).ok()?, u64::try_from(len).ok().filter(|len| *len > 0)?);
    descriptors::wrote(fd);
    changed(opened.mount);
    let allocate = Submission {
        operation: op::ALLOCATE.into(),
        flags: flags.into(),
        handle: opened.handle.into(),
        offset: offset.into(),
        length: len.into(),
        ..Submission::default()
    };
    told(Call::Allocate, Some(command::plain(opened.mount, b"", b"", allocate)))
}

macro_rules! allocations {
    ($($fallocate:ident $posix_fallocate:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
            allocate(fd, mode, offset, len).unwrap_or_else(|| {
                next_on!(fd, $fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int)
            })
        }

        /// It returns its error.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
            let before = crate::errno::current();
            match allocate(fd, 0, offset, len) {
                Some(0) => 0,
                Some(_) => {
                    let error = crate::errno::current();
                    fail(before);
                    error
                }
                None => match placeholder::make_real(fd) {
                    Ok(()) => {
                        crate::next::next!($posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int)
                    }
                    Err(errno) => errno,
                },
            }
        }
    )*};
}

allocations! {
    fallocate posix_fallocate;
    fallocate64 posix_fallocate64;
}

/// By the queue if both files are ours and both offsets are given; the kernel moves the others.
fn copy(from: (Opened, u64), to: (Opened, u64), len: size_t) -> Result<usize, Verdict> {
    if from.0.mount != to.0.mount {
        return Err(Verdict::AskKernel);
    }
    let copy = Submission {
        operation: op::COPY.into(),
        handle: from.0.handle.into(),
        other: to.0.handle.into(),
        offset: from.1.into(),
        argument: to.1.into(),
        length: (len as u64).into(),
        ..Submission::default()
    };
    Ok(command::plain(from.0.mount, b"", b"", copy)?.value.get() as usize)
}

/// # Safety
/// `from_at` and `to_at` are null or point at an offset.
unsafe fn copy_open(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> Option<ssize_t> {
    if !may_be(from_at, size_of::<off_t>()) || !may_be(to_at, size_of::<off_t>()) || flags != 0 {
        return None;
    }
    // SAFETY: the caller's.
    let (from_offset, to_offset) = unsafe { (from_at.read(), to_at.read()) };
    let source = descriptors::get(from).filter(|opened| opened.flags & (READ | DIRECT) == READ)?;
    let special = WRITE | APPEND | DIRECT | SYNC_DATA;
    let target = descriptors::get(to).filter(|opened| opened.flags & special == WRITE)?;
    let (from_offset, to_offset) = (u64::try_from(from_offset).ok()?, u64::try_from(to_offset).ok()?);
    descriptors::wrote(to);
    changed(target.mount);
    let answer = copy((source, from_offset), (target, to_offset), len);
    report::count(Call::Copy, answer != Err(Verdict::AskKernel));
    match answer {
        Ok(copied) => {
            // SAFETY: the caller's.
            unsafe {
                *from_at += copied as off_t;
                *to_at += copied as off_t;
            }
            Some(copied as ssize_t)
        }
        Err(Verdict::Errno(errno)) => Some(fail(errno)),
        Err(Verdict::AskKernel) => None,
    }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: as the program says.
    if let Some(told) = unsafe { copy_open(from, from_at, to, to_at, len, flags) } {
        return told;
    }
    if let Err(errno) = placeholder::make_real(from).and_then(|()| placeholder::make_real(to)) {
        return fail(errno);
    }
    // It copies no further than the size that it remembers.
    descriptors::let_kernel_know(from);
    descriptors::let_kernel_know(to);
    next_on!(to, copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t)
}

/// It promises nothing after a loss of power, only that what was written is on its way. What went through the
/// queue is the daemon's already, so all that is left is to wait for the file where the program waits.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int {
    let known =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let is_plain = flags & !known == 0 && offset >= 0 && len >= 0 && offset.checked_add(len).is_some();
    let waits = flags & libc::SYNC_FILE_RANGE_WAIT_AFTER != 0;
    let ours = descriptors::get(fd).filter(|opened| is_plain && opened.flags & descriptors::PLACEHOLDER != 0);
    let told = ours.and_then(|_| if waits { super::data::sync(fd, true) } else { Some(0) });
    told.map_or_else(
        || next_on!(fd, sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int),
        |told| told as c_int,
    )
}
