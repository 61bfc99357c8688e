//! `fstat` and `ftruncate`. A `stat` by name is the kernel's, which remembers what it was told, and hears of each change.
#![allow(unsafe_code)]

use amphi_queue::format::{Attributes, Change, Submission, change, kind, op};
use libc::{c_int, off_t, stat as Stat};

use crate::command::{self, Answer, Place};
use crate::descriptors::{self, WRITE};
use crate::errno::{Verdict, fail};
use crate::mounts;
use crate::next::next;
use crate::report::{self, Call};

/// Preferred I/O size, in bytes, as FUSE shows it.
const BLOCK_BYTES: i64 = 4096;
const NS_PER_S: i64 = 1_000_000_000;

const fn type_bits(of: u16) -> u32 {
    match of {
        kind::DIRECTORY => libc::S_IFDIR,
        kind::SYMLINK => libc::S_IFLNK,
        kind::FIFO => libc::S_IFIFO,
        kind::SOCKET => libc::S_IFSOCK,
        kind::CHAR => libc::S_IFCHR,
        kind::BLOCK => libc::S_IFBLK,
        _ => libc::S_IFREG,
    }
}

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

fn ask(place: Place<'_>) -> Answer {
    let ask =
        Submission { operation: op::ATTRIBUTES.into(), handle: place.handle.into(), ..Submission::default() };
    command::plain(place.mount, place.path, b"", ask)
}

/// # Safety
/// `into` is room for a `stat`.
unsafe fn tell(answer: Option<(usize, Answer)>, into: *mut Stat) -> Option<c_int> {
    let (mount, answer) = answer?;
    let told = match answer {
        Ok(completion) => {
            // SAFETY: the caller's.
            unsafe { put(&completion.attributes, mounts::all().get(mount)?.device, into) };
            Some(0)
        }
        Err(Verdict::Errno(errno)) => Some(fail(errno) as c_int),
        Err(Verdict::AskKernel) => None,
    };
    report::count(Call::Stat, told.is_some());
    told
}

/// # Safety
/// `into` is room for a `stat`.
unsafe fn stat_open(fd: c_int, into: *mut Stat) -> Option<c_int> {
    let opened = descriptors::get(fd).filter(|_| !into.is_null() && descriptors::is_for_queue(fd))?;
    let place = Place { mount: opened.mount, handle: opened.handle, path: b"" };
    // SAFETY: the caller's.
    unsafe { tell(Some((opened.mount, ask(place))), into) }
}

macro_rules! stats {
    ($($fstat:ident $ftruncate:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fstat(fd: c_int, into: *mut Stat) -> c_int {
            // SAFETY: as the program says.
            unsafe { stat_open(fd, into) }.unwrap_or_else(|| next!($fstat(fd: c_int, into: *mut Stat) -> c_int))
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ftruncate(fd: c_int, size: off_t) -> c_int {
            truncate_open(fd, size).unwrap_or_else(|| next!($ftruncate(fd: c_int, size: off_t) -> c_int))
        }
    )*};
}

stats! {
    fstat ftruncate;
    fstat64 ftruncate64;
}

fn truncate_open(fd: c_int, size: off_t) -> Option<c_int> {
    let opened = descriptors::get(fd).filter(|opened| opened.flags & WRITE != 0)?;
    let wish =
        Change { which: change::SIZE.into(), size: u64::try_from(size).ok()?.into(), ..Change::default() };
    let cut = Submission {
        operation: op::SET_ATTRIBUTES.into(),
        handle: opened.handle.into(),
        ..Submission::default()
    };
    let bytes = zerocopy::IntoBytes::as_bytes(&wish);
    let answer = command::run(opened.mount, b"", b"", cut, bytes.len(), |area| area.put(bytes), |_, _| {});
    let told = match answer {
        Ok(_) => Some(0),
        Err(Verdict::Errno(errno)) => Some(fail(errno) as c_int),
        Err(Verdict::AskKernel) => None,
    };
    report::count(Call::Truncate, told.is_some());
    told
}
