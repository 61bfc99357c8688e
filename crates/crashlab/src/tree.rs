//! The tree of a file system as plain data: everything a user could see of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_vfs::{Error, FileSystem, FileType, Ino, Name};

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Type.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: u16,
    /// Number of names.
    pub nlink: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Device number.
    pub rdev: u32,
    /// Access, modification and change time, ns since 1970.
    pub times: [i64; 3],
    /// Extended attributes, by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// File contents, or what a symbolic link holds.
    pub data: Arc<Vec<u8>>,
}

/// All names of a file system, and what they name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree {
    /// Inode numbers, by path; the root is `.`.
    pub names: BTreeMap<String, u64>,
    /// Files, by inode number.
    pub nodes: BTreeMap<u64, Node>,
}

/// Why a tree could not be read.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Of which file or directory.
    pub path: String,
    /// In words.
    pub what: String,
    /// What the file system answered, unless that is what cannot be.
    pub error: Option<Error>,
}

impl Unread {
    fn answer(path: &str, what: &str, error: Error) -> Self {
        Self { path: path.to_owned(), what: format!("{path}: {what}: {error}"), error: Some(error) }
    }

    fn found(path: &str, what: &str) -> Self {
        Self { path: path.to_owned(), what: format!("{path}: {what}"), error: None }
    }
}

fn node(fs: &dyn FileSystem, ino: Ino, path: &str) -> Result<Node, Unread> {
    let failed = |what: &str, error| Unread::answer(path, what, error);
    let attr = fs.getattr(ino).map_err(|error| failed("its attributes cannot be read", error))?;
    let data = match attr.file_type {
        FileType::Regular => {
            let mut data = vec![0; attr.size as usize];
            let read = fs.read(ino, 0, &mut data, false).map_err(|error| failed("cannot be read", error))?;
            if read != data.len() {
                return Err(Unread::found(path, &format!("{read} of its {} bytes can be read", data.len())));
            }
            data
        }
        FileType::Symlink => fs.readlink(ino).map_err(|error| failed("its target cannot be read", error))?,
        _ => Vec::new(),
    };
    let keys =
        fs.listxattr(ino).map_err(|error| failed("its extended attributes cannot be listed", error))?;
    let mut xattrs = BTreeMap::new();
    for key in keys {
        let value =
            fs.getxattr(ino, &key).map_err(|error| failed("an extended attribute cannot be read", error))?;
        xattrs.insert(key, value);
    }
    Ok(Node {
        file_type: attr.file_type,
        mode: attr.mode,
        nlink: attr.nlink,
        owner: (attr.uid, attr.gid),
        rdev: attr.rdev,
        times: [attr.atime.ns, attr.mtime.ns, attr.ctime.ns],
        xattrs,
        data: Arc::new(data),
    })
}

impl Tree {
    /// Walks everything below the root, reading every byte and every attribute.
    ///
    /// # Errors
    /// What cannot be listed, looked up or read, in words.
    pub fn of(fs: &dyn FileSystem) -> Result<Self, String> {
        Self::read(fs).map_err(|unread| unread.what)
    }

    /// As [`of`](Self::of), with what the file system answered.
    ///
    /// # Errors
    /// As there.
    pub fn read(fs: &dyn FileSystem) -> Result<Self, Unread> {
        let mut tree = Self::default();
        tree.names.insert(".".to_owned(), Ino::ROOT.0);
        tree.nodes.insert(Ino::ROOT.0, node(fs, Ino::ROOT, ".")?);
        let mut left = vec![(Ino::ROOT, String::new())];
        while let Some((dir, prefix)) = left.pop() {
            let directory = if prefix.is_empty() { "." } else { prefix.trim_end_matches('/') }.to_owned();
            let mut names = Vec::new();
            fs.readdir(dir, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                true
            })
            .map_err(|error| Unread::answer(&directory, "cannot be listed", error))?;
            for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
                let path = format!("{prefix}{}", String::from_utf8_lossy(&name));
                let checked = Name::new(&name).map_err(|error| Unread::found(&path, &error.to_string()))?;
                let entry = fs
                    .lookup(dir, checked)
                    .map_err(|error| Unread::answer(&path, "cannot be looked up", error))?;
                let ino = entry.attr.ino;
                if entry.attr.file_type == FileType::Directory {
                    left.push((ino, format!("{path}/")));
                }
                if let std::collections::btree_map::Entry::Vacant(place) = tree.nodes.entry(ino.0) {
                    place.insert(node(fs, ino, &path)?);
                }
                fs.forget(ino, 1);
                if tree.names.insert(path.clone(), ino.0).is_some() {
                    return Err(Unread::found(&path, "is listed twice"));
                }
            }
        }
        Ok(tree)
    }

    /// The file that a path names.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(self.names.get(path)?)
    }

    /// The paths of each file, for those that have several.
    #[must_use]
    pub fn families(&self) -> Vec<Vec<&str>> {
        let mut by_ino: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for (path, ino) in &self.names {
            by_ino.entry(*ino).or_default().push(path);
        }
        let mut families: Vec<Vec<&str>> = by_ino.into_values().filter(|paths| paths.len() > 1).collect();
        families.sort();
        families
    }
}
