//! The byte port as such file systems use it: loads, stores, and the barrier that PMFS's `pm_wbarrier` and
//! NOVA's `clwb` and `sfence` become on a device behind a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{PageView, Structure};
use amphi_vfs::Result;
use amphi_volume::io_error;

use crate::format::PAGE;
use crate::planted::{self, Bug};

/// The device.
pub struct Medium<D> {
    /// Itself, for what goes by blocks.
    pub device: Arc<D>,
    barriers: AtomicU64,
}

impl<D: PageView> Medium<D> {
    /// That of a device.
    pub fn new(device: &Arc<D>) -> Self {
        Self { device: Arc::clone(device), barriers: AtomicU64::new(0) }
    }

    /// Bytes of an aligned store that no crash tears.
    pub fn atomic_bytes(&self) -> u32 {
        self.device.contract().store_atomic_bytes
    }

    /// Loads bytes from an address.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        self.device.load(at, into, tag).map_err(io_error)
    }

    /// Loads a word of 8 B.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn word(&self, at: u64, tag: Structure) -> Result<u64> {
        let mut bytes = [0; 8];
        self.load(at, &mut bytes, tag)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Stores bytes and writes their lines back. They are durable after the next [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn store(&self, at: u64, data: &[u8], tag: Structure) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let to = at + done as u64;
            let part = ((PAGE - to % PAGE) as usize).min(data.len() - done);
            self.device.store(to, &data[done..done + part], None, tag).map_err(io_error)?;
            done += part;
        }
        let bug = if tag == Structure::Data { Bug::DataNotFlushed } else { Bug::MetadataNotFlushed };
        if !planted::has(bug) {
            self.device.flush_lines(at, data.len());
        }
        Ok(())
    }

    /// Stores a word of 8 B, which no crash tears.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn store_word(&self, at: u64, word: u64, tag: Structure) -> Result<()> {
        self.device.store(at, &word.to_le_bytes(), None, tag).map_err(io_error)?;
        self.device.flush_lines(at, 8);
        Ok(())
    }

    /// Makes everything durable that this task has stored: a fence, and the read that shows that it has
    /// arrived.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn barrier(&self) -> Result<()> {
        self.barriers.fetch_add(1, Ordering::Relaxed);
        self.device.fence();
        self.device.verify_read().map_err(io_error)
    }

    /// Barriers so far.
    pub fn barriers(&self) -> u64 {
        self.barriers.load(Ordering::Relaxed)
    }
}
