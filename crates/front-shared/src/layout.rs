//! Where what lies in a range: its header, the contexts in which calls run, what the kernel knows of the
//! mount, the program, the heap, and the SSD's image.
//!
//! A range begins at a multiple of [`ALIGNMENT`], so that what runs inside finds its beginning from any
//! address in it:
//!
//! ```text
//! 0        header, one page
//! 4 KB     contexts, one page each
//! 2 MB     marks of what the kernel has been told
//! 16 MB    the program's segments, its first stack, then the heap up to 64 GB
//! 64 GB    the image of the emulated SSD
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64};

use amphi_queue::Marks;

/// Distance of two ranges, and the alignment of each: 1 TB.
pub const ALIGNMENT: u64 = 1 << 40;
/// How many places there are for ranges. A process that uses two ranges at a time needs them at two places.
pub const PLACES: u64 = 16;
/// Bytes of the memory that all processes share, sparse.
pub const MEMORY_BYTES: u64 = 64 << 30;
/// Where the image begins.
pub const IMAGE_AT: u64 = MEMORY_BYTES;
/// Where the [`Marks`] are.
pub const MARKS_AT: u64 = 2 << 20;
/// Where the program begins.
pub const PROGRAM_AT: u64 = 16 << 20;
/// Bytes of the first stack of the program.
pub const FIRST_STACK_BYTES: u64 = 1 << 20;
/// How many calls can be under way at a time, in all processes together.
pub const CONTEXTS: usize = 64;
/// Bytes of a page, and of a context's place.
pub const PAGE: u64 = 4096;
/// What a header of this version begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"AMPHISH5");

/// [`Header::dead`]: the range is dead, calls leave it where they wait.
pub const DEAD: u32 = 1;
/// [`Header::dead`]: the range is being closed, calls end and none begins.
pub const CLOSING: u32 = 2;

/// Where the range of a number begins. Linux puts neither programs nor libraries nor stacks there.
#[must_use]
pub const fn base_of(place: u64) -> u64 {
    (0x5a + place % PLACES) * ALIGNMENT
}

/// What a range begins with.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`] once the file system serves.
    pub magic: AtomicU64,
    /// [`DEAD`] or [`CLOSING`]: everybody leaves it. Never zero again.
    pub dead: AtomicU32,
    /// How many contexts are ready.
    pub contexts: AtomicU32,
    /// Address of the function that executes a call: `extern "C" fn(*mut Call, *mut Context)`.
    pub entry: AtomicU64,
    /// Address of the program's instructions, and their bytes.
    pub text_at: AtomicU64,
    /// See `text_at`; whole pages.
    pub text_bytes: AtomicU64,
    /// The first address of the heap that nobody has.
    pub heap_at: AtomicU64,
    /// Bytes of the image, at [`IMAGE_AT`].
    pub image_bytes: AtomicU64,
}

/// A stack and thread-locals in the range, in which one call at a time runs. They are those of a thread of
/// the manager's that sleeps for ever.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    /// Who is inside: zero for nobody, or a client's number + 1 above a thread's number, 32 bits each. What a
    /// process that died leaves here says that it died inside.
    pub owner: AtomicU64,
    /// The FS base: address of the thread's control block.
    pub thread: u64,
    /// The stack's top, aligned to 16.
    pub stack: u64,
    /// While a call runs: the caller's stack, its FS base, and where the gate goes on when the call is
    /// abandoned.
    pub caller_stack: u64,
    /// See `caller_stack`.
    pub caller_thread: u64,
    /// See `caller_stack`.
    pub way_out: u64,
    /// `clock_gettime` of the calling process, whose clock page lies elsewhere in each.
    pub clock: u64,
}

/// The owner word of a client's thread.
#[must_use]
pub const fn owner(client: u32, thread: u32) -> u64 {
    (client as u64 + 1) << 32 | thread as u64
}

/// The client in an owner word, if there is one.
#[must_use]
pub const fn client_of(owner: u64) -> Option<u32> {
    match owner >> 32 {
        0 => None,
        number => Some(number as u32 - 1),
    }
}

/// Address of a context in the range that begins at `base`.
#[must_use]
pub const fn context_at(base: u64, number: usize) -> u64 {
    base + PAGE * (1 + number as u64)
}

const _: () = assert!(PAGE * (1 + CONTEXTS as u64) <= MARKS_AT && size_of::<Context>() as u64 <= PAGE);
const _: () = assert!(size_of::<Marks>() as u64 <= PROGRAM_AT - MARKS_AT);
const _: () = assert!(size_of::<Header>() as u64 <= PAGE && IMAGE_AT < ALIGNMENT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_told_apart() {
        assert_eq!(client_of(0), None);
        assert_eq!(client_of(owner(0, 7)), Some(0));
        assert_eq!(client_of(owner(511, u32::MAX)), Some(511));
    }

    #[test]
    fn an_address_inside_tells_the_range() {
        for place in 0..PLACES {
            let base = base_of(place);
            assert_eq!((base + IMAGE_AT + 12345) / ALIGNMENT * ALIGNMENT, base);
        }
    }
}
