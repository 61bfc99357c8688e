//! Bugs that tests plant in the file system of F2FS's kind, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. A planted bug holds for the thread that
//! planted it (all tasks of a Sim run on one), or, named by `AMPHI_PLANTED`, for the whole process.

/// A bug of the file system of F2FS's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A checkpoint counts before its NAT blocks are written.
    PackBeforeNat,
    /// A checkpoint counts before its SIT blocks are written.
    PackBeforeSit,
    /// A checkpoint overwrites the one before.
    PackInPlace,
    /// A NAT block overwrites what the checkpoint before counts.
    NatInPlace,
    /// A SIT block overwrites what the checkpoint before counts.
    SitInPlace,
    /// Copies count that no checkpoint does.
    StaleCopyCounts,
    /// A segment without valid blocks is used again before the checkpoint.
    SegmentFreeEarly,
    /// A checkpoint leaves blocks of entries in memory.
    EntriesForgotten,
    /// A checkpoint does not name inodes without names.
    OrphansForgotten,
    /// What lies behind the end of a file that is cut shows when it grows.
    TailShown,
    /// `fsync` leaves pages in memory.
    PagesForgotten,
    /// `fsync` does nothing.
    FsyncForgotten,
    /// `fsync` makes no checkpoint where names are in question.
    AlwaysRolls,
    /// Recovery stops at the last checkpoint.
    RollForwardForgotten,
    /// Recovery takes part of what an `fsync` wrote.
    SetInPartCounts,
    /// Recovery gives new files no names.
    NameForgotten,
    /// Recovery looks only where the log of nodes was.
    AheadForgotten,
    /// The journals of NAT and SIT are not read.
    JournalForgotten,
    /// A journal without room is emptied, and its entries go nowhere.
    JournalDropped,
    /// A directory whose entries leave its inode has their bytes for addresses.
    EntriesForAddresses,
    /// A directory whose entries have left its inode does not say so.
    BlockForgotten,
    /// `fdatasync` leaves nodes in memory that name new blocks.
    NodesForgotten,
    /// It leaves attributes in memory that have changed since.
    AttributesForgotten,
    /// Nodes of an `fsync` are written while what they name may be in the device's write buffer yet.
    NodesBeforeData,
    /// The same of a checkpoint's pack, and what it names.
    PackBeforeNodes,
}

/// Every bug, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 25] = [
    Bug::PackBeforeNat,
    Bug::PackBeforeSit,
    Bug::PackInPlace,
    Bug::NatInPlace,
    Bug::SitInPlace,
    Bug::StaleCopyCounts,
    Bug::SegmentFreeEarly,
    Bug::EntriesForgotten,
    Bug::OrphansForgotten,
    Bug::TailShown,
    Bug::PagesForgotten,
    Bug::FsyncForgotten,
    Bug::AlwaysRolls,
    Bug::RollForwardForgotten,
    Bug::SetInPartCounts,
    Bug::NameForgotten,
    Bug::AheadForgotten,
    Bug::JournalForgotten,
    Bug::JournalDropped,
    Bug::EntriesForAddresses,
    Bug::BlockForgotten,
    Bug::NodesForgotten,
    Bug::AttributesForgotten,
    Bug::NodesBeforeData,
    Bug::PackBeforeNodes,
];

amphi_planted::planted!(Bug);
