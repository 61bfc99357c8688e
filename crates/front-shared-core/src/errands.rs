//! What the process that serves a mount to the kernel must do for those who change something in the range:
//! the kernel's descriptor is that process's own.
//!
//! An errand is run only where the kernel may know something older, which the marks say: of a thousand
//! changes in a row the first. Who changes waits until it is done, so that the kernel shows no old state once
//! a call has returned.
//!
//! Both sides look for each other for a while before they sleep: to be woken takes longer than an errand.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use amphi_front_shared::errand;
use amphi_queue::{Crowd, Learned, Marks, Watcher};
use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::time;
use amphi_vfs::{Ino, Name};

use crate::range;

/// One errand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Errand {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// One of [`errand`].
    pub(crate) kind: u64,
    pub(crate) ino: Ino,
    pub(crate) name: Vec<u8>,
    /// Of a name: how many renames by the kernel had ended before it changed.
    pub(crate) renames: u64,
}

struct State {
    /// Somebody runs them.
    served: bool,
    /// Nobody will any more.
    ended: bool,
    last: u64,
    /// When the last one was asked for, ns.
    asked_ns: u64,
    waiting: VecDeque<Errand>,
    /// Numbers of those that are done and not heard of yet, with their answers.
    done: Vec<(u64, Option<u128>)>,
}

static STATE: Mutex<State> = Mutex::new(State {
    served: false,
    ended: false,
    last: 0,
    asked_ns: 0,
    waiting: VecDeque::new(),
    done: Vec::new(),
});
/// How long who waits for an errand looks for its end, ns, before it sleeps.
const END_NS: u64 = 30_000;

/// How long who runs errands looks for the next one, ns, at the most: the kernel's requests want processors
/// too.
const NEXT_NS: u64 = 10_000;

/// Errands that nobody has begun.
static NEW: AtomicUsize = AtomicUsize::new(0);
/// Errands that have ended.
static ENDS: AtomicU64 = AtomicU64::new(0);
/// How long to look for the next one.
static LEARNED: Learned = Learned::new(NEXT_NS);
static COME: Condvar = Condvar::named("an errand");
static DONE: Condvar = Condvar::named("an errand's end");

/// Waits until an errand is done; its answer.
fn run(kind: u64, ino: Ino, name: &[u8], renames: u64) -> Option<u128> {
    let mut state = STATE.lock();
    if !state.served || state.ended {
        return None;
    }
    state.last += 1;
    let number = state.last;
    let ends = ENDS.load(Ordering::Relaxed);
    state.asked_ns = time::now_ns();
    state.waiting.push_back(Errand { number, kind, ino, name: name.to_vec(), renames });
    NEW.store(state.waiting.len(), Ordering::Release);
    COME.notify_one();
    drop(state);
    // Most at most times are alone, so that the next end is theirs.
    Crowd::default().look(END_NS, || (ENDS.load(Ordering::Acquire) != ends).then_some(()));
    let mut state = STATE.lock();
    loop {
        if let Some(at) = state.done.iter().position(|(done, _)| *done == number) {
            return state.done.swap_remove(at).1;
        }
        if state.ended {
            return None;
        }
        DONE.wait(&mut state);
    }
}

/// The next errand, for who runs them, after what came of the last one. None: there will be no more.
pub(crate) fn next(last: Option<(u64, Option<u128>)>) -> Option<Errand> {
    let mut state = STATE.lock();
    state.served = true;
    if let Some(last) = last {
        state.done.push(last);
        ENDS.fetch_add(1, Ordering::Release);
        DONE.notify_all();
    }
    if state.waiting.is_empty() && !state.ended {
        drop(state);
        let come = || (NEW.load(Ordering::Acquire) > 0).then_some(());
        Crowd::default().look(LEARNED.poll_ns(), come);
        state = STATE.lock();
    }
    let begin_ns = time::now_ns();
    let mut slept = false;
    loop {
        if state.ended {
            return None;
        }
        if let Some(next) = state.waiting.pop_front() {
            NEW.store(state.waiting.len(), Ordering::Relaxed);
            if slept {
                // It may have taken long to wake up.
                LEARNED.note(state.asked_ns.saturating_sub(begin_ns));
            }
            return Some(next);
        }
        slept = true;
        COME.wait(&mut state);
    }
}

/// Ends those who wait, and who runs them.
pub(crate) fn end() {
    STATE.lock().ended = true;
    COME.notify_all();
    DONE.notify_all();
}

/// Tells the kernel by errands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errands;

impl Watcher for Errands {
    fn inode(&self, ino: Ino) {
        if range::marks().is_some_and(|marks| marks.knows_inode(ino)) {
            run(errand::INODE, ino, b"", 0);
        }
    }

    fn renames(&self) -> u64 {
        range::marks().map_or(0, Marks::renames)
    }

    fn name(&self, dir: Ino, name: Name<'_>, renames: u64) -> bool {
        let Some(marks) = range::marks() else { return false };
        let knew = marks.knows_name(dir, name);
        if knew || marks.knows_inode(dir) {
            run(errand::NAME, dir, name.bytes(), renames);
        }
        knew
    }

    fn pass(&self, ino: Ino) -> Option<u128> {
        run(errand::PASS, ino, b"", 0)
    }
}
