//! Bugs that tests plant in AugeFS, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. A planted bug holds for the thread that
//! planted it (all tasks of a Sim run on one), or, named by `AMPHI_PLANTED`, for the whole process.

/// A bug of AugeFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Attributes are taken whether the metadata store has room or not (AU-7).
    AttributesUncounted,
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

amphi_planted::planted!(Bug);
