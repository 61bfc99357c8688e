//! What the kernel may remember of each inode and name, so that a change that did not go through it can be
//! told it, and only if it has to be.
//!
//! A mount may have another door ([`amphi_queue`]). What comes in there changes inodes and names that the
//! kernel believes it knows for a day. Telling it costs a system call, more than most changes do. So each
//! inode and each name has a mark, set before an answer about it is read from the file system, and taken away
//! when the kernel is told to forget it: of a thousand changes in a row only the first costs anything.
//!
//! The order is what makes it right. Whoever answers sets the mark, then reads. Whoever changes has changed,
//! then takes the mark away, then tells. If the answer was read before the change, its mark is found, and the
//! kernel drops what it hears of requests that it had sent before it was told (attributes), or has the page
//! or the directory locked until they are answered (contents, names).

use std::ffi::OsStr;
use std::fmt;
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_vfs::{Ino, Name};
use foldhash::quality::FixedState;
use fuser::{INodeNo, Notifier};

/// Slots of each table. Where two share one, the mark stays and costs needless notices.
const SLOTS: usize = 1 << 17;
/// More than one inode or name has used the slot.
const SEVERAL: u64 = u64::MAX;
/// Beside an inode's number: the kernel may have pages of its contents, not only attributes.
const PAGES: u64 = 1 << 63;

/// The marks.
pub(crate) struct Known {
    inodes: Box<[AtomicU64]>,
    names: Box<[AtomicU64]>,
    /// Names are told apart by a hash that nobody can foresee.
    hasher: FixedState,
}

fn slots() -> Box<[AtomicU64]> {
    (0..SLOTS).map(|_| AtomicU64::new(0)).collect()
}

impl Known {
    pub(crate) fn new() -> Self {
        Self { inodes: slots(), names: slots(), hasher: FixedState::with_seed(amphi_rt::random::u64()) }
    }

    /// The kernel is about to be told attributes of `ino`.
    pub(crate) fn attributes(&self, ino: Ino) {
        mark(&self.inodes[slot_of(ino)], ino.0);
    }

    /// The kernel is about to be told contents of `ino`, or has told some itself and remembers them.
    pub(crate) fn contents(&self, ino: Ino) {
        mark(&self.inodes[slot_of(ino)], ino.0 | PAGES);
    }

    /// The kernel is about to be told what `name` is in `dir`, or that it is nothing.
    pub(crate) fn name(&self, dir: Ino, name: &[u8]) {
        let hash = self.hash(dir, name);
        mark(&self.names[hash as usize % SLOTS], hash);
    }

    /// The inode was changed by another door. Returns when the kernel knows nothing older.
    pub(crate) fn inode_changed(&self, ino: Ino, kernel: &Notifier) {
        let slot = &self.inodes[slot_of(ino)];
        let found = slot.load(Ordering::SeqCst);
        if found == SEVERAL || found & !PAGES == ino.0 {
            unmark(slot, found);
            // From a negative offset on: attributes only.
            let from = if found & PAGES == 0 { -1 } else { 0 };
            if let Err(error) = kernel.inval_inode(INodeNo(ino.0), from, 0) {
                tracing::warn!("the kernel may show an old state of inode {}: {error}", ino.0);
            }
        }
    }

    /// What `name` is in `dir` was changed by another door. Returns when the kernel knows nothing older.
    pub(crate) fn name_changed(&self, dir: Ino, name: Name<'_>, kernel: &Notifier) {
        let hash = self.hash(dir, name.bytes());
        let slot = &self.names[hash as usize % SLOTS];
        let found = slot.load(Ordering::SeqCst);
        if found == SEVERAL || found == hash {
            unmark(slot, found);
            if let Err(error) = kernel.inval_entry(INodeNo(dir.0), OsStr::from_bytes(name.bytes())) {
                tracing::warn!("the kernel may show an old name in directory {}: {error}", dir.0);
            }
        }
    }

    /// Not 0, and without the bit that means [`PAGES`].
    fn hash(&self, dir: Ino, name: &[u8]) -> u64 {
        (self.hasher.hash_one((dir.0, name)) & !PAGES).max(1)
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

const fn slot_of(ino: Ino) -> usize {
    // Neighbours lie side by side, far ones anywhere.
    (ino.0 ^ ino.0 >> 17) as usize % SLOTS
}

fn mark(slot: &AtomicU64, what: u64) {
    let found = slot.load(Ordering::SeqCst);
    if found == what || found == SEVERAL || found == what | PAGES {
        return;
    }
    let merge = |now: u64| match now {
        0 => Some(what),
        now if now & !PAGES == what & !PAGES => Some(now | what),
        _ => Some(SEVERAL),
    };
    // Always some: the closure refuses nothing.
    let _ = slot.fetch_update(Ordering::SeqCst, Ordering::SeqCst, merge);
}

/// A mark that was set again meanwhile stays.
fn unmark(slot: &AtomicU64, found: u64) {
    if found != SEVERAL {
        let _ = slot.compare_exchange(found, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_knows_one_and_then_only_that_there_are_several() {
        let slot = AtomicU64::new(0);
        mark(&slot, 5);
        assert_eq!(slot.load(Ordering::SeqCst), 5);
        mark(&slot, 5 | PAGES);
        mark(&slot, 5);
        assert_eq!(slot.load(Ordering::SeqCst), 5 | PAGES, "attributes take no pages away");
        unmark(&slot, 5);
        assert_eq!(slot.load(Ordering::SeqCst), 5 | PAGES, "what was marked again stays");
        unmark(&slot, 5 | PAGES);
        assert_eq!(slot.load(Ordering::SeqCst), 0);
        mark(&slot, 5);
        mark(&slot, 6);
        unmark(&slot, SEVERAL);
        assert_eq!(slot.load(Ordering::SeqCst), SEVERAL);
    }
}
