//! Extended attributes: one after another, in the inode if they fit there, else in one block of their own.

use super::{BLOCK, is_sealed};

/// Bytes for attributes in an inode.
pub const XATTR_INLINE_MAX: usize = 96;
/// First bytes of a block of attributes.
const MAGIC: u32 = 0xEA02_0000;
/// Bytes before the attributes in their block: the magic and their length.
const HEADER: usize = 8;

/// Attributes one after another: a byte with the name's length, two with the value's, name, value.
#[must_use]
pub fn encode_xattrs(attributes: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in attributes {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    bytes
}

/// Reads what [`encode_xattrs`] wrote; none if it is impossible.
#[must_use]
pub fn decode_xattrs(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut attributes: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while !bytes.is_empty() {
        let (&[name_bytes, v0, v1], rest) = bytes.split_first_chunk::<3>()?;
        let (name, rest) = rest.split_at_checked(usize::from(name_bytes))?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([v0, v1])))?;
        if name.is_empty() || attributes.iter().any(|(known, _)| known == name) {
            return None;
        }
        attributes.push((name.to_vec(), value.to_vec()));
        bytes = rest;
    }
    Some(attributes)
}

/// A block holding encoded attributes; none if they do not fit. The checksum is not there yet.
#[must_use]
pub fn encode_xattr_block(encoded: &[u8]) -> Option<[u8; BLOCK]> {
    if encoded.len() > BLOCK - HEADER - 4 {
        return None;
    }
    let mut block = [0; BLOCK];
    block[..4].copy_from_slice(&MAGIC.to_le_bytes());
    block[4..HEADER].copy_from_slice(&(encoded.len() as u32).to_le_bytes());
    block[HEADER..HEADER + encoded.len()].copy_from_slice(encoded);
    Some(block)
}

/// Reads a block of attributes; none if it is none.
#[must_use]
pub fn decode_xattr_block(lba: u64, block: &[u8; BLOCK]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let [m0, m1, m2, m3, l0, l1, l2, l3, ..] = *block;
    if !is_sealed(lba, block) || u32::from_le_bytes([m0, m1, m2, m3]) != MAGIC {
        return None;
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    decode_xattrs(block[HEADER..BLOCK - 4].get(..len)?)
}
