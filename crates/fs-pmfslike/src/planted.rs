//! Bugs that the crash laboratory plants, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. A planted bug holds for the thread that
//! planted it.

/// A bug of the PMFS-like file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Metadata change in place without entries of the log.
    LogSkipped,
    /// Metadata change in place before what they were is durable.
    PlaceBeforeLog,
    /// A change is noted as complete before it is durable in place.
    CommitBeforePlace,
    /// That a change is complete is not durable when the call returns.
    CommitNotDurable,
    /// Recovery leaves what the log would undo.
    LogNotUndone,
    /// Recovery undoes changes that are complete too.
    CommitsForgotten,
    /// A word that is stored as it is is not durable when the call returns.
    WordNotDurable,
    /// Pages of pointers and of directories are not stored before something leads to them.
    PagesNotStored,
    /// The length of an entry changes without the log, and so a name shows before its change counts.
    NamesNotLogged,
    /// A file that is cut keeps its pointers.
    PointersKept,
    /// What lies behind a file's end shows when the file grows.
    TailNotCleared,
    /// Pages may be taken again before the change that frees them counts.
    PagesFreedEarly,
    /// A directory that moves keeps its `..`.
    ParentKept,
}

/// Every bug that a crash shows, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 13] = [
    Bug::LogSkipped,
    Bug::PlaceBeforeLog,
    Bug::CommitBeforePlace,
    Bug::CommitNotDurable,
    Bug::LogNotUndone,
    Bug::CommitsForgotten,
    Bug::WordNotDurable,
    Bug::PagesNotStored,
    Bug::NamesNotLogged,
    Bug::PointersKept,
    Bug::TailNotCleared,
    Bug::PagesFreedEarly,
    Bug::ParentKept,
];

amphi_planted::planted!(Bug);
