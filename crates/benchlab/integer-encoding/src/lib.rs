//! Stands in for version 3 of the crate `integer-encoding` towards the LSM store (`[patch.crates-io]` in the
//! workspace's `Cargo.toml`), which is the only one that asks for it.
//!
//! The store decodes three lengths for each record that it passes and two for each key of its memory table
//! that it compares, nearly all of them of one or two bytes. The original does each by two calls and a loop:
//! up to a twelfth of what a simulated YCSB run cost. Of the crate's interface there is what the store uses,
//! with the same bytes.
#![forbid(unsafe_code)]

use std::io::{Error, ErrorKind, Read, Result, Write};

/// Most bytes of an integer of variable length.
const LONGEST: usize = 10;

/// Integers of variable length: seven bits in a byte, the lowest first, the eighth says that more follow.
pub trait VarInt: Sized + Copy {
    /// As 64 bits.
    fn wide(self) -> u64;
    /// The lowest bits of 64.
    fn narrow(bits: u64) -> Self;

    /// Bytes that it takes.
    #[inline]
    fn required_space(self) -> usize {
        (64 - (self.wide() | 1).leading_zeros() as usize).div_ceil(7)
    }

    /// The integer that `src` begins with, and how many bytes that takes; none if its end is missing.
    #[inline]
    fn decode_var(src: &[u8]) -> Option<(Self, usize)> {
        let mut bits = 0;
        for (at, byte) in src.iter().take(LONGEST).enumerate() {
            bits |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                return Some((Self::narrow(bits), at + 1));
            }
        }
        None
    }

    /// Puts it at the beginning of `dst`; how many bytes it takes.
    ///
    /// # Panics
    /// If `dst` is shorter than that.
    #[inline]
    fn encode_var(self, dst: &mut [u8]) -> usize {
        let (mut bits, mut at) = (self.wide(), 0);
        while bits >= 0x80 {
            dst[at] = bits as u8 | 0x80;
            bits >>= 7;
            at += 1;
        }
        dst[at] = bits as u8;
        at + 1
    }
}

/// Integers of fixed length, little-endian.
pub trait FixedInt: Sized + Copy {
    /// Bytes that one takes.
    const REQUIRED_SPACE: usize;

    /// [`Self::REQUIRED_SPACE`].
    #[inline]
    #[must_use]
    fn required_space() -> usize {
        Self::REQUIRED_SPACE
    }

    /// Puts it into `dst`.
    ///
    /// # Panics
    /// Unless `dst` is exactly as long as it takes.
    fn encode_fixed(self, dst: &mut [u8]);

    /// The integer that `src` begins with.
    ///
    /// # Panics
    /// If `src` is shorter than it takes.
    fn decode_fixed(src: &[u8]) -> Self;

    /// Its bytes.
    fn encode_fixed_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; Self::REQUIRED_SPACE];
        self.encode_fixed(&mut bytes);
        bytes
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl VarInt for $integer {
            #[inline]
            fn wide(self) -> u64 {
                self as u64
            }

            #[inline]
            fn narrow(bits: u64) -> Self {
                bits as Self
            }
        }

        impl FixedInt for $integer {
            const REQUIRED_SPACE: usize = size_of::<Self>();

            #[inline]
            fn encode_fixed(self, dst: &mut [u8]) {
                dst.copy_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn decode_fixed(src: &[u8]) -> Self {
                let mut bytes = [0; Self::REQUIRED_SPACE];
                bytes.copy_from_slice(&src[..Self::REQUIRED_SPACE]);
                Self::from_le_bytes(bytes)
            }
        }
    )*};
}

integers!(u16, u32, u64, usize);

/// Reads integers of variable length.
pub trait VarIntReader {
    /// The next one.
    ///
    /// # Errors
    /// What the reader says; the integer's end is missing, or it is longer than any.
    fn read_varint<I: VarInt>(&mut self) -> Result<I>;
}

impl<R: Read> VarIntReader for R {
    fn read_varint<I: VarInt>(&mut self) -> Result<I> {
        let mut bytes = [0; LONGEST];
        for at in 0..LONGEST {
            self.read_exact(&mut bytes[at..=at])?;
            if let Some((found, _)) = I::decode_var(&bytes[..=at]) {
                return Ok(found);
            }
        }
        Err(Error::new(ErrorKind::InvalidData, "an integer of more than 64 bits"))
    }
}

/// Writes integers of variable length.
pub trait VarIntWriter {
    /// Writes one; how many bytes that took.
    ///
    /// # Errors
    /// What the writer says.
    fn write_varint<I: VarInt>(&mut self, integer: I) -> Result<usize>;
}

impl<W: Write> VarIntWriter for W {
    #[inline]
    fn write_varint<I: VarInt>(&mut self, integer: I) -> Result<usize> {
        let mut bytes = [0; LONGEST];
        let len = integer.encode_var(&mut bytes);
        self.write_all(&bytes[..len])?;
        Ok(len)
    }
}

/// Writes integers of fixed length.
pub trait FixedIntWriter {
    /// Writes one; how many bytes that took.
    ///
    /// # Errors
    /// What the writer says.
    fn write_fixedint<I: FixedInt>(&mut self, integer: I) -> Result<usize>;
}

impl<W: Write> FixedIntWriter for W {
    #[inline]
    fn write_fixedint<I: FixedInt>(&mut self, integer: I) -> Result<usize> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..I::REQUIRED_SPACE];
        integer.encode_fixed(bytes);
        self.write_all(bytes)?;
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_bytes_of_leveldb_s_format() {
        let cases: [(u64, &[u8]); 7] = [
            (0, &[0]),
            (1, &[1]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (300, &[0xAC, 2]),
            (1 << 35, &[0x80, 0x80, 0x80, 0x80, 0x80, 1]),
            (u64::MAX, &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]),
        ];
        for (integer, bytes) in cases {
            let mut written = Vec::new();
            assert_eq!(written.write_varint(integer).unwrap(), bytes.len());
            assert_eq!((&written[..], integer.required_space()), (bytes, bytes.len()));
            assert_eq!((&written[..]).read_varint::<u64>().unwrap(), integer);
            written.push(7);
            assert_eq!(u64::decode_var(&written), Some((integer, bytes.len())));
        }
        let mut written = Vec::new();
        assert_eq!(written.write_fixedint(0x0102_0304_u32).unwrap(), 4);
        assert_eq!(written, [4, 3, 2, 1]);
        assert_eq!(u32::decode_fixed(&[4, 3, 2, 1, 9]), 0x0102_0304);
        assert_eq!(0x0102_u16.encode_fixed_vec(), [2, 1]);
    }

    #[test]
    fn what_has_no_end_is_no_integer() {
        assert_eq!(u64::decode_var(&[]), None);
        assert_eq!(u64::decode_var(&[0x80, 0x80]), None);
        assert_eq!(u64::decode_var(&[0x80; 11]), None);
        assert!((&[0x80_u8, 0x80][..]).read_varint::<u32>().is_err());
        assert!((&[0x80_u8; 12][..]).read_varint::<u32>().is_err());
    }
}
