//! What must be on a mount after a crash: the record of one worker's acknowledged operations, and the
//! comparison with what is there.
//!
//! The promise checked is ByteFS's: a namespace or attribute operation that returned is there, one in flight
//! is there or not; of a file's bytes, those of the last `fsync` and of writes since, in any mixture; its
//! length between both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A regular file, whatever its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The bytes that must be there.
    durable: Vec<u8>,
    /// Writes since the last `fsync`: offset and bytes, oldest first.
    pending: Vec<(usize, Vec<u8>)>,
    /// Permission bits.
    pub mode: u32,
}

impl File {
    /// A new file.
    pub fn empty(mode: u32) -> Self {
        Self { durable: Vec::new(), pending: Vec::new(), mode }
    }

    /// Length now.
    pub fn len(&self) -> usize {
        self.pending.iter().map(|(offset, bytes)| offset + bytes.len()).fold(self.durable.len(), usize::max)
    }

    /// Whether there are bytes, and all of them must be there.
    pub fn is_synced(&self) -> bool {
        self.pending.is_empty() && !self.durable.is_empty()
    }

    /// A write that is not yet synced.
    pub fn write(&mut self, offset: usize, bytes: Vec<u8>) {
        self.pending.push((offset, bytes));
    }

    /// A completed `fsync`.
    pub fn sync(&mut self) {
        let len = self.len();
        self.durable.resize(len, 0);
        for (offset, bytes) in self.pending.drain(..) {
            self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// A completed truncation: the length is metadata and durable at once.
    pub fn truncate(&mut self, len: usize) {
        self.durable.resize(len, 0);
        self.pending.retain(|(offset, _)| *offset < len);
        for (offset, bytes) in &mut self.pending {
            bytes.truncate(len - *offset);
        }
    }

    /// Compares with the bytes found after a crash.
    fn compare(&self, found: &[u8]) -> Result<(), String> {
        if found.len() < self.durable.len() || found.len() > self.len() {
            return Err(format!(
                "has {} bytes, should have {} to {}",
                found.len(),
                self.durable.len(),
                self.len()
            ));
        }
        for (at, &byte) in found.iter().enumerate() {
            let durable = self.durable.get(at).copied().unwrap_or(0);
            let written = |(offset, bytes): &(usize, Vec<u8>)| {
                at.checked_sub(*offset).and_then(|index| bytes.get(index)) == Some(&byte)
            };
            if byte != durable && !self.pending.iter().any(written) {
                return Err(format!(
                    "byte {at} is {byte:#04x}, which was never there (synced: {durable:#04x})"
                ));
            }
        }
        Ok(())
    }
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// A regular file, by its number in [`Tree::files`].
    File(usize),
    /// A symbolic link.
    Symlink(PathBuf),
}

/// One worker's directory.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Paths relative to the worker's directory.
    pub names: BTreeMap<PathBuf, Node>,
    /// Files by number. Those without a name left stay, unused.
    pub files: Vec<File>,
}

impl Tree {
    /// Compares with the directory `root` found after a crash.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn compare(&self, root: &Path) -> Result<(), String> {
        let found = listing(root).map_err(|error| format!("{} cannot be listed: {error}", root.display()))?;
        let expected: BTreeSet<PathBuf> = self.names.keys().cloned().collect();
        if let Some(lost) = expected.difference(&found).next() {
            return Err(format!("{} was acknowledged and is lost", lost.display()));
        }
        if let Some(extra) = found.difference(&expected).next() {
            return Err(format!("{} is there and should not be", extra.display()));
        }
        let mut inodes = BTreeMap::new();
        for (name, node) in &self.names {
            let path = root.join(name);
            self.compare_node(node, &path, &mut inodes)
                .map_err(|reason| format!("{}: {reason}", name.display()))?;
        }
        Ok(())
    }

    fn compare_node(
        &self,
        node: &Node,
        path: &Path,
        inodes: &mut BTreeMap<usize, u64>,
    ) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let metadata = fs::symlink_metadata(path).map_err(text)?;
        match node {
            Node::Directory if metadata.is_dir() => Ok(()),
            Node::Symlink(target) if metadata.is_symlink() => {
                let found = fs::read_link(path).map_err(text)?;
                if &found == target { Ok(()) } else { Err(format!("points to {}", found.display())) }
            }
            Node::File(number) if metadata.is_file() => {
                let file = &self.files[*number];
                let links = self.names.values().filter(|other| *other == node).count() as u64;
                if metadata.nlink() != links {
                    return Err(format!("has {} links, should have {links}", metadata.nlink()));
                }
                if *inodes.entry(*number).or_insert(metadata.ino()) != metadata.ino() {
                    return Err("is no longer the same file as its other name".to_owned());
                }
                let mode = metadata.permissions().mode() & 0o7777;
                if mode != file.mode {
                    return Err(format!("has mode {mode:o}, should have {:o}", file.mode));
                }
                let mut bytes = vec![0; metadata.len() as usize];
                let opened = fs::File::open(path).map_err(text)?;
                opened.read_exact_at(&mut bytes, 0).map_err(text)?;
                file.compare(&bytes)
            }
            _ => Err("is of another type".to_owned()),
        }
    }

    /// Takes what is there as what must be there from now on: after a mount nothing waits to be written.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn adopt(&mut self, root: &Path) -> Result<(), String> {
        for (name, node) in &self.names {
            if let Node::File(number) = node {
                let bytes =
                    fs::read(root.join(name)).map_err(|error| format!("{}: {error}", name.display()))?;
                let file = &mut self.files[*number];
                file.durable = bytes;
                file.pending.clear();
            }
        }
        Ok(())
    }
}

/// All paths below `root`, relative to it.
fn listing(root: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
            paths.insert(entry.path().strip_prefix(root).expect("below the root").to_owned());
        }
    }
    Ok(paths)
}
