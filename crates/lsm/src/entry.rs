//! What the store keeps: versions of keys.

/// A version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub seq: u64,
    /// `None`: the key is deleted.
    pub value: Option<Vec<u8>>,
}
