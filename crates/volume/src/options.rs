//! How to make, mount and tune a file system, in what they have in common. What one has not, it leaves aside.

use amphi_vfs::AccessTimes;

use crate::error::{Error, Result};
use crate::fields::label_bytes;

/// How to make a file system. What is `None` is as usual for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// Its name, at most 32 bytes.
    pub label: String,
    /// Bytes, if not all of the device.
    pub bytes: Option<u64>,
    /// Bytes of its journal; of ByteFS's data journal.
    pub journal_bytes: Option<u64>,
    /// Inodes, about.
    pub inodes: Option<u32>,
    /// Bytes of a data block, where that is not the device's page.
    pub block_bytes: Option<u64>,
    /// Parts that it is divided into, where it is; AugeFS's domains.
    pub domains: Option<u32>,
}

/// How to mount a file system. What is `None` is as its superblock says, or as usual for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
    /// Options that are the file system's own, as people write them, separated by commas. They are read
    /// first.
    pub words: String,
    /// Pages of file data in host memory.
    pub page_cache_pages: Option<usize>,
    /// Dirty pages from which on writers wait.
    pub dirty_pages: Option<usize>,
    /// Inodes in host memory.
    pub inode_cache: Option<usize>,
    /// How often the background tasks work, ns; 0: there are none.
    pub background_interval_ns: Option<u64>,
    /// Age at which a dirty file is written back then, ns.
    pub dirty_expire_ns: Option<u64>,
    /// How coarse time stamps are, ns, where the file system rounds them.
    pub tick_ns: Option<i64>,
}

impl MountOptions {
    /// For a file system with this title that has no options of its own.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] if there are some.
    pub fn refuse_words(&self, title: &'static str) -> Result<()> {
        if self.words.is_empty() {
            return Ok(());
        }
        Err(Error::Unsuitable(format!("`{}`: {title} has no mount options", self.words)))
    }
}

/// What to change of an unmounted file system; `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Label, at most 32 bytes.
    pub label: Option<String>,
    /// Unique name.
    pub uuid: Option<[u8; 16]>,
    /// Mount options that hold unless a mount says otherwise.
    pub options: Option<String>,
}

impl Changes {
    /// Changes the label and the UUID that a superblock holds.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] for a label that is too long; then nothing has changed.
    pub fn rename<const N: usize>(&self, label: &mut [u8; N], uuid: &mut [u8; 16]) -> Result<()> {
        if let Some(wanted) = &self.label {
            *label = label_bytes(wanted)?;
        }
        *uuid = self.uuid.unwrap_or(*uuid);
        Ok(())
    }

    /// As [`rename`](Self::rename), for a superblock that holds no mount options.
    ///
    /// # Errors
    /// As there; [`Error::Unsuitable`] for mount options.
    pub fn rename_only<const N: usize>(&self, label: &mut [u8; N], uuid: &mut [u8; 16]) -> Result<()> {
        if self.options.is_some() {
            let why = "its superblock holds no mount options; give them to each mount (amphi mount -o)";
            return Err(Error::Unsuitable(why.to_owned()));
        }
        self.rename(label, uuid)
    }
}
