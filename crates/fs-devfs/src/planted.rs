//! Bugs that the crash laboratory plants in DevFS, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every question
//! here is answered "no" when the program is compiled. A planted bug holds for the thread that planted it, or,
//! named by `AMPHI_PLANTED`, for the whole process.

/// A bug of DevFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "planted-bugs", derive(serde::Deserialize))]
pub enum Bug {
    /// Inode pages are not written when a journal is emptied.
    PageNotInPlace,
    /// A slot is emptied before what it says is in place.
    EpochBeforePages,
    /// A journal forgets which pages its records change.
    PageNotNoted,
    /// A directory's entry is removed in memory only.
    EntryStays,
    /// A block changes while its queue has older parts of it.
    QueueNotSettled,
    /// Parts of blocks are in the controller's memory only.
    QueueInMemoryOnly,
    /// What a file's last block holds behind the end shows when the file grows.
    TailNotCleared,
    /// A write that maps blocks does not write the inode.
    SizeForgotten,
    /// Recovery redoes records in another order.
    RedoOutOfOrder,
    /// Recovery forgets the last record.
    RedoSkipped,
    /// Recovery redoes records in pages that are newer.
    StampNotCompared,
    /// Recovery forgets the queues.
    QueueForgotten,
}

/// Whether the bug is planted: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn has(_bug: Bug) -> bool {
    false
}
