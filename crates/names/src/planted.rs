//! Bugs that the crash laboratory plants in operations on names, to prove that it finds them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but the laboratory's tests enables; without
//! it every question here is answered "no" when the program is compiled. A planted bug holds for the thread
//! that planted it.

/// A bug of operations on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A rename adds the new name in one change and takes the old one away in another.
    RenameInTwoSteps,
    /// Moving a directory does not count its `..` in the new parent.
    LinkCountInRename,
    /// Linking does not write the inode's new link count.
    LinkCountNotWritten,
    /// Removing a directory leaves the parent's link count.
    LinkCountInRmdir,
    /// A file that is open when its last name goes does not come among the orphans.
    OrphanOfOpenNotRecorded,
    /// The file system goes on being changed after a change has failed half way.
    FailureForgotten,
    /// What a failed change should have written is read from the device.
    UnknownRead,
}

/// Every bug that a crash shows, so that none is forgotten.
#[cfg(feature = "planted-bugs")]
pub const BUGS: [Bug; 5] = [
    Bug::RenameInTwoSteps,
    Bug::LinkCountInRename,
    Bug::LinkCountNotWritten,
    Bug::LinkCountInRmdir,
    Bug::OrphanOfOpenNotRecorded,
];

amphi_planted::planted!(Bug);
