//! Third pass: connectivity and link counts. Every inode in use is reached from the root or waits in the
//! orphan table, directories form a tree whose parent pointers are right, and link counts are what the
//! entries say.

use super::finding::FindingKind;
use super::state::{InodeState, State};
use crate::format::{ROOT_INO, mode};

/// What is known about a directory's path to the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Unknown,
    /// On the path being followed.
    Followed,
    /// Ends at the root, or at a directory without a parent.
    Ends,
}

/// Compares names, parents and link counts.
pub(super) fn check_links(state: &mut State) {
    check_parents(state);
    check_cycles(state);
    let State { inodes, findings, dirs, .. } = state;
    for (ino, known) in inodes.in_use() {
        if known.unreadable() {
            continue;
        }
        let nameless = if known.is_directory() {
            ino != ROOT_INO && dirs[known.dir as usize].found.dir == 0
        } else {
            known.names == 0
        };
        if nameless {
            if known.nlink > 0 {
                findings.add(FindingKind::InodeUnreachable { ino, what: type_name(known) });
            } else if !known.orphan() {
                findings.add(FindingKind::OrphanNotInTable { ino });
            }
            let entries = if known.is_directory() { dirs[known.dir as usize].entries } else { 0 };
            if known.nlink == 0 && entries > 0 {
                findings.add(FindingKind::OrphanDirectoryNotEmpty { ino, entries });
            }
            continue;
        }
        let actual = if known.is_directory() { 2 + dirs[known.dir as usize].subdirs } else { known.names };
        if known.nlink != actual {
            findings.add(FindingKind::LinkCountWrong { ino, stored: known.nlink, actual });
        }
    }
}

/// Counts subdirectories and compares parent pointers.
fn check_parents(state: &mut State) {
    for index in 0..state.dirs.len() {
        let dir = state.dirs[index];
        let actual = if dir.ino == ROOT_INO { ROOT_INO } else { dir.found.dir };
        if actual == 0 {
            continue;
        }
        if dir.parent_stored != actual {
            let stored = dir.parent_stored;
            state.findings.add(FindingKind::DirectoryParentWrong { ino: dir.ino, stored, actual });
        }
        if dir.ino != ROOT_INO {
            let parent = state.inodes.get(actual).dir as usize;
            state.dirs[parent].subdirs += 1;
        }
    }
}

/// Follows every directory's parents until they end; a path that meets itself is a cycle.
fn check_cycles(state: &mut State) {
    let mut known = vec![Path::Unknown; state.dirs.len()];
    let mut path = Vec::new();
    for start in 0..state.dirs.len() {
        let mut at = start;
        while known[at] == Path::Unknown {
            known[at] = Path::Followed;
            path.push(at);
            let dir = state.dirs[at];
            if dir.ino == ROOT_INO || dir.found.dir == 0 {
                break;
            }
            at = state.inodes.get(dir.found.dir).dir as usize;
            if known[at] == Path::Followed {
                state.findings.add(FindingKind::DirectoryCycle { ino: state.dirs[at].ino });
            }
        }
        for dir in path.drain(..) {
            known[dir] = Path::Ends;
        }
    }
}

/// An inode's type in words.
const fn type_name(known: InodeState) -> &'static str {
    match (known.kind as u16) << 12 {
        mode::REGULAR => "a file",
        mode::DIRECTORY => "a directory",
        mode::SYMLINK => "a symbolic link",
        mode::FIFO => "a FIFO",
        mode::SOCKET => "a socket",
        _ => "a device file",
    }
}
