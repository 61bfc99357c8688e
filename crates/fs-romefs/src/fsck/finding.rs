//! What a check can find.

use amphi_volume::Severity;
use serde::Serialize;

use crate::format::Map;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Finding {
    /// The superblock is damaged; its copy is not.
    #[error("the superblock is damaged, and its copy is sound")]
    SuperblockDamaged,
    /// An inode cannot be read as one.
    #[error("inode {ino}: {what}")]
    InodeDamaged {
        /// Its number.
        ino: u64,
        /// What cannot be.
        what: String,
    },
    /// An inode is in use, and the bitmap says that it is free.
    #[error("inode {ino} is in use, and marked as free")]
    InodeNotMarked {
        /// Its number.
        ino: u64,
    },
    /// Something belongs to two inodes.
    #[error("{map} {number} belongs to inode {ino} and to another")]
    Shared {
        /// What kind of thing.
        map: &'static str,
        /// Its number.
        number: u64,
        /// The second inode that has it.
        ino: u64,
    },
    /// A data block's leaf says that it is another's.
    #[error("inode {ino}: the leaf of its block {block} belongs to another")]
    LeafOfAnother {
        /// The inode.
        ino: u64,
        /// Its data block.
        block: u64,
    },
    /// A leaf has a log that cannot be.
    #[error("inode {ino}: the leaf of its block {block} has a data log that cannot be")]
    LeafDamaged {
        /// The inode.
        ino: u64,
        /// Its data block.
        block: u64,
    },
    /// A count in an inode is wrong.
    #[error("inode {ino} says that it has {said} {what}; it has {there}")]
    Count {
        /// The inode.
        ino: u64,
        /// What is counted.
        what: &'static str,
        /// What the inode says.
        said: u64,
        /// What is there.
        there: u64,
    },
    /// A directory's entries cannot be read.
    #[error("directory {ino}: its entries make no sense")]
    DirectoryDamaged {
        /// The directory.
        ino: u64,
    },
    /// An entry names no inode, or one of another type, or a directory of another parent.
    #[error("directory {dir}: '{name}' names inode {ino}, which {what}")]
    Entry {
        /// The directory.
        dir: u64,
        /// The name, unprintable bytes escaped.
        name: String,
        /// The inode that it names.
        ino: u64,
        /// What is wrong with that.
        what: &'static str,
    },
    /// No entry names an inode, and it is no orphan.
    #[error("inode {ino} has no name, and is not among the orphans")]
    Unreachable {
        /// The inode.
        ino: u64,
    },
    /// Something is free, and marked as in use.
    #[error("{count} {map} from {first} on are marked as in use, and are not")]
    Leaked {
        /// What kind of thing.
        map: &'static str,
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Something is in use, and marked as free.
    #[error("{count} {map} from {first} on are in use, and marked as free")]
    NotMarked {
        /// What kind of thing.
        map: &'static str,
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// An orphan that is none.
    #[error("inode {ino} is among the orphans, and is free")]
    OrphanOfNothing {
        /// The inode.
        ino: u64,
    },
    /// An orphan that has names, and is no file that is being cut.
    #[error("inode {ino} is among the orphans, and has names")]
    OrphanWithName {
        /// The inode.
        ino: u64,
    },
    /// Inodes that the next mount deals with.
    #[error("inode {ino} is among the orphans: the next mount deletes it, or finishes cutting it")]
    Orphan {
        /// The inode.
        ino: u64,
    },
}

impl Finding {
    /// How bad it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Orphan { .. } => Severity::Info,
            Self::Leaked { .. } | Self::OrphanOfNothing { .. } | Self::OrphanWithName { .. } => {
                Severity::Warning
            }
            _ => Severity::Error,
        }
    }
}

/// A bitmap's things, for people.
pub const fn things(map: Map) -> &'static str {
    match map {
        Map::Blocks => "data blocks",
        Map::Pages => "metadata pages",
        Map::Leaves => "leaves",
        Map::Logs => "log pages",
        Map::Inodes => "inodes",
        Map::Orphans => "orphans",
    }
}
