//! Calls that change names.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use amphi_queue::format::{Submission, flag, op};
use libc::{AT_FDCWD, c_char, c_int, c_uint, mode_t};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::{bytes, changed, told, with_place};
use crate::command;
use crate::errno::Verdict;
use crate::masked::MadeOnce;
use crate::mounts;
use crate::next::next;
use crate::report::Call;

fn remove(dir: c_int, path: Option<&[u8]>, operation: u16, call: Call) -> Option<c_int> {
    let answer = with_place(dir, path?, |place| {
        let remove =
            Submission { operation: operation.into(), handle: place.handle.into(), ..Submission::default() };
        changed(place.mount);
        command::plain(place.mount, place.path, b"", remove)
    });
    told(call, answer)
}

fn rename_flags(from: (c_int, Option<&[u8]>), to: (c_int, Option<&[u8]>), flags: c_uint) -> Option<c_int> {
    let mode = match flags {
        0 => 0,
        libc::RENAME_NOREPLACE => flag::NO_REPLACE,
        libc::RENAME_EXCHANGE => flag::EXCHANGE,
        _ => return None,
    };
    let answer = with_place(from.0, from.1?, |first| {
        with_place(to.0, to.1?, |second| {
            if first.mount != second.mount {
                return Err(Verdict::AskKernel);
            }
            let rename = Submission {
                operation: op::RENAME.into(),
                flags: mode.into(),
                handle: first.handle.into(),
                other: second.handle.into(),
                ..Submission::default()
            };
            changed(first.mount);
            command::plain(first.mount, first.path, second.path, rename)
        })
    });
    let answer = answer.flatten();
    if let Some(Ok(done)) = &answer
        && done.value.get() != 0
    {
        find_moved(to);
        if flags == libc::RENAME_EXCHANGE {
            find_moved(from);
        }
    }
    told(Call::Rename, answer)
}

/// Has the kernel look up a directory that has another name now. Where a program has it open, or works in it,
/// the kernel has it in its old place still, which is no place: `getcwd` fails with `ENOENT`. It finds it in
/// the new one by any call but a rename, which fails with `ESTALE`: it cannot move what it knows while it has
/// both parents locked.
fn find_moved((dir, path): (c_int, Option<&[u8]>)) {
    let Some(path) = path else { return };
    let dir = if dir == AT_FDCWD || path.first() == Some(&b'/') {
        // With an absolute path a program may pass anything, also what is no descriptor.
        CWD
    } else {
        // SAFETY: the program's, which has named a place by it.
        unsafe { BorrowedFd::borrow_raw(dir) }
    };
    let _ = statx(dir, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: as the program says; so in all of these.
    remove(AT_FDCWD, unsafe { bytes(path) }, op::UNLINK, Call::Unlink)
        .unwrap_or_else(|| next!(unlink(path: *const c_char) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: see `unlink`.
    remove(AT_FDCWD, unsafe { bytes(path) }, op::REMOVE_DIRECTORY, Call::RemoveDirectory)
        .unwrap_or_else(|| next!(rmdir(path: *const c_char) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: see `unlink`.
    let path_bytes = unsafe { bytes(path) };
    let done = match flags {
        0 => remove(dir, path_bytes, op::UNLINK, Call::Unlink),
        libc::AT_REMOVEDIR => remove(dir, path_bytes, op::REMOVE_DIRECTORY, Call::RemoveDirectory),
        _ => None,
    };
    done.unwrap_or_else(|| next!(unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: see `unlink`.
    let (first, second) = unsafe { (bytes(from), bytes(to)) };
    rename_flags((AT_FDCWD, first), (AT_FDCWD, second), 0)
        .unwrap_or_else(|| next!(rename(from: *const c_char, to: *const c_char) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: see `unlink`.
    let (first, second) = unsafe { (bytes(from), bytes(to)) };
    rename_flags((from_dir, first), (to_dir, second), 0).unwrap_or_else(
        || next!(renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int),
    )
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: see `unlink`.
    let (first, second) = unsafe { (bytes(from), bytes(to)) };
    rename_flags((from_dir, first), (to_dir, second), flags).unwrap_or_else(|| {
        next!(renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int)
    })
}

/// Permission bits that what this process makes shall not have, from the kernel once; [`umask`] keeps it.
static UMASK: MadeOnce<AtomicU32> = MadeOnce::new();

pub(super) fn mask() -> &'static AtomicU32 {
    UMASK.get_or_make(|| {
        let status = mounts::read_whole("/proc/self/status").unwrap_or_default();
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"));
        let text = line.and_then(|line| std::str::from_utf8(line).ok()).unwrap_or("022");
        AtomicU32::new(u32::from_str_radix(text.trim(), 8).unwrap_or(0o022))
    })
}

fn make_directory(dir: c_int, path: Option<&[u8]>, mode: mode_t) -> Option<c_int> {
    let answer = with_place(dir, path?, |place| {
        let umask = mask().load(Ordering::SeqCst);
        let make = Submission {
            operation: op::MAKE_DIRECTORY.into(),
            handle: place.handle.into(),
            argument: (u64::from(mode & 0o7777) | u64::from(umask & 0o777) << 16).into(),
            ..Submission::default()
        };
        changed(place.mount);
        command::plain(place.mount, place.path, b"", make)
    });
    told(Call::MakeDirectory, answer)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: see `unlink`.
    make_directory(AT_FDCWD, unsafe { bytes(path) }, mode)
        .unwrap_or_else(|| next!(mkdir(path: *const c_char, mode: mode_t) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: see `unlink`.
    make_directory(dir, unsafe { bytes(path) }, mode)
        .unwrap_or_else(|| next!(mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umask(mode: mode_t) -> mode_t {
    let before = next!(umask(mode: mode_t) -> mode_t);
    mask().store(mode & 0o777, Ordering::SeqCst);
    before
}
