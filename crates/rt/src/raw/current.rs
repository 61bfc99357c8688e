//! Which Sim the current OS thread is running.

use crate::sim::core::Core;
use std::cell::Cell;
use std::ptr::NonNull;

thread_local! {
    /// The Sim that this OS thread runs. Without a destructor, so that reading it is one load.
    static CURRENT: Cell<Option<NonNull<Core>>> = const { Cell::new(None) };
}

/// Calls `f` with the Sim that this OS thread is running; `None` in real time.
#[inline(always)]
pub(crate) fn in_sim<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
    let core = CURRENT.get()?;
    // SAFETY: `enter` set the pointer from a reference that stays borrowed until it clears it, on this
    // thread; and every fiber that could still be inside `f` then is never resumed again.
    Some(f(unsafe { core.as_ref() }))
}

/// Makes `core` the Sim of this OS thread while `f` runs.
///
/// # Panics
/// If this OS thread already runs a Sim.
pub(crate) fn enter<R>(core: &Core, f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(None);
        }
    }
    assert!(CURRENT.get().is_none(), "a Sim was started inside a Sim; run one after the other instead");
    CURRENT.set(Some(NonNull::from(core)));
    let _leave = Leave;
    f()
}
