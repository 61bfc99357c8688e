//! Extended attributes: a page with a list of names and values, which is written anew with each change.
//!
//! `count (2 B) | { bytes of the name (1 B) | bytes of the value (2 B) | name | value } …`

use amphi_vfs::acl::Attributes;

/// Bytes that a list takes.
pub fn bytes_of(attributes: &Attributes) -> usize {
    2 + attributes.iter().map(|(name, value)| 3 + name.len() + value.len()).sum::<usize>()
}

/// As the page has them.
pub fn encode(attributes: &Attributes) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bytes_of(attributes));
    bytes.extend((attributes.len() as u16).to_le_bytes());
    for (name, value) in attributes {
        bytes.push(name.len() as u8);
        bytes.extend((value.len() as u16).to_le_bytes());
        bytes.extend(name);
        bytes.extend(value);
    }
    bytes
}

/// Reads a page, if it makes sense.
pub fn decode(bytes: &[u8]) -> Option<Attributes> {
    let (count, mut rest) = bytes.split_first_chunk()?;
    let mut attributes = Attributes::new();
    for _ in 0..u16::from_le_bytes(*count) {
        let ([name_bytes, low, high], behind) = rest.split_first_chunk()?;
        let (name, behind) = behind.split_at_checked(usize::from(*name_bytes))?;
        let (value, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes([*low, *high])))?;
        attributes.push((name.to_vec(), value.to_vec()));
        rest = behind;
    }
    Some(attributes)
}
