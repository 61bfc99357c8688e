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
    /// A superblock that is damaged.
    #[error("the superblock of {title} is damaged: {why}")]
    Superblock {
        /// The file system.
        title: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The device cannot carry it, or an option is unknown or impossible.
    #[error("{0}")]
    Unsuitable(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] amphi_device::Error),
    /// Something beyond the superblock is damaged, or failed.
    #[error(transparent)]
    Damaged(#[from] amphi_vfs::Error),
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

    /// The device cannot carry a file system with this title.
    #[must_use]
    pub fn unsuitable(title: &str, why: &str) -> Self {
        Self::Unsuitable(format!("{title} cannot use this device: {why}"))
    }

    /// A file system's own error.
    pub fn own(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Own(Box::new(error))
    }
}

/// Whether what was read is the superblock of the file system `title`: whether it starts with its magic,
/// which version it is and which is known, whether its checksum is right.
///
/// # Errors
/// [`Error::NotThis`], [`Error::Version`], [`Error::Superblock`].
pub const fn recognise(
    title: &'static str,
    is_magic: bool,
    (version, known): (u32, u32),
    is_sealed: bool,
) -> Result<()> {
    match (is_magic, version == known, is_sealed) {
        (false, ..) => Err(Error::NotThis { title }),
        (_, false, _) => Err(Error::Version { title, version }),
        (.., false) => Err(Error::Superblock { title, why: "its checksum does not match" }),
        _ => Ok(()),
    }
}
