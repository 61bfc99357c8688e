//! Stands in for version 1 of the crate `bytes` towards the LSM store (`[patch.crates-io]` in the workspace's `Cargo.toml`), which is the only one that asks for it.
//!
//! Where the store merges, it asks each of its iterators for key and value at every step, and lets most of them go. In the original each of them counts holders atomically, calls
//! through a table of functions, and takes memory for the key: a fifth to a third of what a simulated scan cost. Here a key lies in the value itself and holders are counted without
//! atomics, since the store is one thread's at a time. Of the crate's interface there is what the store uses.
//!
//! [`Bytes`] is as large as the original: the store counts it when it decides that its memory table is full, so results would change otherwise.
#![forbid(unsafe_code)]

use std::fmt;
use std::num::NonZeroU8;
use std::ops::{Bound, Deref, RangeBounds};
use std::rc::Rc;

/// Up to so many bytes lie in the value itself: a YCSB key of 23 B and the 8 B that the store adds to it.
const INLINE: usize = 31;

/// Bytes that do not change, cheap to clone.
#[derive(Clone)]
pub struct Bytes(Place);

#[derive(Clone)]
enum Place {
    /// One more than the length, so that the zero tells this case from the other and nothing is spent on a tag.
    Inline(NonZeroU8, [u8; INLINE]),
    Shared {
        whole: Rc<Vec<u8>>,
        start: usize,
        len: usize,
    },
}

const _: () = assert!(size_of::<Bytes>() == 32);

impl Bytes {
    /// No bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(Place::Inline(NonZeroU8::MIN, [0; INLINE]))
    }

    /// A copy of `data`.
    #[must_use]
    #[inline]
    pub fn copy_from_slice(data: &[u8]) -> Self {
        Self::inline(data).unwrap_or_else(|| Self::shared(data.to_vec()))
    }

    /// A part of these bytes, without copying them where they are many.
    ///
    /// # Panics
    /// If the range is not within them.
    #[must_use]
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let from = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(at) => at + 1,
            Bound::Excluded(at) => *at,
            Bound::Unbounded => self.len(),
        };
        assert!(from <= to && to <= self.len(), "{from}..{to} is not within {} bytes", self.len());
        match &self.0 {
            Place::Inline(..) => Self::copy_from_slice(&self[from..to]),
            Place::Shared { whole, start, .. } => {
                Self(Place::Shared { whole: Rc::clone(whole), start: start + from, len: to - from })
            }
        }
    }

    #[inline]
    fn inline(data: &[u8]) -> Option<Self> {
        let one_more = one_more_than(data.len())?;
        let mut bytes = [0; INLINE];
        bytes[..data.len()].copy_from_slice(data);
        Some(Self(Place::Inline(one_more, bytes)))
    }

    fn shared(data: Vec<u8>) -> Self {
        let len = data.len();
        Self(Place::Shared { whole: Rc::new(data), start: 0, len })
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Inline(one_more, bytes) => &bytes[..len(*one_more)],
            Place::Shared { whole, start, len } => &whole[*start..*start + *len],
        }
    }
}

impl AsRef<[u8]> for Bytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Bytes {
    #[inline]
    fn from(data: Vec<u8>) -> Self {
        Self::inline(&data).unwrap_or_else(|| Self::shared(data))
    }
}

impl From<Bytes> for Vec<u8> {
    fn from(bytes: Bytes) -> Self {
        bytes.to_vec()
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

/// Bytes that are put together.
#[derive(Clone, Debug)]
pub struct BytesMut(Growing);

#[derive(Clone, Debug)]
enum Growing {
    /// As [`Place::Inline`], so that freezing moves a few words.
    Inline(NonZeroU8, [u8; INLINE]),
    Long(Vec<u8>),
}

impl BytesMut {
    /// No bytes yet.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self(Growing::Inline(NonZeroU8::MIN, [0; INLINE]))
    }

    /// Adds some at the end.
    #[inline]
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        match &mut self.0 {
            Growing::Inline(one_more, bytes) => {
                let had = len(*one_more);
                match one_more_than(had + data.len()) {
                    Some(sum) => {
                        bytes[had..had + data.len()].copy_from_slice(data);
                        *one_more = sum;
                    }
                    None => self.0 = Growing::Long([&bytes[..had], data].concat()),
                }
            }
            Growing::Long(bytes) => bytes.extend_from_slice(data),
        }
    }

    /// Keeps the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Growing::Inline(one_more, _) => {
                *one_more = one_more_than(len).map_or(*one_more, |kept| kept.min(*one_more));
            }
            Growing::Long(bytes) => bytes.truncate(len),
        }
    }

    /// Keeps none.
    #[inline]
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The same, not to be changed any more.
    #[must_use]
    #[inline]
    pub fn freeze(self) -> Bytes {
        match self.0 {
            Growing::Inline(len, bytes) => Bytes(Place::Inline(len, bytes)),
            Growing::Long(bytes) => Bytes::from(bytes),
        }
    }
}

impl Default for BytesMut {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for BytesMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Growing::Inline(one_more, bytes) => &bytes[..len(*one_more)],
            Growing::Long(bytes) => bytes,
        }
    }
}

/// How an inline length is kept; none if it does not fit.
#[inline]
const fn one_more_than(len: usize) -> Option<NonZeroU8> {
    if len <= INLINE { NonZeroU8::new(len as u8 + 1) } else { None }
}

#[inline]
fn len(one_more: NonZeroU8) -> usize {
    usize::from(one_more.get()) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_they_were_made_of_at_every_length() {
        for len in [0, 1, INLINE - 1, INLINE, INLINE + 1, 5000] {
            let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert_eq!(*Bytes::copy_from_slice(&data), data);
            assert_eq!(*Bytes::from(data.clone()), data);
            assert_eq!(Vec::from(Bytes::from(data.clone())), data);
            let mut built = BytesMut::new();
            built.extend_from_slice(&data);
            built.extend_from_slice(b"more");
            built.truncate(len);
            let copy = built.clone();
            built.clear();
            assert!(built.is_empty());
            assert_eq!(*copy.freeze(), data);
        }
    }

    #[test]
    fn a_part_is_that_part_also_of_a_part() {
        let data: Vec<u8> = (0..200).collect();
        let whole = Bytes::from(data.clone());
        let part = whole.slice(10..150);
        drop(whole);
        assert_eq!(*part, data[10..150]);
        assert_eq!(*part.slice(5..), data[15..150]);
        assert_eq!(*part.slice(..=5), data[10..16]);
        assert_eq!(*Bytes::copy_from_slice(b"short").slice(1..3), *b"ho");
        assert!(part.slice(3..3).is_empty());
    }

    #[test]
    #[should_panic(expected = "3..6 is not within 5 bytes")]
    fn a_part_that_is_not_there_is_refused() {
        let _ = Bytes::copy_from_slice(b"short").slice(3..6);
    }
}
