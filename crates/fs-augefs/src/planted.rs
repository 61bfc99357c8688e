//! Bugs that tests plant in AugeFS, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every question
//! here is answered "no" when the program is compiled. A planted bug holds for the thread that planted it (all tasks of a Sim
//! run on one), or, named by `AMPHI_PLANTED`, for the whole process.

/// A bug of AugeFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "planted-bugs", derive(serde::Deserialize))]
pub enum Bug {
    /// An inode's number says where it stood before it was renamed (AU-3).
    LocatorStays,
    /// All files are of one domain (AU-8).
    OneDomain,
    /// A segment that a domain takes is not noted (AU-8, AU-10).
    SegmentNotNoted,
    /// The write version does not grow (AU-9).
    WriteVersionStays,
    /// Recovery believes nodes whose data were on their way (AU-9).
    WriteVersionIgnored,
    /// Nodes wait for the data that they name (AU-9).
    NodesAfterData,
    /// Recovery stops at the last checkpoint (AU-10).
    RollForwardForgotten,
    /// Recovery shows what a cut file had behind its end (AU-10).
    CutForgotten,
    /// A checkpoint counts before its NAT blocks are written (AU-10).
    CheckpointBeforeNat,
    /// Recovery leaves NAT blocks of a checkpoint that was not finished (AU-10).
    StaleNatCounts,
    /// An inode counts before its data (AU-10: ordered mode).
    InodeBeforeData,
    /// A collected segment is used again before the checkpoint (AU-8).
    SegmentFreeEarly,
    /// Pages that were read are not kept (AU-11).
    PagesForgotten,
    /// Names that were found are not kept (AU-11).
    NamesForgotten,
}

/// Every bug that a crash shows, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 9] = [
    Bug::SegmentNotNoted,
    Bug::WriteVersionStays,
    Bug::WriteVersionIgnored,
    Bug::RollForwardForgotten,
    Bug::CutForgotten,
    Bug::CheckpointBeforeNat,
    Bug::StaleNatCounts,
    Bug::InodeBeforeData,
    Bug::SegmentFreeEarly,
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
