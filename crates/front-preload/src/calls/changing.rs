//! Changes of attributes: length, permissions, owner, times.
#![allow(unsafe_code)]

use amphi_queue::format::{Change, Submission, change, flag, op};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, gid_t, mode_t, off_t, timespec, timeval, uid_t};

use super::{bytes, changed, next_on, open_place, told, with_place};
use crate::command::{self, Answer, Place};
use crate::descriptors::{self, WRITE};
use crate::errno::Verdict;
use crate::next::next;
use crate::pointers::may_be;
use crate::report::Call;
use crate::{mapped, placeholder, process};

const NS_PER_S: i64 = 1_000_000_000;

fn change_at(place: Place<'_>, wish: &Change, follow: bool) -> Answer {
    let submission = Submission {
        operation: op::SET_ATTRIBUTES.into(),
        flags: if follow { 0 } else { flag::NO_FOLLOW }.into(),
        handle: place.handle.into(),
        ..Submission::default()
    };
    let bytes = zerocopy::IntoBytes::as_bytes(wish);
    changed(place.mount);
    command::run(place.mount, place.path, b"", submission, bytes.len(), |area| area.put(bytes), |_, _| {})
}

fn change_path(dir: c_int, path: Option<&[u8]>, wish: Option<Change>, follow: bool) -> Option<c_int> {
    let wish = wish?;
    let change = |place: Place<'_>| {
        if mapped::is_any() { Err(Verdict::AskKernel) } else { change_at(place, &wish, follow) }
    };
    told(Call::Change, with_place(dir, path?, change))
}

fn change_open(fd: c_int, wish: Option<Change>) -> Option<c_int> {
    let opened = descriptors::get(fd)?;
    descriptors::wrote(fd);
    told(Call::Change, Some(change_at(open_place(&opened), &wish?, true)))
}

fn mode(mode: mode_t) -> Option<Change> {
    if !process::user().is_root() {
        // Whoever may not open a file again by its name has it open all the same: in the kernel too, from now
        // on.
        placeholder::make_all_real(true);
    }
    Some(Change { which: change::MODE.into(), mode: (mode & 0o7777).into(), ..Change::default() })
}

fn owner(uid: uid_t, gid: gid_t) -> Option<Change> {
    if !process::user().is_root() {
        placeholder::make_all_real(true);
    }
    let which = [(uid, change::UID), (gid, change::GID)]
        .into_iter()
        .filter(|(id, _)| *id != u32::MAX)
        .fold(0, |which, (_, bit)| which | bit);
    // To change nothing still has effects, which are the kernel's to know.
    (which != 0).then(|| Change {
        which: which.into(),
        uid: uid.into(),
        gid: gid.into(),
        ..Change::default()
    })
}

fn truncation(size: off_t) -> Option<Change> {
    let size = u64::try_from(size).ok()?;
    Some(Change { which: change::SIZE.into(), size: size.into(), ..Change::default() })
}

/// Access and modification time, as two of the structure's kind or, if null, now.
///
/// # Safety
/// `pair` is null or points at two.
unsafe fn times(pair: *const timespec) -> Option<Change> {
    if pair.is_null() {
        return Some(Change { which: (change::ATIME_NOW | change::MTIME_NOW).into(), ..Change::default() });
    }
    if !may_be(pair, 2 * size_of::<timespec>()) {
        return None;
    }
    // SAFETY: the caller's.
    let pair = unsafe { std::slice::from_raw_parts(pair, 2) };
    let part = |time: &timespec, given, now| match time.tv_nsec {
        libc::UTIME_NOW => Some((now, 0)),
        libc::UTIME_OMIT => Some((0, 0)),
        ns @ 0..NS_PER_S => Some((given, time.tv_sec.checked_mul(NS_PER_S)?.checked_add(ns)?)),
        _ => None,
    };
    let (atime_bit, atime) = part(&pair[0], change::ATIME, change::ATIME_NOW)?;
    let (mtime_bit, mtime) = part(&pair[1], change::MTIME, change::MTIME_NOW)?;
    let which = atime_bit | mtime_bit;
    (which != 0).then(|| Change {
        which: which.into(),
        atime: atime.into(),
        mtime: mtime.into(),
        ..Change::default()
    })
}

/// # Safety
/// `pair` is null or points at two.
unsafe fn times_in_us(pair: *const timeval) -> Option<Change> {
    if pair.is_null() {
        // SAFETY: null.
        return unsafe { times(std::ptr::null()) };
    }
    if !may_be(pair, 2 * size_of::<timeval>()) {
        return None;
    }
    // SAFETY: the caller's.
    let pair = unsafe { std::slice::from_raw_parts(pair, 2) };
    if pair.iter().any(|time| !(0..1_000_000).contains(&time.tv_usec)) {
        return None;
    }
    let pair =
        [&pair[0], &pair[1]].map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 });
    // SAFETY: two.
    unsafe { times(pair.as_ptr()) }
}

macro_rules! truncates {
    ($($ftruncate:ident $truncate:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ftruncate(fd: c_int, size: off_t) -> c_int {
            truncate_open(fd, size).unwrap_or_else(|| next_on!(fd, $ftruncate(fd: c_int, size: off_t) -> c_int))
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $truncate(path: *const c_char, size: off_t) -> c_int {
            // SAFETY: as the program says; so in all of these.
            change_path(AT_FDCWD, unsafe { bytes(path) }, truncation(size), true)
                .unwrap_or_else(|| next!($truncate(path: *const c_char, size: off_t) -> c_int))
        }
    )*};
}

truncates! {
    ftruncate truncate;
    ftruncate64 truncate64;
}

fn truncate_open(fd: c_int, size: off_t) -> Option<c_int> {
    let opened = descriptors::get(fd).filter(|opened| opened.flags & WRITE != 0)?;
    descriptors::wrote(fd);
    told(Call::Truncate, Some(change_at(open_place(&opened), &truncation(size)?, true)))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chmod(path: *const c_char, bits: mode_t) -> c_int {
    // SAFETY: see `truncate`.
    change_path(AT_FDCWD, unsafe { bytes(path) }, mode(bits), true)
        .unwrap_or_else(|| next!(chmod(path: *const c_char, bits: mode_t) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchmod(fd: c_int, bits: mode_t) -> c_int {
    change_open(fd, mode(bits)).unwrap_or_else(|| next_on!(fd, fchmod(fd: c_int, bits: mode_t) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchmodat(dir: c_int, path: *const c_char, bits: mode_t, flags: c_int) -> c_int {
    let wish = mode(bits).filter(|_| flags == 0);
    // SAFETY: see `truncate`.
    change_path(dir, unsafe { bytes(path) }, wish, true).unwrap_or_else(
        || next_on!(dir, fchmodat(dir: c_int, path: *const c_char, bits: mode_t, flags: c_int) -> c_int),
    )
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: see `truncate`.
    change_path(AT_FDCWD, unsafe { bytes(path) }, owner(uid, gid), true)
        .unwrap_or_else(|| next!(chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: see `truncate`.
    change_path(AT_FDCWD, unsafe { bytes(path) }, owner(uid, gid), false)
        .unwrap_or_else(|| next!(lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    change_open(fd, owner(uid, gid))
        .unwrap_or_else(|| next_on!(fd, fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchownat(
    dir: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: c_int,
) -> c_int {
    let wish = owner(uid, gid).filter(|_| flags & !AT_SYMLINK_NOFOLLOW == 0);
    // SAFETY: see `truncate`.
    change_path(dir, unsafe { bytes(path) }, wish, flags == 0).unwrap_or_else(|| {
        next_on!(dir, fchownat(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int)
    })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimens(fd: c_int, pair: *const timespec) -> c_int {
    // SAFETY: see `truncate`.
    change_open(fd, unsafe { times(pair) })
        .unwrap_or_else(|| next_on!(fd, futimens(fd: c_int, pair: *const timespec) -> c_int))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn utimensat(
    dir: c_int,
    path: *const c_char,
    pair: *const timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: see `truncate`.
    let (wish, path_bytes) = unsafe { (times(pair), bytes(path)) };
    let wish = wish.filter(|_| flags & !AT_SYMLINK_NOFOLLOW == 0);
    change_path(dir, path_bytes, wish, flags == 0).unwrap_or_else(|| {
        next_on!(dir, utimensat(dir: c_int, path: *const c_char, pair: *const timespec, flags: c_int) -> c_int)
    })
}

macro_rules! times_by_path {
    ($($name:ident $follow:literal;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, pair: *const timeval) -> c_int {
            // SAFETY: see `truncate`.
            change_path(AT_FDCWD, unsafe { bytes(path) }, unsafe { times_in_us(pair) }, $follow)
                .unwrap_or_else(|| next!($name(path: *const c_char, pair: *const timeval) -> c_int))
        }
    )*};
}

times_by_path! {
    utimes true;
    lutimes false;
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimes(fd: c_int, pair: *const timeval) -> c_int {
    // SAFETY: see `truncate`.
    change_open(fd, unsafe { times_in_us(pair) })
        .unwrap_or_else(|| next_on!(fd, futimes(fd: c_int, pair: *const timeval) -> c_int))
}
