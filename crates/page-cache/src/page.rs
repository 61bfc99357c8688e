//! One cached page, and what can hold its bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::PAGE;

/// A page of host memory that is one owner's.
pub type BoxedFrame = Box<[u8; PAGE]>;

/// A page of host memory for several to hold. The bytes lie apart from the count: 4096 B are a size that
/// allocators hand out without waste, 4112 B are not.
pub type SharedFrame = Arc<Box<[u8; PAGE]>>;

/// What holds a page's bytes.
pub trait Frame {
    /// A frame of zeros.
    fn zeros() -> Self;

    /// The bytes.
    fn bytes(&self) -> &[u8; PAGE];

    /// The bytes, to change; copied first if somebody else holds them, so that he keeps what he has.
    fn bytes_mut(&mut self) -> &mut [u8; PAGE];
}

impl Frame for BoxedFrame {
    #[inline]
    fn zeros() -> Self {
        Self::new([0; PAGE])
    }

    #[inline]
    fn bytes(&self) -> &[u8; PAGE] {
        self
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8; PAGE] {
        self
    }
}

impl Frame for SharedFrame {
    fn zeros() -> Self {
        Self::new(Box::new([0; PAGE]))
    }

    #[inline]
    fn bytes(&self) -> &[u8; PAGE] {
        self
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8; PAGE] {
        Self::make_mut(self)
    }
}

/// The frames of whole pages that lie one behind the other. One page alone is not copied.
pub fn frames(pages: Box<[u8]>) -> SmallVec<[BoxedFrame; 1]> {
    match BoxedFrame::try_from(pages) {
        Ok(frame) => SmallVec::from_buf([frame]),
        Err(pages) => pages.as_chunks::<PAGE>().0.iter().map(|page| BoxedFrame::new(*page)).collect(),
    }
}

/// What a file system keeps beside a page's bytes.
pub trait Beside {
    /// Further frames of host memory that it takes.
    fn frames(&self) -> usize {
        0
    }
}

impl Beside for () {}

/// A page of file data in host memory.
pub struct Page<F, B = ()> {
    /// What readers see.
    pub data: F,
    /// What the file system keeps beside it.
    pub beside: B,
    /// Whether the device lacks something of `data` that a reader could miss.
    pub(crate) dirty: bool,
    /// Used since the last time that room was looked for: then it stays this time.
    used: AtomicBool,
}

impl<F: Frame, B: Beside> Page<F, B> {
    /// A clean page.
    #[inline]
    pub const fn new(data: F, beside: B) -> Self {
        Self { data, beside, dirty: false, used: AtomicBool::new(true) }
    }

    /// The page's bytes, to read.
    #[inline]
    pub fn data(&self) -> &[u8; PAGE] {
        self.touch();
        self.data.bytes()
    }

    /// Notes that it was used.
    #[inline]
    pub fn touch(&self) {
        // Tested first: readers on other processors share the line.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since this was asked the last time.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Whether the device lacks something of it.
    #[inline]
    pub const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Frames of host memory that it takes.
    #[inline]
    pub fn frames(&self) -> usize {
        1 + self.beside.frames()
    }
}
