//! A key-value store for any number of tasks: `rusty-leveldb`'s under one lock, with processor time charged
//! for what it does.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use amphi_rt::cpu;
use amphi_rt::sync::Mutex;
use rusty_leveldb::{DB, LdbIterator, Options, Status, WriteBatch};
use serde::{Deserialize, Serialize};

use super::FilesEnv;
use super::order::ByBytes;
use crate::files::Files;

/// The store failed: what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Its own words.
    #[error("the key-value store failed: {0}")]
    Failed(String),
    /// It does not know a key that was put there.
    #[error("the key-value store lost the key {0}")]
    Lost(String),
}

impl From<Status> for StoreError {
    fn from(status: Status) -> Self {
        Self::Failed(status.err)
    }
}

/// How the store is set up. The names are LevelDB's and RocksDB's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    /// A memory table of so many bytes becomes a table file.
    pub write_buffer_bytes: usize,
    /// Size of the table files that compactions make.
    pub file_bytes: usize,
    /// Cache of blocks of tables in the store, above the file system's page cache.
    pub block_cache_bytes: usize,
    /// Size of a table's blocks.
    pub block_bytes: usize,
}

/// What the store's own work costs the host's processors in virtual time, besides the calls that it makes to
/// the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreCosts {
    /// Finding a key, ns.
    pub get_ns: u64,
    /// Putting a record into the log's buffer and the memory table, ns.
    pub put_ns: u64,
    /// Positioning an iterator, ns.
    pub seek_ns: u64,
    /// Each record that an iterator passes, ns.
    pub next_ns: u64,
    /// Making a table, picoseconds a byte.
    pub table_ps_per_byte: u64,
}

/// The store.
pub struct Store {
    db: Mutex<DB>,
    costs: StoreCosts,
}

impl Store {
    /// Opens the store in a directory of `files`; makes it if there is none.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(
        files: Arc<dyn Files>,
        directory: &str,
        settings: &StoreSettings,
        costs: StoreCosts,
    ) -> Result<Self, StoreError> {
        let env = FilesEnv::new(files, costs.table_ps_per_byte);
        let options = Options {
            cmp: Rc::new(Box::new(ByBytes)),
            env: Rc::new(Box::new(env)),
            // Its diary of compactions would be some writes of a few bytes each, for nobody to read.
            log: Some(Rc::new(std::cell::RefCell::new(rusty_leveldb::infolog::Logger(Box::new(io::sink()))))),
            write_buffer_size: settings.write_buffer_bytes,
            max_file_size: settings.file_bytes,
            block_cache_capacity_bytes: settings.block_cache_bytes,
            block_size: settings.block_bytes,
            ..Options::default()
        };
        Ok(Self { db: Mutex::new(DB::open(FilesEnv::name(directory), options)?), costs })
    }

    /// The value of `key`, if it has one.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut db = self.db.lock();
        cpu::charge_ns(self.costs.get_ns);
        // The store's own may lie in a block that it keeps, and is for who holds the lock.
        db.get(key).map(Vec::from)
    }

    /// Gives `key` a value; with `sync` it is durable on return.
    ///
    /// # Errors
    /// What the store says.
    pub fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        batch.put(key, value);
        let mut db = self.db.lock();
        cpu::charge_ns(self.costs.put_ns);
        Ok(db.write(batch, sync)?)
    }

    /// Passes up to `count` records from `key` on, in the order of their keys; how many there were.
    ///
    /// # Errors
    /// What the store says.
    pub fn scan(&self, key: &[u8], count: u64) -> Result<u64, StoreError> {
        let mut db = self.db.lock();
        cpu::charge_ns(self.costs.seek_ns);
        let mut records = db.new_iter()?;
        records.seek(key);
        let mut passed = 0;
        // The iterator holds the record that it stands on, and would hand out a copy.
        while passed < count && records.valid() {
            cpu::charge_ns(self.costs.next_ns);
            passed += 1;
            if passed < count {
                records.advance();
            }
        }
        Ok(passed)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// What the store says.
    pub fn sync(&self) -> Result<(), StoreError> {
        Ok(self.db.lock().flush()?)
    }
}
