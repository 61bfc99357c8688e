//! Why something could not be done with a file system.

use crate::Volume;

/// What the functions of [`Volume`] return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done with a file system.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device holds something else, or nothing.
    #[error("the device holds no {title} file system")]
    NotThis {
        /// What was looked for.
        title: &'static str,
    },
    /// This file system has no such thing.
    #[error("the file system is {title}, which cannot be {verb}")]
    Unsupported {
        /// The file system.
        title: &'static str,
        /// What cannot be done with it, as a participle.
        verb: &'static str,
    },
    /// A version that this program does not know.
    #[error("version {version} of {title} is unknown to this program")]
    Version {
        /// The file system.
        title: &'static str,
        /// Its version.
        version: u32,
    },
    /// A superblock whose checksum or whose sizes are wrong.
    #[error("the superblock of {title} is damaged")]
    Superblock {
        /// The file system.
        title: &'static str,
    },
    /// The device cannot carry it, or an option is unknown or impossible.
    #[error("{0}")]
    Unsuitable(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] amphi_device::Error),
    /// The file system's own reason.
    #[error(transparent)]
    Own(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// `V` cannot be `verb`.
    #[must_use]
    pub const fn unsupported<D, V: Volume<D>>(verb: &'static str) -> Self {
        Self::Unsupported { title: V::IDENTITY.title, verb }
    }

    /// A file system's own error.
    pub fn own(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Own(Box::new(error))
    }
}

impl From<amphi_vfs::Error> for Error {
    fn from(error: amphi_vfs::Error) -> Self {
        Self::own(error)
    }
}
