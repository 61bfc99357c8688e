//! A file as the device that a log wants ([`PinnedFile`]), so that BA-WAL keeps a log in a file (2B-SSD
//! §IV-B).
//!
//! Page n of the device is page n of the file. Its block side is the file system's: reads and writes past the
//! page cache, durable after a flush. Its entries are pins, so the permission checks, and what is refused
//! while they last, are those of pins. Its window is as large as the real one, and what it has at an offset
//! lies wherever the pin found room.

use std::sync::Arc;

use amphi_device::{
    BaBuffer, BaPromise, BlockDurability, BlockPort, BytePort, Completion, Device, DurabilityContract, Entry,
    EntryId, Error, Lpa, PAGE_BYTES, PinError, Result, Structure, TxId,
};
use amphi_rt::sync::RwLock;
use amphi_rt::time::now_ns;
use amphi_vfs::{Cred, Extents, FileSystem, FileType, Ino, OpenFlags, WriteMode};

use crate::pinned::Pinned;
use crate::planted::{self, Bug};
use crate::table::Pin;

const PAGE: u64 = PAGE_BYTES as u64;
/// Bytes of zeros written at once when a file is made.
const FILL: usize = 64 * PAGE_BYTES;

/// A regular file of a file system with pins, as a device with a BA-buffer.
///
/// The file keeps its length as long as nobody cuts it; what was cut off behind its back is refused by name.
/// Dropping it ends its pins and keeps all that was stored.
pub struct PinnedFile<F: Extents + 'static, D: BaBuffer> {
    fs: Arc<Pinned<F, D>>,
    ino: Ino,
    cred: Cred,
    pages: u64,
    entries: RwLock<Vec<(Entry, Pin)>>,
}

/// A command that has completed: the file system knows no other.
pub struct Done;

impl Completion for Done {
    fn done_at_ns(&self) -> u64 {
        now_ns()
    }

    fn wait(self) -> Result<()> {
        Ok(())
    }
}

/// An operation's error as a device reports it.
fn refused(error: amphi_vfs::Error) -> Error {
    match error {
        amphi_vfs::Error::NoSpace => Error::NoSpace(error.to_string()),
        error => Error::Image(error.to_string()),
    }
}

impl<F: Extents + 'static, D: BaBuffer> PinnedFile<F, D> {
    /// The file `ino`, for `cred`, who may read and write it. Its whole pages are the device's.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::PermissionDenied`]; [`amphi_vfs::Error::Invalid`] for what is no regular file.
    pub fn open(fs: &Arc<Pinned<F, D>>, ino: Ino, cred: &Cred) -> amphi_vfs::Result<Self> {
        fs.may_pin(ino, cred)?;
        let attr = fs.getattr(ino)?;
        if attr.file_type != FileType::Regular {
            return Err(amphi_vfs::Error::Invalid("not a regular file"));
        }
        FileSystem::open(&**fs, ino, OpenFlags { write: true, ..OpenFlags::default() })?;
        let (pages, entries) = (attr.size / PAGE, RwLock::default());
        Ok(Self { fs: Arc::clone(fs), ino, cred: cred.clone(), pages, entries })
    }

    /// Gives a file `pages` pages, all of them written, as a pin wants them. What it has stays.
    ///
    /// # Errors
    /// As [`FileSystem::write`] and [`FileSystem::fsync`].
    pub fn fill(fs: &Pinned<F, D>, ino: Ino, pages: u64, cred: &Cred) -> amphi_vfs::Result<()> {
        let end = pages.checked_mul(PAGE).ok_or(amphi_vfs::Error::TooLarge)?;
        let mut at = fs.getattr(ino)?.size;
        let zeros = vec![0; FILL];
        while at < end {
            let len = (end - at).min(FILL as u64) as usize;
            at += fs.write(ino, at, &zeros[..len], WriteMode::default(), cred)? as u64;
        }
        fs.fsync(ino, false)
    }

    fn check_pages(&self, what: &'static str, at: Lpa, len: usize) -> Result<()> {
        if len == 0 || !len.is_multiple_of(PAGE_BYTES) {
            let expected = "a positive multiple of 4096";
            return Err(Error::Misaligned { what, value: len as u64, expected });
        }
        match at.0.checked_add(len as u64 / PAGE) {
            Some(end) if end <= self.pages => Ok(()),
            _ => Err(Error::OutOfRange {
                what,
                at: at.0.saturating_mul(PAGE),
                len: len as u64,
                bytes: self.pages * PAGE,
            }),
        }
    }

    /// Calls `act` with each pin that `len` bytes of the window from `at` on are in, where the bytes begin in
    /// it, and which they are.
    fn each_pin(
        &self,
        at: u64,
        len: usize,
        mut act: impl FnMut(&Pin, u64, std::ops::Range<usize>) -> amphi_vfs::Result<()>,
    ) -> Result<()> {
        let entries = self.entries.read();
        let mut done = 0;
        while done < len {
            let from = at + done as u64;
            let found = entries.iter().find(|(entry, _)| entry.has_byte_of(from, 1));
            let Some((entry, pin)) = found else {
                return Err(Error::OutOfRange {
                    what: "part of a file's window",
                    at: from,
                    len: 1,
                    bytes: 0,
                });
            };
            let within = from - entry.offset;
            let part = done..len.min(done + (entry.bytes() - within) as usize);
            act(pin, within, part.clone()).map_err(refused)?;
            done = part.end;
        }
        Ok(())
    }
}

impl<F: Extents + 'static, D: BaBuffer> Drop for PinnedFile<F, D> {
    fn drop(&mut self) {
        for (_, pin) in self.entries.write().drain(..) {
            // What cannot be written stays pinned, and the next mount brings it in place.
            let _stays = self.fs.unpin(pin.id, &Cred::ROOT);
        }
        FileSystem::release(&*self.fs, self.ino);
    }
}

impl<F: Extents + 'static, D: BaBuffer> Device for PinnedFile<F, D> {
    fn capacity_pages(&self) -> u64 {
        self.pages
    }

    fn contract(&self) -> DurabilityContract {
        DurabilityContract { block_durability: BlockDurability::Flush, ..self.fs.device().contract() }
    }
}

impl<F: Extents + 'static, D: BaBuffer> BlockPort for PinnedFile<F, D> {
    type Ticket<'a> = Done;

    fn submit_read<'a>(&'a self, at: Lpa, into: &'a mut [u8], _: Structure) -> Result<Done> {
        self.check_pages("read", at, into.len())?;
        let got = self.fs.read(self.ino, at.0 * PAGE, into, true).map_err(refused)?;
        if got < into.len() {
            return Err(Error::Image("the file was cut".to_owned()));
        }
        Ok(Done)
    }

    fn submit_write<'a>(&'a self, at: Lpa, bufs: &'a [&'a [u8]], _: Structure) -> Result<Done> {
        let data = bufs.concat();
        self.check_pages("write", at, data.len())?;
        let mode = WriteMode { direct: true, ..WriteMode::default() };
        self.fs.write(self.ino, at.0 * PAGE, &data, mode, &self.cred).map_err(refused)?;
        Ok(Done)
    }

    fn flush(&self) -> Result<()> {
        self.fs.fsync(self.ino, true).map_err(refused)
    }

    fn trim(&self, _: Lpa, _: u64) -> Result<()> {
        Err(Error::Unsupported("trimming pages of a file"))
    }
}

impl<F: Extents + 'static, D: BaBuffer> BytePort for PinnedFile<F, D> {
    fn bytes(&self) -> u64 {
        self.fs.device().bytes()
    }

    fn load(&self, at: u64, into: &mut [u8], _: Structure) -> Result<()> {
        self.each_pin(at, into.len(), |pin, within, part| {
            self.fs.load(pin.id, within, &mut into[part], &self.cred)
        })
    }

    fn load_dma(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        self.load(at, into, tag)
    }

    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, _: Structure) -> Result<()> {
        if tx.is_some() {
            return Err(Error::Unsupported("transactions"));
        }
        self.each_pin(at, data.len(), |pin, within, part| {
            self.fs.store(pin.id, within, &data[part], &self.cred)
        })
    }

    fn store_flushed(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        self.store(at, data, tx, tag)
    }

    /// Only [`BaBuffer::sync_entry`] makes stores durable here: the lines of a window that is spread over the
    /// real one have no common place to flush.
    fn flush_lines(&self, _: u64, _: usize) {}

    fn fence(&self) {
        self.fs.device().fence();
    }

    fn verify_read(&self) -> Result<()> {
        self.fs.device().verify_read()
    }
}

impl<F: Extents + 'static, D: BaBuffer> BaBuffer for PinnedFile<F, D> {
    fn ba_buffer(&self) -> Result<BaPromise> {
        self.fs.device().ba_buffer()
    }

    fn pin(&self, id: EntryId, offset: u64, at: Lpa, bytes: u64) -> Result<()> {
        let expected = "a multiple of 4096";
        if !offset.is_multiple_of(PAGE) {
            return Err(Error::Misaligned { what: "pin's place in the window", value: offset, expected });
        }
        self.check_pages("pin", at, usize::try_from(bytes).unwrap_or(0))?;
        let most = self.bytes();
        if bytes > most {
            return Err(PinError::TooLong { what: "pin", bytes, most }.into());
        }
        if offset > most - bytes {
            return Err(Error::OutOfRange { what: "pin", at: offset, len: bytes, bytes: most });
        }
        let mut entries = self.entries.write();
        for (entry, _) in &*entries {
            if entry.id == id {
                return Err(PinError::EntryInUse(id).into());
            }
            if entry.has_page_of(at, bytes / PAGE) {
                return Err(PinError::PagesOverlap(entry.id).into());
            }
            if entry.has_byte_of(offset, bytes) {
                return Err(PinError::WindowOverlap(entry.id).into());
            }
        }
        let pin = self.fs.pin(self.ino, at.0 * PAGE, bytes, &self.cred).map_err(refused)?;
        entries.push((Entry { id, offset, at, pages: bytes / PAGE }, pin));
        Ok(())
    }

    fn flush_entry(&self, id: EntryId) -> Result<()> {
        let mut entries = self.entries.write();
        let found = entries.iter().position(|(entry, _)| entry.id == id);
        let at = found.ok_or(PinError::NoSuchEntry(id))?;
        let unpinned = match self.fs.unpin(entries[at].1.id, &self.cred) {
            // Somebody else has ended it.
            Err(amphi_vfs::Error::NotFound) => Err(PinError::NoSuchEntry(id).into()),
            unpinned => unpinned.map_err(refused),
        };
        if !matches!(unpinned, Err(Error::Image(_) | Error::NoSpace(_))) {
            entries.swap_remove(at);
        }
        unpinned
    }

    fn sync_entry(&self, id: EntryId) -> Result<()> {
        let entries = self.entries.read();
        let found = entries.iter().find(|(entry, _)| entry.id == id);
        let (_, pin) = found.ok_or(PinError::NoSuchEntry(id))?;
        if planted::has(Bug::SyncOfFileForgotten) {
            return Ok(());
        }
        self.fs.sync_pin(pin.id, &self.cred).map_err(refused)
    }

    fn entry_info(&self, id: EntryId) -> Result<Entry> {
        let entries = self.entries.read();
        let found = entries.iter().find(|(entry, _)| entry.id == id).map(|(entry, _)| *entry);
        Ok(found.ok_or(PinError::NoSuchEntry(id))?)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.entries.read().iter().map(|(entry, _)| *entry).collect())
    }

    fn read_dma(&self, id: EntryId, into: &mut [u8], tag: Structure) -> Result<()> {
        let entry = self.entry_info(id)?;
        if into.len() as u64 > entry.bytes() {
            let (bytes, most) = (into.len() as u64, entry.bytes());
            return Err(PinError::TooLong { what: "read DMA", bytes, most }.into());
        }
        self.load(entry.offset, into, tag)
    }
}
