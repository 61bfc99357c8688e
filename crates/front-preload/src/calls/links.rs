//! Hard and symbolic links.
#![allow(unsafe_code)]

use amphi_queue::format::{Submission, flag, op};
use libc::{AT_FDCWD, AT_SYMLINK_FOLLOW, c_char, c_int, size_t, ssize_t};

use super::{bytes, changed, next_on, told, with_place, with_place_to_ask};
use crate::command;
use crate::errno::{Verdict, fail};
use crate::next::next;
use crate::pointers::may_be;
use crate::process;
use crate::report::{self, Call};

fn link_flags(from: (c_int, Option<&[u8]>), to: (c_int, Option<&[u8]>), flags: c_int) -> Option<c_int> {
    // Whose files a user may link is a setting of the kernel's.
    if flags & !AT_SYMLINK_FOLLOW != 0 || !process::user().is_root() {
        return None;
    }
    let answer = with_place(from.0, from.1?, |first| {
        with_place(to.0, to.1?, |second| {
            if first.mount != second.mount {
                return Err(Verdict::AskKernel);
            }
            let link = Submission {
                operation: op::LINK.into(),
                flags: if flags == 0 { flag::NO_FOLLOW } else { 0 }.into(),
                handle: first.handle.into(),
                other: second.handle.into(),
                ..Submission::default()
            };
            changed(first.mount);
            command::plain(first.mount, first.path, second.path, link)
        })
    });
    told(Call::Link, answer.flatten())
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as the program says; so in all of these.
    let (first, second) = unsafe { (bytes(from), bytes(to)) };
    link_flags((AT_FDCWD, first), (AT_FDCWD, second), 0)
        .unwrap_or_else(|| next!(link(from: *const c_char, to: *const c_char) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: see `link`.
    let (first, second) = unsafe { (bytes(from), bytes(to)) };
    link_flags((from_dir, first), (to_dir, second), flags).unwrap_or_else(|| {
        next_on!(from_dir, linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int)
    })
}

fn symlink_in(target: Option<&[u8]>, dir: c_int, path: Option<&[u8]>) -> Option<c_int> {
    let target = target.filter(|target| !target.is_empty())?;
    let answer = with_place(dir, path?, |place| {
        let make = Submission {
            operation: op::SYMLINK.into(),
            handle: place.handle.into(),
            ..Submission::default()
        };
        changed(place.mount);
        command::plain(place.mount, place.path, target, make)
    });
    told(Call::Symlink, answer)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: see `link`.
    let (first, second) = unsafe { (bytes(target), bytes(path)) };
    symlink_in(first, AT_FDCWD, second)
        .unwrap_or_else(|| next!(symlink(target: *const c_char, path: *const c_char) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    // SAFETY: see `link`.
    let (first, second) = unsafe { (bytes(target), bytes(path)) };
    symlink_in(first, dir, second)
        .unwrap_or_else(|| next!(symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int))
}

/// # Safety
/// `into` is room for `len` bytes.
unsafe fn read_link(dir: c_int, path: Option<&[u8]>, into: *mut c_char, len: size_t) -> Option<ssize_t> {
    let room = len.min(command::PATH_ROOM);
    if room == 0 || !may_be(into, room) {
        return None;
    }
    let answer = with_place_to_ask(dir, path?, |place| {
        let ask = Submission {
            operation: op::READ_LINK.into(),
            handle: place.handle.into(),
            ..Submission::default()
        };
        let empty = |area: &amphi_queue::Payload<'_>, answer: &amphi_queue::format::Completion| {
            let len = (answer.len.get() as usize).min(room);
            // SAFETY: the caller's, and no more than that.
            let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), len) };
            if let Some(text) = area.part(0, len as u32) {
                text.take(into);
            }
        };
        Some(command::run(place.mount, place.path, b"", ask, room, |_| {}, empty))
    });
    let told = match answer? {
        Ok(answer) => Some((answer.len.get() as usize).min(room) as ssize_t),
        Err(Verdict::Errno(errno)) => Some(fail(errno)),
        Err(Verdict::AskKernel) => None,
    };
    report::count(Call::ReadLink, told.is_some());
    told
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: see `link`.
    unsafe { read_link(AT_FDCWD, bytes(path), into, len) }
        .unwrap_or_else(|| next!(readlink(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(
    dir: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: see `link`.
    unsafe { read_link(dir, bytes(path), into, len) }.unwrap_or_else(
        || next!(readlinkat(dir: c_int, path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t),
    )
}
