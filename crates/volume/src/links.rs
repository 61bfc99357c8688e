//! What a check counts of names: how many lead to an inode, and where its directory is.

use std::collections::BTreeMap;

use amphi_vfs::{FileType, Ino};

/// What is counted of an inode.
#[derive(Default)]
struct Seen {
    /// Type, links, and a directory's parent.
    there: Option<(FileType, u32, Ino)>,
    /// Names that lead to it, and the directory of the last.
    names: u32,
    named_in: Option<Ino>,
    /// Directories in it.
    directories: u32,
}

/// Inodes, and the names that lead to them.
#[derive(Default)]
pub struct Links(BTreeMap<Ino, Seen>);

impl Links {
    /// An inode is there, with what it says of itself. The parent of what is no directory says nothing.
    pub fn inode(&mut self, ino: Ino, file_type: FileType, nlink: u32, parent: Ino) {
        self.0.entry(ino).or_default().there = Some((file_type, nlink, parent));
    }

    /// A directory names an inode.
    pub fn name(&mut self, dir: Ino, child: Ino, is_dir: bool) {
        self.0.entry(dir).or_default().directories += u32::from(is_dir);
        let child = self.0.entry(child).or_default();
        child.names += 1;
        child.named_in = Some(dir);
    }

    /// How many inodes are there, or are named.
    #[must_use]
    pub fn inodes(&self) -> usize {
        self.0.len()
    }

    /// How many of a type are there.
    #[must_use]
    pub fn count(&self, wanted: FileType) -> u64 {
        let of = |seen: &&Seen| seen.there.is_some_and(|(file_type, ..)| file_type == wanted);
        self.0.values().filter(of).count() as u64
    }

    /// Calls `wrong` with each inode that says otherwise than its names do, and with what is wrong.
    pub fn judge(&self, mut wrong: impl FnMut(Ino, String)) {
        let root = self.0.get(&Ino::ROOT).and_then(|root| root.there);
        if root.is_none_or(|(file_type, ..)| file_type != FileType::Directory) {
            wrong(Ino::ROOT, "there is no root".to_owned());
        }
        for (ino, seen) in &self.0 {
            judge(*ino, seen, |what| wrong(*ino, what));
        }
    }
}

fn judge(ino: Ino, seen: &Seen, mut wrong: impl FnMut(String)) {
    let number = ino.0;
    let Some((file_type, nlink, parent)) = seen.there else {
        wrong(format!("inode {number} is referred to and is not there"));
        return;
    };
    let is_dir = file_type == FileType::Directory;
    let is_root = ino == Ino::ROOT;
    let links = match (is_dir, is_root || seen.names > 0) {
        (true, true) => 2 + seen.directories,
        (true, false) => 0,
        (false, _) => seen.names,
    };
    if nlink != links {
        wrong(format!("inode {number} counts {nlink} links and has {links}"));
    }
    if is_dir && seen.names + u32::from(is_root) > 1 {
        wrong(format!("directory {number} has several names"));
    }
    if is_dir && !is_root && seen.names > 0 && seen.named_in != Some(parent) {
        wrong(format!("directory {number} is not in its parent {}", parent.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(fill: impl FnOnce(&mut Links)) -> Vec<String> {
        let mut links = Links::default();
        links.inode(Ino::ROOT, FileType::Directory, 3, Ino::ROOT);
        links.name(Ino::ROOT, Ino(2), true);
        fill(&mut links);
        let mut found = Vec::new();
        links.judge(|_, what| found.push(what));
        found
    }

    #[test]
    fn names_and_links_agree_or_it_is_said() {
        let dir = |links: &mut Links, parent| links.inode(Ino(2), FileType::Directory, 2, parent);
        assert!(findings(|links| dir(links, Ino::ROOT)).is_empty());
        assert_eq!(findings(|links| dir(links, Ino(9))), ["directory 2 is not in its parent 9"]);
        assert_eq!(findings(|_| {}), ["inode 2 is referred to and is not there"]);
        let twice = |links: &mut Links| {
            dir(links, Ino(2));
            links.name(Ino(2), Ino(2), true);
        };
        let wanted = ["inode 2 counts 2 links and has 3", "directory 2 has several names"];
        assert_eq!(findings(twice), wanted);
    }
}
