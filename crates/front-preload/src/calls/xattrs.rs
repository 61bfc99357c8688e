//! Extended attributes of users. Others have a meaning to the kernel, which keeps some of them: of those that
//! most files do not have, the queue only says that a file does not have one.
#![allow(unsafe_code)]

use amphi_queue::format::{Completion, Submission, flag, op};
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};

use super::{bytes, changed, next_on, open_place, with_place, with_place_to_ask};
use crate::command::{self, Answer, Place};
use crate::descriptors;
use crate::errno::{Verdict, fail};
use crate::masked::MadeOnce;
use crate::next::next;
use crate::pointers::may_be;
use crate::report::{self, Call};

/// Most bytes of an attribute or of a list of names.
const BYTES_MAX: usize = 64 << 10;

/// Which file.
#[derive(Clone, Copy)]
enum Of<'a> {
    Path(&'a [u8]),
    Link(&'a [u8]),
    Open(c_int),
}

impl Of<'_> {
    /// As [`ask`](Self::ask), for a question that the kernel may know the answer to.
    fn ask_too(self, ask: impl FnOnce(Place<'_>, u16) -> Answer) -> Option<Answer> {
        match self {
            Self::Path(path) => with_place_to_ask(AT_FDCWD, path, |place| Some(ask(place, 0))),
            Self::Link(path) => with_place_to_ask(AT_FDCWD, path, |place| Some(ask(place, flag::NO_FOLLOW))),
            Self::Open(fd) => descriptors::get(fd).map(|opened| ask(open_place(&opened), 0)),
        }
    }

    /// Asks about it: the place, and the flags with which its path is walked.
    fn ask(self, ask: impl FnOnce(Place<'_>, u16) -> Answer) -> Option<Answer> {
        match self {
            Self::Path(path) => with_place(AT_FDCWD, path, |place| ask(place, 0)),
            Self::Link(path) => with_place(AT_FDCWD, path, |place| ask(place, flag::NO_FOLLOW)),
            Self::Open(fd) => descriptors::get(fd).map(|opened| ask(open_place(&opened), 0)),
        }
    }
}

fn is_users(name: &[u8]) -> bool {
    name.starts_with(b"user.") && name.len() > 5 && name.len() <= 255
}

/// Whether it is an attribute that programs ask of each file and few files have. Symbolic links have no
/// access lists, and SELinux makes labels itself.
fn is_rare(of: Of<'_>, name: &[u8]) -> bool {
    static LABELS: MadeOnce<bool> = MadeOnce::new();
    let has_labels = || rustix::fs::stat("/sys/fs/selinux").is_ok();
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => !matches!(of, Of::Link(_)),
        b"security.capability" => true,
        b"security.selinux" => !*LABELS.get_or_make(has_labels),
        _ => false,
    }
}

/// Says that a file does not have an attribute; none if it may have.
fn lacks(of: Of<'_>, name: &[u8]) -> Option<ssize_t> {
    let answer = of.ask_too(|place, flags| {
        let ask = Submission {
            operation: op::GET_XATTR.into(),
            flags: flags.into(),
            handle: place.handle.into(),
            ..Submission::default()
        };
        command::plain(place.mount, place.path, name, ask)
    })?;
    let lacks = matches!(answer, Err(Verdict::Errno(libc::ENODATA)));
    report::count(Call::Xattr, lacks);
    lacks.then(|| fail(libc::ENODATA))
}

fn told(answer: Option<Answer>, value: impl FnOnce(&Completion) -> u64) -> Option<ssize_t> {
    let told = match answer? {
        Ok(answer) => Some(value(&answer) as ssize_t),
        Err(Verdict::Errno(errno)) => Some(fail(errno)),
        Err(Verdict::AskKernel) => None,
    };
    report::count(Call::Xattr, told.is_some());
    told
}

/// The value of `name`, or without a name the names of all.
///
/// # Safety
/// `into` is room for `len` bytes.
unsafe fn get(of: Of<'_>, name: Option<&[u8]>, into: *mut c_void, len: size_t) -> Option<ssize_t> {
    let room = if into.is_null() { 0 } else { len.min(BYTES_MAX) };
    if len > 0 && !may_be(into, len) {
        return None;
    }
    if let Some(name) = name.filter(|name| !is_users(name)) {
        return is_rare(of, name).then(|| lacks(of, name)).flatten();
    }
    let answer = of.ask(|place, flags| {
        let operation = if name.is_some() { op::GET_XATTR } else { op::LIST_XATTR };
        let ask = Submission {
            operation: operation.into(),
            flags: flags.into(),
            handle: place.handle.into(),
            ..Submission::default()
        };
        let empty = |area: &amphi_queue::Payload<'_>, answer: &Completion| {
            let len = (answer.len.get() as usize).min(room);
            if len > 0
                && let Some(value) = area.part(0, len as u32)
            {
                // SAFETY: the caller's, and no more than that.
                value.take(unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), len) });
            }
        };
        command::run(place.mount, place.path, name.unwrap_or(b""), ask, room, |_| {}, empty)
    });
    told(answer, |answer| answer.value.get())
}

/// # Safety
/// `value` is `len` bytes.
unsafe fn set(of: Of<'_>, name: &[u8], value: *const c_void, len: size_t, how: c_int) -> Option<ssize_t> {
    let how = match how {
        0 => 0,
        libc::XATTR_CREATE => flag::CREATE_ONLY,
        libc::XATTR_REPLACE => flag::REPLACE_ONLY,
        _ => return None,
    };
    if !is_users(name) || len > BYTES_MAX || !may_be(value, len) {
        return None;
    }
    // SAFETY: the caller's.
    let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) };
    let answer = of.ask(|place, flags| {
        let set = Submission {
            operation: op::SET_XATTR.into(),
            flags: (how | flags).into(),
            handle: place.handle.into(),
            ..Submission::default()
        };
        changed(place.mount);
        command::run(place.mount, place.path, name, set, len, |area| area.put(value), |_, _| {})
    });
    told(answer, |_| 0)
}

fn remove(of: Of<'_>, name: &[u8]) -> Option<ssize_t> {
    if !is_users(name) {
        return None;
    }
    let answer = of.ask(|place, flags| {
        let remove = Submission {
            operation: op::REMOVE_XATTR.into(),
            flags: flags.into(),
            handle: place.handle.into(),
            ..Submission::default()
        };
        changed(place.mount);
        command::plain(place.mount, place.path, name, remove)
    });
    told(answer, |_| 0)
}

macro_rules! by_path {
    ($($of:ident $get:ident $set:ident $list:ident $remove:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            path: *const c_char, name: *const c_char, into: *mut c_void, len: size_t,
        ) -> ssize_t {
            // SAFETY: as the program says; so in all of these.
            let told = unsafe {
                bytes(path).zip(bytes(name)).and_then(|(path, name)| get(Of::$of(path), Some(name), into, len))
            };
            told.unwrap_or_else(|| {
                next!($get(path: *const c_char, name: *const c_char, into: *mut c_void, len: size_t) -> ssize_t)
            })
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $list(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
            // SAFETY: see `getxattr`.
            unsafe { bytes(path).and_then(|path| get(Of::$of(path), None, into.cast(), len)) }
                .unwrap_or_else(|| next!($list(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t))
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int,
        ) -> c_int {
            // SAFETY: see `getxattr`.
            let told = unsafe {
                bytes(path).zip(bytes(name)).and_then(|(path, name)| set(Of::$of(path), name, value, len, how))
            };
            told.map_or_else(
                || {
                    next!($set(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int)
                },
                |told| told as c_int,
            )
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $remove(path: *const c_char, name: *const c_char) -> c_int {
            // SAFETY: see `getxattr`.
            unsafe { bytes(path).zip(bytes(name)) }
                .and_then(|(path, name)| remove(Of::$of(path), name))
                .map_or_else(
                    || next!($remove(path: *const c_char, name: *const c_char) -> c_int),
                    |told| told as c_int,
                )
        }
    )*};
}

by_path! {
    Path getxattr setxattr listxattr removexattr;
    Link lgetxattr lsetxattr llistxattr lremovexattr;
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fgetxattr(
    fd: c_int,
    name: *const c_char,
    into: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: see `getxattr`.
    unsafe { bytes(name).and_then(|name| get(Of::Open(fd), Some(name), into, len)) }.unwrap_or_else(
        || next_on!(fd, fgetxattr(fd: c_int, name: *const c_char, into: *mut c_void, len: size_t) -> ssize_t),
    )
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flistxattr(fd: c_int, into: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: see `getxattr`.
    unsafe { get(Of::Open(fd), None, into.cast(), len) }
        .unwrap_or_else(|| next_on!(fd, flistxattr(fd: c_int, into: *mut c_char, len: size_t) -> ssize_t))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsetxattr(
    fd: c_int,
    name: *const c_char,
    value: *const c_void,
    len: size_t,
    how: c_int,
) -> c_int {
    // SAFETY: see `getxattr`.
    unsafe { bytes(name).and_then(|name| set(Of::Open(fd), name, value, len, how)) }.map_or_else(
        || {
            next_on!(fd, fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int)
        },
        |told| told as c_int,
    )
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
    // SAFETY: see `getxattr`.
    unsafe { bytes(name) }.and_then(|name| remove(Of::Open(fd), name)).map_or_else(
        || next_on!(fd, fremovexattr(fd: c_int, name: *const c_char) -> c_int),
        |told| told as c_int,
    )
}
