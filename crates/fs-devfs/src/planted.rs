//! Bugs that the crash laboratory plants in DevFS, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. A planted bug holds for the thread that
//! planted it, or, named by `AMPHI_PLANTED`, for the whole process.

/// A bug of DevFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// What the host returns is believed (DV-7).
    SealNotCompared,
    /// Without capacitors, flash gets no copy of a journal or queue (DV-6).
    CopyForgotten,
    /// Every leaf of a file's map is a run of its own for each block (DV-2).
    RunsNotJoined,
    /// A lane keeps the credentials with which its first command came (DV-8).
    CredentialKept,
    /// Commands run without a processor (DV-9).
    ProcessorNotTaken,
    /// More is accepted than the capacitors' energy saves (DV-5).
    EnergyNotAsked,
    /// Blocks that are taken are free in the bitmap on flash.
    BlockNotMarked,
    /// Blocks that are freed stay taken in the bitmap on flash.
    BlockStaysMarked,
    /// Pointers to blocks that are freed stay.
    PointersStay,
    /// A directory that has grown keeps its size on flash.
    DirectoryNotGrown,
    /// A name that shall mean another file means the old one on flash.
    NameNotReplaced,
    /// A slot is taken away from its owner with what it holds.
    SlotTakenFull,
    /// A deleted file's number stays taken.
    NumberStaysTaken,
    /// An inode says of blocks that it has one less.
    BlocksMiscounted,
    /// A program's bytes are read once for an entry's checksum, and once for the entry (DV-8).
    BytesReadTwice,
    /// A repair finds and mends nothing.
    NothingMended,
    /// Files are opened until device memory holds no more (DV-7).
    OpenedWithoutEnd,
    /// Programs' commands become calls of the file system, as the kernel's (DV-1).
    CommandsAsCalls,
    /// Others go on with what a record that could not be written has changed, and write its pages without
    /// it.
    DoubtForgotten,
    /// Inodes stay in device memory when their files are closed, whatever the mount says (DV-7).
    StaysWhenClosed,
}

/// Every bug that a crash shows, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 20] = [
    Bug::PageNotInPlace,
    Bug::EpochBeforePages,
    Bug::PageNotNoted,
    Bug::EntryStays,
    Bug::QueueNotSettled,
    Bug::QueueInMemoryOnly,
    Bug::TailNotCleared,
    Bug::SizeForgotten,
    Bug::RedoOutOfOrder,
    Bug::RedoSkipped,
    Bug::StampNotCompared,
    Bug::QueueForgotten,
    Bug::BlockNotMarked,
    Bug::BlockStaysMarked,
    Bug::PointersStay,
    Bug::DirectoryNotGrown,
    Bug::NameNotReplaced,
    Bug::SlotTakenFull,
    Bug::NumberStaysTaken,
    Bug::BlocksMiscounted,
];

amphi_planted::planted!(Bug);
