//! Bugs that the crash laboratory plants, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. A planted bug holds for the thread that
//! planted it.

/// A bug of what such file systems share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// What is stored of metadata stays in the processor's cache.
    MetadataNotFlushed,
    /// Data stay in the processor's cache.
    DataNotFlushed,
    /// Files without names stay after a crash.
    OrphansNotFinished,
}

/// Every bug that a crash shows, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 3] = [Bug::MetadataNotFlushed, Bug::DataNotFlushed, Bug::OrphansNotFinished];

amphi_planted::planted!(Bug);
