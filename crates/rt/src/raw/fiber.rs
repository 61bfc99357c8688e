//! Fibers: stackful coroutines.

use corosensei::stack::{DefaultStack, Stack as RawStack, StackPointer};
use corosensei::{Coroutine, Yielder};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A stack for a fiber, with a guard page below it.
///
/// Mappings begin at page boundaries; were all stacks used from their very top, the hot lines of all tasks
/// would fall into the same few sets of the first-level cache. So each begins a little lower than the one
/// before.
pub(crate) struct Stack {
    inner: DefaultStack,
    bytes: usize,
    unused_at_top: usize,
}

impl Stack {
    /// A stack of at least `bytes`.
    pub(crate) fn new(bytes: usize) -> std::io::Result<Self> {
        const LINE: usize = 64;
        const LINES_PER_PAGE: usize = 64;
        thread_local!(static MADE: Cell<usize> = const { Cell::new(0) });
        let made = MADE.get();
        MADE.set(made + 1);
        // Odd and about the number of lines that a switch touches: all 64 offsets come up, neighbours apart.
        let unused_at_top = made * 11 % LINES_PER_PAGE * LINE;
        Ok(Self { inner: DefaultStack::new(bytes + LINE * LINES_PER_PAGE)?, bytes, unused_at_top })
    }

    /// The size it was made with.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

// SAFETY: the bounds lie within those of the mapping that `inner` owns, and the guard page below stays below.
unsafe impl RawStack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        let base = self.inner.base().get() - self.unused_at_top;
        StackPointer::new(base).expect("less than a page below the end of a mapping of many")
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.inner.limit()
    }
}

thread_local! {
    /// How the running fiber gives the processor back.
    static YIELDER: Cell<Option<NonNull<Yielder<(), ()>>>> = const { Cell::new(None) };
}

/// Gives the processor back to the scheduler until the fiber is resumed.
///
/// Inlined, like its callers: after a switch the processor predicts every return wrongly, so each one saved
/// is some 5 ns.
#[inline(always)]
pub(crate) fn suspend() {
    let yielder = YIELDER.get().expect("a task of a Sim blocks only on its own stack");
    // SAFETY: the yielder lives on the running fiber's own stack below this frame.
    unsafe { yielder.as_ref() }.suspend(());
    YIELDER.set(Some(yielder));
}

/// A task's stack and what it is doing.
pub(crate) struct Fiber(ManuallyDrop<Coroutine<(), (), (), Stack>>);

impl Fiber {
    /// A fiber that will run `body` on `stack`. `body` must not panic.
    pub(crate) fn new(stack: Stack, body: Box<dyn FnOnce()>) -> Self {
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(Some(NonNull::from(yielder)));
            body();
        });
        Self(ManuallyDrop::new(coroutine))
    }

    /// Runs the fiber until it suspends or ends; true when it has ended.
    #[inline(always)]
    pub(crate) fn resume(&mut self) -> bool {
        let done = self.0.resume(()).as_return().is_some();
        YIELDER.set(None);
        done
    }

    /// The stack, for the next fiber, if this one has ended. The stack of one that has not is lost, and
    /// nothing on it is dropped: others may hold references into it.
    pub(crate) fn into_stack(mut self) -> Option<Stack> {
        if !self.0.done() {
            return None;
        }
        // SAFETY: `self` is forgotten right after, so the value is taken once.
        let coroutine = unsafe { ManuallyDrop::take(&mut self.0) };
        Some(coroutine.into_stack())
    }
}
