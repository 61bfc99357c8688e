//! The register of logs: the last page of the window, which no pin takes. Little-endian, sizes fixed at
//! compile time. The byte diagrams are in docs/format/pins.md.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the register.
pub const REGISTER: usize = 4096;
/// Bytes of a line of it.
pub const LINE: usize = 64;
/// Lines after the first one, which is the [`Head`].
pub const LINES: usize = REGISTER / LINE - 1;
/// First bytes of a register.
pub const MAGIC: [u8; 8] = *b"AMPHIPIN";
/// Version of the format.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// CRC-32C of the head with zero here.
    pub crc: U32,
    /// Which file system's logs these are.
    pub identity: [u8; 16],
    /// Zeros.
    pub rest: [u8; 32],
}

/// A pinned part of a log. A line without one has a checksum that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Line {
    /// The file.
    pub ino: U64,
    /// First byte of the part in the file.
    pub offset: U64,
    /// Its first page on the device.
    pub at: U64,
    /// Its pages.
    pub pages: U32,
    /// CRC-32C of the file system's identity and the fields above.
    pub crc: U32,
    /// Bytes that the file has if that is more than its inode says; not in the checksum, since one store of
    /// eight bytes changes it.
    pub size: U64,
    /// Zeros.
    pub rest: [u8; 24],
}

const _: () = assert!(size_of::<Head>() == LINE && size_of::<Line>() == LINE);

/// Where [`Line::size`] is in a line.
pub const SIZE_AT: u64 = 32;

impl Head {
    /// The head of a file system's register.
    #[must_use]
    pub fn new(identity: [u8; 16]) -> Self {
        let version = U32::new(VERSION);
        let mut head = Self { magic: MAGIC, version, crc: U32::ZERO, identity, rest: [0; 32] };
        head.crc = U32::new(crc32c::crc32c(head.as_bytes()));
        head
    }
}

impl Line {
    /// The line of a part that has no size of its own yet.
    #[must_use]
    pub fn new(identity: &[u8; 16], ino: u64, offset: u64, at: u64, pages: u32) -> Self {
        let mut line = Self {
            ino: U64::new(ino),
            offset: U64::new(offset),
            at: U64::new(at),
            pages: U32::new(pages),
            crc: U32::ZERO,
            size: U64::ZERO,
            rest: [0; 24],
        };
        line.crc = U32::new(line.checksum(identity));
        line
    }

    fn checksum(&self, identity: &[u8; 16]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(identity), &self.as_bytes()[..28])
    }
}

/// The lines of a register that are parts of this file system's logs. Whatever the bytes are, they are read.
#[must_use]
pub fn decode(register: &[u8; REGISTER], identity: &[u8; 16]) -> Vec<Line> {
    let (head, mut rest) = Head::read_from_prefix(register).expect("a register is longer");
    if head != Head::new(*identity) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    while let Ok((line, behind)) = Line::read_from_prefix(rest) {
        if line.pages.get() > 0 && line.crc.get() == line.checksum(identity) {
            lines.push(line);
        }
        rest = behind;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_whole_and_in_its_file_systems_register() {
        let mut register = [0; REGISTER];
        assert_eq!(decode(&register, &[7; 16]), [], "nothing was ever written there");
        register[..LINE].copy_from_slice(Head::new([7; 16]).as_bytes());
        let line = Line::new(&[7; 16], 12, 4096, 900, 3);
        register[5 * LINE..6 * LINE].copy_from_slice(line.as_bytes());
        assert_eq!(decode(&register, &[7; 16]), [line]);
        assert_eq!(decode(&register, &[8; 16]), []);
        for byte in 0..32 {
            register[5 * LINE + byte] ^= 1;
            assert_eq!(decode(&register, &[7; 16]), [], "byte {byte}");
            register[5 * LINE + byte] ^= 1;
        }
        register[5 * LINE + SIZE_AT as usize] = 9;
        assert_eq!(decode(&register, &[7; 16])[0].size.get(), 9);
    }
}
