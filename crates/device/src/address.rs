//! Addresses and units: pages of 4 KB, cache lines of 64 B.

/// Bytes in a page, the unit of the block port and of flash.
pub const PAGE_BYTES: usize = 4096;

/// Bytes in a cache line, the unit of the byte port's flushes and of the firmware's write log.
pub const LINE_BYTES: usize = 64;

/// A logical page address: the index of a 4 KB page of the host-visible address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lpa(pub u64);

impl Lpa {
    /// Byte address of `offset` (< 4096) within this page, counted from page 0; on a
    /// [`PageView`](crate::PageView) also on the byte port.
    #[must_use]
    pub const fn byte(self, offset: usize) -> u64 {
        self.0 * PAGE_BYTES as u64 + offset as u64
    }

    /// The page that holds a byte address.
    #[must_use]
    pub const fn of_byte(address: u64) -> Self {
        Self(address / PAGE_BYTES as u64)
    }

    /// The page `pages` further on.
    #[must_use]
    pub const fn plus(self, pages: u64) -> Self {
        Self(self.0 + pages)
    }
}

/// First line address and number of 64 B lines touched by `len` bytes at byte address `at`.
#[must_use]
pub const fn lines_covering(at: u64, len: usize) -> (u64, usize) {
    let line = LINE_BYTES as u64;
    let first = at / line * line;
    if len == 0 {
        return (first, 0);
    }
    let end = (at + len as u64).div_ceil(line) * line;
    (first, ((end - first) / line) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_lines_include_both_ends() {
        assert_eq!(lines_covering(0, 64), (0, 1));
        assert_eq!(lines_covering(63, 2), (0, 2));
        assert_eq!(lines_covering(128, 0), (128, 0));
        assert_eq!(lines_covering(130, 62), (128, 1));
        assert_eq!(lines_covering(130, 63), (128, 2));
    }
}
