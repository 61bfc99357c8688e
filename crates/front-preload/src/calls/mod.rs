//! The calls of libc that the library stands in front of.
//!
//! Each has libc's signature, tries the queue if its path or descriptor is on a mount of ours, and else, or
//! if the queue says so, calls libc's own.

mod access;
mod attributes;
mod changing;
mod closing;
mod data;
mod links;
mod listing;
mod names;
mod offsets;
mod opening;
mod ranges;
mod sharing;
mod signals;
#[cfg(target_arch = "x86_64")]
mod unknown;
mod xattrs;

use std::borrow::Cow;
use std::ffi::CStr;

use amphi_queue::format::{Submission, flag, op};
use libc::{c_char, c_int};

use crate::command::{self, Answer, Place};
use crate::descriptors::{self, DIRECTORY, Opened, PLACEHOLDER};
use crate::errno::{self, Verdict, fail};
use crate::pointers::may_be;
use crate::report::{self, Call};
use crate::{mounts, placeholder, threads};

/// As [`next!`](crate::next::next) for a call on a descriptor, which the kernel must have first.
macro_rules! next_on {
    ($fd:expr, $name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        match $crate::placeholder::make_real($fd) {
            Ok(()) => $crate::next::next!($name($($argument: $type),*) -> $result),
            Err(errno) => $crate::errno::fail(errno) as $result,
        }
    };
}
use next_on;

/// The answer to a program, or none if the kernel is to give it.
fn told(call: Call, answer: Option<Answer>) -> Option<c_int> {
    let told = match answer? {
        Ok(_) => Some(0),
        Err(Verdict::Errno(errno)) => Some(fail(errno) as c_int),
        Err(Verdict::AskKernel) => None,
    };
    report::count(call, told.is_some());
    told
}

/// A path or a name that a program passed.
///
/// # Safety
/// `text` ends with a zero byte, or is none of a program's pointers.
#[allow(unsafe_code)]
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's.
    may_be(text, 1).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The place that is open as a descriptor.
const fn open_place(opened: &Opened) -> Place<'static> {
    Place { mount: opened.mount, handle: opened.handle, path: b"" }
}

/// Whether every question about a path is the kernel's: it remembers all names, no file system is inside of
/// this process, and no descriptor is a placeholder. So it is for most programs at most times, who pay for
/// nothing more than this.
fn knows_kernel_all() -> bool {
    !mounts::any_is_for_queue() && !mounts::has_range() && !descriptors::has_placeholders()
}

/// As [`with_place`], for a question that the kernel may know the answer to: none if it probably does. Then
/// where the path leads makes no difference, and is not looked at. A range answers sooner than the kernel,
/// unless the kernel must be asked first where this process works.
fn with_place_to_ask<T>(dir: c_int, path: &[u8], act: impl FnOnce(Place<'_>) -> Option<T>) -> Option<T> {
    let by_range = (dir != libc::AT_FDCWD || path.first() == Some(&b'/')) && mounts::has_range();
    if leads_to_descriptors(path) || !by_range && !mounts::any_is_for_queue() {
        return None;
    }
    with_place(dir, path, |place| {
        let asks = |mount: &mounts::Mount| by_range && mount.is_range() || mount.is_for_queue();
        mounts::all().get(place.mount).is_some_and(asks).then(|| act(place)).flatten()
    })
    .flatten()
}

/// Whether a path is one of those below which descriptors have paths. If it is, all are the kernel's now.
fn leads_to_descriptors(path: &[u8]) -> bool {
    let leads = path.starts_with(b"/proc/") || path.starts_with(b"/dev/");
    if leads {
        placeholder::make_all_real(true);
    }
    leads
}

/// Notes that this process changed something on the mount.
fn changed(mount: usize) {
    if let Some(mount) = mounts::all().get(mount) {
        mount.changed();
    }
}

/// Does something with the place that a path names from a directory's descriptor. None if it is not on a
/// mount of ours as far as names tell.
fn with_place<T>(dir: c_int, path: &[u8], act: impl FnOnce(Place<'_>) -> T) -> Option<T> {
    // The kernel counts what stands before the mount too.
    if leads_to_descriptors(path)
        || path.is_empty()
        || path.len() >= libc::PATH_MAX as usize
        || !mounts::is_on()
    {
        return None;
    }
    let mut whole = Cow::Borrowed(path);
    if path[0] != b'/' {
        if dir != libc::AT_FDCWD {
            let opened = directory(dir)?;
            return Some(act(Place { mount: opened.mount, handle: opened.handle, path }));
        }
        if mounts::all().is_empty() {
            return None;
        }
        whole = Cow::Owned(from_here(path)?);
    }
    let below = |mount: &mounts::Mount| rest_below(&whole, &mount.directory).map(<[u8]>::len);
    let (mount, len) = mounts::all().iter().enumerate().find_map(|(at, mount)| Some((at, below(mount)?)))?;
    let below = &whole[whole.len() - len..];
    let slashes = below.iter().take_while(|&&byte| byte == b'/').count();
    Some(act(Place { mount, handle: 0, path: &below[slashes..] }))
}

/// What follows a directory in a path that is it or lies below it.
fn rest_below<'p>(path: &'p [u8], directory: &[u8]) -> Option<&'p [u8]> {
    path.strip_prefix(directory).filter(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
}

/// The path as it is from the root, unless this process works where no mount can be meant by it.
#[allow(unsafe_code)]
fn from_here(path: &[u8]) -> Option<Vec<u8>> {
    // Asked each time: a directory that is renamed takes those who work in it along.
    let mut room = [0; 512];
    // SAFETY: room for so many bytes.
    let known = unsafe { libc::getcwd(room.as_mut_ptr().cast(), room.len()) };
    let longer;
    let here = if known.is_null() {
        longer = rustix::process::getcwd(Vec::new()).ok()?;
        longer.to_bytes()
    } else {
        CStr::from_bytes_until_nul(&room).ok()?.to_bytes()
    };
    let may_lead_to = |mount: &mounts::Mount| {
        let common = here.len().min(mount.directory.len());
        here[..common] == mount.directory[..common]
    };
    mounts::all().iter().any(may_lead_to).then(|| [here, b"/", path].concat())
}

/// Closes a handle that no descriptor has any more. That is not waited for, as the kernel does not wait for
/// FUSE to let go of a file.
fn close_handle(opened: &Opened) {
    let close =
        Submission { operation: op::CLOSE.into(), handle: opened.handle.into(), ..Submission::default() };
    // A daemon that is gone has closed it.
    let _ = threads::with_lane(opened.mount, |lane| lane.post(close));
}

/// Forgets a descriptor whose number is about to mean something else.
fn let_go(fd: c_int) {
    let Some(opened) = descriptors::get(fd) else { return };
    let taken = {
        // Nobody may be making it real.
        let _moving = (opened.flags & PLACEHOLDER != 0).then(|| descriptors::moving(fd));
        descriptors::take(fd)
    };
    if let Some(opened) = taken {
        close_handle(&opened);
    }
}

/// Leaves a descriptor to the kernel from now on.
///
/// # Errors
/// As [`placeholder::make_real`].
fn leave_to_kernel(fd: c_int) -> Result<(), c_int> {
    placeholder::make_real(fd)?;
    descriptors::let_kernel_know(fd);
    let_go(fd);
    Ok(())
}

/// What is open as a descriptor, if that is a directory.
fn directory(fd: c_int) -> Option<Opened> {
    descriptors::get(fd).filter(|opened| opened.flags & DIRECTORY != 0)
}

/// Copies a descriptor by `make`. Two numbers share one offset from then on; both move it in the kernel, but
/// each has its own turn. The queue's handle of a directory has none, and the copy gets one too.
fn copied(fd: c_int, make: impl FnOnce() -> c_int) -> c_int {
    if directory(fd).is_none()
        && let Err(errno) = leave_to_kernel(fd)
    {
        return fail(errno) as c_int;
    }
    let copy = make();
    let Some(opened) = (if copy >= 0 && copy != fd { directory(fd) } else { None }) else { return copy };
    let before = errno::current();
    let open = Submission {
        operation: op::OPEN.into(),
        flags: (flag::READ | flag::DIRECTORY).into(),
        handle: opened.handle.into(),
        ..Submission::default()
    };
    if let Ok(answer) = command::plain(opened.mount, b".", b"", open) {
        let handle = answer.value.get();
        if !descriptors::put(copy, opened.mount, handle, opened.flags, None) {
            close_handle(&Opened::unplaced(opened.mount, handle));
        }
    }
    fail(before);
    copy
}
