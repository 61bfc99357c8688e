//! Protected memory: bytes of the device's memory that capacitors keep, with an address space of their own.
//! What the host reaches of it, and what firmware does with it, is the business of a personality; this room
//! keeps the bytes.
//!
//! Bytes change by aligned stores of 8 or 16 bytes alone, which nothing tears: not another task, and not the
//! end of the process. The image reserves the host's disk for a chunk before the first store into it, and
//! notes that it did; chunks without that note hold zeros, and nobody need copy them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::Result;
use amphi_rt::sync::Mutex;

use crate::format::{Layout, MEMORY_CHUNK};
use crate::image::Image;

/// A window on protected memory.
#[derive(Debug)]
pub(crate) struct Protected {
    image: Arc<Image>,
    layout: Layout,
    extending: Mutex<()>,
}

impl Protected {
    /// The memory as the image has it.
    pub(crate) fn new(image: &Arc<Image>, layout: &Layout) -> Self {
        Self { image: Arc::clone(image), layout: *layout, extending: Mutex::new(()) }
    }

    /// Its size.
    pub(crate) const fn bytes(&self) -> u64 {
        self.layout.memory_bytes
    }

    /// Copies bytes out. Each aligned 8 B are as one store left them.
    pub(crate) fn load(&self, at: u64, into: &mut [u8]) {
        self.image.load_words(self.layout.memory + at, into);
    }

    /// Sees to it that the image has room for these bytes.
    ///
    /// # Errors
    /// The host's disk is full.
    pub(crate) fn reserve(&self, at: u64, len: u64) -> Result<()> {
        for chunk in at / MEMORY_CHUNK..(at + len).div_ceil(MEMORY_CHUNK) {
            if !self.is_used(chunk) {
                self.begin_chunk(chunk)?;
            }
        }
        Ok(())
    }

    /// Stores bytes for which there is room.
    pub(crate) fn store(&self, at: u64, data: &[u8]) {
        self.image.store_words(self.layout.memory + at, data);
    }

    fn begin_chunk(&self, chunk: u64) -> Result<()> {
        let _extending = self.extending.lock();
        let (from, len) = self.layout.memory_chunk(chunk);
        self.image.allocate(self.layout.memory + from, len)?;
        self.image.word(self.layout.memory_map_word(chunk)).fetch_or(1 << (chunk % 64), Ordering::AcqRel);
        Ok(())
    }

    fn is_used(&self, chunk: u64) -> bool {
        let word = self.image.read_word(self.layout.memory_map_word(chunk));
        word >> (chunk % 64) & 1 == 1
    }

    /// The chunks that were ever stored to: first byte and length.
    pub(crate) fn used(&self) -> impl Iterator<Item = (u64, u64)> {
        let chunks = 0..self.layout.memory_chunks();
        chunks.filter(|&chunk| self.is_used(chunk)).map(|chunk| self.layout.memory_chunk(chunk))
    }

    /// What of the image it takes, as address and length: the map, and the chunks that it marks.
    pub(crate) fn in_image(&self) -> Vec<(u64, u64)> {
        let layout = &self.layout;
        let map = (layout.memory_map, layout.memory - layout.memory_map);
        let chunks = self.used().map(|(at, len)| (layout.memory + at, len));
        std::iter::once(map).chain(chunks).collect()
    }

    /// Bytes of the chunks that were ever stored to.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used().map(|(_, len)| len).sum()
    }
}
