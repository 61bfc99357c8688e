//! A value alone on its cache lines: what tasks on different processors change all the time does not slow
//! down its neighbours in memory.

use std::ops::{Deref, DerefMut};

/// A value that shares no cache line with another. 128 bytes: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Padded;

    #[test]
    fn neighbours_share_no_line() {
        let two = [Padded(1_u8), Padded(2)];
        let (first, second) = (&raw const *two[0], &raw const *two[1]);
        assert_eq!((first as usize % 128, second as usize - first as usize), (0, 128));
    }
}
