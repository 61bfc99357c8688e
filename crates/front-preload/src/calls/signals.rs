//! Calls that change what is done at a signal: where signals are deferred while a thread is inside of a
//! range, a guard stands in front of each handler, and must hear of all of them.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_front_shared::signals::{Action, are_deferred, change};
use libc::{c_int, pthread_t, sigaction as Sigaction, sighandler_t};

use crate::mounts::mask_signals;
use crate::next::next;
use crate::pointers::may_be;
use crate::{errno, process};

/// Signals whose handlers do not go on with the call that they interrupt, if [`signal`] sets them: from 1 at
/// bit 0.
static INTERRUPT: AtomicU64 = AtomicU64::new(0);

const fn bit(number: c_int) -> u64 {
    1 << ((number - 1) & 63)
}

/// Asks who defers signals. None: nobody does, or this is the child of a `vfork`, whose handlers are its own
/// and whose memory is not.
fn changed(number: c_int, to: Option<&Action>) -> Option<Action> {
    if !are_deferred() || !process::is_own() {
        return None;
    }
    change(number, to)
}

/// The kernel's structure of the library's, whose set is longer.
fn kernels(action: &Sigaction) -> Action {
    // SAFETY: the first 64 signals of a set, which has more bits.
    let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read_unaligned() };
    Action { handler: action.sa_sigaction as u64, flags: action.sa_flags as u32 as u64, restorer: 0, mask }
}

/// # Safety
/// `into` is null or can be written.
unsafe fn tell(into: *mut Sigaction, was: &Action) {
    if into.is_null() {
        return;
    }
    // SAFETY: the caller's; zeros are an action.
    unsafe {
        let mut told: Sigaction = std::mem::zeroed();
        told.sa_sigaction = was.handler as usize;
        told.sa_flags = was.flags as c_int;
        (&raw mut told.sa_mask).cast::<u64>().write_unaligned(was.mask);
        into.write(told);
    }
}

macro_rules! sigactions {
    ($($name:ident)*) => {$(
        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(number: c_int, to: *const Sigaction, was: *mut Sigaction) -> c_int {
            let are_usable = (to.is_null() || may_be(to, size_of::<Sigaction>()))
                && (was.is_null() || may_be(was, size_of::<Sigaction>()));
            // SAFETY: null, or as the program says.
            let wish = if are_usable { unsafe { to.as_ref() }.map(kernels) } else { None };
            match are_usable.then(|| changed(number, wish.as_ref())).flatten() {
                Some(found) => {
                    // SAFETY: as the program says.
                    unsafe { tell(was, &found) };
                    0
                }
                None => next!($name(number: c_int, to: *const Sigaction, was: *mut Sigaction) -> c_int),
            }
        }
    )*};
}

sigactions! { sigaction __sigaction }

/// A handler set the short way; what there was before.
fn set(number: c_int, handler: sighandler_t, flags: c_int, mask: u64) -> Option<sighandler_t> {
    if handler == libc::SIG_ERR {
        return None;
    }
    let wish = Action { handler: handler as u64, flags: flags as u32 as u64, restorer: 0, mask };
    changed(number, Some(&wish)).map(|was| was.handler as sighandler_t)
}

macro_rules! signals {
    ($($name:ident)*) => {$(
        /// Handlers that stay, and go on with the call that they interrupt.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(number: c_int, handler: sighandler_t) -> sighandler_t {
            let interrupts = INTERRUPT.load(Ordering::Relaxed) & bit(number) != 0;
            let flags = if interrupts { 0 } else { libc::SA_RESTART };
            set(number, handler, flags, bit(number))
                .unwrap_or_else(|| next!($name(number: c_int, handler: sighandler_t) -> sighandler_t))
        }
    )*};
}

signals! { signal bsd_signal ssignal }

macro_rules! old_signals {
    ($($name:ident)*) => {$(
        /// Handlers that are called once.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(number: c_int, handler: sighandler_t) -> sighandler_t {
            let flags = libc::SA_RESETHAND | libc::SA_NODEFER;
            set(number, handler, flags, 0)
                .unwrap_or_else(|| next!($name(number: c_int, handler: sighandler_t) -> sighandler_t))
        }
    )*};
}

old_signals! { sysv_signal __sysv_signal }

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
    set(number, libc::SIG_IGN, 0, 0).map_or_else(|| next!(sigignore(number: c_int) -> c_int), |_| 0)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
    if !(1..=64).contains(&number) {
        return errno::fail(libc::EINVAL) as c_int;
    }
    if interrupts != 0 {
        INTERRUPT.fetch_or(bit(number), Ordering::Relaxed);
    } else {
        INTERRUPT.fetch_and(!bit(number), Ordering::Relaxed);
    }
    let restart = libc::SA_RESTART as u64;
    let Some(was) = changed(number, None) else {
        return next!(siginterrupt(number: c_int, interrupts: c_int) -> c_int);
    };
    let flags = if interrupts != 0 { was.flags & !restart } else { was.flags | restart };
    changed(number, Some(&Action { flags, ..was })).map_or(-1, |_| 0)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(number: c_int, handler: sighandler_t) -> sighandler_t {
    mask_signals();
    next!(sigset(number: c_int, handler: sighandler_t) -> sighandler_t)
}

/// It comes as a signal of the library's own, which has a handler of the library's own.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    mask_signals();
    next!(pthread_cancel(thread: pthread_t) -> c_int)
}
