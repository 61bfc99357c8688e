//! Reading, writing and synchronizing open files.
#![allow(unsafe_code)]

use std::convert::identity;
use std::slice;

use amphi_queue::format::{Completion, Submission, flag, op};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rustix::fs::OFlags;

use super::offsets::Position;
use super::opening::how;
use super::{changed, next_on};
use crate::command::{self, DATA_BYTES_MAX};
use crate::descriptors::{
    self, APPEND, DIRECT, Opened, PLACEHOLDER, READ, SHARED, SYNC_ALL, SYNC_DATA, WRITE,
};
use crate::errno::{Verdict, fail};
use crate::pointers::may_be;
use crate::report::{self, Call};
use crate::{mounts, placeholder};

/// The answer to a program, or none if the kernel is to give it.
pub(super) type Told = Option<isize>;

fn told(call: Call, answer: Result<usize, Verdict>) -> Told {
    let told = match answer {
        Ok(value) => Some(value as isize),
        Err(Verdict::Errno(errno)) => Some(fail(errno)),
        Err(Verdict::AskKernel) => None,
    };
    report::count(call, told.is_some());
    told
}

/// Parts of a program's buffer.
#[derive(Clone, Copy)]
struct Parts<'a>(&'a [iovec]);

impl<'a> Parts<'a> {
    /// # Safety
    /// `list` is what a program passed to a call that reads or writes by it.
    unsafe fn new(list: *const iovec, count: c_int) -> Option<Self> {
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= 1024 && may_be(list, count * size_of::<iovec>()))?;
        // SAFETY: the caller's.
        Some(Self(unsafe { slice::from_raw_parts(list, count) }))
    }

    /// Bytes of all, if the queue moves as many and the kernel would take them from there.
    fn len(self) -> Option<usize> {
        let len = self.0.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len))?;
        let are_usable = self.0.iter().all(|part| part.iov_len == 0 || may_be(part.iov_base, part.iov_len));
        ((1..=DATA_BYTES_MAX).contains(&len) && are_usable).then_some(len)
    }

    fn fill(self, area: &amphi_queue::Payload<'_>) {
        let mut at = 0;
        for part in self.0.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the program's buffer, as it says.
            let from = unsafe { slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            if let Some(to) = area.part(at, from.len() as u32) {
                to.put(from);
            }
            at += from.len() as u32;
        }
    }

    fn empty(self, area: &amphi_queue::Payload<'_>, len: usize) {
        let mut at = 0;
        for part in self.0 {
            let len = part.iov_len.min(len - at);
            if len == 0 {
                continue;
            }
            // SAFETY: as above.
            let to = unsafe { slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), len) };
            if let Some(from) = area.part(at as u32, len as u32) {
                from.take(to);
            }
            at += len;
        }
    }
}

fn read_at(opened: &Opened, parts: Parts<'_>, offset: u64) -> Result<usize, Verdict> {
    let len = parts.len().ok_or(Verdict::AskKernel)?;
    let flags = if opened.flags & DIRECT != 0 { flag::DIRECT } else { 0 };
    let read = Submission {
        operation: op::READ.into(),
        flags: flags.into(),
        handle: opened.handle.into(),
        offset: offset.into(),
        ..Submission::default()
    };
    let empty = |area: &amphi_queue::Payload<'_>, answer: &Completion| {
        parts.empty(area, (answer.len.get() as usize).min(len));
    };
    let answer = command::run(opened.mount, b"", b"", read, len, |_| {}, empty)?;
    Ok((answer.len.get() as usize).min(len))
}

/// Writes at the offset, or at the end if the descriptor appends; how many bytes, and where an append ended.
fn write_at(opened: &Opened, parts: Parts<'_>, offset: u64) -> Result<(usize, u64), Verdict> {
    let len = parts.len().ok_or(Verdict::AskKernel)?;
    let flags = [
        (APPEND, flag::APPEND),
        (DIRECT, flag::DIRECT),
        (SYNC_DATA, flag::SYNC_DATA),
        (SYNC_ALL, flag::SYNC_ALL),
    ];
    let flags =
        flags.iter().filter(|(known, _)| opened.flags & known != 0).fold(0, |all, (_, flag)| all | flag);
    let write = Submission {
        operation: op::WRITE.into(),
        flags: flags.into(),
        handle: opened.handle.into(),
        offset: offset.into(),
        ..Submission::default()
    };
    let answer = command::run(opened.mount, b"", b"", write, len, |area| parts.fill(area), |_, _| {})?;
    Ok(((answer.value.get() as usize).min(len), answer.other.get()))
}

/// An offset as programs pass it; a negative one is the kernel's to refuse.
fn positive(offset: off_t) -> Option<u64> {
    u64::try_from(offset).ok()
}

/// The descriptor, if the queue is the better one to ask for its contents. What goes past the kernel's cache
/// always is. A placeholder that is read again and again becomes real, so that the kernel remembers.
///
/// # Errors
/// What is the answer already.
fn readable(fd: c_int) -> Result<Opened, Told> {
    let opened = open_for(fd, READ)?;
    if opened.flags & DIRECT != 0 || descriptors::is_for_queue(fd) {
        return Ok(opened);
    }
    report::count(Call::Read, false);
    Err(None)
}

/// The descriptor, if it was opened for reading or writing. Of a placeholder that was not, the kernel might
/// not let the file be opened again to say so.
fn open_for(fd: c_int, access: u32) -> Result<Opened, Told> {
    match descriptors::get(fd) {
        Some(opened) if opened.flags & access != 0 => Ok(opened),
        Some(opened) if opened.flags & PLACEHOLDER != 0 => Err(Some(fail(libc::EBADF))),
        _ => Err(None),
    }
}

fn pread_parts(fd: c_int, parts: Option<Parts<'_>>, offset: off_t) -> Told {
    let offset = positive(offset)?;
    readable(fd).map_or_else(identity, |opened| told(Call::Read, read_at(&opened, parts?, offset)))
}

/// The descriptor, to be written to.
///
/// # Errors
/// What is the answer already.
fn writable(fd: c_int) -> Result<Opened, Told> {
    let mut opened = open_for(fd, WRITE)?;
    if opened.flags & SHARED != 0 {
        // Whoever else has the description may have changed its flags.
        let status = descriptors::status(fd).ok_or(None)?.bits();
        opened.flags = SHARED | how(status as c_int).1;
    }
    descriptors::wrote(fd);
    changed(opened.mount);
    Ok(opened)
}

fn pwrite_parts(fd: c_int, parts: Option<Parts<'_>>, offset: off_t) -> Told {
    let offset = positive(offset)?;
    writable(fd).map_or_else(identity, |opened| {
        told(Call::Write, write_at(&opened, parts?, offset).map(|(len, _)| len))
    })
}

fn read_parts(fd: c_int, parts: Option<Parts<'_>>) -> Told {
    readable(fd).map_or_else(identity, |opened| read_on(fd, &opened, parts?))
}

fn read_on(fd: c_int, opened: &Opened, parts: Parts<'_>) -> Told {
    let position = Position::reserve(fd, opened, parts.len()?)?;
    let answer = read_at(opened, parts, position.offset);
    position.settle(answer.unwrap_or(0));
    told(Call::Read, answer)
}

fn write_parts(fd: c_int, parts: Option<Parts<'_>>) -> Told {
    writable(fd).map_or_else(identity, |opened| write_on(fd, &opened, parts?))
}

fn write_on(fd: c_int, opened: &Opened, parts: Parts<'_>) -> Told {
    let appends = opened.flags & APPEND != 0;
    let position = Position::reserve(fd, opened, if appends { 0 } else { parts.len()? })?;
    let answer = write_at(opened, parts, position.offset);
    match answer {
        Ok((_, end)) if appends => position.put(end),
        Ok((written, _)) => position.settle(written),
        Err(_) => position.settle(0),
    }
    told(Call::Write, answer.map(|(written, _)| written))
}

/// The kernel is about to write, with flags as `pwritev2` has them. What is appended begins, and leaves the
/// descriptor's offset, where the kernel thinks that the file ends: that may have changed through a queue.
fn before_kernel_writes(fd: c_int, flags: c_int) {
    if mounts::are_there()
        && placeholder::make_real(fd).is_ok()
        && (flags & libc::RWF_APPEND != 0
            || descriptors::status(fd).is_some_and(|status| status.contains(OFlags::APPEND)))
    {
        descriptors::let_kernel_know(fd);
    }
}

fn one(buffer: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec { iov_base: buffer.cast_mut(), iov_len: len }]
}

pub(super) fn sync(fd: c_int, data_only: bool) -> Told {
    let opened = descriptors::get(fd)?;
    let flags = if data_only { flag::DATA_ONLY } else { 0 };
    let sync = Submission {
        operation: op::SYNC_FILE.into(),
        flags: flags.into(),
        handle: opened.handle.into(),
        ..Submission::default()
    };
    told(Call::Sync, command::plain(opened.mount, b"", b"", sync).map(|_| 0))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    read_parts(fd, Some(Parts(&one(buffer, len))))
        .unwrap_or_else(|| next_on!(fd, read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    write_parts(fd, Some(Parts(&one(buffer, len)))).unwrap_or_else(|| {
        before_kernel_writes(fd, 0);
        next_on!(fd, write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t)
    })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the program says.
    read_parts(fd, unsafe { Parts::new(list, count) })
        .unwrap_or_else(|| next_on!(fd, readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the program says.
    write_parts(fd, unsafe { Parts::new(list, count) }).unwrap_or_else(|| {
        before_kernel_writes(fd, 0);
        next_on!(fd, writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t)
    })
}

macro_rules! at_offsets {
    ($($pread:ident $pwrite:ident $preadv:ident $pwritev:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
            pread_parts(fd, Some(Parts(&one(buffer, len))), offset).unwrap_or_else(|| {
                next_on!(fd, $pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t)
            })
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
            pwrite_parts(fd, Some(Parts(&one(buffer, len))), offset).unwrap_or_else(|| {
                next_on!(fd, $pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t)
            })
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $preadv(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
            // SAFETY: as the program says.
            pread_parts(fd, unsafe { Parts::new(list, count) }, offset).unwrap_or_else(|| {
                next_on!(fd, $preadv(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t)
            })
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pwritev(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
            // SAFETY: as the program says.
            pwrite_parts(fd, unsafe { Parts::new(list, count) }, offset).unwrap_or_else(|| {
                next_on!(fd, $pwritev(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t)
            })
        }
    )*};
}

at_offsets! {
    pread pwrite preadv pwritev;
    pread64 pwrite64 preadv64 pwritev64;
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, false).map_or_else(|| next_on!(fd, fsync(fd: c_int) -> c_int), |told| told as c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, true).map_or_else(|| next_on!(fd, fdatasync(fd: c_int) -> c_int), |told| told as c_int)
}

macro_rules! with_flags {
    ($($preadv2:ident $pwritev2:ident;)*) => {$(
        /// With flags it is the kernel's.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $preadv2(
            fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int,
        ) -> ssize_t {
            // SAFETY: as the program says.
            let parts = unsafe { Parts::new(list, count) };
            let told = match (flags, offset) {
                (0, -1) => read_parts(fd, parts),
                (0, _) => pread_parts(fd, parts, offset),
                _ => None,
            };
            told.unwrap_or_else(|| {
                next_on!(fd, $preadv2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t)
            })
        }

        /// With flags it is the kernel's.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pwritev2(
            fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int,
        ) -> ssize_t {
            // SAFETY: as the program says.
            let parts = unsafe { Parts::new(list, count) };
            let told = match (flags, offset) {
                (0, -1) => write_parts(fd, parts),
                (0, _) => pwrite_parts(fd, parts, offset),
                _ => None,
            };
            told.unwrap_or_else(|| {
                before_kernel_writes(fd, flags);
                next_on!(fd, $pwritev2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t)
            })
        }
    )*};
}

with_flags! {
    preadv2 pwritev2;
    preadv64v2 pwritev64v2;
}

/// What programs call that were compiled with `_FORTIFY_SOURCE`: libc ends those that read more than there is
/// room for.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    let told = if len <= room { read_parts(fd, Some(Parts(&one(buffer, len)))) } else { None };
    told.unwrap_or_else(
        || next_on!(fd, __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t),
    )
}

macro_rules! checked_at_offsets {
    ($($name:ident)*) => {$(
        /// As above.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t,
        ) -> ssize_t {
            let told = if len <= room { pread_parts(fd, Some(Parts(&one(buffer, len))), offset) } else { None };
            told.unwrap_or_else(|| {
                next_on!(fd, $name(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t)
            })
        }
    )*};
}

checked_at_offsets! { __pread_chk __pread64_chk }
