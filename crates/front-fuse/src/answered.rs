//! Attributes on their way to the kernel, and what overtakes them.
//!
//! The kernel remembers attributes for as long as we allow, which is for ever. It asks for them without a
//! lock (`lookup`, `getattr`, `readdirplus`), so while an answer is on its way to one thread another thread
//! can change the file. Where the change's own answer carries attributes, or the kernel counts the change
//! itself (`write`, `setattr`, the lost name of `unlink`), it throws the overtaken answer away. For the
//! others (`fallocate`, extended attributes, the directories in which names come and go) it does not: the old
//! attributes would be believed from then on. Telling it that an inode's attributes are invalid, before the
//! change is answered, makes it discard what it had asked before.
//!
//! That costs a system call, so it is done only where an answer may be on its way: when another thread than
//! the one that asks for the change was answered lately. A thread's own answers have arrived, else it would
//! not ask for more.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use amphi_queue::{Remembered, Telling, Watcher};
use amphi_rt::sync::OnceCell;
use amphi_rt::{task, time};
use amphi_vfs::{Ino, Name};

use crate::answers::VALID;
use crate::given::Given;
use crate::kernel::Kernel;
use crate::known::Known;
use crate::moved::{Moved, Named, Place};
use crate::passes::Passes;

/// How long an answer may take from our hand to the kernel's memory, at most: the thread that asked may have
/// to wait for a processor.
const ARRIVED_AFTER_MS: u64 = 10_000;

/// Inodes are told apart by so many slots. Two that share one only cause needless notices.
const SLOTS: usize = 1024;

/// Bits of a slot's word that hold the time; a thread number has at most 22.
const TIME_BITS: u32 = 42;

/// To which threads the attributes of some inodes went lately.
#[derive(Default)]
struct Slot {
    /// The last answer: thread number above [`TIME_BITS`], time in ms below. 0 for none.
    last: AtomicU64,
    /// When another thread than the last one was answered last, in ms.
    other_ms: AtomicU64,
}

/// Keeps the kernel from remembering attributes that were overtaken on the way.
pub(crate) struct Answered {
    slots: Box<[Slot]>,
    /// There is none before the session with the kernel has begun, and no request either.
    kernel: OnceCell<Arc<Kernel>>,
    /// What another door has to tell it.
    pub(crate) known: Known,
    /// What it has of us, or will have.
    pub(crate) given: Given,
    /// What another door's clients may look up once.
    pub(crate) passes: Passes,
    moved: Moved,
    /// Another door has, or had, somebody who may change something.
    has_others: AtomicBool,
}

impl Answered {
    pub(crate) fn new(known: Known) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            kernel: OnceCell::new(),
            known,
            given: Given::default(),
            passes: Passes::default(),
            moved: Moved::default(),
            has_others: AtomicBool::new(false),
        }
    }

    /// Begins to tell the kernel.
    pub(crate) fn tell(&self, kernel: Kernel) {
        self.kernel.get_or_init(|| Arc::new(kernel));
    }

    /// The attributes of `ino` are about to be read for `thread`. To be called before they are read, so that
    /// whoever changes them later sees it.
    pub(crate) fn note(&self, ino: Ino, thread: u32) {
        self.known.attributes(ino);
        let slot = self.slot(ino);
        let last = slot.last.swap(u64::from(thread) << TIME_BITS | now_ms(), Ordering::SeqCst);
        // Threads of processes that this one cannot see are all number 0.
        if last != 0 && (last >> TIME_BITS != u64::from(thread) || thread == 0) {
            slot.other_ms.fetch_max(time_of(last), Ordering::SeqCst);
        }
    }

    /// The kernel is about to be given `ino` once more, with attributes that are read after this.
    pub(crate) fn give(&self, ino: Ino, thread: u32) {
        self.given.give(ino);
        self.note(ino, thread);
    }

    /// How long the kernel may believe attributes that it takes whatever it has heard of the inode since it
    /// asked, as it takes those of `setattr` and `link`. No time at all where another door may have changed
    /// them meanwhile.
    pub(crate) fn valid_whatever_comes(&self) -> Duration {
        if self.has_others.load(Ordering::SeqCst) { Duration::ZERO } else { VALID }
    }

    /// The attributes of `ino` have been changed for `thread`, which is not answered yet.
    pub(crate) fn changed(&self, ino: Ino, thread: u32) {
        if self.may_be_under_way(ino, thread) {
            self.outdated(ino);
        }
    }

    /// The attributes of `ino` that the kernel remembers are old, and the answer that it waits for does not
    /// say so.
    pub(crate) fn outdated(&self, ino: Ino) {
        if let Some(kernel) = self.kernel.get()
            && let Err(error) = kernel.forget_inode(ino, Remembered::Attributes)
        {
            tracing::warn!("the kernel may show old attributes of inode {}: {error}", ino.0);
        }
    }

    /// The kernel keeps data that it sends with this request at an offset where they are not, or if they are
    /// `direct` does not know where it has older ones. It may hold its pages until the request is answered,
    /// and is told so by another thread; for direct I/O it holds none.
    pub(crate) fn misplaced(&self, ino: Ino, direct: bool) {
        let Some(kernel) = self.kernel.get().cloned() else { return };
        let tell = move || {
            if let Err(error) = kernel.forget_inode(ino, Remembered::Contents) {
                tracing::warn!("the kernel may show inode {} as it was: {error}", ino.0);
            }
        };
        if direct {
            tell();
        } else {
            task::spawn("fuse-misplaced", tell);
        }
    }

    /// Another door has changed `ino`. Returns when the kernel knows nothing older.
    ///
    /// An answer that gives the kernel an inode is not overtaken by what it is told of that inode: it does
    /// not have it yet, and keeps what it hears afterwards. So it is told until it has it.
    fn inode_changed(&self, ino: Ino, kernel: &Kernel) {
        let Some(telling) = self.known.take_inode(ino) else { return };
        let mut waits_since_ms = None;
        loop {
            match kernel.forget_inode(ino, telling.remembered) {
                Ok(false) if self.given.is_given(ino) && !kernel.is_gone() => {}
                Ok(_) => return,
                Err(error) => {
                    return tracing::warn!("the kernel may show an old state of inode {}: {error}", ino.0);
                }
            }
            if now_ms() - *waits_since_ms.get_or_insert_with(now_ms) > ARRIVED_AFTER_MS {
                return tracing::warn!("the kernel was given inode {} and does not take it", ino.0);
            }
            task::yield_now();
        }
    }

    /// The file system has carried out a rename by the kernel, which is not answered yet: each `from` is a
    /// `to` now. They are marked as known.
    pub(crate) fn moved(&self, moves: &[(Named<'_>, Named<'_>)]) {
        // Who changes something after this sees what has been moved.
        if self.has_others.load(Ordering::SeqCst) {
            self.moved.note(|| self.known.renamed(), moves);
        }
    }

    /// Another door has changed what `name` is in `dir`, after that many renames by the kernel. Returns when
    /// the kernel knows nothing older: whether it may have.
    fn name_changed(&self, dir: Ino, name: Name<'_>, renames: u64, kernel: &Kernel) -> bool {
        let Some(_telling) = self.known.take_name(dir, name) else { return false };
        let forget = |dir: Ino, name: Name<'_>| {
            if let Err(error) = kernel.forget_name(dir, name) {
                tracing::warn!("the kernel may show an old name in directory {}: {error}", dir.0);
            }
            // It has let the directory go: what it has moved is noted.
            self.moved.after(dir, name.bytes(), renames)
        };
        let mut waiting = forget(dir, name);
        // Until the kernel was told of all, others who change one of them tell it too.
        let mut told: Vec<(Place, Telling<'_>)> = Vec::new();
        while let Some(place) = waiting.pop() {
            let is_first = (place.0, &*place.1) == (dir, name.bytes());
            if is_first || told.iter().any(|(other, _)| *other == place) {
                continue;
            }
            let Ok(name) = Name::new(&place.1) else { continue };
            if let Some(telling) = self.known.take_name(place.0, name) {
                waiting.extend(forget(place.0, name));
                told.push((place, telling));
            }
        }
        true
    }

    fn may_be_under_way(&self, ino: Ino, thread: u32) -> bool {
        let slot = self.slot(ino);
        let last = slot.last.load(Ordering::SeqCst);
        let other = slot.other_ms.load(Ordering::SeqCst);
        let recent = |then: u64| then != 0 && now_ms().saturating_sub(then) < ARRIVED_AFTER_MS;
        recent(other) || ((last >> TIME_BITS != u64::from(thread) || thread == 0) && recent(time_of(last)))
    }

    fn slot(&self, ino: Ino) -> &Slot {
        &self.slots[(ino.0 % SLOTS as u64) as usize]
    }
}

/// What the kernel remembers of a mount, for another door to the same file system: whoever changes something
/// there says so here before it answers.
#[derive(Clone, Debug)]
pub struct KernelCaches(pub(crate) Arc<Answered>);

impl Watcher for KernelCaches {
    fn begins(&self) {
        self.0.has_others.store(true, Ordering::SeqCst);
    }

    fn inode(&self, ino: Ino) {
        if let Some(kernel) = self.0.kernel.get() {
            self.0.inode_changed(ino, kernel);
        }
    }

    fn renames(&self) -> u64 {
        self.0.known.renames()
    }

    fn name(&self, dir: Ino, name: Name<'_>, renames: u64) -> bool {
        let Some(kernel) = self.0.kernel.get() else { return false };
        let knew = self.0.name_changed(dir, name, renames, kernel);
        self.0.inode_changed(dir, kernel);
        knew
    }

    fn pass(&self, ino: Ino) -> Option<u128> {
        self.0.kernel.get().map(|_kernel| self.0.passes.give(ino))
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered").finish_non_exhaustive()
    }
}

/// Never 0, which stands for "not yet". 42 bits last for 139 years.
fn now_ms() -> u64 {
    time::now_ns() / 1_000_000 + 1
}

const fn time_of(word: u64) -> u64 {
    word & ((1 << TIME_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amphi_queue::Marks;

    #[test]
    fn only_answers_to_other_threads_can_be_overtaken() {
        let answered = Answered::new(Known::Own(Marks::new()));
        let (a, b) = (4_194_303, 7);
        assert!(!answered.may_be_under_way(Ino(5), a));
        answered.note(Ino(5), a);
        assert!(!answered.may_be_under_way(Ino(5), a), "its own answer has arrived");
        assert!(answered.may_be_under_way(Ino(5), b));
        assert!(!answered.may_be_under_way(Ino(6), b), "another inode");
        answered.note(Ino(5), b);
        answered.note(Ino(5), b);
        assert!(answered.may_be_under_way(Ino(5), a) && answered.may_be_under_way(Ino(5), b));
        answered.note(Ino(8), 0);
        assert!(answered.may_be_under_way(Ino(8), 0), "who knows whether it was the same one");
    }
}
