//! `stat` and its relatives. What the kernel remembers it tells faster than the queue does, so the queue is
//! asked only where it has probably forgotten.
#![allow(unsafe_code)]

use amphi_queue::format::{Attributes, Submission, flag, op};
use amphi_queue::type_bits;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_uint, stat as Stat, statx as Statx};

use super::{bytes, knows_kernel_all, next_on, open_place, told, with_place_to_ask};
use crate::command::{self, Answer, Place};
use crate::descriptors::{self, PLACEHOLDER};
use crate::mounts;
use crate::next::next;
use crate::pointers::may_be;
use crate::report::Call;

/// Preferred I/O size, in bytes, as FUSE shows it.
const BLOCK_BYTES: i64 = 4096;
const NS_PER_S: i64 = 1_000_000_000;

/// # Safety
/// `into` is room for a `stat`.
unsafe fn put(attributes: &Attributes, device: u64, into: *mut Stat) {
    // SAFETY: all of it is numbers.
    let mut shown: Stat = unsafe { std::mem::zeroed() };
    shown.st_dev = device;
    shown.st_ino = attributes.ino.get();
    shown.st_mode = type_bits(attributes.kind.get()) | u32::from(attributes.mode.get());
    shown.st_nlink = u64::from(attributes.nlink.get());
    shown.st_uid = attributes.uid.get();
    shown.st_gid = attributes.gid.get();
    shown.st_rdev = u64::from(attributes.rdev.get());
    shown.st_size = attributes.size.get() as i64;
    shown.st_blksize = BLOCK_BYTES;
    shown.st_blocks = attributes.blocks.get() as i64;
    (shown.st_atime, shown.st_atime_nsec) = split(attributes.atime.get());
    (shown.st_mtime, shown.st_mtime_nsec) = split(attributes.mtime.get());
    (shown.st_ctime, shown.st_ctime_nsec) = split(attributes.ctime.get());
    // SAFETY: the caller's.
    unsafe { into.write(shown) };
}

const fn split(ns: i64) -> (i64, i64) {
    (ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S))
}

fn ask(place: Place<'_>, follow: bool) -> Answer {
    let ask = Submission {
        operation: op::ATTRIBUTES.into(),
        flags: if follow { 0 } else { flag::NO_FOLLOW }.into(),
        handle: place.handle.into(),
        ..Submission::default()
    };
    command::plain(place.mount, place.path, b"", ask)
}

/// What the answer to a question is about: the mount's device, and the attributes.
type Shown = Option<(u64, Answer)>;

fn ask_open(fd: c_int) -> Shown {
    let opened = descriptors::get(fd)?;
    let mount = mounts::all().get(opened.mount)?;
    let asks = opened.flags & PLACEHOLDER != 0 || mount.is_range() || descriptors::is_for_queue(fd);
    asks.then(|| (mount.device, ask(open_place(&opened), true)))
}

fn ask_path(dir: c_int, path: Option<&[u8]>, follow: bool) -> Shown {
    with_place_to_ask(dir, path?, |place| Some((mounts::all().get(place.mount)?.device, ask(place, follow))))
}

/// By the flags of `fstatat` and `statx`.
fn ask_at(dir: c_int, path: Option<&[u8]>, flags: c_int) -> Shown {
    if flags & !(AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT) != 0 {
        return None;
    }
    match path {
        Some(b"") if flags & libc::AT_EMPTY_PATH != 0 => ask_open(dir),
        _ => ask_path(dir, path, flags & AT_SYMLINK_NOFOLLOW == 0),
    }
}

/// # Safety
/// `into` is null or room for a `stat`.
unsafe fn tell(shown: Shown, into: *mut Stat) -> Option<c_int> {
    let (device, answer) = shown.filter(|_| may_be(into, size_of::<Stat>()))?;
    if let Ok(completion) = &answer {
        // SAFETY: the caller's.
        unsafe { put(&completion.attributes, device, into) };
    }
    told(Call::Stat, Some(answer))
}

macro_rules! stats {
    ($($stat:ident $lstat:ident $fstat:ident $fstatat:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fstat(fd: c_int, into: *mut Stat) -> c_int {
            // SAFETY: as the program says; so in all of these.
            unsafe { tell(ask_open(fd), into) }
                .unwrap_or_else(|| next_on!(fd, $fstat(fd: c_int, into: *mut Stat) -> c_int))
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $stat(path: *const c_char, into: *mut Stat) -> c_int {
            if knows_kernel_all() {
                return next!($stat(path: *const c_char, into: *mut Stat) -> c_int);
            }
            // SAFETY: see `fstat`.
            unsafe { tell(ask_path(AT_FDCWD, bytes(path), true), into) }
                .unwrap_or_else(|| next!($stat(path: *const c_char, into: *mut Stat) -> c_int))
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lstat(path: *const c_char, into: *mut Stat) -> c_int {
            if knows_kernel_all() {
                return next!($lstat(path: *const c_char, into: *mut Stat) -> c_int);
            }
            // SAFETY: see `fstat`.
            unsafe { tell(ask_path(AT_FDCWD, bytes(path), false), into) }
                .unwrap_or_else(|| next!($lstat(path: *const c_char, into: *mut Stat) -> c_int))
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fstatat(
            dir: c_int, path: *const c_char, into: *mut Stat, flags: c_int,
        ) -> c_int {
            if dir == AT_FDCWD && knows_kernel_all() {
                return next!(
                    $fstatat(dir: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int
                );
            }
            // SAFETY: see `fstat`.
            unsafe { tell(ask_at(dir, bytes(path), flags), into) }.unwrap_or_else(|| {
                next_on!(dir, $fstatat(dir: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int)
            })
        }
    )*};
}

stats! {
    stat lstat fstat fstatat;
    stat64 lstat64 fstat64 fstatat64;
}

fn put_time(into: &mut libc::statx_timestamp, ns: i64) {
    let (seconds, rest) = split(ns);
    into.tv_sec = seconds;
    into.tv_nsec = rest as u32;
}

/// # Safety
/// `into` is room for a `statx`.
unsafe fn put_extended(attributes: &Attributes, device: u64, into: *mut Statx) {
    // SAFETY: all of it is numbers.
    let mut shown: Statx = unsafe { std::mem::zeroed() };
    let (rdev, mode) = (u64::from(attributes.rdev.get()), attributes.mode.get());
    shown.stx_mask = libc::STATX_BASIC_STATS;
    shown.stx_blksize = BLOCK_BYTES as u32;
    shown.stx_nlink = attributes.nlink.get();
    shown.stx_uid = attributes.uid.get();
    shown.stx_gid = attributes.gid.get();
    shown.stx_mode = type_bits(attributes.kind.get()) as u16 | mode;
    shown.stx_ino = attributes.ino.get();
    shown.stx_size = attributes.size.get();
    shown.stx_blocks = attributes.blocks.get();
    put_time(&mut shown.stx_atime, attributes.atime.get());
    put_time(&mut shown.stx_mtime, attributes.mtime.get());
    put_time(&mut shown.stx_ctime, attributes.ctime.get());
    (shown.stx_rdev_major, shown.stx_rdev_minor) = (libc::major(rdev), libc::minor(rdev));
    (shown.stx_dev_major, shown.stx_dev_minor) = (libc::major(device), libc::minor(device));
    // SAFETY: the caller's.
    unsafe { into.write(shown) };
}

/// Questions beyond what every file system knows, and ones about what only the kernel remembers, are the
/// kernel's.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut Statx,
) -> c_int {
    if dir == AT_FDCWD && knows_kernel_all() {
        return next!(
            statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut Statx) -> c_int
        );
    }
    let known = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    let plain = flags & !(libc::AT_STATX_FORCE_SYNC);
    // SAFETY: as the program says.
    let path_bytes = unsafe { bytes(path) };
    let shown = if mask & !known == 0 && may_be(into, size_of::<Statx>()) {
        ask_at(dir, path_bytes, plain)
    } else {
        None
    };
    let told = shown.and_then(|(device, answer)| {
        if let Ok(completion) = &answer {
            // SAFETY: as above.
            unsafe { put_extended(&completion.attributes, device, into) };
        }
        told(Call::Stat, Some(answer))
    });
    told.unwrap_or_else(|| {
        next_on!(dir, statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut Statx) -> c_int)
    })
}
