//! What is to run in a machine.

use std::path::Path;

/// What is to run in a machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::validation) struct Wanted<'a> {
    /// The program.
    pub(in crate::validation) amphi: &'a Path,
    /// Where a kernel package is unpacked.
    pub(in crate::validation) package: &'a Path,
    /// The file that is its disk.
    pub(in crate::validation) disk: &'a Path,
    /// The file system on it, and how to mount it.
    pub(in crate::validation) kind: &'a str,
    pub(in crate::validation) options: &'a str,
    /// What the program is told there, besides where.
    pub(in crate::validation) arguments: &'a [String],
}
