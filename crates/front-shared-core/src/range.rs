//! The range from inside: where it is, who of the program's threads runs for whom, and how a call leaves a
//! range that has died.
#![allow(unsafe_code)]

use std::arch::asm;
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use amphi_front_shared::layout::{
    ALIGNMENT, CONTEXTS, Context, DEAD, Header, MARKS_AT, MEMORY_BYTES, PAGE, context_at,
};
use amphi_queue::Marks;

/// Where the range begins; zero before the program is in it. Written by the loader.
pub static BASE: AtomicU64 = AtomicU64::new(0);
/// The descriptor of the range's memory in the manager. Written by the loader.
pub static MEMORY: AtomicI32 = AtomicI32::new(-1);
/// A descriptor of the image in the manager, once it is mapped.
pub static IMAGE: AtomicI32 = AtomicI32::new(-1);

thread_local! {
    /// The context, while this thread's stack and thread-locals are lent to a client.
    static LENT: Cell<*mut Context> = const { Cell::new(ptr::null_mut()) };
}

/// The header, if the program is in its range.
#[must_use]
pub fn header() -> Option<&'static Header> {
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: the loader has mapped the range at this address for the life of the process, and all of the
    // header is atomic.
    (base != 0).then(|| unsafe { &*(base as *const Header) })
}

/// What the kernel has been told of a mount, if the program is in its range.
#[must_use]
pub fn marks() -> Option<&'static Marks> {
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: a part of the range, all of it atomic.
    (base != 0).then(|| unsafe { &*((base + MARKS_AT) as *const Marks) })
}

/// A context's owner word.
#[must_use]
pub fn owner(number: usize) -> &'static AtomicU64 {
    let base = BASE.load(Ordering::Relaxed);
    assert!(base != 0, "the program is not in its range");
    // SAFETY: a page of the range.
    unsafe { &(*(context_at(base, number % CONTEXTS) as *const Context)).owner }
}

/// Whether an address lies in the shared memory.
#[must_use]
pub fn has(address: u64) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && address / ALIGNMENT * ALIGNMENT == base && address - base < MEMORY_BYTES
}

/// Takes memory that nobody has had: whole pages, which read as zeros. None: the range is full.
#[must_use]
pub fn take_pages(bytes: u64) -> Option<u64> {
    let header = header()?;
    let bytes = bytes.checked_next_multiple_of(PAGE)?;
    // The allocator wants large pieces at large boundaries.
    let alignment = match bytes {
        0x400_0000.. => 0x400_0000,
        0x10_0000.. => 0x10_0000,
        _ => PAGE,
    };
    let end = BASE.load(Ordering::Relaxed) + MEMORY_BYTES;
    let mut at = header.heap_at.load(Ordering::Relaxed);
    loop {
        let start = at.next_multiple_of(alignment);
        if start.checked_add(bytes)? > end {
            return None;
        }
        match header.heap_at.compare_exchange_weak(at, start + bytes, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(start),
            Err(now) => at = now,
        }
    }
}

/// The client's context in which this thread runs a call; none in the manager's own threads.
#[inline]
#[must_use]
pub fn lent() -> Option<*mut Context> {
    let context = LENT.get();
    (!context.is_null()).then_some(context)
}

/// Runs `f` for a client, in its context.
pub fn lend<R>(context: *mut Context, f: impl FnOnce() -> R) -> R {
    LENT.set(context);
    let result = f();
    LENT.set(ptr::null_mut());
    result
}

/// Leaves for good if this is a client's call and the range has died: whatever the call waits for may never
/// come.
///
/// The stack is abandoned as it is. It belongs to the range, in which nothing runs any more.
#[inline]
pub fn leave_if_dead() {
    if let Some(context) = lent()
        && header().is_some_and(|header| header.dead.load(Ordering::Acquire) == DEAD)
    {
        // SAFETY: the gate wrote the address of its own way out, which takes the context in rbx and restores
        // all that its caller needs.
        unsafe {
            asm!(
                "mov rbx, {context}",
                "jmp [rbx + {way_out}]",
                context = in(reg) context,
                way_out = const offset_of!(Context, way_out),
                options(noreturn)
            )
        }
    }
}
