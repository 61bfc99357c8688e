//! `open` and its relatives: the queue opens and the kernel has a placeholder, or the kernel opens and the
//! queue opens the same file beside.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::Ordering;

use amphi_queue::format::{Attributes, Change, Submission, change, flag, kind, op};
use libc::{AT_FDCWD, c_char, c_int, mode_t};

use super::names::mask;
use super::{changed, close_handle, let_go, with_place};
use crate::command::{self, Place};
use crate::descriptors::{
    self, APPEND, DIRECT, DIRECTORY, Opened, PLACEHOLDER, READ, SYNC_ALL, SYNC_DATA, Unopened, WRITE,
};
use crate::errno::{Verdict, fail};
use crate::mounts::Mount;
use crate::next::next;
use crate::pointers::may_be;
use crate::report::{self, Call};
use crate::{errno, fork, mapped, mounts, placeholder, process};

/// Flags of `open(2)` that the queue knows what to do with, or that make no difference to a regular file.
const KNOWN: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_LARGEFILE
    | libc::O_NOCTTY
    | libc::O_NONBLOCK;
/// Those that stay with the open file.
const KEPT: c_int =
    libc::O_ACCMODE | libc::O_APPEND | libc::O_SYNC | libc::O_DIRECT | libc::O_NONBLOCK | LARGE_FILE;
/// `O_LARGEFILE` as the kernel has it and shows it: libc's is 0 where all files may be large.
const LARGE_FILE: c_int = 0o100_000;

/// How the queue opens, and what is noted of the descriptor.
pub(super) fn how(flags: c_int) -> (u16, u32) {
    let (mut how, mut known) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (flag::READ, READ),
        libc::O_WRONLY => (flag::WRITE, WRITE),
        _ => (flag::READ | flag::WRITE, READ | WRITE),
    };
    for (bits, means) in [
        (libc::O_APPEND, APPEND),
        (libc::O_DSYNC, SYNC_DATA),
        (libc::O_SYNC, SYNC_ALL | SYNC_DATA),
        (libc::O_DIRECT, DIRECT),
    ] {
        if flags & bits == bits {
            known |= means;
        }
    }
    if flags & libc::O_NOFOLLOW != 0 {
        how |= flag::NO_FOLLOW;
    }
    (how, known)
}

/// Opens, by the queue alone if it can, else in the kernel.
fn open_path(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    if !may_be(path, 1) || !process::is_own() {
        return kernel();
    }
    // SAFETY: the program passes a path, which ends with a zero byte.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if let Some(told) = by_queue(dir, bytes, flags, mode) {
        return told;
    }
    let fd = kernel();
    if fd >= 0 {
        // The number may have been closed by a call that nobody saw.
        let_go(fd);
    }
    adopt(fd, dir, bytes, flags)
}

fn by_queue(dir: c_int, path: &[u8], flags: c_int, mode: mode_t) -> Option<c_int> {
    let access = flags & libc::O_ACCMODE;
    let reads_only = access == libc::O_RDONLY;
    if flags & !KNOWN != 0
        || access == libc::O_ACCMODE
        || reads_only && flags & libc::O_TRUNC != 0
        || path.last() == Some(&b'/')
        || !placeholder::are_offered()
    {
        return None;
    }
    let makes = flags & libc::O_CREAT != 0;
    if makes && !can_open_again(access, mode) {
        return None;
    }
    with_place(dir, path, |place| {
        let mount = mounts::all().get(place.mount)?;
        // What is only read the kernel knows, or is to get to know.
        if reads_only && !makes && flags & libc::O_DIRECT == 0 && !mount.is_for_queue() {
            return None;
        }
        let told = open_placeholder(mount, place, flags, mode);
        if told.is_some() {
            report::count(Call::Open, true);
        }
        told
    })
    .flatten()
}

/// Whether who makes a file with the mode may open it by its name.
fn can_open_again(access: c_int, mode: mode_t) -> bool {
    let wanted = match access {
        libc::O_RDONLY => 0o400,
        libc::O_WRONLY => 0o200,
        _ => 0o600,
    };
    let umask = mask().load(Ordering::SeqCst);
    mode & !umask & wanted == wanted || process::user().is_root()
}

fn open_placeholder(mount: &Mount, place: Place<'_>, flags: c_int, mode: mode_t) -> Option<c_int> {
    let gate = placeholder::gate()?;
    let number =
        gate.number(flags & libc::O_CLOEXEC != 0).filter(|number| descriptors::fits(number.as_raw_fd()))?;
    let (mut how, known) = how(flags);
    for (bit, means) in [(libc::O_CREAT, flag::CREATE), (libc::O_EXCL, flag::EXCLUSIVE)] {
        if flags & libc::O_CREAT != 0 && flags & bit != 0 {
            how |= means;
        }
    }
    let umask = u64::from(mask().load(Ordering::SeqCst) & 0o777);
    let open = Submission {
        operation: op::OPEN.into(),
        flags: how.into(),
        handle: place.handle.into(),
        argument: if flags & libc::O_CREAT != 0 { u64::from(mode & 0o7777) | umask << 16 } else { 0 }.into(),
        ..Submission::default()
    };
    let answer = match command::plain(place.mount, place.path, b"", open) {
        Ok(answer) => answer,
        Err(Verdict::AskKernel) => return None,
        Err(Verdict::Errno(errno)) => {
            drop(number);
            return Some(fail(errno) as c_int);
        }
    };
    let opened = Opened::unplaced(place.mount, answer.value.get());
    let made = answer.other.get() != 0;
    let is_plain =
        || is_plain(&answer.attributes, flags) && !mapped::is(mount.device, answer.attributes.ino.get());
    let is_ours = answer.attributes.kind == kind::REGULAR && (made || is_plain());
    let cut = is_ours && !made && flags & libc::O_TRUNC != 0;
    if !is_ours || cut && cut_to_nothing(&opened).is_err() {
        close_handle(&opened);
        return None;
    }
    if made || cut {
        changed(place.mount);
    }
    let mut path = Vec::new();
    if place.handle == 0 {
        path = [&mount.directory[..], b"/", place.path].concat();
    }
    let unopened = Unopened { ino: answer.attributes.ino.get(), status: flags & KEPT | LARGE_FILE, path };
    fork::prepare();
    let fd = number.into_raw_fd();
    descriptors::put(fd, place.mount, opened.handle, known | PLACEHOLDER, Some(Box::new(unopened)));
    descriptors::wrote(fd);
    Some(fd)
}

/// Whether the kernel has nothing to say about the opening of a file that was there: it knows what is being
/// executed, and keeps users from being given files by others in directories that are open to all.
fn is_plain(attributes: &Attributes, flags: c_int) -> bool {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let is_program = attributes.mode.get() & 0o111 != 0;
    let is_others = attributes.uid.get() != process::user().as_raw();
    !(writes && is_program || flags & libc::O_CREAT != 0 && is_others)
}

fn cut_to_nothing(opened: &Opened) -> Result<(), Verdict> {
    let wish = Change { which: change::SIZE.into(), ..Change::default() };
    let cut = Submission {
        operation: op::SET_ATTRIBUTES.into(),
        handle: opened.handle.into(),
        ..Submission::default()
    };
    let bytes = zerocopy::IntoBytes::as_bytes(&wish);
    command::run(opened.mount, b"", b"", cut, bytes.len(), |area| area.put(bytes), |_, _| {}).map(drop)
}

/// As [`adopt`], where the path begins where the process works and the number may have meant something else.
pub(super) fn adopt_new(fd: c_int, path: &[u8], flags: c_int) {
    if process::is_own() {
        let_go(fd);
        adopt(fd, AT_FDCWD, path, flags);
    }
}

/// Opens beside the kernel what it has opened.
fn adopt(fd: c_int, dir: c_int, path: &[u8], flags: c_int) -> c_int {
    // Access mode 3 lets nobody read or write.
    let is_for_kernel = flags & libc::O_PATH != 0
        || flags & libc::O_TMPFILE == libc::O_TMPFILE
        || flags & libc::O_ACCMODE == libc::O_ACCMODE;
    if fd < 0 || is_for_kernel {
        return fd;
    }
    let before = errno::current();
    if let Some(adopted) = with_place(dir, path, |place| try_adopt(fd, place, flags)) {
        report::count(Call::Open, adopted);
    }
    fail(before);
    fd
}

fn try_adopt(fd: c_int, place: Place<'_>, flags: c_int) -> bool {
    // SAFETY: the program has just opened it and does not know it yet.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some((device, ino, is_regular)) = mounts::identity(borrowed) else { return false };
    if mounts::all().get(place.mount).is_none_or(|mount| mount.device != device) {
        return false;
    }
    if is_regular && flags & (libc::O_ACCMODE | libc::O_DIRECT) == libc::O_RDONLY {
        // The kernel remembers what is only read, and reads it faster.
        return false;
    }
    if mapped::is(device, ino) {
        return false;
    }
    let (how, mut known) = how(flags);
    let open = Submission {
        operation: op::OPEN.into(),
        flags: how.into(),
        handle: place.handle.into(),
        ..Submission::default()
    };
    let Ok(answer) = command::plain(place.mount, place.path, b"", open) else { return false };
    if answer.attributes.kind == kind::DIRECTORY {
        known = DIRECTORY;
    }
    let handle = answer.value.get();
    // A name may have come to mean another file in between.
    let is_same = answer.attributes.ino == ino;
    fork::prepare();
    if is_same && descriptors::put(fd, place.mount, handle, known, None) {
        return true;
    }
    let none = Opened::unplaced(place.mount, handle);
    close_handle(&none);
    false
}

macro_rules! opening {
    ($($name:ident, $name_at:ident, $name_creat:ident;)*) => {$(
        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            open_path(AT_FDCWD, path, flags, mode, || {
                next!($name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int)
            })
        }

        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            open_path(dir, path, flags, mode, || {
                next!($name_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int)
            })
        }

        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_creat(path: *const c_char, mode: mode_t) -> c_int {
            open_path(AT_FDCWD, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, mode, || {
                next!($name_creat(path: *const c_char, mode: mode_t) -> c_int)
            })
        }
    )*};
}

opening! {
    open, openat, creat;
    open64, openat64, creat64;
}

macro_rules! checked_opening {
    ($($name:ident, $name_at:ident;)*) => {$(
        /// What programs call that were compiled with `_FORTIFY_SOURCE`.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            open_path(AT_FDCWD, path, flags, 0, || {
                next!($name(path: *const c_char, flags: c_int) -> c_int)
            })
        }

        /// As above.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_at(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
            open_path(dir, path, flags, 0, || {
                next!($name_at(dir: c_int, path: *const c_char, flags: c_int) -> c_int)
            })
        }
    )*};
}

checked_opening! {
    __open_2, __openat_2;
    __open64_2, __openat64_2;
}
