//! Bugs that the crash laboratory plants, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. A planted bug holds for the thread that
//! planted it.

/// A bug of the NOVA-like file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The tail moves before what is in front of it is durable.
    TailBeforeEntries,
    /// The tail is not durable when the call returns.
    TailNotDurable,
    /// Words of several inodes are stored without the journal.
    WordsWithoutJournal,
    /// Recovery leaves what a journal would undo.
    JournalNotUndone,
    /// The end of a journal's change is not durable when the call returns.
    JournalEndNotDurable,
    /// Data are overwritten in place.
    DataInPlace,
    /// An entry that was taken away is not marked in the directory's log.
    EntryNotMarked,
    /// A log that is read again forgets that the file was cut.
    CutForgotten,
    /// What lies behind a file's end shows when the file grows.
    TailNotCleared,
    /// The collector takes pages that hold the last entry about something.
    LivePageCollected,
    /// A log's pages are used again before they are out of it.
    PagesFreedEarly,
}

/// Every bug that a crash shows, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 11] = [
    Bug::TailBeforeEntries,
    Bug::TailNotDurable,
    Bug::WordsWithoutJournal,
    Bug::JournalNotUndone,
    Bug::JournalEndNotDurable,
    Bug::DataInPlace,
    Bug::EntryNotMarked,
    Bug::CutForgotten,
    Bug::TailNotCleared,
    Bug::LivePageCollected,
    Bug::PagesFreedEarly,
];

amphi_planted::planted!(Bug);
