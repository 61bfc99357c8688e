//! The memory area as the file system uses it: stores that become durable together, loads.

use std::sync::Arc;

use amphi_device::{MemoryArea, Structure};
use amphi_vfs::Result;
use amphi_volume::io_error;

use crate::format::PAGE;
use crate::planted::{self, Bug};

/// The memory area.
pub struct Memory<D> {
    device: Arc<D>,
}

impl<D: MemoryArea> Memory<D> {
    /// That of a device.
    ///
    /// # Errors
    /// [`amphi_device::Error::Unsupported`] if it has none.
    pub fn new(device: &Arc<D>) -> amphi_device::Result<Self> {
        device.memory()?;
        Ok(Self { device: Arc::clone(device) })
    }

    /// Loads bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        self.device.load(at, into, tag).map_err(io_error)
    }

    /// Stores bytes and writes their lines back. They are durable after the next [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn store(&self, at: u64, data: &[u8], tag: Structure) -> Result<()> {
        let bug = if tag == Structure::Data { Bug::LogLinesNotFlushed } else { Bug::MetadataLinesNotFlushed };
        let flushed = !planted::has(bug);
        if flushed && at as usize % PAGE + data.len() <= PAGE {
            return self.device.store_flushed(at, data, None, tag).map_err(io_error);
        }
        let mut done = 0;
        while done < data.len() {
            let to = at + done as u64;
            let part = (PAGE - to as usize % PAGE).min(data.len() - done);
            self.device.store(to, &data[done..done + part], None, tag).map_err(io_error)?;
            done += part;
        }
        if flushed {
            self.device.flush_lines(at, data.len());
        }
        Ok(())
    }

    /// Makes everything durable that this task has stored.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn barrier(&self) -> Result<()> {
        self.device.fence();
        self.device.verify_read().map_err(io_error)
    }
}
