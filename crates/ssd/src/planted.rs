//! Bugs that the crash laboratory plants in the firmware, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but the laboratory's tests enables; without
//! it every question here is answered "no" when the program is compiled. A planted bug holds for the thread
//! that planted it, or, named by `AMPHI_PLANTED`, for the whole process: so `cargo xtask test` plants one for
//! a test that knows nothing of it.

/// A bug of the device or its firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A write-verify read returns although posted stores have not arrived.
    VerifyReadReturnsEarly,
    /// Flushing lines leaves out the last line of the range.
    LastLineNotFlushed,
    /// `COMMIT` returns without the commit in the transaction log.
    CommitNotRecorded,
    /// A block write leaves older log entries of its page valid.
    StaleEntryAfterBlockWrite,
    /// Cleaning merges the versions of a page in the wrong order.
    CleaningOutOfOrder,
    /// Recovery takes stores of uncommitted transactions for committed ones.
    UncommittedReplayed,
    /// Recovery empties the log before what it held has reached flash.
    LogClearedEarly,
    /// Recovery keeps old commits, whose numbers the host uses again.
    CommitsOutliveRecovery,
    /// A merged page claims to contain log entries that come later.
    MergedTooFar,
    /// Garbage collection voids a page where it was before it counts where it is moved.
    CopyVoidedEarly,
    /// A crash tears what the CPU cache never tears.
    TornStore,
    /// A fence does not post what was flushed.
    FenceWithoutEffect,
    /// A host crash takes posted stores, which the device should still receive.
    PostedLostInHostCrash,
    /// An entry of the log is not found again.
    LogEntryForgotten,
    /// A dirty page of the page cache is not found again.
    CachedPageForgotten,
    /// A line of the memory area is not kept.
    MemoryForgotten,
    /// A pin does not load its last page.
    LastPageNotLoaded,
    /// A pin returns without its entry in the table on the device.
    PinNotRecorded,
    /// A flush of an entry leaves out its last page.
    LastPageNotFlushed,
    /// A flush of an entry takes it out of the table before its pages are written.
    EntryGoneBeforeFlush,
    /// A sync of an entry does not read to verify.
    SyncWithoutVerify,
    /// An entry is told one page short.
    EntryInfoShort,
    /// A DMA read of an entry answers what flash holds.
    DmaFromFlash,
    /// The LBA checker does not see the last page of an entry.
    LastPageNotGated,
    /// A dump ends before the last page of the buffer.
    DumpCutShort,
    /// A dump leaves out the table.
    TableNotDumped,
    /// A restored buffer has no table.
    TableNotRestored,
    /// A dump is not whole any more when restoring it has only begun.
    DumpClearedEarly,
    /// A dump that was restored is restored again after the next loss.
    DumpKept,
    /// A block write in flight is torn within the declared unit.
    TornSector,
    /// A completed write is volatile although the contract says that completion is durability.
    VolatileCompletion,
    /// The mapping takes the record met last, not the newest.
    SequenceIgnored,
    /// Blocks filled since the mapping checkpoint are not scanned.
    CheckpointTrusted,
    /// Trims since the mapping checkpoint are forgotten.
    TrimForgotten,
    /// The search for a page in a partition's skip list ends before every seventh (BY-3).
    SkipListEndsEarly,
    /// A byte write reads its flash page (BY-2).
    FlashReadAtStore,
    /// A byte read that the log answers reads its flash page too (BY-4).
    FlashReadAtLogHit,
    /// The table of pins has eight entries, whatever the profile says (TB-2).
    PinTableOfEight,
    /// The path between flash and the BA-buffer takes no time (TB-11).
    InternalPathFree,
    /// The store that fills a region cleans it (BY-6).
    CleaningInForeground,
}

/// Violations of the durability contract, at least one in each stage of the persistence domain, which the
/// power-cut traffic must notice.
#[cfg(feature = "planted-bugs")]
pub const VIOLATIONS: [Bug; 28] = [
    // CPU cache and write-combining buffer.
    Bug::TornStore,
    Bug::LastLineNotFlushed,
    Bug::FenceWithoutEffect,
    // Posted.
    Bug::VerifyReadReturnsEarly,
    Bug::PostedLostInHostCrash,
    // Device memory.
    Bug::LogEntryForgotten,
    Bug::CommitNotRecorded,
    Bug::UncommittedReplayed,
    Bug::CachedPageForgotten,
    Bug::MemoryForgotten,
    // The BA-buffer: each of its commands, the LBA checker, dump and restore.
    Bug::LastPageNotLoaded,
    Bug::PinNotRecorded,
    Bug::LastPageNotFlushed,
    Bug::EntryGoneBeforeFlush,
    Bug::SyncWithoutVerify,
    Bug::EntryInfoShort,
    Bug::DmaFromFlash,
    Bug::LastPageNotGated,
    Bug::DumpCutShort,
    Bug::TableNotDumped,
    Bug::TableNotRestored,
    Bug::DumpClearedEarly,
    Bug::DumpKept,
    // Block writes in flight, and the write buffer.
    Bug::TornSector,
    Bug::VolatileCompletion,
    // Flash.
    Bug::SequenceIgnored,
    Bug::CheckpointTrusted,
    Bug::TrimForgotten,
];

/// Every bug that a file system on the device may suffer from, for the crash laboratory, so that none is
/// forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 10] = [
    Bug::VerifyReadReturnsEarly,
    Bug::LastLineNotFlushed,
    Bug::CommitNotRecorded,
    Bug::StaleEntryAfterBlockWrite,
    Bug::CleaningOutOfOrder,
    Bug::UncommittedReplayed,
    Bug::LogClearedEarly,
    Bug::CommitsOutliveRecovery,
    Bug::MergedTooFar,
    Bug::CopyVoidedEarly,
];

amphi_planted::planted!(Bug);
