//! File names: 1 to 255 bytes, without `/` and NUL, and neither `.` nor `..`.

use crate::{Error, Result};

/// Longest file name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A checked file name: one component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] above 255 bytes; [`Error::InvalidName`] when empty, `.`, `..`, or with a `/` or
    /// NUL in it.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if matches!(bytes, b"" | b"." | b"..") || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Error::InvalidName);
        }
        Ok(Self(bytes))
    }

    /// The name's bytes.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component() {
        assert!(Name::new(b"a").is_ok());
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert_eq!(Name::new(&[b'x'; 256]), Err(Error::NameTooLong));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(Name::new(bad), Err(Error::InvalidName), "{bad:?}");
        }
        assert!(Name::new(b"...").is_ok());
    }
}
