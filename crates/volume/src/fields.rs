//! Fields that most formats have: codes of types, labels, unique names, lists of extended attributes.

use amphi_rt::random;
use amphi_vfs::FileType;
use amphi_vfs::acl::Attributes;

use crate::error::{Error, Result};

/// Types by their code on the device less one; code 0 stands for none.
#[derive(Clone, Copy, Debug)]
pub struct TypeCodes(pub [FileType; 7]);

impl TypeCodes {
    /// The code of a type.
    #[must_use]
    pub const fn code(&self, file_type: FileType) -> u8 {
        let mut at = 0;
        while at < self.0.len() && self.0[at] as u8 != file_type as u8 {
            at += 1;
        }
        at as u8 + 1
    }

    /// The type of a code.
    #[must_use]
    pub fn file_type(&self, code: u8) -> Option<FileType> {
        self.0.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// A text as it stands in a field that is filled up with zeros.
#[must_use]
pub fn label_text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// A label as a field of `N` bytes holds it.
///
/// # Errors
/// [`Error::Unsuitable`] if it is too long.
pub fn label_bytes<const N: usize>(label: &str) -> Result<[u8; N]> {
    let mut field = [0; N];
    let fits = field.get_mut(..label.len());
    let fits = fits.ok_or_else(|| Error::Unsuitable(format!("the label is longer than {N} bytes")))?;
    fits.copy_from_slice(label.as_bytes());
    Ok(field)
}

/// A unique name for a new file system.
#[must_use]
pub fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.as_chunks_mut::<8>().0.iter_mut().for_each(|half| *half = random::u64().to_le_bytes());
    uuid
}

/// Bytes of a list of attributes as [`encode_attributes`] writes it.
#[must_use]
pub fn attributes_bytes(attributes: &Attributes) -> usize {
    2 + attributes.iter().map(|(name, value)| 3 + name.len() + value.len()).sum::<usize>()
}

/// Extended attributes as a list: `count (2 B) | { bytes of the name (1 B) | bytes of the value (2 B) | name
/// | value } …`. Together they fit a page, so the counts hold their lengths.
#[must_use]
pub fn encode_attributes(attributes: &Attributes) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(attributes_bytes(attributes));
    bytes.extend((attributes.len() as u16).to_le_bytes());
    for (name, value) in attributes {
        bytes.push(name.len() as u8);
        bytes.extend((value.len() as u16).to_le_bytes());
        bytes.extend(name);
        bytes.extend(value);
    }
    bytes
}

/// Reads such a list, if it makes sense. What is behind it says nothing.
#[must_use]
pub fn decode_attributes(bytes: &[u8]) -> Option<Attributes> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let attributes = vec![(b"user.a".to_vec(), vec![7; 300]), (b"user.b".to_vec(), Vec::new())];
        let bytes = encode_attributes(&attributes);
        assert_eq!(bytes.len(), attributes_bytes(&attributes));
        assert_eq!(decode_attributes(&bytes), Some(attributes));
        assert!((0..bytes.len()).all(|len| decode_attributes(&bytes[..len]).is_none()));
    }

    #[test]
    fn a_label_fits_or_is_refused() {
        assert_eq!(label_text(&label_bytes::<8>("home").expect("it fits")), "home");
        assert_eq!(label_text(&label_bytes::<4>("home").expect("it fits")), "home");
        assert!(label_bytes::<3>("home").is_err());
    }
}
