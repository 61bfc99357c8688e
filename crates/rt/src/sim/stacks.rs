//! Stacks used again: making one costs a mapping and its page faults, about 7 µs.

use crate::raw::Stack;
use std::cell::RefCell;

/// Stacks kept per OS thread; more are given back to the system.
const MOST_KEPT: usize = 1024;

thread_local! {
    static KEPT: RefCell<Vec<Stack>> = const { RefCell::new(Vec::new()) };
}

/// A stack of at least `bytes`. One that was made with another size is left for who wants that.
pub(crate) fn take(bytes: usize) -> Stack {
    let kept = KEPT.with_borrow_mut(|kept| {
        let index = kept.iter().rposition(|stack| stack.bytes() == bytes)?;
        Some(kept.swap_remove(index))
    });
    kept.unwrap_or_else(|| {
        Stack::new(bytes).unwrap_or_else(|cause| {
            panic!("no memory for a task's stack of {bytes} bytes: {cause}; use fewer tasks or a smaller Sim::stack_bytes")
        })
    })
}

/// Keeps a stack for later.
pub(crate) fn put(stack: Stack) {
    // The thread may be ending, and its pool with it.
    let _ = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < MOST_KEPT {
            kept.push(stack);
        }
    });
}
