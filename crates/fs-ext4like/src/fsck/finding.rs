//! What a check can find: one variant each, with the sentence that tells a user about it and its severity.

use amphi_volume::{Found, Severity};
use serde::Serialize;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Finding {
    /// The superblock's fields or its checksum are wrong.
    #[error("the superblock is damaged: {reason}")]
    SuperblockDamaged {
        /// What about it.
        reason: String,
    },
    /// The journal cannot be replayed.
    #[error("the journal cannot be replayed: {reason}")]
    JournalDamaged {
        /// Why.
        reason: String,
    },
    /// In use, or not unmounted.
    #[error(
        "the file system was not unmounted; its journal holds {transactions} transactions, and mounting replays them"
    )]
    NotCleanlyUnmounted {
        /// Complete transactions in the journal.
        transactions: u32,
    },
    /// A group's descriptor or bitmaps.
    #[error("group {group}: {reason}")]
    GroupDamaged {
        /// The group.
        group: u32,
        /// What is wrong.
        reason: String,
    },
    /// An inode in use, or what belongs to it, cannot be read.
    #[error("inode {ino}: {reason}")]
    InodeDamaged {
        /// The inode.
        ino: u32,
        /// What is wrong.
        reason: String,
    },
    /// Two structures have one block.
    #[error("block {block} belongs to inode {ino} and to something else")]
    BlockClaimedTwice {
        /// The block.
        block: u32,
        /// One of its owners.
        ino: u32,
    },
    /// A block in use is marked free.
    #[error("{blocks} blocks from {start} on are in use and marked free")]
    BlocksNotMarked {
        /// First block.
        start: u32,
        /// How many.
        blocks: u32,
    },
    /// A block marked as in use belongs to nothing.
    #[error("{blocks} blocks from {start} on are marked as in use and belong to nothing")]
    BlocksLeaked {
        /// First block.
        start: u32,
        /// How many.
        blocks: u32,
    },
    /// An inode says another number of blocks than it has.
    #[error("inode {ino} says {said} blocks and has {due}")]
    BlockCount {
        /// The inode.
        ino: u32,
        /// What it says.
        said: u32,
        /// What it has.
        due: u32,
    },
    /// A directory cannot be read.
    #[error("directory {ino}: {reason}")]
    DirectoryDamaged {
        /// The directory.
        ino: u32,
        /// What is wrong.
        reason: String,
    },
    /// An entry names what it cannot name.
    #[error("the name {name} in directory {dir} names inode {ino}: {reason}")]
    EntryWrong {
        /// The directory.
        dir: u32,
        /// The name, with unprintable bytes escaped.
        name: String,
        /// What it names.
        ino: u32,
        /// What is wrong.
        reason: &'static str,
    },
    /// Another number of names than the inode says.
    #[error("inode {ino} says {said} links and has {due}")]
    LinkCount {
        /// The inode.
        ino: u32,
        /// What it says.
        said: u32,
        /// What there are.
        due: u32,
    },
    /// An inode in use that no path leads to, and that is no orphan.
    #[error("inode {ino} is in use and cannot be reached from the root")]
    Unreachable {
        /// The inode.
        ino: u32,
    },
    /// The list of orphans.
    #[error("the list of orphans is damaged at inode {ino}")]
    OrphansDamaged {
        /// Where.
        ino: u32,
    },
}

impl Found for Finding {
    fn severity(&self) -> Severity {
        match self {
            Self::NotCleanlyUnmounted { .. } => Severity::Info,
            Self::BlocksLeaked { .. } | Self::Unreachable { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }
}
