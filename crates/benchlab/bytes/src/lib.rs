//! Stands in for version 1 of the crate `bytes` towards the LSM store (`[patch.crates-io]` in the workspace's
//! `Cargo.toml`), which is the only one that asks for it.
//!
//! Where the store merges, it asks each of its iterators for key and value at every step, and lets most of
//! them go. In the original each of them counts holders atomically, calls through a table of functions, and
//! takes memory for the key: a fifth to a third of what a simulated scan cost. Here a key lies in the value
//! itself and holders are counted without atomics, since the store is one thread's at a time. Of the crate's
//! interface there is what the store uses.
//!
//! [`Bytes`] is as large as the original: the store counts it when it decides that its memory table is full,
//! so results would change otherwise.
#![forbid(unsafe_code)]

mod format;

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::ops::{Bound, Deref, RangeBounds};
use std::rc::Rc;

use format::Inline;

/// So many spare buffers are kept by each thread, of up to so many bytes each.
const SPARE: usize = 8;
const SPARE_BYTES: usize = 16 << 10;

thread_local! {
    /// Buffers that nobody holds any more; the next copy is made in the one that was left last, which is in
    /// the processor's cache.
    static SPARES: RefCell<Vec<Rc<Vec<u8>>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that do not change, cheap to clone.
#[derive(Clone)]
pub struct Bytes(Place);

#[derive(Clone)]
enum Place {
    Inline(Inline),
    Shared { whole: Rc<Vec<u8>>, start: usize, len: usize },
}

const _: () = assert!(size_of::<Bytes>() == 32);

/// What can be copied.
pub trait Source {
    /// A copy of its bytes.
    fn copied(&self) -> Bytes;
}

impl Source for [u8] {
    #[inline]
    fn copied(&self) -> Bytes {
        Inline::of(self).map_or_else(|| Bytes::shared(in_spare(self)), Bytes::inline)
    }
}

impl Source for Vec<u8> {
    #[inline]
    fn copied(&self) -> Bytes {
        self[..].copied()
    }
}

impl<const LEN: usize> Source for [u8; LEN] {
    #[inline]
    fn copied(&self) -> Bytes {
        self[..].copied()
    }
}

impl Source for Bytes {
    /// They do not change, so holding them will do: where the store's iterators pass its memory table, they
    /// ask for a copy of the whole entry at every step.
    #[inline]
    fn copied(&self) -> Bytes {
        self.clone()
    }
}

/// A copy in a buffer that nobody holds.
fn in_spare(data: &[u8]) -> Rc<Vec<u8>> {
    let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
    let mut whole = spare.unwrap_or_default();
    match Rc::get_mut(&mut whole) {
        Some(buffer) => {
            buffer.clear();
            buffer.extend_from_slice(data);
            whole
        }
        None => Rc::new(data.to_vec()),
    }
}

/// Keeps the buffer of what is let go by its last holder.
fn keep(left: Place) {
    if let Place::Shared { whole, .. } = left
        && whole.capacity() <= SPARE_BYTES
    {
        // Where the thread is ending already, it goes.
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARE {
                spares.push(whole);
            }
        });
    }
}

impl Bytes {
    /// No bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(Place::Inline(Inline::EMPTY))
    }

    /// A copy of `data`.
    #[must_use]
    #[inline]
    pub fn copy_from_slice<S: Source + ?Sized>(data: &S) -> Self {
        data.copied()
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
            Place::Inline(inline) => Self::copy_from_slice(&inline.data()[from..to]),
            Place::Shared { whole, start, .. } => {
                Self(Place::Shared { whole: Rc::clone(whole), start: start + from, len: to - from })
            }
        }
    }

    #[inline]
    const fn inline(inline: Inline) -> Self {
        Self(Place::Inline(inline))
    }

    #[inline]
    fn shared(whole: Rc<Vec<u8>>) -> Self {
        let len = whole.len();
        Self(Place::Shared { whole, start: 0, len })
    }
}

impl Drop for Bytes {
    #[inline]
    fn drop(&mut self) {
        if let Place::Shared { whole, .. } = &self.0
            && Rc::strong_count(whole) == 1
        {
            keep(mem::replace(&mut self.0, Place::Inline(Inline::EMPTY)));
        }
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
            Place::Inline(inline) => inline.data(),
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
        Inline::of(&data).map_or_else(|| Self::shared(Rc::new(data)), Self::inline)
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
pub struct BytesMut {
    /// Up to [`INLINE`] of them: freezing moves a few words.
    short: Inline,
    /// All, if they are more.
    long: Vec<u8>,
}

impl BytesMut {
    /// No bytes yet.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { short: Inline::EMPTY, long: Vec::new() }
    }

    /// Adds some at the end.
    #[inline]
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        if !self.long.is_empty() || !self.short.extend(data) {
            self.lengthen(data);
        }
    }

    #[cold]
    fn lengthen(&mut self, data: &[u8]) {
        self.long.extend_from_slice(self.short.data());
        self.short = Inline::EMPTY;
        self.long.extend_from_slice(data);
    }

    /// Keeps the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.short.truncate(len);
        self.long.truncate(len);
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
        if self.long.is_empty() { Bytes::inline(self.short) } else { Bytes::from(self.long) }
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
        if self.long.is_empty() { self.short.data() } else { &self.long }
    }
}

#[cfg(test)]
mod tests {
    use super::format::INLINE;
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
    fn bytes_are_put_together_from_parts_of_every_length() {
        let data: Vec<u8> = (1..=80).collect();
        for kept in 0..=40 {
            for had in kept..=40 {
                for added in 0..=40 {
                    let mut built = BytesMut::new();
                    built.extend_from_slice(&data[..had]);
                    built.truncate(kept);
                    built.extend_from_slice(&data[40..40 + added]);
                    let expected = [&data[..kept], &data[40..40 + added]].concat();
                    assert_eq!((&*built, &*built.clone().freeze()), (&expected[..], &expected[..]));
                }
            }
        }
    }

    #[test]
    fn a_copy_of_bytes_shares_them_and_a_buffer_is_used_again_when_nobody_holds_it() {
        let whole = Bytes::copy_from_slice(&[7; 100]);
        let (place, copy) = (whole.as_ptr(), Bytes::copy_from_slice(&whole));
        assert_eq!(copy.as_ptr(), place);
        drop(whole);
        let other = Bytes::copy_from_slice(&[8; 200]);
        assert_eq!((&*copy, &*other), (&[7; 100][..], &[8; 200][..]));
        drop(copy);
        let next = Bytes::copy_from_slice(&[9; 50]);
        assert_eq!((next.as_ptr(), &*next), (place, &[9; 50][..]));
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
