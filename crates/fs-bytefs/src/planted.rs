//! Bugs that the crash laboratory plants in ByteFS, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but the laboratory's tests enables; without
//! it every question here is answered "no" when the program is compiled. A planted bug holds for the thread
//! that planted it, or, named by `AMPHI_PLANTED`, for the whole process: so `cargo xtask test` plants one for
//! a test that knows nothing of it.

/// A bug of ByteFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The lines of a transaction's last store are not flushed.
    LastStoreNotFlushed,
    /// No fence between a transaction's stores and the write-verify read.
    FenceMissing,
    /// No write-verify read before `COMMIT`.
    VerifyMissing,
    /// Bitmap lines are stored outside the transaction.
    BitmapOutsideTransaction,
    /// Directory entries are stored outside the transaction.
    EntryOutsideTransaction,
    /// Every transaction has the same number.
    TransactionNumberReused,
    /// Moving a directory leaves the old parent in its inode.
    ParentNotMoved,
    /// A file without a name does not stand in the orphan table.
    OrphanNotRecorded,
    /// Deleting a file does not free its inode in the bitmap.
    InodeLeaked,
    /// Deleting or cutting a file does not free its blocks in the bitmap.
    ExtentLeaked,
    /// Mounting does not `RECOVER`.
    RecoverSkipped,
    /// Mounting leaves files in the orphan table alone.
    OrphansNotFinished,
    /// Write-back commits the inode before the data have arrived.
    CommitBeforeData,
    /// Block writes that a commit relies on stay in the device's volatile write buffer.
    BlocksNotFlushed,
    /// Write-back commits the new size in a transaction before the data and their extents.
    SizeBeforeData,
    /// Data written back by bytes are not flushed.
    DataLinesNotFlushed,
    /// Data written back by bytes are not verified.
    DataNotVerified,
    /// Data of a direct write by bytes are not verified.
    DirectNotVerified,
    /// `fsync` forgets attributes where there are no new blocks.
    AttributesForgotten,
    /// `fdatasync` forgets that the file has grown.
    SizeForgotten,
    /// `sync` does nothing.
    SyncForgotten,
    /// A file that grows uncovers what was hidden behind its old end.
    HiddenBytesUncovered,
    /// Every update of an inode writes both halves (BY-9).
    BothHalvesWritten,
    /// A page of the inode table is read again at every miss (BY-9).
    InodePageForgotten,
    /// Every directory entry is stored with the longest one's length (BY-10).
    EntriesPadded,
    /// A node of the extent tree is stored as a whole when one of its leaves changes (BY-12).
    ExtentNodeRewritten,
    /// A changed line of a bitmap is stored twice (BY-11).
    BitmapLineTwice,
    /// A small direct write goes through the page cache (BY-13).
    DirectThroughCache,
    /// A group counts in two transactions, what lies last first.
    GroupOutOfOrder,
    /// `fsync` leaves what it is about in the running group.
    FsyncLeavesGroup,
    /// Blocks are used again before the group that freed them counts.
    FreedAtJoin,
    /// The interval goes by and the running group is left as it is.
    TimerLeavesGroup,
    /// What is read of the device's metadata lacks what groups hold.
    GroupNotRead,
    /// Modified pages keep no duplicate (BY-14).
    DuplicatesForgotten,
    /// The variant without duplicates keeps them (BY-18).
    LogVariantKeepsDuplicates,
}

/// Every bug, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 25] = [
    Bug::LastStoreNotFlushed,
    Bug::FenceMissing,
    Bug::VerifyMissing,
    Bug::BitmapOutsideTransaction,
    Bug::EntryOutsideTransaction,
    Bug::TransactionNumberReused,
    Bug::ParentNotMoved,
    Bug::OrphanNotRecorded,
    Bug::InodeLeaked,
    Bug::ExtentLeaked,
    Bug::RecoverSkipped,
    Bug::OrphansNotFinished,
    Bug::CommitBeforeData,
    Bug::BlocksNotFlushed,
    Bug::SizeBeforeData,
    Bug::DataLinesNotFlushed,
    Bug::DataNotVerified,
    Bug::DirectNotVerified,
    Bug::AttributesForgotten,
    Bug::SizeForgotten,
    Bug::SyncForgotten,
    Bug::HiddenBytesUncovered,
    Bug::GroupOutOfOrder,
    Bug::FsyncLeavesGroup,
    Bug::FreedAtJoin,
];

amphi_planted::planted!(Bug);
