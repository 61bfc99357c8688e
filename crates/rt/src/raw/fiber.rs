//! Fibers (stackful coroutines), and which Sim the current OS thread is running.

use crate::sim::core::Core;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A stack for a fiber, with a guard page below it.
pub(crate) struct Stack {
    inner: DefaultStack,
    bytes: usize,
}

impl Stack {
    /// A stack of at least `bytes`.
    pub(crate) fn new(bytes: usize) -> std::io::Result<Self> {
        Ok(Self { inner: DefaultStack::new(bytes)?, bytes })
    }

    /// The size it was made with.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

thread_local! {
    /// The Sim that this OS thread runs. Without a destructor, so that reading it is one load.
    static CURRENT: Cell<Option<NonNull<Core>>> = const { Cell::new(None) };
    /// How the running fiber gives the processor back.
    static YIELDER: Cell<Option<NonNull<Yielder<(), ()>>>> = const { Cell::new(None) };
}

/// Calls `f` with the Sim that this OS thread is running; `None` in real time.
#[inline(always)]
pub(crate) fn in_sim<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
    let core = CURRENT.get()?;
    // SAFETY: `enter` set the pointer from a reference that stays borrowed until it clears it, on this thread; and every fiber
    // that could still be inside `f` then is never resumed again.
    Some(f(unsafe { core.as_ref() }))
}

/// Makes `core` the Sim of this OS thread while `f` runs. `f` returns also after panics in tasks; its own panics abort.
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

/// Gives the processor back to the scheduler until the fiber is resumed.
pub(crate) fn suspend() {
    let yielder = YIELDER.get().expect("a task of a Sim blocks only on its own stack");
    // SAFETY: the yielder lives on the running fiber's own stack below this frame.
    unsafe { yielder.as_ref() }.suspend(());
    YIELDER.set(Some(yielder));
}

/// A task's stack and what it is doing.
pub(crate) struct Fiber {
    coroutine: ManuallyDrop<Coroutine<(), (), (), DefaultStack>>,
    stack_bytes: usize,
}

impl Fiber {
    /// A fiber that will run `body` on `stack`. `body` must not panic.
    pub(crate) fn new(stack: Stack, body: Box<dyn FnOnce()>) -> Self {
        let stack_bytes = stack.bytes;
        let coroutine = Coroutine::with_stack(stack.inner, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(Some(NonNull::from(yielder)));
            body();
        });
        Self { coroutine: ManuallyDrop::new(coroutine), stack_bytes }
    }

    /// Runs the fiber until it suspends or ends; true when it has ended.
    #[inline]
    pub(crate) fn resume(&mut self) -> bool {
        let done = self.coroutine.resume(()).as_return().is_some();
        YIELDER.set(None);
        done
    }

    /// The stack, for the next fiber, if this one has ended. The stack of one that has not is lost, and nothing on it is dropped:
    /// others may hold references into it.
    pub(crate) fn into_stack(mut self) -> Option<Stack> {
        if !self.coroutine.done() {
            return None;
        }
        // SAFETY: `self` is forgotten right after, so the value is taken once.
        let coroutine = unsafe { ManuallyDrop::take(&mut self.coroutine) };
        Some(Stack { inner: coroutine.into_stack(), bytes: self.stack_bytes })
    }
}
