//! Contexts: threads of the manager's that lend their stacks and thread-locals to calls, and sleep for ever
//! themselves.
//!
//! A thread's control block, with everything that the C library, Rust's and the allocator keep for a thread,
//! lies at the end of its stack; and stacks of this program lie in the range. So a thread that does nothing
//! is all that a context needs.
#![allow(unsafe_code)]

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_front_shared::layout::{CONTEXTS, Context, context_at};
use amphi_rt::task;

use crate::range;

/// What the sleeping thread keeps of its stack, bytes: its frames, and room below them.
const KEPT_BYTES: u64 = 16 << 10;

/// Starts all contexts and waits until they can be used.
///
/// # Panics
/// The program is not in its range, or the system starts no threads.
pub fn start() {
    static READY: AtomicU64 = AtomicU64::new(0);
    let header = range::header().expect("the program is in its range");
    for number in 0..CONTEXTS {
        task::spawn("context", move || {
            let context = context_at(range::BASE.load(Ordering::Relaxed), number) as *mut Context;
            let (stack, thread): (u64, u64);
            // SAFETY: both instructions read a register. The loader has seen that the second may be used.
            unsafe { asm!("mov {}, rsp", "rdfsbase {}", out(reg) stack, out(reg) thread, options(nomem)) };
            // SAFETY: a page of the range, which nobody looks at before `contexts` says so.
            unsafe {
                (*context).thread = thread;
                (*context).stack = (stack - KEPT_BYTES) & !63;
            }
            READY.fetch_add(1, Ordering::Release);
            loop {
                // SAFETY: it waits for a signal; none of the program's has a handler.
                unsafe { libc::pause() };
            }
        });
    }
    while READY.load(Ordering::Acquire) < CONTEXTS as u64 {
        task::yield_now();
    }
    header.contexts.store(CONTEXTS as u32, Ordering::Release);
}
