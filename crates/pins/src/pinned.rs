//! [`Pinned`]: pins of a mounted file system, made, used and ended.

use std::sync::Arc;

use amphi_device::{BaBuffer, Entry, EntryId, PAGE_BYTES, PinError, Structure};
use amphi_rt::sync::RwLock;
use amphi_vfs::permission::{READ, WRITE};
use amphi_vfs::{Checked, Cred, Error, Extents, Ino, OpenFlags, Result};

use crate::logs::{Logs, Options, window_bytes};
use crate::planted::{self, Bug};
use crate::table::{Pin, PinId, Table, places};

/// Why a file system could not be mounted for pins.
#[derive(Debug, thiserror::Error)]
pub enum MountError<E> {
    /// The device failed, or its window is no BA-buffer.
    #[error(transparent)]
    Device(amphi_device::Error),
    /// The file system's own.
    #[error(transparent)]
    Below(E),
    /// What a crash has left of logs could not be given to it.
    #[error(transparent)]
    Logs(Error),
}

/// Logs whose tasks end before the device is somebody else's.
struct Running<F: Extents + 'static, D: BaBuffer>(Arc<Logs<F, D>>);

impl<F: Extents + 'static, D: BaBuffer> Drop for Running<F, D> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A file system of which ranges of files can be pinned.
pub struct Pinned<F: Extents + 'static, D: BaBuffer> {
    checked: Checked<F>,
    device: Arc<D>,
    logs: Running<F, D>,
    /// Shared by whoever reads or writes, so that no range is pinned under way.
    pub(crate) table: RwLock<Table>,
}

/// A device's error as an operation reports it.
fn error_of(error: amphi_device::Error) -> Error {
    match error {
        amphi_device::Error::Pin(PinError::TableFull { .. }) => Error::NoSpace,
        error => amphi_volume::io_error(error),
    }
}

impl<F: Extents + 'static, D: BaBuffer> Pinned<F, D> {
    /// Brings in place what a crash has left pinned, then mounts the file system below. The table of the
    /// device is the file system's alone.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount<E>(
        device: &Arc<D>,
        below: impl FnOnce() -> std::result::Result<F, E>,
    ) -> std::result::Result<Self, MountError<E>> {
        Self::mount_with_logs(device, &Options::default(), below)
    }

    /// As [`mount`](Self::mount), with rules about which files are logs.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount_with_logs<E>(
        device: &Arc<D>,
        logs: &Options,
        below: impl FnOnce() -> std::result::Result<F, E>,
    ) -> std::result::Result<Self, MountError<E>> {
        // First: no block command reaches these pages before, a journal's replay neither.
        for entry in device.entries().map_err(MountError::Device)? {
            device.flush_entry(entry.id).map_err(MountError::Device)?;
        }
        let fs = Arc::new(below().map_err(MountError::Below)?);
        let logs = Running(Logs::recover(&fs, device, logs).map_err(MountError::Logs)?);
        Ok(Self { checked: Checked::new(fs), device: Arc::clone(device), logs, table: RwLock::default() })
    }

    /// Ends all pins and returns the file system below.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Busy`].
    pub fn into_below(self) -> Result<F> {
        let ids: Vec<PinId> = self.pins().iter().map(|pin| pin.id).collect();
        ids.into_iter().try_for_each(|id| self.unpin(id, &Cred::ROOT))?;
        self.logs().step_aside_all()?;
        drop(self.logs);
        self.checked.into_inner().ok_or(Error::Busy("somebody else uses the file system"))
    }

    /// The file system below.
    pub const fn below(&self) -> &Arc<F> {
        self.checked.inner()
    }

    /// What is known of programs' logs.
    pub(crate) const fn logs(&self) -> &Arc<Logs<F, D>> {
        &self.logs.0
    }

    /// The device.
    pub const fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// Whether `cred` may pin ranges of a file: who may read and write it may.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`].
    pub fn may_pin(&self, ino: Ino, cred: &Cred) -> Result<()> {
        if planted::has(Bug::PermissionNotAsked) {
            return Ok(());
        }
        self.checked.access(ino, READ | WRITE, cred)
    }

    /// Pins `length` bytes at `offset` of a file, for `cred`, who may read and write it: what was written
    /// there is brought in place, and the window shows it. A range that lies in several places of the device
    /// takes as many entries of its table.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`]; [`Error::Invalid`] unless the range is whole pages inside of the file,
    /// all of them written; [`Error::Busy`] if some of it is pinned; [`Error::NoSpace`] if the window or the
    /// table has no room; [`Error::Unsupported`] if the file system cannot step aside. Nothing is pinned
    /// then.
    pub fn pin(&self, ino: Ino, offset: u64, length: u64, cred: &Cred) -> Result<Pin> {
        const PAGE: u64 = PAGE_BYTES as u64;
        self.may_pin(ino, cred)?;
        let mut table = self.table.write();
        if length == 0 || !offset.is_multiple_of(PAGE) || !length.is_multiple_of(PAGE) {
            return Err(Error::Invalid("a pin is of whole pages of 4096 bytes"));
        }
        let end = offset.checked_add(length).ok_or(Error::TooLarge)?;
        if end > self.below().getattr(ino)?.size {
            return Err(Error::Invalid("a pin ends inside of its file"));
        }
        if table.meets(ino, offset, length) {
            return Err(Error::Busy("some of the range is pinned already"));
        }
        self.logs().step_aside(ino)?;
        // The pin's own, which keeps the blocks although the last name goes.
        self.below().open(ino, OpenFlags { write: true, ..OpenFlags::default() })?;
        let pinned = match self.pin_open(ino, offset, length) {
            // Logs only use what nobody has asked for.
            Err(Error::NoSpace) => {
                self.logs().step_aside_all()?;
                self.pin_open(ino, offset, length)
            }
            pinned => pinned,
        };
        match pinned {
            Ok(entries) => {
                let pin = Pin { id: table.next_id(), ino, offset, length, uid: cred.uid, entries };
                table.pins.push(pin.clone());
                Ok(pin)
            }
            Err(error) => {
                self.below().release(ino);
                Err(error)
            }
        }
    }

    fn pin_open(&self, ino: Ino, offset: u64, length: u64) -> Result<Vec<Entry>> {
        let runs = self.below().settle(ino, offset, length)?;
        let _room = self.logs().room.lock();
        let window = window_bytes(&*self.device).map_err(error_of)?;
        let promise = self.device.ba_buffer().map_err(error_of)?;
        let taken = self.device.entries().map_err(error_of)?;
        if taken.len() + runs.len() > promise.entries as usize {
            return Err(Error::NoSpace);
        }
        let entries = places(&taken, window, &runs).ok_or(Error::NoSpace)?;
        for (done, entry) in entries.iter().enumerate() {
            if let Err(error) = crate::entry::pin(&*self.device, entry) {
                // Those before hold what their pages hold.
                entries[..done].iter().try_for_each(|entry| self.flush(entry))?;
                return Err(error_of(error));
            }
        }
        Ok(entries)
    }

    fn flush(&self, entry: &Entry) -> Result<()> {
        crate::entry::flush(&*self.device, entry).map_err(error_of)
    }

    /// Ends a pin: its pages are durable in their place, and the file system has them again. What another
    /// thread has stored and not synced may be lost.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotPermitted`] for another user's; [`Error::Io`]: what could not be
    /// written stays pinned.
    pub fn unpin(&self, id: PinId, cred: &Cred) -> Result<()> {
        let mut table = self.table.write();
        let at = table.pins.iter().position(|pin| pin.id == id).ok_or(Error::NotFound)?;
        let pin = &mut table.pins[at];
        if !pin.belongs_to(cred) {
            return Err(Error::NotPermitted);
        }
        // The last first, so that what stays after an error is the range's begin.
        while let Some(entry) = pin.entries.last() {
            self.device.sync_entry(entry.id).map_err(error_of)?;
            self.flush(entry)?;
            pin.length -= entry.bytes();
            pin.entries.pop();
        }
        let ino = table.pins.swap_remove(at).ino;
        drop(table);
        self.below().release(ino);
        Ok(())
    }

    /// All pins.
    pub fn pins(&self) -> Vec<Pin> {
        self.table.read().pins.clone()
    }

    /// Stores `data` at `at` bytes behind the begin of a pin, by bytes. Durable once the calling thread has
    /// [synced](Self::sync_pin).
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotPermitted`] for another user's; [`Error::Invalid`] beyond the pin.
    pub fn store(&self, id: PinId, at: u64, data: &[u8], cred: &Cred) -> Result<()> {
        let table = self.table.read();
        self.each_part(&table, id, (at, data.len()), cred, |window, part| {
            self.store_window(window, &data[part])
        })
    }

    /// Loads what a pin has at `at` bytes behind its begin.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn load(&self, id: PinId, at: u64, into: &mut [u8], cred: &Cred) -> Result<()> {
        let table = self.table.read();
        self.each_part(&table, id, (at, into.len()), cred, |window, part| {
            self.device.load(window, &mut into[part], Structure::Data).map_err(error_of)
        })
    }

    /// `BA_SYNC` of a pin: what the calling thread has stored there is durable.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn sync_pin(&self, id: PinId, cred: &Cred) -> Result<()> {
        let table = self.table.read();
        let pin = table.find(id).ok_or(Error::NotFound)?;
        if !pin.belongs_to(cred) {
            return Err(Error::NotPermitted);
        }
        pin.entries.iter().try_for_each(|entry| self.device.sync_entry(entry.id).map_err(error_of))
    }

    fn each_part(
        &self,
        table: &Table,
        id: PinId,
        (at, len): (u64, usize),
        cred: &Cred,
        mut act: impl FnMut(u64, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let pin = table.find(id).ok_or(Error::NotFound)?;
        if !pin.belongs_to(cred) {
            return Err(Error::NotPermitted);
        }
        if at.checked_add(len as u64).is_none_or(|end| end > pin.length) {
            return Err(Error::Invalid("beyond the pinned range"));
        }
        let mut done = 0;
        while done < len {
            let (window, bytes, _) = pin.place(pin.offset + at + done as u64).ok_or(Error::NotFound)?;
            let part = done..len.min(done + usize::try_from(bytes).unwrap_or(len));
            act(window, part.clone())?;
            done = part.end;
        }
        Ok(())
    }

    /// Stores into the window, page by page as the port wants it.
    pub(crate) fn store_window(&self, at: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let from = at + done as u64;
            let page = PAGE_BYTES - (from % PAGE_BYTES as u64) as usize;
            let part = &data[done..data.len().min(done + page)];
            self.device.store(from, part, None, Structure::Data).map_err(error_of)?;
            done += part.len();
        }
        Ok(())
    }

    /// Loads from the window.
    pub(crate) fn load_window(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.device.load(at, into, Structure::Data).map_err(error_of)
    }

    /// Makes what this call has stored durable: another thread could not.
    pub(crate) fn sync_window(&self, entry: EntryId) -> Result<()> {
        if planted::has(Bug::WriteNotSynced) {
            return Ok(());
        }
        self.device.sync_entry(entry).map_err(error_of)
    }
}
