//! What a device is, for people and for `amphi info`.

use serde::Serialize;

use crate::Firmware;

/// How the last session with a device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u64)]
pub enum Shutdown {
    /// The device was never powered up.
    New = 0,
    /// A process has the device open now, or was killed with it open.
    InUse = 1,
    /// The device was closed.
    Clean = 2,
    /// The host crashed, on request.
    HostCrash = 3,
    /// Power failed, on request.
    PowerCut = 4,
}

impl Shutdown {
    /// Reads a control word.
    pub(crate) const fn from_word(word: u64) -> Option<Self> {
        Some(match word {
            0 => Self::New,
            1 => Self::InUse,
            2 => Self::Clean,
            3 => Self::HostCrash,
            4 => Self::PowerCut,
            _ => return None,
        })
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Version of the image format.
    pub format_version: u32,
    /// A number given to the image when it was made.
    pub image_id: u64,
    /// When it was made, in ns since 1970.
    pub created_ns: u64,
    /// The profile it was made with.
    pub profile: String,
    /// That profile's one-line description.
    pub description: String,
    /// What the firmware does with the device's memory: `log`, `page-cache`, `memory` or `ba-buffer`.
    pub firmware: Firmware,
    /// Bytes the host may address.
    pub capacity_bytes: u64,
    /// Bytes of flash, over-provisioning included.
    pub flash_bytes: u64,
    /// Length of the (sparse) image.
    pub image_bytes: u64,
    /// Bytes of each of the two log regions.
    pub log_region_bytes: u64,
    /// Bytes of the page cache; 0 with another firmware.
    pub cache_bytes: u64,
    /// Bytes of the memory area or the BA-buffer; 0 with another firmware.
    pub memory_bytes: u64,
    /// Entries that a BA-buffer's table has room for; 0 with another firmware.
    pub pin_entries: u64,
    /// Bytes of the transaction log.
    pub txlog_bytes: u64,
    /// Flash channels and dies per channel.
    pub channels: u64,
    /// Dies on each channel.
    pub ways: u64,
    /// Pages in an erase block.
    pub pages_per_block: u64,
    /// How often the device was powered up.
    pub power_ups: u64,
    /// How the session before this one ended.
    pub last_shutdown: Shutdown,
}
