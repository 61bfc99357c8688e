//! What is known of each descriptor: the queue's handle to the same file, and whether the kernel's is only a
//! [placeholder](crate::placeholder).
//!
//! A slot is written when a descriptor is opened or closed, and read by every call on it, from any thread,
//! without a lock. A reader that mixes two files' slots up finds that the slot has changed meanwhile; one
//! that is late has a handle that is closed, which names nothing.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use amphi_rt::sync::Mutex;
use libc::c_int;
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};

use crate::mounts;

/// Descriptors beyond this are left to the kernel.
const DESCRIPTORS: usize = 1 << 16;

/// Opened to read.
pub const READ: u32 = 1;
/// Opened to write.
pub const WRITE: u32 = 1 << 1;
/// Every write goes to the end.
pub const APPEND: u32 = 1 << 2;
/// It is a directory: a place where paths begin.
pub const DIRECTORY: u32 = 1 << 3;
/// `O_DSYNC`.
pub const SYNC_DATA: u32 = 1 << 4;
/// `O_SYNC`.
pub const SYNC_ALL: u32 = 1 << 5;
/// `O_DIRECT`.
pub const DIRECT: u32 = 1 << 6;
/// Another process has the same description, so the offset is not this one's to move in two steps.
pub const SHARED: u32 = 1 << 7;
/// The kernel's descriptor is a placeholder, and the offset is kept here.
pub const PLACEHOLDER: u32 = 1 << 8;

/// So many reads after a write the kernel is asked again. What it remembers it reads faster than the queue
/// does, but a write through the queue makes it forget, and its next read then costs more than many through
/// the queue.
const READS_AFTER_WRITE: u32 = 64;

/// So often the kernel is asked for a size that it does not keep: others may change it all the time.
const ASKED_MAX: u32 = 16;

/// What a descriptor is to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Which mount.
    pub mount: usize,
    /// The queue's handle.
    pub handle: u64,
    /// How it was opened.
    pub flags: u32,
    /// How often the slot was used: whoever takes a descriptor's slot away names this.
    turn: u32,
}

impl Opened {
    /// A handle that no descriptor has.
    pub const fn unplaced(mount: usize, handle: u64) -> Self {
        Self { mount, handle, flags: 0, turn: 0 }
    }
}

/// What the kernel must be told to open what a placeholder stands for.
#[derive(Clone, Debug)]
pub struct Unopened {
    /// Inode number.
    pub ino: u64,
    /// Access mode and flags of the open file, of `open(2)`.
    pub status: c_int,
    /// The path by which it was opened, from the root; empty if that is not known.
    pub path: Vec<u8>,
}

/// Placeholders that there are.
static PLACEHOLDERS: AtomicUsize = AtomicUsize::new(0);

/// Whether there is any placeholder: most programs at most times have none.
pub fn has_placeholders() -> bool {
    PLACEHOLDERS.load(Ordering::Relaxed) != 0
}

#[derive(Debug)]
struct Slot {
    /// Odd while the slot is being changed.
    turn: AtomicU32,
    flags: AtomicU32,
    /// The mount's number plus one; 0: not ours.
    mount: AtomicU32,
    /// 1 while a call moves the offset.
    moving: AtomicU32,
    handle: AtomicU64,
    /// Reads through the queue since the last write through it.
    reads: AtomicU32,
    /// A placeholder's offset.
    position: AtomicU64,
    /// Of a placeholder only.
    unopened: Mutex<Option<Box<Unopened>>>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            reads: AtomicU32::new(READS_AFTER_WRITE),
            turn: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            mount: AtomicU32::new(0),
            moving: AtomicU32::new(0),
            handle: AtomicU64::new(0),
            position: AtomicU64::new(0),
            unopened: Mutex::new(None),
        }
    }

    /// Changes the slot as one thing; false if somebody else is at it.
    fn change(
        &self,
        turn: u32,
        mount: u32,
        flags: u32,
        handle: u64,
        unopened: Option<Box<Unopened>>,
    ) -> bool {
        let locked = self.turn.compare_exchange(turn, turn | 1, Ordering::SeqCst, Ordering::SeqCst);
        if turn & 1 == 1 || locked.is_err() {
            return false;
        }
        self.mount.store(mount, Ordering::SeqCst);
        self.flags.store(flags, Ordering::SeqCst);
        self.position.store(0, Ordering::SeqCst);
        self.set_unopened(unopened);
        self.handle.store(handle, Ordering::SeqCst);
        self.reads.store(READS_AFTER_WRITE, Ordering::SeqCst);
        self.turn.store(turn.wrapping_add(2), Ordering::SeqCst);
        true
    }

    fn set_unopened(&self, unopened: Option<Box<Unopened>>) {
        let is_one = unopened.is_some();
        let was_one = std::mem::replace(&mut *self.unopened.lock(), unopened).is_some();
        match (was_one, is_one) {
            (false, true) => drop(PLACEHOLDERS.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(PLACEHOLDERS.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

/// The highest descriptor that there ever was a slot in use for, and one more.
static END: AtomicI32 = AtomicI32::new(0);

static SLOTS: [Slot; DESCRIPTORS] = [const { Slot::new() }; DESCRIPTORS];

fn slot(fd: c_int) -> Option<&'static Slot> {
    SLOTS.get(usize::try_from(fd).ok()?)
}

/// What the descriptor is, if it is open on a file of a mount.
pub fn get(fd: c_int) -> Option<Opened> {
    let slot = slot(fd)?;
    // Most descriptors of most programs are not ours.
    if slot.mount.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let turn = slot.turn.load(Ordering::SeqCst);
    let mount = slot.mount.load(Ordering::SeqCst);
    let opened = Opened {
        mount: mount.checked_sub(1)? as usize,
        handle: slot.handle.load(Ordering::SeqCst),
        flags: slot.flags.load(Ordering::SeqCst),
        turn,
    };
    (turn & 1 == 0 && slot.turn.load(Ordering::SeqCst) == turn).then_some(opened)
}

/// Notes a write through the queue.
pub fn wrote(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.reads.store(0, Ordering::Relaxed);
    }
}

/// Whether the kernel has probably forgotten what the file holds: it was written through this descriptor
/// lately.
pub fn is_for_queue(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| {
        slot.reads.load(Ordering::Relaxed) < READS_AFTER_WRITE
            && slot.reads.fetch_add(1, Ordering::Relaxed) < READS_AFTER_WRITE
    })
}

/// Remembers a descriptor that was just opened; with `unopened`, a placeholder. False if there is no slot for
/// it.
pub fn put(fd: c_int, mount: usize, handle: u64, flags: u32, unopened: Option<Box<Unopened>>) -> bool {
    let Some(slot) = slot(fd) else { return false };
    let turn = slot.turn.load(Ordering::SeqCst);
    END.fetch_max(fd + 1, Ordering::SeqCst);
    slot.change(turn, mount as u32 + 1, flags, handle, unopened)
}

/// Whether there is a slot for the descriptor.
pub fn fits(fd: c_int) -> bool {
    slot(fd).is_some()
}

/// What a placeholder stands for, and its offset. The caller has the right to move it.
pub fn unopened(fd: c_int) -> Option<(Unopened, u64)> {
    let slot = slot(fd)?;
    let unopened = slot.unopened.lock().as_deref().cloned()?;
    Some((unopened, slot.position.load(Ordering::SeqCst)))
}

/// Notes that the kernel's descriptor is the file's own from now on. The caller has the right to move the
/// offset.
pub fn is_real_now(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.flags.fetch_and(!PLACEHOLDER, Ordering::SeqCst);
        slot.set_unopened(None);
    }
}

/// A placeholder's offset.
pub fn offset_of(fd: c_int) -> Option<&'static AtomicU64> {
    slot(fd).map(|slot| &slot.position)
}

/// Forgets a descriptor, and says what it was: its handle is to be closed.
pub fn take(fd: c_int) -> Option<Opened> {
    let opened = get(fd)?;
    slot(fd)?.change(opened.turn, 0, 0, 0, None).then_some(opened)
}

/// The descriptors that are ours.
pub fn all() -> impl Iterator<Item = c_int> {
    (0..END.load(Ordering::SeqCst))
        .filter(|fd| slot(*fd).is_some_and(|slot| slot.mount.load(Ordering::Relaxed) != 0))
}

/// Forgets everything, in the child of a fork: the handles are the parent's.
pub fn forget_all() {
    for fd in all() {
        if let Some(slot) = slot(fd) {
            slot.mount.store(0, Ordering::SeqCst);
            slot.flags.store(0, Ordering::SeqCst);
            slot.moving.store(0, Ordering::SeqCst);
        }
    }
}

/// Lets the kernel know how far a file goes now, if it may have been written through a queue: some calls do
/// not ask, `mmap` and `sendfile` among them, and believe what the kernel was told before.
#[allow(unsafe_code)]
pub fn let_kernel_know(fd: c_int) {
    if fd < 0 || !mounts::are_there() {
        return;
    }
    // SAFETY: only asked about.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let size = |how| Some(statx(borrowed, "", AtFlags::EMPTY_PATH | how, StatxFlags::SIZE).ok()?.stx_size);
    // It asks if it was told to forget. What it is told while it is told so again it passes on and does not
    // keep.
    for _ in 0..ASKED_MAX {
        if size(AtFlags::empty()) == size(AtFlags::STATX_DONT_SYNC) {
            break;
        }
    }
}

/// Access mode and flags that the kernel has of a descriptor now.
#[allow(unsafe_code)]
pub fn status(fd: c_int) -> Option<OFlags> {
    // SAFETY: only asked about, and no descriptor of the system's is negative.
    (fd >= 0).then(|| rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) }).ok()).flatten()
}

/// Marks all as shared with another process, which knows nothing of the queue. A placeholder is not shared:
/// what takes its place is another description, and its own has none of the file's flags.
pub fn share_all() {
    for fd in all() {
        let Some(slot) = slot(fd).filter(|slot| slot.flags.load(Ordering::SeqCst) & PLACEHOLDER == 0) else {
            continue;
        };
        if slot.reads.load(Ordering::Relaxed) < READS_AFTER_WRITE {
            let_kernel_know(fd);
        }
        slot.flags.fetch_or(SHARED, Ordering::SeqCst);
    }
}

thread_local! {
    /// The descriptor whose offset this thread moves, or -1: a signal's handler that comes in between must
    /// not wait for itself.
    static MOVES: Cell<c_int> = const { Cell::new(-1) };
}

/// The right to move the descriptor's offset; as with the kernel, others wait.
#[derive(Debug)]
pub struct Moving {
    slot: Option<&'static Slot>,
    before: c_int,
}

/// Waits for it. None where there is no slot. A handler of a signal that came while its own thread had the
/// right is given it too: the thread has moved the offset before it began what takes time, so the two do not
/// meet.
pub fn moving(fd: c_int) -> Option<Moving> {
    let slot = slot(fd)?;
    let before = MOVES.try_with(|moves| moves.replace(fd)).unwrap_or(-1);
    if before == fd {
        return Some(Moving { slot: None, before });
    }
    while slot.moving.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        amphi_rt::task::yield_now();
    }
    Some(Moving { slot: Some(slot), before })
}

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.moving.store(0, Ordering::Release);
        }
        let _ = MOVES.try_with(|moves| moves.set(self.before));
    }
}
