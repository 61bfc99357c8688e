//! Cached pages of a file and their duplicates (BY-14).
//!
//! The first modification of a page that the device holds keeps a duplicate of what is there. At write-back the two are compared line by line,
//! and the difference decides between bytes and block.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::format::PAGE;

/// A page of file data in host DRAM.
pub struct CachedPage {
    /// What readers see.
    pub data: Box<[u8; PAGE]>,
    /// What the device holds, where that is known and may differ from `data`.
    original: Option<Box<[u8; PAGE]>>,
    /// Whether the device lacks something of `data` that a reader could miss.
    pub dirty: bool,
    /// Whether the device holds a version of this page at all.
    on_device: bool,
}

impl CachedPage {
    /// A page as read from the device, of which the first `valid` bytes belong to the file. The rest reads as zeros, whatever the device has there.
    pub fn read(data: Box<[u8; PAGE]>, valid: usize) -> Self {
        let mut page = Self { data, original: None, dirty: false, on_device: true };
        if page.data[valid..].iter().any(|&byte| byte != 0) {
            page.original = Some(page.data.clone());
            page.data[valid..].fill(0);
        }
        page
    }

    /// A page of zeros that the device does not hold.
    pub fn hole() -> Self {
        Self { data: Box::new([0; PAGE]), original: None, dirty: false, on_device: false }
    }

    /// A page about to be overwritten as a whole, whose old contents nobody has read.
    pub fn overwritten() -> Self {
        Self { data: Box::new([0; PAGE]), original: None, dirty: true, on_device: false }
    }

    /// The page's bytes, to change: keeps the duplicate first.
    pub fn data_mut(&mut self) -> &mut [u8; PAGE] {
        if self.on_device && self.original.is_none() {
            self.original = Some(self.data.clone());
        }
        &mut self.data
    }

    /// The duplicate to compare with; `None` if the whole page must be written.
    pub fn original(&self) -> Option<&[u8; PAGE]> {
        self.original.as_deref()
    }

    /// Whether the device holds bytes beyond the end of the file that must be overwritten before the file grows over them.
    pub fn hides_bytes(&self) -> bool {
        !self.dirty && self.original.is_some()
    }

    /// Notes that `bytes` went to the device at byte `from` of this page, and shows them.
    pub fn stored(&mut self, from: usize, bytes: &[u8]) {
        self.data[from..from + bytes.len()].copy_from_slice(bytes);
        if let Some(original) = &mut self.original {
            original[from..from + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Notes that the device now holds `data`.
    pub fn written(&mut self) {
        self.original = None;
        self.dirty = false;
        self.on_device = true;
    }
}

/// Counts the pages cached by all files against a limit.
#[derive(Debug)]
pub struct PageBudget {
    cached: AtomicUsize,
    limit: usize,
}

impl PageBudget {
    /// A budget of `limit` pages.
    pub const fn new(limit: usize) -> Self {
        Self { cached: AtomicUsize::new(0), limit }
    }

    /// Counts `pages` more.
    pub fn add(&self, pages: usize) {
        self.cached.fetch_add(pages, Ordering::Relaxed);
    }

    /// Counts `pages` fewer.
    pub fn remove(&self, pages: usize) {
        self.cached.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Whether more is cached than allowed.
    pub fn exceeded(&self) -> bool {
        self.cached.load(Ordering::Relaxed) > self.limit
    }
}
