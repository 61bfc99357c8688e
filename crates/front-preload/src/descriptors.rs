//! What is known of each descriptor: the queue's handle to the same file.
//!
//! A slot is written when a descriptor is opened or closed, and read by every call on it, from any thread, without a lock. A reader that mixes two files'
//! slots up finds that the slot has changed meanwhile; one that is late has a handle that is closed, which names nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::c_int;

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

/// So many reads after a write the kernel is asked again. What it remembers it reads faster than the queue does, but a write through the queue makes it
/// forget, and its next read then costs more than many through the queue.
const READS_AFTER_WRITE: u32 = 64;

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
        }
    }

    /// Changes the slot as one thing; false if somebody else is at it.
    fn change(&self, turn: u32, mount: u32, flags: u32, handle: u64) -> bool {
        let locked = self.turn.compare_exchange(turn, turn | 1, Ordering::SeqCst, Ordering::SeqCst);
        if turn & 1 == 1 || locked.is_err() {
            return false;
        }
        self.mount.store(mount, Ordering::SeqCst);
        self.flags.store(flags, Ordering::SeqCst);
        self.handle.store(handle, Ordering::SeqCst);
        self.reads.store(READS_AFTER_WRITE, Ordering::SeqCst);
        self.turn.store(turn.wrapping_add(2), Ordering::SeqCst);
        true
    }
}

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

/// Whether the kernel has probably forgotten what the file holds: it was written through this descriptor lately.
pub fn is_for_queue(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| {
        slot.reads.load(Ordering::Relaxed) < READS_AFTER_WRITE
            && slot.reads.fetch_add(1, Ordering::Relaxed) < READS_AFTER_WRITE
    })
}

/// Remembers a descriptor that was just opened. False if there is no slot for it.
pub fn put(fd: c_int, mount: usize, handle: u64, flags: u32) -> bool {
    let Some(slot) = slot(fd) else { return false };
    let turn = slot.turn.load(Ordering::SeqCst);
    slot.change(turn, mount as u32 + 1, flags, handle)
}

/// Forgets a descriptor, and says what it was: its handle is to be closed.
pub fn take(fd: c_int) -> Option<Opened> {
    let opened = get(fd)?;
    slot(fd)?.change(opened.turn, 0, 0, 0).then_some(opened)
}

/// The descriptors that are ours.
pub fn all() -> impl Iterator<Item = c_int> {
    (0..DESCRIPTORS as c_int)
        .filter(|fd| slot(*fd).is_some_and(|slot| slot.mount.load(Ordering::Relaxed) != 0))
}

/// Forgets everything, in the child of a fork: the handles are the parent's.
pub fn forget_all() {
    for fd in all() {
        if let Some(slot) = slot(fd) {
            slot.mount.store(0, Ordering::SeqCst);
            slot.moving.store(0, Ordering::SeqCst);
        }
    }
}

/// Marks all as shared with another process.
pub fn share_all() {
    for fd in all() {
        if let Some(slot) = slot(fd) {
            slot.flags.fetch_or(SHARED, Ordering::SeqCst);
        }
    }
}

/// The right to move the descriptor's offset; as with the kernel, others wait.
#[derive(Debug)]
pub struct Moving(&'static Slot);

/// Waits for it. None where there is no slot.
pub fn moving(fd: c_int) -> Option<Moving> {
    let slot = slot(fd)?;
    while slot.moving.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        amphi_rt::task::yield_now();
    }
    Some(Moving(slot))
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.moving.store(0, Ordering::Release);
    }
}
