//! Which calls went which way, for `amphi run --trace-calls`: counted always, told at the end if asked for.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Call {
    Open,
    Read,
    Write,
    Sync,
    Stat,
    Unlink,
    Rename,
    MakeDirectory,
    RemoveDirectory,
    Truncate,
    Seek,
    Access,
    Change,
    Link,
    Symlink,
    ReadLink,
    Xattr,
    Allocate,
    Copy,
    Real,
}

const NAMES: [&str; 20] = [
    "open",
    "read",
    "write",
    "fsync",
    "stat",
    "unlink",
    "rename",
    "mkdir",
    "rmdir",
    "ftruncate",
    "lseek",
    "access",
    "chmod",
    "link",
    "symlink",
    "readlink",
    "xattr",
    "fallocate",
    "copy",
    "real",
];

/// By kind: through the queue, and through the kernel although the file or path is on a mount. The last kind
/// counts placeholders that became real, which is the kernel's doing.
static COUNTS: [[AtomicU64; 2]; NAMES.len()] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; NAMES.len()];

/// Counts a call.
pub fn count(call: Call, by_queue: bool) {
    COUNTS[call as usize][usize::from(!by_queue)].fetch_add(1, Ordering::Relaxed);
}

/// Says what was counted, if `AMPHI_TRACE_CALLS` is set: at the end of the program. `way` is how commands
/// went that the kernel did not get.
pub fn tell(way: &str) {
    if std::env::var_os("AMPHI_TRACE_CALLS").is_none() {
        return;
    }
    let mut text =
        format!("amphi: calls of process {}\n{:>12} {:>12} {:>12}\n", std::process::id(), "", way, "kernel");
    let mut any = false;
    for (name, counts) in NAMES.iter().zip(&COUNTS) {
        let [queue, kernel] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        if queue + kernel > 0 {
            any = true;
            text += &format!("{name:>12} {queue:>12} {kernel:>12}\n");
        }
    }
    if any {
        // A program that has closed its standard error does not want to know.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
