//! Descriptors that the kernel has only as a number.
//!
//! What a program opens through the queue needs a number that nobody else is given, and nothing more of the
//! kernel until the program does something that the queue cannot do. Until then the number is a
//! *placeholder*: a copy of one descriptor that was opened as a path (`O_PATH`) on the symbolic link
//! `/proc/self`. On such a descriptor every call that reads, writes, maps, locks, waits or controls fails
//! with `EBADF`, opening it again through `/proc/self/fd` fails with `ELOOP`, and as a directory it is
//! `ENOTDIR`: a call that the library overlooks fails loudly and cannot reach another file. A sealed memfd
//! would let itself be read, an event's descriptor let itself be waited for, and both could be opened again.
//!
//! [`make_real`] opens the file in the kernel and puts it in the placeholder's place, under the same number,
//! with the offset and the flags it would have had. The kernel opens it by the path by which it was opened,
//! if that still means the same file, and else by a pass of the daemon's.
//!
//! Where a program forks, no thread opens a placeholder: the child would have a number that nobody knows what
//! it stands for. A process has none once it locks records, or may hand descriptors to the kernel unseen
//! ([`crate::unseen`]).
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use amphi_queue::format::{PASS_PREFIX, Submission, op};
use libc::{c_int, c_long};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::descriptors::{self, PLACEHOLDER, Unopened};
use crate::errno::{self, Verdict};
use crate::masked::MadeOnce;
use crate::next::next;
use crate::report::{self, Call};
use crate::{command, mounts, process, unseen};

/// The descriptor of which placeholders are copies; -1 before there is one.
static PATTERN: AtomicI32 = AtomicI32::new(-1);
/// Threads that are opening a placeholder.
static OPENING: AtomicUsize = AtomicUsize::new(0);
/// Threads that fork or spawn just now.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// This process has none any more.
static ENDED: AtomicBool = AtomicBool::new(false);
/// How often a fork or a lock looks whether the last placeholder has been opened before it goes on: a
/// handler of a signal may fork or lock in the middle of opening one.
const LOOKS_MAX: u32 = 100_000;

/// Whether this process may have placeholders: unless it is to have real descriptors alone, and only where
/// calls that are not known can be seen coming.
pub fn are_offered() -> bool {
    static WANTED: MadeOnce<bool> = MadeOnce::new();
    let is_wanted = || cfg!(target_arch = "x86_64") && std::env::var_os("AMPHI_REAL_DESCRIPTORS").is_none();
    *WANTED.get_or_make(is_wanted) && !ENDED.load(Ordering::Relaxed)
}

/// Whether a descriptor is the library's own.
pub fn is_ours(fd: c_int) -> bool {
    fd >= 0 && ours().any(|ours| ours == fd)
}

/// The descriptors that are the library's own.
pub fn ours() -> impl Iterator<Item = c_int> {
    std::iter::once(PATTERN.load(Ordering::Relaxed))
        .chain(report::told())
        .chain(mounts::sockets())
        .filter(|fd| *fd >= 0)
}

fn pattern() -> Option<BorrowedFd<'static>> {
    let mut known = PATTERN.load(Ordering::Acquire);
    if known < 0 {
        let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = process::out_of_the_way(rustix::fs::open("/proc/self", how, Mode::empty()).ok()?);
        match PATTERN.compare_exchange(-1, opened.as_raw_fd(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known = std::os::fd::IntoRawFd::into_raw_fd(opened),
            Err(others) => known = others,
        }
    }
    // SAFETY: it is never closed.
    Some(unsafe { BorrowedFd::borrow_raw(known) })
}

/// The right to open a placeholder.
#[derive(Debug)]
pub struct Gate(());

/// The right to open a placeholder; none while the process forks, or once it has them no more. What the
/// process has loaded is looked at here, and not for each file that it opens somewhere else.
pub fn gate() -> Option<Gate> {
    if unseen::may_be() {
        no_more();
        return None;
    }
    OPENING.fetch_add(1, Ordering::SeqCst);
    let gate = Gate(());
    (FORKING.load(Ordering::SeqCst) == 0 && !ENDED.load(Ordering::SeqCst)).then_some(gate)
}

/// Waits until no thread is opening a placeholder, when no new one begins.
fn await_opening() {
    for _ in 0..LOOKS_MAX {
        if OPENING.load(Ordering::SeqCst) == 0 {
            break;
        }
        amphi_rt::task::yield_now();
    }
}

/// No placeholders, and no new ones: before the process locks a record of a file, since such locks end when
/// it closes any descriptor of the file, and making a placeholder real takes one that is closed; and where
/// descriptors may reach the kernel unseen.
pub fn no_more() {
    if !ENDED.swap(true, Ordering::SeqCst) {
        await_opening();
        make_all_real(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        OPENING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    /// A number for a new placeholder, the lowest that is free.
    pub fn number(&self, close_on_exec: bool) -> Option<OwnedFd> {
        let (fd, from) = (pattern()?.as_raw_fd(), 0);
        let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        let copy = next!(fcntl(fd: c_int, command: c_int, from: c_long) -> c_int);
        // SAFETY: nobody else has it.
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
    }
}

/// Makes a descriptor the file's own in the kernel, if it is a placeholder.
///
/// # Errors
/// The errno with which the kernel refused: it is a placeholder still, and calls of the kernel fail on it.
pub fn make_real(fd: c_int) -> Result<(), c_int> {
    if !descriptors::has_placeholders() {
        return Ok(());
    }
    let Some(opened) = descriptors::get(fd).filter(|opened| opened.flags & PLACEHOLDER != 0) else {
        return Ok(());
    };
    let _moving = descriptors::moving(fd);
    // Another thread may have been faster.
    let Some((unopened, position)) = descriptors::unopened(fd) else { return Ok(()) };
    let before = errno::current();
    let result = by_path(opened.mount, &unopened)
        .or_else(|error| {
            by_pass(opened.mount, opened.handle, &unopened).map_err(|other| other.unwrap_or(error))
        })
        .and_then(|real| put_in_place(fd, &real, position))
        .map_err(Errno::raw_os_error);
    if result.is_ok() {
        descriptors::is_real_now(fd);
        report::count(Call::Real, false);
    }
    errno::fail(before);
    result
}

fn put_in_place(fd: c_int, real: &OwnedFd, position: u64) -> Result<(), Errno> {
    rustix::fs::seek(real, SeekFrom::Start(position))?;
    // SAFETY: a descriptor of this process, if only a placeholder.
    let place = unsafe { BorrowedFd::borrow_raw(fd) };
    let close_on_exec = rustix::io::fcntl_getfd(place)?.contains(rustix::io::FdFlags::CLOEXEC);
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    let real = real.as_raw_fd();
    match next!(dup3(real: c_int, fd: c_int, flags: c_int) -> c_int) {
        0.. => Ok(()),
        _ => Err(Errno::from_raw_os_error(errno::current())),
    }
}

fn status(unopened: &Unopened) -> OFlags {
    OFlags::from_bits_retain(unopened.status as u32) | OFlags::CLOEXEC
}

fn by_path(mount: usize, unopened: &Unopened) -> Result<OwnedFd, Errno> {
    let path = CString::new(&unopened.path[..]).map_err(|_| Errno::NOENT)?;
    // As a path first: what has the name by now may be a pipe, whose opening waits.
    let found = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let device = mounts::all().get(mount).ok_or(Errno::NOENT)?.device;
    match mounts::identity(found.as_fd()) {
        Some((found_device, ino, _)) if (found_device, ino) == (device, unopened.ino) => {}
        _ => return Err(Errno::NOENT),
    }
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    rustix::fs::open(again, status(unopened), Mode::empty())
}

/// An error of none: the daemon gave no pass.
fn by_pass(mount: usize, handle: u64, unopened: &Unopened) -> Result<OwnedFd, Option<Errno>> {
    let ask = Submission { operation: op::PASS.into(), handle: handle.into(), ..Submission::default() };
    let pass = command::plain(mount, b"", b"", ask).map_err(|verdict| match verdict {
        Verdict::Errno(errno) => Some(Errno::from_raw_os_error(errno)),
        Verdict::AskKernel => None,
    })?;
    let mut path = mounts::all().get(mount).ok_or(None)?.directory.clone();
    let name = format!("/{PASS_PREFIX}{:016x}{:016x}", pass.other.get(), pass.value.get());
    path.extend_from_slice(name.as_bytes());
    let opened =
        rustix::fs::open(&*path, status(unopened) | OFlags::NOFOLLOW, Mode::empty()).map_err(Some)?;
    // The kernel asks for the name once more, hears that there is none, and lets it go. Else it would keep
    // the inode for it, long after the last close.
    let _ = rustix::fs::stat(&*path);
    Ok(opened)
}

/// Makes all placeholders real; those that close at an exec only if `closing_too`. One that cannot be stays:
/// calls on it fail.
pub fn make_all_real(closing_too: bool) {
    if !descriptors::has_placeholders() {
        return;
    }
    for fd in descriptors::all() {
        // SAFETY: only asked about.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let closes = || {
            rustix::io::fcntl_getfd(borrowed).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC))
        };
        if closing_too || !closes() {
            let _ = make_real(fd);
        }
    }
}

/// Before a fork: no placeholders, and no new ones.
pub fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    await_opening();
    make_all_real(true);
}

/// After a fork, in the parent.
pub fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// No placeholders, until a program was spawned.
#[derive(Debug)]
pub struct Spawning(());

/// Before another program is spawned.
pub fn before_spawn() -> Spawning {
    before_fork();
    Spawning(())
}

impl Drop for Spawning {
    fn drop(&mut self) {
        after_fork();
    }
}

/// After a fork, in the child, which has one thread.
pub fn in_child() {
    OPENING.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}
