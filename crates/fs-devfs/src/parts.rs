//! What a metadata record says: parts of metadata pages that change together.
//!
//! `1 | page (4 B) | offset (2 B) | length (2 B) | bytes`, `2 | page | offset | length` (zeros),
//! `3 | page | first bit (2 B) | bits (2 B) | on (1 B)`; numbers are little-endian.

use smallvec::SmallVec;

use crate::format::BODY;

/// A part of a metadata page that changes.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes from an offset on.
    Bytes(u16, &'a [u8]),
    /// Zeros from an offset on: so many.
    Zeros(u16, u16),
    /// Bits from a number on: so many are set or cleared.
    Bits(u16, u16, bool),
}

/// The parts of a record under construction.
#[derive(Debug, Default)]
pub struct Parts {
    pub bytes: Vec<u8>,
    /// The pages that change.
    pub pages: SmallVec<[u32; 8]>,
}

impl Parts {
    fn head(&mut self, kind: u8, page: u64, first: usize, count: usize) {
        let page = page as u32;
        if !self.pages.contains(&page) {
            self.pages.push(page);
        }
        self.bytes.push(kind);
        self.bytes.extend(page.to_le_bytes());
        self.bytes.extend((first as u16).to_le_bytes());
        self.bytes.extend((count as u16).to_le_bytes());
    }

    /// Bytes of a page change.
    pub fn bytes(&mut self, page: u64, offset: usize, bytes: &[u8]) {
        debug_assert!(offset + bytes.len() <= BODY, "a part lies before the footer");
        self.head(1, page, offset, bytes.len());
        self.bytes.extend(bytes);
    }

    /// Bytes of a page become zeros.
    pub fn zeros(&mut self, page: u64, offset: usize, count: usize) {
        self.head(2, page, offset, count);
    }

    /// Bits of a page are set or cleared.
    pub fn bits(&mut self, page: u64, first: usize, count: usize, on: bool) {
        self.head(3, page, first, count);
        self.bytes.push(on.into());
    }
}

impl Part<'_> {
    /// Changes a page. What does not fit it changes nothing; [`decode`] lets no such part pass.
    pub fn apply(self, page: &mut [u8]) {
        match self {
            Part::Bytes(at, bytes) => {
                if let Some(to) = page.get_mut(usize::from(at)..usize::from(at) + bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            }
            Part::Zeros(at, count) => {
                let range = usize::from(at)..usize::from(at) + usize::from(count);
                page.get_mut(range).unwrap_or_default().fill(0);
            }
            Part::Bits(first, count, on) => {
                for bit in usize::from(first)..usize::from(first) + usize::from(count) {
                    let mask = 1 << (bit % 8);
                    page[bit / 8] = if on { page[bit / 8] | mask } else { page[bit / 8] & !mask };
                }
            }
        }
    }

    fn fits(self) -> bool {
        match self {
            Part::Bytes(at, bytes) => usize::from(at) + bytes.len() <= BODY,
            Part::Zeros(at, count) => usize::from(at) + usize::from(count) <= BODY,
            Part::Bits(first, count, _) => usize::from(first) + usize::from(count) <= BODY * 8,
        }
    }
}

/// The parts of a record with the pages that they are of. `None` in place of one that makes no sense; nothing
/// follows it.
pub fn decode(bytes: &[u8]) -> impl Iterator<Item = Option<(u32, Part<'_>)>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let part = decode_one(rest);
        rest = part.map_or(&[], |(.., behind)| behind);
        Some(part.map(|(page, part, _)| (page, part)))
    })
}

fn decode_one(bytes: &[u8]) -> Option<(u32, Part<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<9>()?;
    let [kind, p0, p1, p2, p3, f0, f1, c0, c1] = *head;
    let page = u32::from_le_bytes([p0, p1, p2, p3]);
    let (first, count) = (u16::from_le_bytes([f0, f1]), u16::from_le_bytes([c0, c1]));
    let (part, rest) = match kind {
        1 => {
            let (data, rest) = rest.split_at_checked(count.into())?;
            (Part::Bytes(first, data), rest)
        }
        2 => (Part::Zeros(first, count), rest),
        3 => {
            let (on, rest) = rest.split_first()?;
            (Part::Bits(first, count, *on == 1), rest)
        }
        _ => return None,
    };
    part.fits().then_some((page, part, rest))
}
