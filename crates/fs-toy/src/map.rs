//! What the toy keeps everything in: one map in host memory, changed by batches that take effect at once and
//! are durable then.

use std::collections::BTreeMap;
use std::ops::Bound;

use amphi_device::BlockPort;
use amphi_names::Child;
use amphi_rt::sync::RwLock;
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, FileType, Ino, Result};
use amphi_volume::io_error;
use serde::{Deserialize, Serialize};

use crate::kept::{child, kind, number, page};
use crate::log::Log;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// An inode.
    Inode(#[serde(with = "number")] Ino),
    /// The cookie of a directory's entry that has this name.
    Name(#[serde(with = "number")] Ino, Vec<u8>),
    /// The entry that has this cookie.
    Entry(#[serde(with = "number")] Ino, u64),
    /// A page of a file.
    Page(#[serde(with = "number")] Ino, u64),
    /// An inode without a name that was in use.
    Orphan(#[serde(with = "number")] Ino),
}

/// What is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Value {
    Inode(Box<Record>),
    Name(u64),
    Entry(Vec<u8>, #[serde(with = "child")] Child),
    Page(#[serde(with = "page")] Box<[u8; PAGE]>),
    Orphan,
}

/// An inode as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    #[serde(with = "kind")]
    pub file_type: FileType,
    #[serde(with = "number")]
    pub parent: Ino,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    /// Access, modification and change time.
    pub times: [i64; 3],
    pub generation: u32,
    pub rdev: u32,
    pub pages: u64,
    pub entries: u64,
    pub target: Vec<u8>,
    pub attributes: Attributes,
}

/// What a batch does with a key: sets it, or removes it.
pub type Update = (Key, Option<Value>);

/// Bytes that a half of the log keeps for what changes take before they ask again.
const ROOM_BYTES: u64 = 64 << 10;

/// The map.
pub struct Map<D>(RwLock<Inner<D>>);

struct Inner<D> {
    values: BTreeMap<Key, Value>,
    /// Bytes that the whole map takes in a record.
    bytes: u64,
    /// A batch is in memory whose record may not be on the device.
    failed: bool,
    log: Log<D>,
}

impl<D: BlockPort> Map<D> {
    /// The map that a log holds.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn recover(mut log: Log<D>) -> Result<Self> {
        let (mut values, mut bytes) = (BTreeMap::new(), 0);
        while let Some(record) = log.read().map_err(io_error)? {
            let updates: Vec<Update> = postcard::from_bytes(&record)
                .map_err(|_| Error::corrupt("log", None, "a record holds no updates"))?;
            bytes = apply_to(&mut values, bytes, updates);
        }
        Ok(Self(RwLock::new(Inner { values, bytes, failed: false, log })))
    }

    /// A map of this alone, at the start of a new log.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn format(log: Log<D>, updates: Vec<Update>) -> Result<()> {
        let mut values = BTreeMap::new();
        let bytes = apply_to(&mut values, 0, updates);
        let mut inner = Inner { values, bytes, failed: false, log };
        inner.begin_anew()
    }

    pub fn get<T>(&self, key: &Key, body: impl FnOnce(&Value) -> T) -> Option<T> {
        self.0.read().values.get(key).map(body)
    }

    /// Applies updates that take effect together, and makes them durable.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::ReadOnly`] from then on.
    pub fn apply(&self, updates: Vec<Update>) -> Result<()> {
        let inner = &mut *self.0.write();
        if inner.failed {
            return Err(Error::ReadOnly);
        }
        let record =
            postcard::to_stdvec(&updates).map_err(|_| Error::Invalid("updates cannot be written"))?;
        inner.bytes = apply_to(&mut inner.values, inner.bytes, updates);
        inner.failed = true;
        if !inner.log.append(&record).map_err(io_error)? {
            inner.begin_anew()?;
        }
        inner.failed = false;
        Ok(())
    }

    /// Calls `body` with what lies in `from ..= to` until it returns false.
    pub fn scan(&self, from: Key, to: Key, mut body: impl FnMut(&Key, &Value) -> bool) {
        for (key, value) in self.0.read().values.range((Bound::Included(from), Bound::Included(to))) {
            if !body(key, value) {
                return;
            }
        }
    }

    /// Pages that the map has room for, those in it included.
    pub fn pages_max(&self) -> u64 {
        let inner = self.0.read();
        (inner.log.record_bytes_max() / 2).saturating_sub(ROOM_BYTES) / (PAGE as u64 + 32)
    }

    /// Whether there is room for `bytes` more. Half of a half stays free, so that a log is not begun anew at
    /// every change.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let inner = self.0.read();
        inner.bytes + bytes + ROOM_BYTES <= inner.log.record_bytes_max() / 2
    }

    /// Reads or changes the superblock.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn with_superblock<T>(&self, body: impl FnOnce(&mut Log<D>) -> amphi_device::Result<T>) -> Result<T> {
        body(&mut self.0.write().log).map_err(io_error)
    }
}

impl<D: BlockPort> Inner<D> {
    fn begin_anew(&mut self) -> Result<()> {
        let whole: Vec<(&Key, Option<&Value>)> =
            self.values.iter().map(|(key, value)| (key, Some(value))).collect();
        let record = postcard::to_stdvec(&whole).map_err(|_| Error::Invalid("the map cannot be written"))?;
        self.log.begin_anew(&record).map_err(io_error)
    }
}

/// Applies updates to values that take `bytes`. Returns what they take then.
fn apply_to(values: &mut BTreeMap<Key, Value>, mut bytes: u64, updates: Vec<Update>) -> u64 {
    for (key, value) in updates {
        if let Some(value) = &value {
            bytes += bytes_of(&key, value);
        }
        let old = match value {
            Some(value) => values.insert(key.clone(), value),
            None => values.remove(&key),
        };
        if let Some(old) = old {
            bytes -= bytes_of(&key, &old);
        }
    }
    bytes
}

/// Bytes that an entry of the map takes in a record, about.
fn bytes_of(key: &Key, value: &Value) -> u64 {
    let name = if let Key::Name(_, name) = key { name.len() } else { 0 };
    let value = match value {
        Value::Inode(record) => {
            let list = record.attributes.iter().map(|(name, value)| name.len() + value.len() + 8);
            100 + record.target.len() + list.sum::<usize>()
        }
        Value::Entry(name, _) => 16 + name.len(),
        Value::Page(_) => PAGE + 8,
        Value::Name(_) | Value::Orphan => 16,
    };
    (24 + name + value) as u64
}
