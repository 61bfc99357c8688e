//! Ways by which descriptors reach the kernel without a call that the library could see: io_uring, and the
//! asynchronous I/O of Linux. A placeholder is an error there.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_long, c_void, dl_phdr_info, size_t};

/// Libraries that make their system calls themselves.
const LIBRARIES: [&[u8]; 2] = [b"liburing", b"libaio"];

/// System calls, as `syscall(2)` makes them, from which on descriptors may be passed so.
pub const BEGINNINGS: [c_long; 2] = [libc::SYS_io_uring_setup, libc::SYS_io_setup];

/// Whether the process has loaded such a library. It is looked for again when others have been loaded.
pub fn may_be() -> bool {
    /// Objects that had been loaded at the last look, which found none; 0 before there was one.
    static LOADED: AtomicU64 = AtomicU64::new(0);
    let mut loaded = 0_u64;
    // SAFETY: the function gets this number, while this call lasts.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut loaded).cast()) };
    if LOADED.load(Ordering::Relaxed) == loaded && loaded != 0 {
        return false;
    }
    let mut found = false;
    // SAFETY: as above.
    unsafe { libc::dl_iterate_phdr(Some(find), (&raw mut found).cast()) };
    if !found {
        LOADED.store(loaded, Ordering::Relaxed);
    }
    found
}

/// How many objects have been loaded so far: each one says it.
unsafe extern "C" fn count(info: *mut dl_phdr_info, _size: size_t, loaded: *mut c_void) -> c_int {
    // SAFETY: `may_be` passes a number, the C library what it knows of an object.
    unsafe { *loaded.cast::<u64>() = (*info).dlpi_adds };
    1
}

unsafe extern "C" fn find(info: *mut dl_phdr_info, _size: size_t, found: *mut c_void) -> c_int {
    // SAFETY: as in `count`; the name ends with a zero byte.
    let path = unsafe { CStr::from_ptr((*info).dlpi_name) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let is_one = LIBRARIES.iter().any(|library| name.starts_with(library));
    // SAFETY: as in `count`.
    unsafe { *found.cast::<bool>() |= is_one };
    c_int::from(is_one)
}
