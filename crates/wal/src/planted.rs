//! Bugs that tests plant in the log, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`; without it every question is answered "no" when the
//! program is compiled. A planted bug holds for the thread that planted it (all tasks of a Sim run on one)
//! or, named by `AMPHI_PLANTED`, for the whole process: so `cargo xtask test` plants one for a test that
//! knows nothing of it.

/// A bug of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A commit returns without `BA_SYNC` (TB-12).
    SyncForgotten,
    /// Of a write to both halves of the window, only the last one is synced.
    FirstHalfNotSynced,
    /// Recovery takes records whose checksum does not match.
    TornRecordTaken,
    /// Recovery takes what an earlier opening left behind the log's end.
    StaleRecordTaken,
    /// Opening the log does not count.
    OpeningNotCounted,
    /// Truncation leaves the old records valid.
    TruncationForgotten,
}

amphi_planted::planted!(Bug);
