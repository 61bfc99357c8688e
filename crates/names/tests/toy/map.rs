//! What the toy keeps everything in: one map in memory, changed by batches that take effect at once.

use std::collections::BTreeMap;
use std::ops::Bound;

use amphi_names::Child;
use amphi_rt::sync::RwLock;
use amphi_vfs::acl::Attributes;
use amphi_vfs::{FileType, Ino};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An inode.
    Inode(Ino),
    /// The cookie of a directory's entry that has this name.
    Name(Ino, Vec<u8>),
    /// The entry that has this cookie.
    Entry(Ino, u64),
    /// A page of a file.
    Page(Ino, u64),
    /// An inode without a name that was in use.
    Orphan(Ino),
}

/// What is there.
#[derive(Clone, Debug)]
pub enum Value {
    Inode(Box<Record>),
    Name(u64),
    Entry(Vec<u8>, Child),
    Page(Box<[u8; PAGE]>),
    Orphan,
}

/// An inode as it is kept.
#[derive(Clone, Debug)]
pub struct Record {
    pub file_type: FileType,
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

/// The map.
#[derive(Default)]
pub struct Map(RwLock<BTreeMap<Key, Value>>);

impl Map {
    pub fn get<T>(&self, key: &Key, body: impl FnOnce(&Value) -> T) -> Option<T> {
        self.0.read().get(key).map(body)
    }

    pub fn apply(&self, updates: impl IntoIterator<Item = Update>) {
        let mut map = self.0.write();
        for (key, value) in updates {
            match value {
                Some(value) => drop(map.insert(key, value)),
                None => drop(map.remove(&key)),
            }
        }
    }

    /// Calls `body` with what lies in `from ..= to` until it returns false.
    pub fn scan(&self, from: Key, to: Key, mut body: impl FnMut(&Key, &Value) -> bool) {
        for (key, value) in self.0.read().range((Bound::Included(from), Bound::Included(to))) {
            if !body(key, value) {
                return;
            }
        }
    }

    /// Changes the bytes of a page, which may be a hole.
    pub fn edit(&self, ino: Ino, page: u64, body: impl FnOnce(&mut [u8; PAGE])) {
        let mut map = self.0.write();
        let hole = || Value::Page(Box::new([0; PAGE]));
        if let Value::Page(bytes) = map.entry(Key::Page(ino, page)).or_insert_with(hole) {
            body(bytes);
        }
    }
}
