//! In words, what a tree that was found has and none that a crash may leave.

use amphi_vfs::FileType;

use crate::candidate::{Candidate, Range};
use crate::oracle::Legal;
use crate::subject::Fsync;
use crate::tree::{Node, Tree};

/// In words, the first difference between what was found and a candidate; nothing if it is one.
#[must_use]
pub fn difference(found: &Tree, due: &Candidate, legal: &Legal) -> Option<String> {
    for path in due.tree.names.keys().chain(found.names.keys()) {
        let (Some(there), Some(due_ino)) = (found.get(path), due.tree.names.get(path)) else {
            let which =
                if found.names.contains_key(path) { "is there and should not be" } else { "is missing" };
            return Some(format!("{path} {which}"));
        };
        let Some(node) = due.tree.nodes.get(due_ino) else { continue };
        if let Some(wrong) = node_difference(there, node, due.ranges.get(due_ino), legal) {
            return Some(format!("{path} {wrong}"));
        }
    }
    let (mine, theirs) = (found.families(), due.tree.families());
    (mine != theirs).then(|| format!("names that share a file: found {mine:?}, should be {theirs:?}"))
}

fn node_difference(there: &Node, due: &Node, range: Option<&Range>, legal: &Legal) -> Option<String> {
    let holds_only = legal.fsync == Fsync::Contents && due.file_type == FileType::Regular;
    if holds_only && there.file_type == FileType::Regular {
        return range.and_then(|range| contents_difference(&there.data, range, legal));
    }
    let exact = |node: &Node| (node.file_type, node.mode, node.nlink, node.owner, node.rdev);
    if exact(there) != exact(due) {
        return Some(format!(
            "has (type, mode, links, owner, device) {:?} and should have {:?}",
            exact(there),
            exact(due)
        ));
    }
    if there.xattrs != due.xattrs {
        return Some("has other extended attributes than it should".to_owned());
    }
    let check_times = legal.times;
    let (mtimes, ctimes) = match range {
        Some(range) => (&range.mtimes[..], &range.ctimes[..]),
        None => (&due.times[1..2], &due.times[2..]),
    };
    for (name, found, legal) in [
        ("access time", there.times[0], &due.times[..1]),
        ("modification time", there.times[1], mtimes),
        ("change time", there.times[2], ctimes),
    ] {
        if check_times && !legal.contains(&found) {
            return Some(format!("has {name} {found} and should have one of {legal:?}"));
        }
    }
    match range {
        Some(range) => contents_difference(&there.data, range, legal),
        None if there.data != due.data => Some("holds something else than it should".to_owned()),
        None => None,
    }
}

fn contents_difference(found: &[u8], range: &Range, legal: &Legal) -> Option<String> {
    let Range { versions, later, .. } = range;
    let atomic_writes = legal.atomic_writes && !range.torn;
    // What a reader last saw and what was last synced are by far the likeliest.
    if versions.iter().rev().any(|version| version[..] == *found) {
        return None;
    }
    let sizes: Vec<usize> = versions.iter().map(|version| version.len()).collect();
    let between =
        sizes.iter().any(|size| *size < found.len()) && sizes.iter().any(|size| *size > found.len());
    if !(sizes.contains(&found.len()) || legal.fsync == Fsync::Contents && between) {
        return Some(format!("has {} bytes and should have {sizes:?}", found.len()));
    }
    let nearest = versions
        .iter()
        .map(|version| found.iter().zip(version.iter()).take_while(|(a, b)| a == b).count())
        .max()
        .unwrap_or(0);
    if atomic_writes {
        return Some(format!(
            "has contents that no write left: the nearest of {} states differs from byte {nearest} of {}",
            versions.len(),
            found.len()
        ));
    }
    let wrong = found.iter().enumerate().skip(nearest).find(|(at, byte)| {
        !versions.iter().any(|version| version.get(*at) == Some(byte))
            && !later.iter().any(|version| version.get(*at).unwrap_or(&0) == *byte)
    });
    wrong.map(|(at, byte)| {
        let legal: Vec<u8> =
            versions.iter().chain(later).filter_map(|version| version.get(at).copied()).collect();
        format!("has byte {byte:#04x} at {at} of {} and should have one of {legal:02x?}", found.len())
    })
}
