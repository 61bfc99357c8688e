//! Bugs that tests plant in the store, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`; without it every question is answered "no" when the
//! program is compiled. A planted bug holds for the thread that planted it (all tasks of a Sim run on one)
//! or, named by `AMPHI_PLANTED`, for the whole process: so `cargo xtask test` plants one for a test that
//! knows nothing of it.

/// A bug of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A log entry's lines are not flushed.
    LogNotFlushed,
    /// No write-verify read behind a log entry.
    LogNotVerified,
    /// Recovery takes an entry whose checksum does not match.
    TornEntryTaken,
    /// Recovery stops at the first gap in an active log file.
    ScanStopsAtGap,
    /// Of the pieces of the log that tasks load beside each other the first one is not loaded.
    PieceForgotten,
    /// The slot of a new log file is not made durable.
    SlotForgotten,
    /// A memtable is given to the tasks behind while writes to it are on their way.
    BarrierMissing,
    /// The log of a memtable is cleared before its tables are durable.
    LogClearedEarly,
    /// Recovery empties the log before the manifest names what was in it.
    LogResetEarly,
    /// A full half is cleared before its bytes are in the backing.
    HalfClearedEarly,
    /// Recovery does not look into the backing.
    BackingForgotten,
    /// Recovery gives sequence numbers again that stand in the log.
    SequenceReused,
    /// A merge drops a deletion although a deeper level has the key.
    DeletionDropped,
    /// A merge drops versions that a snapshot sees.
    SnapshotForgotten,
}

amphi_planted::planted!(Bug);
