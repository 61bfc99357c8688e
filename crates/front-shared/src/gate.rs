//! The gate: from a program's thread into a context of the range and back, as a function call.
//!
//! A call runs on a stack and with thread-locals that lie in the range, since the range's code has a C
//! library of its own. So the gate changes the stack pointer and the FS base (`wrfsbase`, which Linux lets
//! programs use since 5.9), calls, and changes back. Signals wait until the call is over (`signals.rs`).
#![allow(unsafe_code)]

use std::arch::{asm, naked_asm};
use std::mem::offset_of;

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
/// is the range's entry; `call` can be written; signals wait, and the range is open.
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

/// The FS base of this thread, by which it finds its thread-locals.
#[inline]
pub(crate) fn thread_base() -> u64 {
    let base: u64;
    // SAFETY: it reads a register. Nobody calls this where there is no gate.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack)) };
    base
}

/// Changes it.
///
/// # Safety
/// It is the base of a thread's control block, whose C library the code is of that runs next.
#[inline]
pub(crate) unsafe fn set_thread_base(base: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack)) };
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
