//! Signals that come while a thread is inside of a range: they wait until it is outside.
//!
//! A handler of the program must not run with another library's thread-locals, must not jump out of the
//! range, and a signal that ends the program must not end it inside. There are two ways to have them wait:
//!
//! - *Masked*: the kernel is told to keep all signals of the thread before a call, and told again after it.
//!   Two system calls, which is more than most calls take.
//! - *Deferred* ([`defer`]): a guard stands in front of each of the program's handlers, and of each signal
//!   that would end or stop the program. A thread that is inside says so in a word of its own. A signal that
//!   finds the word set is sent once more to the same thread, which from then on has all signals blocked
//!   until it is outside. A call without a signal costs two stores.
//!
//! Where a range has a protection key, the kernel begins handlers with the range closed, the stack that they
//! begin on included. So the guard's first instructions open the key, before they touch the stack. It takes a
//! kernel that writes a signal's frame to a closed stack (`frames_reach_closed_stacks`).
//!
//! Deferring needs to see each change of a handler, so it is for who stands in front of the C library.
//! Faults of the thread's own doing do not wait: inside they end the program, as blocked ones do.
#![allow(unsafe_code)]

use std::arch::{asm, naked_asm};
use std::cell::Cell;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use libc::{c_int, c_long, c_void};

use crate::gate;
use crate::layout::{self, ALIGNMENT, CONTEXTS, Context, PLACES};

mod actions;

pub use actions::{Action, are_deferred, change, defer, end, in_child, restore};

/// Calls defer signals, and do not mask them.
static DEFERS: AtomicBool = AtomicBool::new(false);
/// The bits of PKRU that deny the keys of this process's ranges.
static KEYS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// This thread is on its way into a range, inside, or on its way out.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// A signal waits, with all others: which were blocked before.
    static WAITING: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether the kernel writes the frame of a signal to a stack whose protection key is closed: Linux does
/// since 6.12. Before that the program ends.
pub(crate) fn frames_reach_closed_stacks() -> bool {
    // SAFETY: zeros are a name, and the kernel writes strings that end.
    let release = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut name);
        CStr::from_ptr(name.release.as_ptr()).to_string_lossy().into_owned()
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

/// The guard opens one more key, which PKRU denies with `bits`.
pub(crate) fn guard_key(bits: u32) {
    KEYS.fetch_or(bits, Ordering::SeqCst);
}

/// What [`guard_key`] began ends.
pub(crate) fn forget_key(bits: u32) {
    KEYS.fetch_and(!bits, Ordering::SeqCst);
}

/// Signals of this thread wait until this is dropped.
pub(crate) enum Quiet {
    /// All are blocked; which were before.
    Masked(u64),
    Deferred,
}

impl Quiet {
    /// Where a handler's stack may be closed to it, signals are masked: `may_defer` is whether it is not.
    #[inline]
    pub(crate) fn begin(may_defer: bool) -> Self {
        if !may_defer || !DEFERS.load(Ordering::Relaxed) {
            return Self::Masked(set_mask(u64::MAX));
        }
        INSIDE.set(true);
        compiler_fence(Ordering::SeqCst);
        Self::Deferred
    }

    /// All but the two that the C library sends to all threads of a process when one changes its user, and
    /// waits until each has dealt with it: for a thread that is always there and never calls.
    pub(crate) fn begin_for_good() -> Self {
        const OF_LIBRARY: u64 = 0b11 << 31;
        Self::Masked(set_mask(!OF_LIBRARY))
    }

    /// To be called once others can see that this thread is inside: who ends deferring looks for threads that
    /// are, after it has said so.
    #[inline]
    pub(crate) fn insist(&mut self) {
        if matches!(self, Self::Deferred) && !DEFERS.load(Ordering::SeqCst) {
            let before = set_mask(u64::MAX);
            *self = Self::Masked(WAITING.take().unwrap_or(before));
            INSIDE.set(false);
        }
    }
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        let before = match self {
            Self::Masked(before) => Some(*before),
            Self::Deferred => {
                compiler_fence(Ordering::SeqCst);
                INSIDE.set(false);
                compiler_fence(Ordering::SeqCst);
                WAITING.take()
            }
        };
        if let Some(before) = before {
            set_mask(before);
        }
    }
}

/// Bytes of the kernel's signal set.
const SET_BYTES: usize = 8;

/// A system call by the instruction itself: the C library keeps two signals for itself, which must wait too,
/// its `syscall` may be somebody else's in a program that has a library in front of it, and the error number
/// is a thread-local.
fn system_call(number: c_long, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result: isize;
    // SAFETY: the callers pass what the kernel may read and write.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Sets which signals of this thread are blocked; which were.
fn set_mask(to: u64) -> u64 {
    let mut before = 0_u64;
    let (from, into) = ((&raw const to) as usize, (&raw mut before) as usize);
    system_call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as usize, from, into, SET_BYTES);
    before
}

/// Sends a signal to this thread; with what came with it, if there is something.
fn send_to_self(signal: c_int, info: *const libc::siginfo_t) {
    let process = system_call(libc::SYS_getpid, 0, 0, 0, 0) as usize;
    let thread = system_call(libc::SYS_gettid, 0, 0, 0, 0) as usize;
    let signal = signal as usize;
    if !info.is_null()
        && system_call(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info as usize) == 0
    {
        return;
    }
    system_call(libc::SYS_tgkill, process, thread, signal, 0);
}

/// Where the kernel goes when a handler returns: these instructions are what debuggers and unwinders know the
/// frame of a signal by.
#[unsafe(naked)]
unsafe extern "C" fn go_back() {
    naked_asm!(".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00", "syscall")
}

/// The FS base of the program's thread whose call runs with this one; none if it is not a context's.
fn caller_of(base: u64) -> Option<u64> {
    let first = layout::base_of(0);
    if !(first..first + PLACES * ALIGNMENT).contains(&base) {
        return None;
    }
    let range = base / ALIGNMENT * ALIGNMENT;
    let contexts = (0..CONTEXTS).map(|number| layout::context_at(range, number) as *const Context);
    // SAFETY: this thread runs in a context of the range that begins there, so it is mapped and open.
    let of_thread =
        |context: &*const Context| unsafe { ptr::read_volatile(&raw const (**context).thread) } == base;
    let found = contexts.into_iter().find(of_thread)?;
    // SAFETY: as above; the gate wrote it before it changed the FS base.
    Some(unsafe { ptr::read_volatile(&raw const (*found).caller_thread) })
}

/// What stands in front of the program's handlers: opens the keys of ranges if the thread is in one, by its
/// FS base or its stack, of which the gate changes one after the other. What was open before is what the
/// thread has again when the handler returns.
// SAFETY: it keeps the three arguments and passes them on. RDPKRU and WRPKRU want ECX, WRPKRU also EDX, to be
// zero; without keys, whose bits are then zero, neither is reached.
#[unsafe(naked)]
unsafe extern "C-unwind" fn guard(_signal: c_int, _info: *mut libc::siginfo_t, _context: *mut c_void) {
    naked_asm!(
        "mov r8d, [rip + {keys}]",
        "test r8d, r8d",
        "jz 3f",
        "rdfsbase rax",
        "shr rax, {alignment_bits}",
        "sub rax, {first}",
        "cmp rax, {places}",
        "jb 2f",
        "mov rax, rsp",
        "shr rax, {alignment_bits}",
        "sub rax, {first}",
        "cmp rax, {places}",
        "jae 3f",
        "2:",
        "mov r9, rdx",
        "xor ecx, ecx",
        "rdpkru",
        "not r8d",
        "and eax, r8d",
        "wrpkru",
        "mov rdx, r9",
        "3:",
        "jmp {inspect}",
        keys = sym KEYS,
        alignment_bits = const ALIGNMENT.trailing_zeros(),
        first = const layout::base_of(0) / ALIGNMENT,
        places = const PLACES,
        inspect = sym inspect,
    )
}

/// A signal, with the range open. Until it has the program's own thread-locals it uses none.
unsafe extern "C-unwind" fn inspect(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let base = gate::thread_base();
    let caller = caller_of(base);
    if let Some(caller) = caller {
        // SAFETY: the base that this thread had when it called.
        unsafe { gate::set_thread_base(caller) };
    }
    // SAFETY: as the kernel passed them.
    unsafe { arrived(signal, info, context.cast()) };
    if caller.is_some() {
        // SAFETY: the base that the range's code goes on with.
        unsafe { gate::set_thread_base(base) };
    }
}

/// A signal, with the program's thread-locals. It is not put in its caller's place: what the compiler knows
/// of thread-locals there may be of the range's.
#[inline(never)]
unsafe extern "C-unwind" fn arrived(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    if !INSIDE.get() {
        // SAFETY: as the kernel passed them, outside of any range.
        return unsafe { actions::act(signal, info, context) };
    }
    // SAFETY: the kernel's structure.
    if actions::is_fault(signal, unsafe { (*info).si_code }) {
        return actions::end_by(signal);
    }
    set_mask(u64::MAX);
    // SAFETY: the kernel's structure, whose set has the size of the kernel's and is taken over when this
    // handler returns.
    let mask = unsafe { &mut *(&raw mut (*context).uc_sigmask).cast::<u64>() };
    WAITING.set(Some(*mask));
    *mask = u64::MAX;
    send_to_self(signal, info);
}
