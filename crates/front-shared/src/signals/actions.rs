//! What a program wants done at each signal, beside what the kernel has been told.
//!
//! The kernel is told of the guard where the program has a handler, and where nothing but the kernel's own
//! would end or stop the program. All else is the kernel's as the program said it.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use amphi_rt::task;
use libc::{c_int, siginfo_t, ucontext_t};

use super::{DEFERS, SET_BYTES, go_back, guard, send_to_self, set_mask, system_call};

/// Signals have numbers from 1 to this.
const SIGNALS: usize = 64;
/// The two that the C library keeps for itself.
const OF_LIBRARY: [c_int; 2] = [32, 33];
/// Signals that a thread's own instruction makes. Without a handler they end the program where it stands.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// Signals at which nothing happens without a handler.
const HARMLESS: [c_int; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
/// Signals that stop a program without a handler.
const STOPS: [c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
/// `SA_RESTORER`: the kernel is told where a handler returns to.
const RESTORER: u64 = 0x0400_0000;
/// How often a change waits for another thread's change of the same signal: a child of a fork may have got a
/// copy of one that nobody ends.
const LOOKS_MAX: u32 = 100_000;

/// What is to be done at a signal: the kernel's structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or a handler.
    pub handler: u64,
    /// Flags of `sigaction(2)`.
    pub flags: u64,
    /// Where a handler returns to.
    pub restorer: u64,
    /// Signals that are blocked meanwhile, from 1 at bit 0.
    pub mask: u64,
}

/// One signal's action. The turn is odd while it is being changed.
struct Kept {
    turn: AtomicU32,
    words: [AtomicU64; 4],
}

static KEPT: [Kept; SIGNALS + 1] =
    [const { Kept { turn: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 4] } }; SIGNALS + 1];

impl Kept {
    fn get(&self) -> Action {
        for _ in 0..LOOKS_MAX {
            let turn = self.turn.load(Ordering::Acquire);
            let [handler, flags, restorer, mask] =
                self.words.each_ref().map(|word| word.load(Ordering::Acquire));
            if turn & 1 == 0 && self.turn.load(Ordering::Acquire) == turn {
                return Action { handler, flags, restorer, mask };
            }
            task::yield_now();
        }
        Action::default()
    }

    /// Changes it and tells the kernel, as one thing for whoever else changes it. The caller's thread has all
    /// signals blocked.
    fn set(&self, signal: c_int, to: &Action) -> isize {
        for _ in 0..LOOKS_MAX {
            let turn = self.turn.load(Ordering::Acquire);
            let is_free = turn & 1 == 0;
            if is_free
                && self.turn.compare_exchange(turn, turn | 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                break;
            }
            task::yield_now();
        }
        let words = [to.handler, to.flags, to.restorer, to.mask];
        self.words.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Release));
        let result = tell_kernel(signal, &guarded(signal, to));
        self.turn.fetch_add(1, Ordering::SeqCst);
        result
    }
}

/// What the kernel is told instead of the program's wish.
fn guarded(signal: c_int, wish: &Action) -> Action {
    const KEPT: u64 = !(libc::SA_RESETHAND as u64);
    let always = libc::SA_SIGINFO as u64 | RESTORER;
    let (handler, restorer) = (guard as *const () as u64, go_back as *const () as u64);
    match wish.handler as usize {
        libc::SIG_IGN => *wish,
        libc::SIG_DFL
            if FAULTS.contains(&signal) || HARMLESS.contains(&signal) || signal == libc::SIGABRT =>
        {
            *wish
        }
        libc::SIG_DFL => {
            let flags = always | libc::SA_RESTART as u64 | libc::SA_ONSTACK as u64;
            Action { handler, flags, restorer, mask: 0 }
        }
        _ => Action { handler, flags: wish.flags & KEPT | always, restorer, mask: wish.mask },
    }
}

fn tell_kernel(signal: c_int, action: &Action) -> isize {
    system_call(libc::SYS_rt_sigaction, signal as usize, ptr::from_ref(action) as usize, 0, SET_BYTES)
}

fn ask_kernel(signal: c_int) -> Option<Action> {
    let mut action = Action::default();
    let into = (&raw mut action) as usize;
    (system_call(libc::SYS_rt_sigaction, signal as usize, 0, into, SET_BYTES) == 0).then_some(action)
}

/// The signals that a program may have handlers for.
fn all() -> impl Iterator<Item = c_int> {
    let is_free =
        |signal: &c_int| *signal != libc::SIGKILL && *signal != libc::SIGSTOP && !OF_LIBRARY.contains(signal);
    (1..=SIGNALS as c_int).filter(is_free)
}

fn kept(signal: c_int) -> Option<&'static Kept> {
    all().find(|one| *one == signal).map(|signal| &KEPT[signal as usize])
}

/// Where handlers return to that the C library tells the kernel of. It is asked for with a signal that nobody
/// sends, under the lock of nobody: of two threads at once both learn the same.
fn restorer_of_library() -> Option<u64> {
    const NOBODYS: c_int = SIGNALS as c_int;
    extern "C" fn nothing(_signal: c_int) {}
    let before = ask_kernel(NOBODYS)?;
    // SAFETY: zeros are an action, and a function that does nothing is a handler.
    let found = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(NOBODYS, &raw const action, ptr::null_mut());
        ask_kernel(NOBODYS)
    };
    tell_kernel(NOBODYS, &before);
    found.map(|found| found.restorer)
}

/// Begins to defer signals in this process, if it does not yet. From now on each change of a handler comes to
/// [`change`]. Not if somebody tells the kernel of handlers past the C library, whose changes would not be
/// seen, as Go's runtime does.
pub fn defer() {
    if DEFERS.load(Ordering::SeqCst) {
        return;
    }
    let Some(restorer) = restorer_of_library() else { return };
    let found: Vec<_> = all().filter_map(|signal| Some((signal, ask_kernel(signal)?))).collect();
    if found.iter().any(|(_, action)| has_handler(action) && action.restorer != restorer) {
        return;
    }
    let before = set_mask(u64::MAX);
    for (signal, action) in &found {
        KEPT[*signal as usize].set(*signal, action);
    }
    DEFERS.store(true, Ordering::SeqCst);
    set_mask(before);
}

/// Whether signals are deferred.
#[must_use]
pub fn are_deferred() -> bool {
    DEFERS.load(Ordering::SeqCst)
}

/// Ends deferring, if it had begun: from now on calls mask signals. Threads that are inside still rely on it;
/// when they have come out, [`restore`] ends it altogether.
pub fn end() -> bool {
    DEFERS.swap(false, Ordering::SeqCst)
}

/// Tells the kernel of the program's own handlers again.
pub fn restore() {
    let before = set_mask(u64::MAX);
    for signal in all() {
        if ask_kernel(signal).is_some_and(|told| told.handler == guard as *const () as u64) {
            tell_kernel(signal, &own(&KEPT[signal as usize].get()));
        }
    }
    set_mask(before);
}

/// A program's own action, as the kernel takes it.
fn own(wish: &Action) -> Action {
    match has_handler(wish) {
        true => Action { flags: wish.flags | RESTORER, restorer: go_back as *const () as u64, ..*wish },
        false => *wish,
    }
}

fn has_handler(action: &Action) -> bool {
    !matches!(action.handler as usize, libc::SIG_DFL | libc::SIG_IGN)
}

/// Does what `sigaction(2)` is asked for. None: it is the kernel's affair, since signals are not deferred, or
/// there is no such signal.
pub fn change(signal: c_int, to: Option<&Action>) -> Option<Action> {
    let kept = kept(signal).filter(|_| DEFERS.load(Ordering::SeqCst))?;
    let before = set_mask(u64::MAX);
    let was = kept.get();
    let told = to.map_or(0, |to| kept.set(signal, to));
    set_mask(before);
    (told == 0).then_some(was)
}

/// In the child of a fork, which has one thread: no other one's change is under way.
pub fn in_child() {
    for kept in &KEPT {
        let turn = kept.turn.load(Ordering::SeqCst);
        kept.turn.store(turn & !1, Ordering::SeqCst);
    }
}

/// Whether a signal says that the thread's own instruction failed.
pub(super) fn is_fault(signal: c_int, code: c_int) -> bool {
    // Those that programs send have codes up to 0.
    code > 0 && FAULTS.contains(&signal)
}

/// Does at a signal what the program wants.
///
/// # Safety
/// As the kernel calls handlers.
pub(super) unsafe fn act(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let kept = &KEPT[signal as usize % (SIGNALS + 1)];
    let action = kept.get();
    match action.handler as usize {
        libc::SIG_IGN => {}
        libc::SIG_DFL if HARMLESS.contains(&signal) => {}
        libc::SIG_DFL => end_by(signal),
        handler => {
            if action.flags & libc::SA_RESETHAND as u64 != 0 {
                let before = set_mask(u64::MAX);
                kept.set(signal, &Action::default());
                set_mask(before);
            }
            // SAFETY: the program's handler. One that takes the signal's number alone leaves the two other
            // registers alone.
            unsafe {
                let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut ucontext_t) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
    }
}

/// Lets the signal do what it does without a handler: the program ends, or stops and goes on here.
pub(super) fn end_by(signal: c_int) {
    tell_kernel(signal, &Action::default());
    send_to_self(signal, ptr::null());
    let this = 1_u64 << (signal - 1);
    let (from, before) = ((&raw const this) as usize, 0);
    system_call(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK as usize, from, before, SET_BYTES);
    if STOPS.contains(&signal) {
        let kept = &KEPT[signal as usize];
        tell_kernel(signal, &guarded(signal, &kept.get()));
    }
}
