//! What a file system says of itself.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use uuid::Uuid;

/// What a superblock says, for people and as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// [`Identity::name`](crate::Identity::name).
    #[serde(rename = "type")]
    pub name: &'static str,
    /// Its label.
    pub label: String,
    /// Unique name.
    #[serde(serialize_with = "as_text")]
    pub uuid: [u8; 16],
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes that it can grow to.
    pub size_max_bytes: u64,
    /// Bytes of its journal, 0 for none.
    pub journal_bytes: u64,
    /// Mount options that hold unless a mount says otherwise.
    pub mount_options: String,
    /// Inodes.
    pub inodes: u64,
    /// How often it was mounted.
    pub mounts: u64,
    /// Whether the last mount ended cleanly.
    pub clean: bool,
    /// What only this file system has.
    #[serde(flatten)]
    pub own: Map<String, Value>,
}

fn as_text<S: Serializer>(uuid: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown_uuid(*uuid))
}

/// A UUID as it is usually written.
#[must_use]
pub fn shown_uuid(uuid: [u8; 16]) -> String {
    Uuid::from_bytes(uuid).to_string()
}

/// Reads a UUID as it is usually written, with or without dashes.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    Uuid::try_parse(text)
        .map(Uuid::into_bytes)
        .map_err(|_| format!("`{text}` is no UUID; write 32 hexadecimal digits, or random"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_as_it_is_shown() {
        let uuid = std::array::from_fn(|index| index as u8 + 0xa0);
        assert_eq!(shown_uuid(uuid), "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
        assert_eq!(parse_uuid(&shown_uuid(uuid)), Ok(uuid));
        assert_eq!(parse_uuid("a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"), Ok(uuid));
        for bad in ["", "a0", "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeag", "+0a1a2a3-a4a5-a6a7-a8a9-aaabacadaea"] {
            assert!(parse_uuid(bad).is_err(), "{bad}");
        }
    }
}
