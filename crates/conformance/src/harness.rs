//! What the cases are written in: short calls that must succeed, on a file system that tasks can share.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use amphi_vfs::{
    Attr, Cred, DirEntry, Entry, Error, FileSystem, FileType, Ino, Name, Result, SetAttr, WriteMode,
};

/// A file system under test. It dereferences to the trait; its own methods must succeed or fail the case.
#[derive(Clone)]
pub struct Fs(Arc<dyn FileSystem>);

/// A caller without privileges.
pub(crate) const USER: Cred = Cred::user(1000, 1001);

/// The message of a panic.
pub(crate) fn message(cause: &(dyn Any + Send)) -> String {
    cause
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panicked without a message".to_owned())
}

/// A checked name.
pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("the case uses valid names")
}

impl Deref for Fs {
    type Target = dyn FileSystem;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fs")
    }
}

impl Fs {
    /// Wraps a file system.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self(fs)
    }

    /// The file system, for what wraps one.
    pub(crate) fn clone_shared(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.0)
    }

    /// Creates a regular file with mode `0644`, owned by the superuser, and keeps the reference.
    pub(crate) fn file(&self, dir: Ino, text: &str) -> Ino {
        let made = self.create(dir, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        made.unwrap_or_else(|error| panic!("create {text}: {error}")).attr.ino
    }

    /// Creates a directory with mode `0755`, owned by the superuser, and keeps the reference.
    pub(crate) fn dir(&self, dir: Ino, text: &str) -> Ino {
        let made = self.mkdir(dir, name(text), 0o755, &Cred::ROOT);
        made.unwrap_or_else(|error| panic!("mkdir {text}: {error}")).attr.ino
    }

    /// Finds a name without keeping a reference.
    pub(crate) fn find(&self, dir: Ino, text: &str) -> Result<Attr> {
        let Entry { attr } = self.lookup(dir, name(text))?;
        self.forget(attr.ino, 1);
        Ok(attr)
    }

    pub(crate) fn attr(&self, ino: Ino) -> Attr {
        self.getattr(ino).unwrap_or_else(|error| panic!("getattr of inode {}: {error}", ino.0))
    }

    pub(crate) fn put(&self, ino: Ino, offset: u64, data: &[u8]) {
        let written = self.write(ino, offset, data, WriteMode::default(), &Cred::ROOT);
        assert_eq!(written, Ok(data.len()), "write of {} bytes at {offset}", data.len());
    }

    pub(crate) fn get(&self, ino: Ino, offset: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0xAA; length];
        let read = self.read(ino, offset, &mut data, false);
        data.truncate(read.unwrap_or_else(|error| panic!("read at {offset}: {error}")));
        data
    }

    pub(crate) fn change(&self, ino: Ino, change: &SetAttr) -> Attr {
        self.setattr(ino, change, &Cred::ROOT).unwrap_or_else(|error| panic!("setattr {change:?}: {error}"))
    }

    pub(crate) fn resize(&self, ino: Ino, size: u64) -> Attr {
        self.change(ino, &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Names and types in listing order, with `.` and `..`, fetched `step` at a time.
    pub(crate) fn list(&self, dir: Ino, step: usize) -> Result<Vec<(Vec<u8>, FileType, Ino)>> {
        list(&**self, dir, step)
    }

    /// Names without `.` and `..`, sorted.
    pub(crate) fn names(&self, dir: Ino) -> Vec<String> {
        let listed = self.list(dir, 1000).unwrap_or_else(|error| panic!("readdir: {error}"));
        let mut names: Vec<String> =
            listed.into_iter().map(|(name, ..)| String::from_utf8_lossy(&name).into_owned()).collect();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }

    /// Whether an inode is gone: it answers neither attributes nor anything else.
    pub(crate) fn is_gone(&self, ino: Ino) -> bool {
        matches!(self.getattr(ino), Err(Error::NotFound | Error::Stale(_)))
    }
}

/// As [`Fs::list`], of any file system.
pub(crate) fn list(fs: &dyn FileSystem, dir: Ino, step: usize) -> Result<Vec<(Vec<u8>, FileType, Ino)>> {
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let before = all.len();
        fs.readdir(dir, cookie, &mut |entry: DirEntry<'_>| {
            if all.len() == before + step {
                return false;
            }
            all.push((entry.name.to_vec(), entry.file_type, entry.ino));
            cookie = entry.next_cookie;
            true
        })?;
        if all.len() == before {
            return Ok(all);
        }
    }
}
