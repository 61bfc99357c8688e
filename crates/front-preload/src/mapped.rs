//! Files that this process has mapped shared and may change in memory.
//!
//! The daemon knows nothing of what is stored into a mapping before the kernel writes it back, at the latest
//! when the mapping ends, and what goes through the queue meanwhile would be older than it or undone by it.
//! So in this process these files are the kernel's from then on.

use std::sync::atomic::{AtomicBool, Ordering};

use amphi_rt::sync::Mutex;
use libc::c_int;

use crate::descriptors;
use crate::masked::Masked;
use crate::mounts::{self, identity};

/// Device and inode numbers.
static FILES: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
static IS_ANY: AtomicBool = AtomicBool::new(false);

/// Whether there is such a file. Which one a path leads to only the kernel knows.
pub fn is_any() -> bool {
    IS_ANY.load(Ordering::Relaxed)
}

/// Whether the file is one.
pub fn is(device: u64, ino: u64) -> bool {
    is_any() && {
        let _masked = Masked::begin();
        FILES.lock().contains(&(device, ino))
    }
}

/// Notes that a descriptor's file is one; the descriptors through which the queue knows it.
#[allow(unsafe_code)]
pub fn note(fd: c_int) -> Vec<c_int> {
    // SAFETY: only asked about; so below.
    let file = |fd| identity(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) });
    let Some((device, ino, _)) = file(fd) else { return Vec::new() };
    if mounts::all().iter().all(|mount| mount.device != device) {
        return Vec::new();
    }
    {
        let _masked = Masked::begin();
        let mut files = FILES.lock();
        if !files.contains(&(device, ino)) {
            files.push((device, ino));
        }
        IS_ANY.store(true, Ordering::SeqCst);
    }
    let is_it = |fd: &c_int| match descriptors::unopened(*fd) {
        Some((unopened, _)) => unopened.ino == ino,
        None => file(*fd).is_some_and(|(its_device, its_ino, _)| (its_device, its_ino) == (device, ino)),
    };
    descriptors::all().filter(is_it).collect()
}
