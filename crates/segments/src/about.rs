//! What a file system of this kind says of itself to tools.

use amphi_volume::About;
use serde_json::{Map, json};

use crate::format::{Areas, PAGE};

/// What one is that takes its main area for files: its name, label and unique name, most inodes, how often it
/// was mounted, whether the last mount has ended cleanly, and what is its own.
#[must_use]
pub fn about(
    name: &'static str,
    (label, uuid): (String, [u8; 16]),
    areas: &Areas,
    inodes: u64,
    (mounts, clean): (u64, bool),
    own: &[(&str, u64)],
) -> About {
    let bytes = areas.main_blocks() * PAGE as u64;
    About {
        name,
        label,
        uuid,
        size_bytes: bytes,
        size_max_bytes: bytes,
        journal_bytes: 0,
        mount_options: String::new(),
        inodes,
        mounts,
        clean,
        own: Map::from_iter(own.iter().map(|(name, value)| ((*name).to_owned(), json!(value)))),
    }
}
