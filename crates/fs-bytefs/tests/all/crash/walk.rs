//! The tree of a file system as plain data, to compare what a crash left with what was promised.

use std::collections::{BTreeMap, BTreeSet};

use amphi_vfs::{FileSystem, FileType, Ino, Name, Seek};

/// What is known of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Inode number: names of one file share it.
    pub ino: u64,
    /// Type.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: u16,
    /// Names.
    pub nlink: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Symlink target or file contents.
    pub data: Vec<u8>,
}

/// Every name of a file system, by path.
pub type Tree = BTreeMap<String, Seen>;

/// Walks everything below the root, reading every byte.
///
/// # Panics
/// If anything cannot be read: after a crash, everything there is must be whole.
pub fn walk(fs: &dyn FileSystem) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![(Ino::ROOT, String::new())];
    while let Some((dir, prefix)) = left.pop() {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap_or_else(|error| panic!("directory {prefix:?} cannot be listed: {error}"));
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            let path = format!("{prefix}/{}", String::from_utf8_lossy(&name));
            let name = Name::new(&name).expect("a listed name is valid");
            let attr = fs
                .lookup(dir, name)
                .unwrap_or_else(|error| panic!("{path} cannot be looked up: {error}"))
                .attr;
            let data = match attr.file_type {
                FileType::Regular => {
                    let mut data = vec![0; attr.size as usize];
                    let read = fs.read(attr.ino, 0, &mut data, false);
                    assert_eq!(read, Ok(data.len()), "{path} can be read to its end");
                    if !data.is_empty() {
                        fs.seek(attr.ino, 0, Seek::Hole).unwrap_or_else(|error| panic!("{path}: {error}"));
                    }
                    data
                }
                FileType::Symlink => fs.readlink(attr.ino).unwrap_or_else(|error| panic!("{path}: {error}")),
                FileType::Directory => {
                    left.push((attr.ino, path.clone()));
                    Vec::new()
                }
                _ => Vec::new(),
            };
            let keys = fs.listxattr(attr.ino).unwrap_or_else(|error| panic!("{path}: {error}"));
            let value =
                |key: &[u8]| fs.getxattr(attr.ino, key).unwrap_or_else(|error| panic!("{path}: {error}"));
            let xattrs = keys.into_iter().map(|key| (key.clone(), value(&key))).collect();
            fs.forget(attr.ino, 1);
            let seen = Seen {
                ino: attr.ino.0,
                file_type: attr.file_type,
                mode: attr.mode,
                nlink: attr.nlink,
                xattrs,
                data,
            };
            tree.insert(path, seen);
        }
    }
    tree
}

/// How `found` differs from `promised`; nothing if it does not. Contents of the files in `unsynced` (inode
/// numbers of `promised`) may be anything.
pub fn difference(found: &Tree, promised: &Tree, unsynced: &BTreeSet<u64>) -> Option<String> {
    for path in promised.keys().chain(found.keys()) {
        let (Some(there), Some(due)) = (found.get(path), promised.get(path)) else {
            let which = if found.contains_key(path) { "should not be there" } else { "is missing" };
            return Some(format!("{path} {which}"));
        };
        if (there.file_type, there.mode, there.nlink) != (due.file_type, due.mode, due.nlink) {
            return Some(format!(
                "{path} is {:?} {:o} with {} names, not {:?} {:o} with {}",
                there.file_type, there.mode, there.nlink, due.file_type, due.mode, due.nlink
            ));
        }
        if there.xattrs != due.xattrs {
            return Some(format!("{path} has other extended attributes than it should"));
        }
        if unsynced.contains(&due.ino) || there.data == due.data {
            continue;
        }
        let at = there.data.iter().zip(&due.data).take_while(|(a, b)| a == b).count();
        return Some(format!(
            "{path} has {} bytes, not {}, and differs from byte {at}",
            there.data.len(),
            due.data.len()
        ));
    }
    let families = |tree: &Tree| {
        let mut by_ino: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (path, seen) in tree {
            by_ino.entry(seen.ino).or_default().push(path.clone());
        }
        by_ino.into_values().collect::<BTreeSet<_>>()
    };
    (families(found) != families(promised)).then(|| "other names share a file than should".to_owned())
}
