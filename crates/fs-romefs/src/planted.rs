//! Bugs that the crash laboratory plants in RomeFS, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every question
//! here is answered "no" when the program is compiled. A planted bug holds for the thread that planted it, or,
//! named by `AMPHI_PLANTED`, for the whole process.

/// A bug of RomeFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "planted-bugs", derive(serde::Deserialize))]
pub enum Bug {
    /// Data logs stay in the processor's cache (stage 3).
    LogLinesNotFlushed,
    /// The journal and the metadata stay in the processor's cache.
    MetadataLinesNotFlushed,
    /// A record's header is not durable before others use what is behind it (stage 1).
    HeaderNotDurable,
    /// Sub-writes are marked as done, and the record counts, before they are (stages 3 to 5).
    SubWritesAfterTail,
    /// A data block is overwritten where it is (stage 4).
    BlockInPlace,
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
    /// A block that is cut shows what was behind the end when the file grows again.
    ValidNotCut,
    /// A line of the metadata is not written by a checkpoint.
    CheckpointLineForgotten,
    /// A checkpoint's number is stored before its lines are durable.
    CheckpointBeforeLines,
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
pub const BUGS: [Bug; 23] = [
    Bug::LogLinesNotFlushed,
    Bug::MetadataLinesNotFlushed,
    Bug::HeaderNotDurable,
    Bug::SubWritesAfterTail,
    Bug::BlockInPlace,
    Bug::TailNotDurable,
    Bug::SizeForgotten,
    Bug::MergeInPlace,
    Bug::MergeForgetsOld,
    Bug::MergedEntryStays,
    Bug::WriteBackForgetsLogs,
    Bug::WriteBackKeepsEntries,
    Bug::ValidNotCut,
    Bug::CheckpointLineForgotten,
    Bug::CheckpointBeforeLines,
    Bug::RedoOutOfOrder,
    Bug::RedoSkipped,
    Bug::TailNotChecked,
    Bug::BitsLeaked,
    Bug::OrphansNotFinished,
    Bug::EntryNotRemoved,
    Bug::BufferNotFlushed,
    Bug::BufferedSizeStored,
];

#[cfg(feature = "planted-bugs")]
thread_local!(static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) });

/// Plants a bug for the calling thread, or takes it away.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// The bug that the environment names. A name that is none of this crate's plants nothing here.
#[cfg(feature = "planted-bugs")]
static OF_ENVIRONMENT: std::sync::LazyLock<Option<Bug>> = std::sync::LazyLock::new(|| {
    use serde::Deserialize;
    use serde::de::value::{Error, StringDeserializer};
    let name = std::env::var("AMPHI_PLANTED").ok()?;
    Bug::deserialize(StringDeserializer::<Error>::new(name)).ok()
});

/// Whether the bug is planted.
#[cfg(feature = "planted-bugs")]
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug) || *OF_ENVIRONMENT == Some(bug)
}

/// Whether the bug is planted: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn has(_bug: Bug) -> bool {
    false
}
