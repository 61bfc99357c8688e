//! MetaDB as the file system uses it (AU-3): records by key, batches, and its errors as the file system's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::{Batch, Store};
use amphi_vfs::{Error, Failure, Result};
use amphi_volume::io_error;

pub use amphi_segments::damaged;

use crate::format::{EntryRecord, Key, decode_entry, key, prefix_end};

/// The metadata store.
pub struct Meta<D: BlockPort + MemoryArea + 'static> {
    store: Store<D>,
    /// Whether something may be in tables that nobody sees any more.
    garbage: AtomicBool,
}

/// An error of the metadata store as the file system's.
pub fn meta_error(error: amphi_lsm::Error) -> Error {
    match error {
        amphi_lsm::Error::Damaged { what, at } => Error::corrupt("metadata store", at, what),
        amphi_lsm::Error::Device(error) => io_error(error),
        amphi_lsm::Error::NoSpace(_) => Error::NoSpace,
        error @ (amphi_lsm::Error::Place(_) | amphi_lsm::Error::TooLarge { .. }) => {
            Error::Io(Failure::Refused(error.to_string()))
        }
    }
}

impl<D: BlockPort + MemoryArea> Meta<D> {
    /// That in an opened store.
    pub const fn new(store: Store<D>) -> Self {
        Self { store, garbage: AtomicBool::new(true) }
    }

    /// The store on a device.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(device: &Arc<D>, first: u64, options: amphi_lsm::Options) -> Result<Self> {
        Store::open(Arc::clone(device), amphi_device::Lpa(first), options).map(Self::new).map_err(meta_error)
    }

    /// Whether attributes may come no more: tables take more than a quarter of their area. With memtables
    /// that are on their way it may become three eighths, and while all are merged they are there twice.
    pub fn is_short(&self) -> bool {
        let (taken, all) = self.store.table_pages();
        4 * taken > all
    }

    /// Notes that something is superfluous that tables may have.
    pub fn note_garbage(&self) {
        self.garbage.store(true, Release);
    }

    /// Merges all tables, if that may help. Returns whether there is room now.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn make_room(&self) -> Result<bool> {
        if !self.is_short() || !self.garbage.swap(false, AcqRel) {
            return Ok(false);
        }
        self.store.merge_all().map_err(meta_error)?;
        Ok(!self.is_short())
    }

    /// The value under a key.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn get(&self, of: Key<'_>) -> Result<Option<Vec<u8>>> {
        self.store.get(&key(of)).map_err(meta_error)
    }

    /// What stands under an entry's or an inode's key.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn entry(&self, of: Key<'_>) -> Result<Option<EntryRecord>> {
        let Some(value) = self.get(of)? else { return Ok(None) };
        let decoded = decode_entry(&value)
            .ok_or_else(|| Error::corrupt("metadata store", None, format!("{of:?} has a wrong value")));
        decoded.map(Some)
    }

    /// Makes a batch durable, all or nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.store.write(batch).map_err(meta_error)
    }

    /// Calls `visit` with all keys from `from` on that begin with `prefix`, until it says no.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], and what `visit` says.
    pub fn visit(
        &self,
        prefix: &[u8],
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        for found in self.store.range(from, Some(&prefix_end(prefix))).map_err(meta_error)? {
            let (key, value) = found.map_err(meta_error)?;
            if !visit(&key, &value)? {
                break;
            }
        }
        Ok(())
    }
}

/// Puts a value into a batch.
///
/// # Errors
/// [`Error::Io`] for one that is too large.
pub fn put(batch: &mut Batch, of: Key<'_>, value: &[u8]) -> Result<()> {
    batch.put(&key(of), value).map_err(meta_error)
}

/// Has a batch delete a key.
///
/// # Errors
/// As for [`put`].
pub fn delete(batch: &mut Batch, of: Key<'_>) -> Result<()> {
    batch.delete(&key(of)).map_err(meta_error)
}
