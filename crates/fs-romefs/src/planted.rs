//! Bugs that the crash laboratory plants in RomeFS, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. A planted bug holds for the thread that
//! planted it, or, named by `AMPHI_PLANTED`, for the whole process.

/// A bug of RomeFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Data logs stay in the processor's cache (stage 3).
    LogLinesNotFlushed,
    /// The journal and the metadata stay in the processor's cache.
    MetadataLinesNotFlushed,
    /// A record's header is not durable before others use what is behind it (stage 1).
    HeaderNotDurable,
    /// A command of the block path is not sent (stage 2).
    CommandForgotten,
    /// Sub-writes are marked as done, and the record counts, before they are (stages 3 to 5).
    SubWritesAfterTail,
    /// A data block is overwritten where it is (stage 4).
    BlockInPlace,
    /// A sub-write that is done has no mark (stage 5).
    MarkForgotten,
    /// The tail is not durable when the write returns (stage 6).
    TailNotDurable,
    /// The size is not in the tail (stage 6).
    SizeForgotten,
    /// Merging writes over the log that is there.
    MergeInPlace,
    /// Merging forgets the bytes of the old log.
    MergeForgetsOld,
    /// A log that was merged keeps its entry.
    MergedEntryStays,
    /// Write-back forgets the logs.
    WriteBackForgetsLogs,
    /// Write-back leaves the entries in the leaf.
    WriteBackKeepsEntries,
    /// Write-back puts a block together where it is, and not in another.
    WriteBackInPlace,
    /// A block that is cut shows what was behind the end when the file grows again.
    ValidNotCut,
    /// A line of the metadata is not written by a checkpoint.
    CheckpointLineForgotten,
    /// A checkpoint's number is stored before its lines are durable.
    CheckpointBeforeLines,
    /// A checkpoint lets go of the journal's records before what they changed is durable.
    HeadsBeforeLines,
    /// Recovery applies transactions in another order.
    RedoOutOfOrder,
    /// Recovery forgets the last transaction.
    RedoSkipped,
    /// Recovery believes a tail without looking at its checksum.
    TailNotChecked,
    /// Freed bits stay set.
    BitsLeaked,
    /// Files without names stay after a crash.
    OrphansNotFinished,
    /// A directory's entry is removed in memory only.
    EntryNotRemoved,
    /// `fsync` leaves what is buffered (RO-10).
    BufferNotFlushed,
    /// An inode's size on the device counts what is buffered (RO-10).
    BufferedSizeStored,
    /// Every part of a write goes by bytes (RO-3).
    SplitForgotten,
    /// Data blocks are asked for what the logs have (RO-6).
    BlocksAskedAnyway,
    /// Pages that were read are not kept (RO-9).
    CacheForgotten,
}

/// Every bug that a crash shows, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 27] = [
    Bug::LogLinesNotFlushed,
    Bug::MetadataLinesNotFlushed,
    Bug::HeaderNotDurable,
    Bug::CommandForgotten,
    Bug::SubWritesAfterTail,
    Bug::BlockInPlace,
    Bug::MarkForgotten,
    Bug::TailNotDurable,
    Bug::SizeForgotten,
    Bug::MergeInPlace,
    Bug::MergeForgetsOld,
    Bug::MergedEntryStays,
    Bug::WriteBackForgetsLogs,
    Bug::WriteBackKeepsEntries,
    Bug::WriteBackInPlace,
    Bug::ValidNotCut,
    Bug::CheckpointLineForgotten,
    Bug::CheckpointBeforeLines,
    Bug::HeadsBeforeLines,
    Bug::RedoOutOfOrder,
    Bug::RedoSkipped,
    Bug::TailNotChecked,
    Bug::BitsLeaked,
    Bug::OrphansNotFinished,
    Bug::EntryNotRemoved,
    Bug::BufferNotFlushed,
    Bug::BufferedSizeStored,
];

amphi_planted::planted!(Bug);
