//! The mounts that this process can reach by a queue: found once, when a path first looks as if it lay under one.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use amphi_front_queue::{Connection, connect};
use amphi_rt::sync::OnceCell;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

/// The file-system type under which the kernel lists our mounts.
const FS_TYPE: &[u8] = b"fuse.amphi";
/// Mounts of ours that a process can use at a time; more are left to the kernel.
const MOUNTS_MAX: usize = 16;

/// One mount.
#[derive(Debug)]
pub struct Mount {
    /// Where it is, without a slash at the end.
    pub directory: Vec<u8>,
    /// Its device number.
    pub device: u64,
    owner: u32,
    /// A connection of this process, once there is one. It is never freed: other threads may use it.
    connection: AtomicPtr<Connection>,
    /// Whether connecting was tried since this process began.
    tried: AtomicBool,
}

static MOUNTS: OnceCell<Vec<Mount>> = OnceCell::new();
/// Counts up whenever connections become another process's: after a fork, after a change of credentials.
pub static GENERATION: AtomicU32 = AtomicU32::new(1);
/// No more queues for this process: its credentials or its root have changed.
static OFF: AtomicBool = AtomicBool::new(false);

/// Leaves everything to the kernel from now on.
pub fn switch_off() {
    OFF.store(true, Ordering::SeqCst);
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// Whether queues may be used.
pub fn is_on() -> bool {
    !OFF.load(Ordering::Relaxed)
}

/// All mounts, looked for at the first call.
pub fn all() -> &'static [Mount] {
    MOUNTS.get_or_init(|| {
        let mut mounts = find(&read_whole("/proc/self/mountinfo").unwrap_or_default());
        mounts.truncate(MOUNTS_MAX);
        mounts
    })
}

impl Mount {
    /// The connection, made now if it was not before.
    pub fn connection(&self) -> Option<&'static Connection> {
        let known = self.known();
        if known.is_some() || self.tried.swap(true, Ordering::SeqCst) {
            return known;
        }
        let directory = CString::new(&self.directory[..]).ok()?;
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, how, Mode::empty()).ok()?;
        let connection = connect(self.device, self.owner, root).ok()?;
        self.connection.store(Box::into_raw(Box::new(connection)), Ordering::Release);
        self.known()
    }

    #[allow(unsafe_code)]
    fn known(&self) -> Option<&'static Connection> {
        // SAFETY: null or a box that was given up for good.
        unsafe { self.connection.load(Ordering::Acquire).as_ref() }
    }

    /// Forgets the connection, which is the parent's, and lets this process make its own.
    pub fn forget(&self) {
        self.connection.store(std::ptr::null_mut(), Ordering::SeqCst);
        self.tried.store(false, Ordering::SeqCst);
    }
}

/// Our mounts that are not hidden by a later mount on the same directory and have no other mount below them.
fn find(mountinfo: &[u8]) -> Vec<Mount> {
    let lines: Vec<Line> = mountinfo.split(|&byte| byte == b'\n').filter_map(Line::parse).collect();
    let is_below = |inner: &[u8], outer: &[u8]| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let is_free = |number: usize, line: &Line| {
        !lines.iter().skip(number + 1).any(|later| is_below(&later.directory, &line.directory))
    };
    let ours = lines.iter().enumerate().filter(|(number, line)| line.is_ours && is_free(*number, line));
    ours.map(|(_, line)| Mount {
        directory: line.directory.clone(),
        device: line.device,
        owner: line.owner,
        connection: AtomicPtr::default(),
        tried: AtomicBool::new(false),
    })
    .collect()
}

/// What counts of a line of `/proc/self/mountinfo`.
struct Line {
    device: u64,
    directory: Vec<u8>,
    is_ours: bool,
    owner: u32,
}

impl Line {
    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let (before, after) = text.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (major, minor) = before.next()?.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        // A mount of a part of a file system has another root.
        let is_whole = before.next()? == "/";
        let directory = unescape(before.next()?.as_bytes());
        let mut after = after.split(' ');
        let is_ours = after.next()?.as_bytes() == FS_TYPE && is_whole;
        let options = after.nth(1).unwrap_or("");
        let owner = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
        Some(Self { device, directory, is_ours: is_ours && owner.is_some(), owner: owner.unwrap_or(0) })
    }
}

/// Undoes the kernel's octal escapes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match escaped {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
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

/// Device and inode number of what a descriptor is open on, as the kernel remembers them, and whether it is a regular file.
pub fn identity(fd: rustix::fd::BorrowedFd<'_>) -> Option<(u64, u64, bool)> {
    let what = StatxFlags::INO | StatxFlags::TYPE;
    let stat = statx(fd, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, what).ok()?;
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Some((device, stat.stx_ino, u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFREG))
}
