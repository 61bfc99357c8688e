//! What the controller has: flash, and protected memory. It is inside of the device, so it stores to that
//! memory as a processor does; what a fence has ordered outlives a loss of power, because capacitors see to
//! it.

use std::sync::Arc;

use amphi_device::{BlockDurability, BlockPort, BytePortExt, Completion, Lpa, MemoryArea, Structure};
use amphi_vfs::Result;
use amphi_volume::io_error;

use crate::format::PAGE;

/// Pages written by one command at most.
const PAGES_PER_WRITE: usize = 256;

/// Flash and protected memory.
pub struct Media<D> {
    pub device: Arc<D>,
    has_write_buffer: bool,
}

impl<D: BlockPort + MemoryArea> Media<D> {
    /// Of a device that has both.
    ///
    /// # Errors
    /// The device has no protected memory.
    pub fn new(device: &Arc<D>) -> amphi_device::Result<Self> {
        device.memory()?;
        let has_write_buffer = device.contract().block_durability == BlockDurability::Flush;
        Ok(Self { has_write_buffer, device: Arc::clone(device) })
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn load_slot(&self, slot: u64, into: &mut [u8; PAGE]) -> Result<()> {
        self.device.load(slot * PAGE as u64, into, Structure::Journal).map_err(io_error)
    }

    /// Stores into a slot. Capacitors keep it from then on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn store_slot(&self, slot: u64, at: usize, bytes: &[u8], tag: Structure) -> Result<()> {
        self.device.persist(slot * PAGE as u64 + at as u64, bytes, None, tag).map_err(io_error)
    }

    /// Reads pages.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, page: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        self.device.read(Lpa(page), into, tag).map_err(io_error)
    }

    /// Writes pages that lie one after the other.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, page: u64, data: &[u8], tag: Structure) -> Result<()> {
        for (index, part) in data.chunks(PAGES_PER_WRITE * PAGE).enumerate() {
            let at = Lpa(page + (index * PAGES_PER_WRITE) as u64);
            self.device.write(at, part, tag).map_err(io_error)?;
        }
        self.settle()
    }

    /// Writes pages that lie anywhere, at the same time.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_each(&self, pages: &[(u64, Structure, Box<[u8; PAGE]>)]) -> Result<()> {
        for some in pages.chunks(PAGES_PER_WRITE) {
            let parts: Vec<[&[u8]; 1]> = some.iter().map(|(.., bytes)| [&bytes[..]]).collect();
            let submitted = some.iter().zip(&parts).map(|((page, tag, _), part)| {
                self.device.submit_write(Lpa(*page), part, *tag).map_err(io_error)
            });
            let tickets: Vec<_> = submitted.collect::<Result<_>>()?;
            tickets.into_iter().try_for_each(|ticket| ticket.wait().map_err(io_error))?;
        }
        self.settle()
    }

    /// Makes what was written durable.
    fn settle(&self) -> Result<()> {
        if self.has_write_buffer { self.device.flush().map_err(io_error) } else { Ok(()) }
    }
}
