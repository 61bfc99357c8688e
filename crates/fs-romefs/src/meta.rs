//! Metadata in host memory (RO-2): a copy of the metadata area, page by page as they are needed, which
//! transactions change once they count. A checkpoint brings the changed lines to the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{MemoryArea, Structure};
use amphi_rt::sync::{Mutex, OnceCell, RwLock};
use amphi_vfs::{Error, Result};
use zerocopy::FromBytes;

use crate::format::{LINE, Layout, Map, PAGE};
use crate::memory::Memory;
use crate::ops::{self, Op};
use crate::planted::{self, Bug};

struct Page {
    bytes: RwLock<[u8; PAGE]>,
    /// Lines that a transaction has changed since the last checkpoint took them. Changes with `bytes` locked
    /// for writing.
    dirty: AtomicU64,
}

/// The copy.
pub struct Meta<D> {
    /// The memory area.
    pub memory: Arc<Memory<D>>,
    layout: Layout,
    pages: Box<[OnceCell<Box<Page>>]>,
    /// Pages with changed lines.
    dirty: Mutex<Vec<u32>>,
}

const _: () = assert!(PAGE / LINE == u64::BITS as usize, "a word has a bit for each line of a page");

impl<D: MemoryArea> Meta<D> {
    /// Of an area that is not read yet.
    pub fn new(memory: Arc<Memory<D>>, layout: Layout) -> Self {
        let pages = layout.pages.end().div_ceil(PAGE as u64);
        Self { memory, layout, pages: (0..pages).map(|_| OnceCell::new()).collect(), dirty: Mutex::default() }
    }

    fn page(&self, number: u64) -> Result<&Page> {
        let cell = self
            .pages
            .get(number as usize)
            .ok_or_else(|| Error::corrupt("page", number, "it is referred to, and holds no metadata"))?;
        if let Some(page) = cell.get() {
            return Ok(page);
        }
        let mut bytes = [0; PAGE];
        self.memory.load(number * PAGE as u64, &mut bytes, self.tag(number))?;
        Ok(cell.get_or_init(|| Box::new(Page { bytes: RwLock::new(bytes), dirty: AtomicU64::new(0) })))
    }

    /// What a page of the area holds, for accounting.
    fn tag(&self, number: u64) -> Structure {
        let at = number * PAGE as u64;
        if at < self.layout.inodes.at {
            Structure::Bitmap
        } else if at < self.layout.leaves.at {
            Structure::Inode
        } else {
            Structure::Pointer
        }
    }

    /// Calls `body` with bytes that do not cross the end of a page.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for what lies outside of the metadata.
    pub fn with<T>(&self, at: u64, bytes: usize, body: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let within = at as usize % PAGE;
        let page = self.page(at / PAGE as u64)?;
        let guard = page.bytes.read();
        guard.get(within..within + bytes).map(body).ok_or_else(|| crosses(at))
    }

    /// Reads a structure.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn read<T: FromBytes>(&self, at: u64) -> Result<T> {
        self.with(at, size_of::<T>(), |bytes| T::read_from_bytes(bytes).ok())?.ok_or_else(|| crosses(at))
    }

    /// Takes over the operations of a transaction that counts.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for what is no operation.
    pub fn apply(&self, bytes: &[u8]) -> Result<()> {
        for op in ops::decode(&self.layout, bytes) {
            match op {
                Some(Op::Bytes(at, data)) => self.change(at, data.len(), |to| to.copy_from_slice(data))?,
                Some(Op::Zeros(at, count)) => self.change(at, count as usize, |to| to.fill(0))?,
                Some(Op::Bits(map, first, count, on)) => self.change_bits(map, first, count, on)?,
                None => return Err(Error::corrupt("journal", None, "it holds what is no operation")),
            }
        }
        Ok(())
    }

    fn change(&self, at: u64, count: usize, body: impl FnOnce(&mut [u8])) -> Result<()> {
        let (number, within) = (at / PAGE as u64, at as usize % PAGE);
        let page = self.page(number)?;
        let mut bytes = page.bytes.write();
        body(bytes.get_mut(within..within + count).ok_or_else(|| crosses(at))?);
        if count > 0 {
            let lines = within / LINE..(within + count).div_ceil(LINE);
            let mask = (u64::MAX >> (64 - lines.len())) << lines.start;
            if page.dirty.fetch_or(mask, Ordering::Relaxed) == 0 {
                self.dirty.lock().push(number as u32);
            }
        }
        Ok(())
    }

    fn change_bits(&self, map: Map, first: u64, count: u64, on: bool) -> Result<()> {
        let (mut bit, end) = (first, first + count);
        while bit < end {
            let at = self.layout.map(map).at + bit / 8;
            // Up to the end of the page.
            let bits = (PAGE as u64 - at % PAGE as u64) * 8 - bit % 8;
            let last = end.min(bit + bits);
            let from = bit / 8 * 8;
            self.change(at, (last - from).div_ceil(8) as usize, |bytes| {
                for number in bit - from..last - from {
                    let byte = &mut bytes[number as usize / 8];
                    let mask = 1 << (number % 8);
                    *byte = if on { *byte | mask } else { *byte & !mask };
                }
            })?;
            bit = last;
        }
        Ok(())
    }

    /// Calls `body` with each 64-bit word of a bitmap and its number.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn words(&self, map: Map, mut body: impl FnMut(u64, u64)) -> Result<()> {
        let area = self.layout.map(map);
        for word in 0..area.bytes / 8 {
            let value: zerocopy::little_endian::U64 = self.read(area.at + word * 8)?;
            body(word, value.get());
        }
        Ok(())
    }

    /// The pages that have changed lines by now, which the next call does not tell again.
    pub fn take_dirty(&self) -> Vec<u32> {
        std::mem::take(&mut *self.dirty.lock())
    }

    /// Brings the changed lines of pages to the device, durable after the next barrier. Lines that change
    /// meanwhile may go with them: the journal has them too.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_lines(&self, pages: &[u32]) -> Result<()> {
        for &number in pages {
            let page = self.page(number.into())?;
            let (bytes, mut mask) = {
                let bytes = page.bytes.write();
                (*bytes, page.dirty.swap(0, Ordering::Relaxed))
            };
            if planted::has(Bug::CheckpointLineForgotten) {
                mask &= mask.wrapping_sub(1);
            }
            while mask != 0 {
                let from = mask.trailing_zeros() as usize;
                let lines = (mask >> from).trailing_ones() as usize;
                let range = from * LINE..(from + lines) * LINE;
                let at = u64::from(number) * PAGE as u64 + range.start as u64;
                self.memory.store(at, &bytes[range], self.tag(number.into()))?;
                mask &= !((u64::MAX >> (64 - lines)) << from);
            }
        }
        Ok(())
    }
}

fn crosses(at: u64) -> Error {
    Error::corrupt("byte", at, "a structure there crosses a page of the memory zone")
}
