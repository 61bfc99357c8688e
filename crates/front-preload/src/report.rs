//! Which calls went which way, for `amphi run --trace-calls`: counted always, told at the end if asked for.

use std::io::{Cursor, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::masked::MadeOnce;
use crate::process;

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
    List,
    Real,
}

const NAMES: [&str; 21] = [
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
    "readdir",
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

/// Standard error, for who asks to be told: programs close theirs before they end, GNU tar among them.
static TOLD: MadeOnce<Option<OwnedFd>> = MadeOnce::new();

/// Before anything is counted that is to be told.
pub fn begin() {
    TOLD.get_or_make(|| {
        std::env::var_os("AMPHI_TRACE_CALLS")?;
        rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 0).ok().map(process::out_of_the_way)
    });
}

/// The descriptor by which it will be told.
pub fn told() -> Option<RawFd> {
    Some(TOLD.get()?.as_ref()?.as_raw_fd())
}

/// Whether this process has told.
static HAS_TOLD: AtomicBool = AtomicBool::new(false);

/// In the child of a fork, which counts its own calls.
pub fn in_child() {
    HAS_TOLD.store(false, Ordering::Relaxed);
    COUNTS.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// Says what was counted, if `AMPHI_TRACE_CALLS` is set: once, at the end of the program, which may come in a
/// signal's handler, so it allocates nothing. `way` is how commands went that the kernel did not get.
pub fn tell(way: &str) {
    let Some(Some(told)) = TOLD.get() else { return };
    let counts =
        || COUNTS.each_ref().map(|counts| counts.each_ref().map(|count| count.load(Ordering::Relaxed)));
    let rows = || NAMES.iter().zip(counts()).filter(|(_, [queue, kernel])| queue + kernel > 0);
    if rows().next().is_none() || HAS_TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    // More than all kinds take. What would not fit is not told.
    let mut text = Cursor::new([0; 2048]);
    let process = std::process::id();
    let _ = writeln!(text, "amphi: calls of process {process}\n{:>12} {way:>12} {:>12}", "", "kernel");
    for (name, [queue, kernel]) in rows() {
        let _ = writeln!(text, "{name:>12} {queue:>12} {kernel:>12}");
    }
    let len = text.position() as usize;
    // Who is not there any more need not know.
    let _ = rustix::io::write(told, &text.into_inner()[..len]);
}
