//! The gate: from a program's thread into a context of the range and back, as a function call.
//!
//! A call runs on a stack and with thread-locals that lie in the range, since the range's code has a C
//! library of its own. So the gate changes the stack pointer and the FS base (`wrfsbase`, which Linux lets
//! programs use since 5.9), calls, and changes back. A handler of a signal of the program must not run with
//! another library's thread-locals: all signals wait until the call is over.
#![allow(unsafe_code)]

use std::arch::{asm, naked_asm};
use std::mem::offset_of;
use std::ptr;

use crate::call::Call;
use crate::layout::Context;

/// Why a processor or a kernel has no gate.
pub const WHY_NO_GATE: &str = "the processor or the kernel does not let programs set the FS base";

/// Whether programs may set the FS base here (`wrfsbase`), which the gate needs.
#[must_use]
pub fn is_here() -> bool {
    const HWCAP2_FSGSBASE: usize = 1 << 1;
    cfg!(target_arch = "x86_64") && rustix::param::linux_hwcap().1 & HWCAP2_FSGSBASE != 0
}

/// Calls `entry` in a context, and returns when it has returned or has been abandoned.
///
/// # Safety
/// `context` is owned by this thread and describes a stack and a control block that nobody else uses; `entry`
/// is the range's entry; `call` can be written; signals are blocked, and the range is open.
pub(crate) unsafe fn call(call: *mut Call, context: *mut Context, entry: u64) {
    // SAFETY: the caller's promise.
    unsafe { cross(call, context, entry) }
}

// SAFETY: it keeps C's calling convention: what the caller expects to be kept is on its stack, whose pointer
// is kept in the context.
#[unsafe(naked)]
unsafe extern "C" fn cross(call: *mut Call, context: *mut Context, entry: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rsi + {caller_stack}], rsp",
        "rdfsbase rax",
        "mov [rsi + {caller_thread}], rax",
        "lea rax, [rip + 2f]",
        "mov [rsi + {way_out}], rax",
        "mov rbx, rsi",
        "mov rax, [rsi + {thread}]",
        "wrfsbase rax",
        "mov rsp, [rsi + {stack}]",
        "call rdx",
        // An abandoned call comes here too, with the context in rbx.
        "2:",
        "mov rax, [rbx + {caller_thread}]",
        "wrfsbase rax",
        "mov rsp, [rbx + {caller_stack}]",
        "cld",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        caller_stack = const offset_of!(Context, caller_stack),
        caller_thread = const offset_of!(Context, caller_thread),
        way_out = const offset_of!(Context, way_out),
        thread = const offset_of!(Context, thread),
        stack = const offset_of!(Context, stack),
    )
}

/// All signals of this thread are blocked until this is dropped.
pub(crate) struct Quiet(u64);

/// Bytes of the kernel's signal set.
const SET_BYTES: usize = 8;

impl Quiet {
    pub(crate) fn begin() -> Self {
        let (all, mut before) = (u64::MAX, 0_u64);
        set_mask(&all, &raw mut before);
        Self(before)
    }

    /// All but the two that the C library sends to all threads of a process when one changes its user, and
    /// waits until each has dealt with it: for a thread that is always there and never calls.
    pub(crate) fn begin_for_good() -> Self {
        const OF_LIBRARY: u64 = 0b11 << 31;
        let (all, mut before) = (!OF_LIBRARY, 0_u64);
        set_mask(&all, &raw mut before);
        Self(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        set_mask(&self.0, ptr::null_mut());
    }
}

/// Sets which signals of this thread wait.
///
/// By the instruction itself: the C library keeps two signals for itself, whose handlers must wait too, and
/// its `syscall` may be somebody else's, in a program that has a library in front of it.
fn set_mask(to: &u64, before: *mut u64) {
    // SAFETY: both sets are 8 bytes, which is what the kernel is told; no memory of others is touched.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_rt_sigprocmask => _,
            in("rdi") libc::SIG_SETMASK,
            in("rsi") to,
            in("rdx") before,
            in("r10") SET_BYTES,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
}

/// The address of this process's `clock_gettime`, for calls in the range: it reads the clock's page, which
/// the kernel maps elsewhere in each process, and nothing of the thread.
pub(crate) fn clock() -> u64 {
    libc::clock_gettime as *const () as u64
}

/// The number of the running thread.
pub(crate) fn thread() -> u32 {
    // SAFETY: it has no conditions.
    unsafe { libc::gettid() }.unsigned_abs()
}
