//! What went wrong below an operation: why a device failed it, and what of the file system is damaged and
//! where. Both keep their parts, so that a front end can decide by the cause and a message can name the
//! place.

use std::borrow::Cow;
use std::fmt;

/// Why a device did not do what an operation needed, or why the file system does not try any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A page cannot be read: more bit errors than its code corrects, or a wrong checksum.
    #[error("page {page} cannot be read: uncorrectable media error")]
    Media {
        /// The page of the device's block side.
        page: u64,
    },
    /// The device has lost its power.
    #[error("the device has lost power; reopen the image")]
    PowerLost,
    /// The device takes no more: no free flash block, or the file that holds its image cannot grow.
    #[error("the device has no room left: {0}")]
    Full(String),
    /// The file that holds an emulated device cannot be read or written.
    #[error("image file: {0}")]
    Image(String),
    /// The device refused a command, which it should have taken.
    #[error("{0}")]
    Refused(String),
    /// The file system cannot go on, by a limit of its own; the text names it.
    #[error("{0}")]
    Stuck(&'static str),
    /// An earlier operation failed half way, and memory and device no longer agree.
    #[error("an earlier operation failed: {0}")]
    Earlier(String),
}

/// Damage: a structure on the device that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What kind of structure: `inode`, `directory`, `page`, `transaction`, …
    pub structure: &'static str,
    /// Which one: the number, page or byte by which the file system's format knows it; none if there is only
    /// one.
    pub at: Option<u64>,
    /// What cannot be right about it.
    pub what: Cow<'static, str>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{} {at}: {}", self.structure, self.what),
            None => write!(f, "{}: {}", self.structure, self.what),
        }
    }
}
