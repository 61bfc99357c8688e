//! Bugs that tests plant in the log, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`; without it every question is answered "no" when the program is compiled. A
//! planted bug holds for the thread that planted it (all tasks of a Sim run on one) or, named by `AMPHI_PLANTED`, for the whole
//! process: so `cargo xtask test` plants one for a test that knows nothing of it.

/// A bug of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "planted-bugs", derive(serde::Deserialize))]
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

/// Whether the bug is planted: never, here.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn has(_: Bug) -> bool {
    false
}
