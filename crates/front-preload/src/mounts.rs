//! The mounts that this process can reach by a queue: found once, when a path first looks as if it lay under
//! one.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::masked::{MadeOnce, Masked};
use crate::process;
use crate::way::Way;
use amphi_front_queue::{ListedMount, listed_mounts};
use amphi_front_shared::signals;
use amphi_rt::sync::OnceCell;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

/// So many questions about names after a change the kernel is asked again. What it remembers it tells faster
/// than the queue does, but a change through the queue makes it forget.
const ASKED_AFTER_CHANGE: i32 = 64;
/// So many questions for each name that was listed: what it is, what it holds, whether it has this or that
/// attribute. The kernel has not heard of it.
const ASKED_OF_LISTED: i32 = 4;
/// Most names listed of which that is remembered.
const LISTED_MAX: i32 = 100_000;

/// One mount.
#[derive(Debug)]
pub struct Mount {
    /// Where it is, without a slash at the end.
    pub directory: Vec<u8>,
    /// Its device number.
    pub device: u64,
    owner: u32,
    /// This process's way in, once there is one. It is never freed: other threads may use it.
    way: AtomicPtr<Way>,
    /// Whether connecting was tried since this process began.
    tried: AtomicBool,
    /// Questions about names that went to the queue since this process changed something, less those that
    /// listed names have ahead.
    asked: AtomicI32,
}

static MOUNTS: MadeOnce<Vec<Mount>> = MadeOnce::new();
/// Counts up whenever connections become another process's: after a fork, after a change of credentials.
pub static GENERATION: AtomicU32 = AtomicU32::new(1);
/// What sees to forks and to the end of the program, once this library has been initialised. Before that
/// calls are the kernel's: an allocator may make them in its first call and under its lock, as jemalloc does,
/// and here they would allocate.
static PREPARE: OnceCell<fn()> = OnceCell::new();
/// No more queues for this process: its credentials or its root have changed.
static OFF: AtomicBool = AtomicBool::new(false);

/// Leaves everything to the kernel from now on. No descriptor is a placeholder.
pub fn switch_off() {
    OFF.store(true, Ordering::SeqCst);
    GENERATION.fetch_add(1, Ordering::SeqCst);
    leave();
}

/// Lets no command of this process be under way any more, and none begin, where the file system runs inside
/// of the process: it is about to end or to become another program. Its files are the kernel's from now on.
pub fn leave() {
    if process::is_own() {
        known().for_each(Way::leave);
    }
}

/// The ways that this process has.
fn known() -> impl Iterator<Item = &'static Way> {
    MOUNTS.get().map_or(&[][..], |mounts| &mounts[..]).iter().filter_map(Mount::known)
}

/// From now on calls into a range mask signals, and the kernel knows the program's own handlers: somebody is
/// about to change them where this library does not see it, or sends a signal that nobody can stand in front
/// of.
pub fn mask_signals() {
    if signals::are_deferred() && process::is_own() && signals::end() {
        known().for_each(Way::await_outside);
        signals::restore();
    }
}

/// Whether this process's commands are calls into a range, as far as it has given any.
pub fn has_range() -> bool {
    known().any(Way::is_range)
}

/// From now on calls may be taken from the kernel. `prepare` is called before a process uses a mount.
pub fn begin(prepare: fn()) {
    PREPARE.get_or_init(|| prepare);
}

/// Whether the kernel has probably forgotten what names mean on any of the mounts: this process changed
/// something there lately.
pub fn any_is_for_queue() -> bool {
    MOUNTS.get().is_some_and(|mounts| {
        mounts.iter().any(|mount| mount.asked.load(Ordering::Relaxed) < ASKED_AFTER_CHANGE)
    })
}

/// Whether this process has looked for mounts and found some.
pub fn are_there() -> bool {
    MOUNTS.get().is_some_and(|mounts| !mounts.is_empty())
}

/// Whether queues may be used.
pub fn is_on() -> bool {
    PREPARE.get().is_some() && !OFF.load(Ordering::Relaxed)
}

/// All mounts, looked for at the first call.
pub fn all() -> &'static [Mount] {
    MOUNTS.get_or_make(|| {
        if is_left_alone() {
            return Vec::new();
        }
        find(&read_whole("/proc/self/mountinfo").unwrap_or_default())
    })
}

/// Programs that are never accelerated: they look at others' descriptors and memory, or end a mount.
const LEFT_ALONE: [&str; 7] = ["amphi", "fusermount3", "umount", "gdb", "strace", "ltrace", "valgrind"];

/// Whether this program is on the list, or on the user's, names with commas between them.
fn is_left_alone() -> bool {
    let line = read_whole("/proc/self/cmdline").unwrap_or_default();
    let called = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = called.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let list = std::env::var_os("AMPHI_LEAVE_ALONE").unwrap_or_default();
    let mut listed = std::os::unix::ffi::OsStrExt::as_bytes(&*list).split(|&byte| byte == b',');
    LEFT_ALONE.iter().any(|known| known.as_bytes() == name) || listed.any(|known| known == name)
}

impl Mount {
    /// The way into it, found now if it was not before.
    pub fn way(&self) -> Option<&'static Way> {
        let known = self.known();
        if known.is_some() || self.tried.swap(true, Ordering::SeqCst) {
            return known;
        }
        // A handler that comes before this uses the kernel, since it finds the way tried. One that came later
        // could wait for what is made once below.
        let _masked = Masked::begin();
        let directory = CString::new(&self.directory[..]).ok()?;
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, how, Mode::empty()).ok()?;
        if rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some() {
            // A limit on the size of files is the kernel's to keep.
            return None;
        }
        if let Some(prepare) = PREPARE.get() {
            prepare();
        }
        let way = Way::find(self.device, self.owner, root, process::out_of_the_way)?;
        self.way.store(Box::into_raw(Box::new(way)), Ordering::Release);
        self.known()
    }

    /// Whether the file system is inside of this process: questions cost less than a system call.
    pub fn is_range(&self) -> bool {
        self.known().is_some_and(Way::is_range)
    }

    /// Notes a change by this process.
    pub fn changed(&self) {
        self.asked.fetch_min(0, Ordering::Relaxed);
    }

    /// Notes that this process has listed so many names, at the most, through the queue.
    pub fn listed(&self, names: i32) {
        self.changed();
        let names = names.min(LISTED_MAX);
        if self.asked.load(Ordering::Relaxed) > -ASKED_OF_LISTED * LISTED_MAX {
            self.asked.fetch_sub(ASKED_OF_LISTED * names, Ordering::Relaxed);
        }
    }

    /// Whether the kernel has probably forgotten what names mean: this process changed something lately.
    pub fn is_for_queue(&self) -> bool {
        self.asked.load(Ordering::Relaxed) < ASKED_AFTER_CHANGE
            && self.asked.fetch_add(1, Ordering::Relaxed) < ASKED_AFTER_CHANGE
    }

    #[allow(unsafe_code)]
    pub fn known(&self) -> Option<&'static Way> {
        // SAFETY: null or a box that was given up for good.
        unsafe { self.way.load(Ordering::Acquire).as_ref() }
    }

    /// Forgets the way, which is the parent's, and lets this process make its own.
    pub fn forget(&self) {
        self.way.store(std::ptr::null_mut(), Ordering::SeqCst);
        self.tried.store(false, Ordering::SeqCst);
    }
}

/// The sockets of this process's connections.
pub fn sockets() -> impl Iterator<Item = i32> {
    known().map(|way| way.socket().as_raw_fd())
}

/// The mounts of the table.
fn find(mountinfo: &[u8]) -> Vec<Mount> {
    let mount = |listed: ListedMount| Mount {
        directory: listed.directory,
        device: listed.device,
        owner: listed.owner,
        way: AtomicPtr::default(),
        tried: AtomicBool::new(false),
        asked: AtomicI32::new(ASKED_AFTER_CHANGE),
    };
    listed_mounts(mountinfo).into_iter().map(mount).collect()
}

/// The text of a file, by system calls alone: libc's functions are ours here.
pub fn read_whole(path: &str) -> rustix::io::Result<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = vec![0; 64 << 10];
    let mut len = 0;
    loop {
        let read = rustix::io::read(&file, &mut text[len..])?;
        if read == 0 {
            text.truncate(len);
            return Ok(text);
        }
        len += read;
        if len == text.len() {
            text.resize(len * 2, 0);
        }
    }
}

/// Device and inode number of what a descriptor is open on, as the kernel remembers them, and whether it is a
/// regular file.
pub fn identity(fd: rustix::fd::BorrowedFd<'_>) -> Option<(u64, u64, bool)> {
    let what = StatxFlags::INO | StatxFlags::TYPE;
    let stat = statx(fd, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, what).ok()?;
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Some((device, stat.stx_ino, u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFREG))
}
