//! The register as a mounted file system has it: lines taken, sized and given back, each durable on return.

use std::sync::Arc;

use amphi_device::{BaBuffer, BytePortExt, Entry, PAGE_BYTES, Result, Structure};
use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;
use zerocopy::IntoBytes;

use crate::format::{Head, LINE, LINES, Line, REGISTER, SIZE_AT, decode};

const TAG: Structure = Structure::Journal;

/// The last page of the window.
pub struct Register<D> {
    device: Arc<D>,
    at: u64,
    identity: [u8; 16],
    taken: Mutex<[bool; LINES]>,
}

impl<D: BaBuffer> Register<D> {
    /// The register of a device's window.
    pub fn of(device: &Arc<D>, identity: [u8; 16]) -> Result<Self> {
        let at = device.ba_buffer()?.bytes.saturating_sub(PAGE_BYTES as u64);
        Ok(Self { device: Arc::clone(device), at, identity, taken: Mutex::new([false; LINES]) })
    }

    /// What a crash has left in it.
    pub fn left(&self) -> Result<Vec<Line>> {
        let mut register = [0; REGISTER];
        self.device.load(self.at, &mut register, TAG)?;
        Ok(decode(&register, &self.identity))
    }

    /// Empties it, whatever it holds.
    pub fn begin(&self) -> Result<()> {
        self.device.persist(self.at, &[0; REGISTER], None, TAG)?;
        self.device.persist(self.at, Head::new(self.identity).as_bytes(), None, TAG)
    }

    fn line(&self, slot: usize) -> u64 {
        self.at + ((slot + 1) * LINE) as u64
    }

    /// Takes a line for a part of a log; `None` if there is none.
    pub fn claim(&self, ino: Ino, offset: u64, entry: &Entry) -> Result<Option<usize>> {
        let mut taken = self.taken.lock();
        let Some(slot) = taken.iter().position(|taken| !taken) else { return Ok(None) };
        let Ok(pages) = u32::try_from(entry.pages) else { return Ok(None) };
        let line = Line::new(&self.identity, ino.0, offset, entry.at.0, pages);
        self.device.persist(self.line(slot), line.as_bytes(), None, TAG)?;
        taken[slot] = true;
        Ok(Some(slot))
    }

    /// Says how large the log is.
    pub fn set_size(&self, slot: usize, size: u64) -> Result<()> {
        self.device.persist(self.line(slot) + SIZE_AT, &size.to_le_bytes(), None, TAG)
    }

    /// Gives a line back.
    pub fn clear(&self, slot: usize) -> Result<()> {
        let mut taken = self.taken.lock();
        self.device.persist(self.line(slot), &[0; LINE], None, TAG)?;
        taken[slot] = false;
        Ok(())
    }
}
