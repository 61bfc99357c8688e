//! Why a file system could not be made or mounted.

use amphi_vfs::Error;

use crate::format::FormatError;

/// Why a file system could not be made or mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// What is on the device is no such file system of this version, or its superblock is damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] amphi_device::Error),
    /// The device cannot carry it.
    #[error("the ext4-like file system cannot use this device: {0}")]
    Unsuitable(String),
    /// A mount option is unknown or impossible.
    #[error("{0}")]
    Options(String),
    /// Something beyond the superblock is damaged.
    #[error(transparent)]
    Damaged(#[from] Error),
}
