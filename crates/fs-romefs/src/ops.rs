//! Operations of a transaction: what the journal keeps, the metadata in host memory take over, and recovery
//! repeats. Each can be repeated: applied twice, or over what came later and comes again, the end is the
//! same.

use smallvec::SmallVec;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::{Layout, Map, OP_ALIGN, OpHeader, OpKind};

/// Operations in the order in which they are applied.
#[derive(Default)]
pub struct Ops(SmallVec<[u8; 1024]>);

/// One operation.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Stores bytes at an address.
    Bytes(u64, &'a [u8]),
    /// Stores so many zeros at an address.
    Zeros(u64, u64),
    /// Sets, or clears, bits of a map: the first, how many, and which.
    Bits(Map, u64, u64, bool),
}

impl Ops {
    fn push(&mut self, kind: OpKind, map: u8, count: u64, at: u64) {
        let mut header = OpHeader::new_zeroed();
        (header.kind, header.map) = (kind as u8, map);
        (header.count, header.at) = ((count as u32).into(), at.into());
        self.0.extend_from_slice(header.as_bytes());
    }

    /// Stores bytes, which must not cross the end of a page.
    pub fn bytes(&mut self, at: u64, bytes: &[u8]) {
        self.push(OpKind::Bytes, 0, bytes.len() as u64, at);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(OP_ALIGN), 0);
    }

    /// Stores zeros, which must not cross the end of a page.
    pub fn zeros(&mut self, at: u64, count: u64) {
        self.push(OpKind::Zeros, 0, count, at);
    }

    /// Sets bits of a map.
    pub fn set(&mut self, map: Map, first: u64, count: u64) {
        self.push(OpKind::Set, map as u8, count, first);
    }

    /// Clears bits of a map.
    pub fn clear(&mut self, map: Map, first: u64, count: u64) {
        self.push(OpKind::Clear, map as u8, count, first);
    }

    /// As the journal keeps them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The operations that `bytes` hold; none for what is no operation, or one of what no transaction changes.
pub fn decode<'a>(layout: &'a Layout, mut bytes: &'a [u8]) -> impl Iterator<Item = Option<Op<'a>>> + 'a {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let op = decode_one(layout, bytes);
        bytes = op.map_or(&[], |(_, rest)| rest);
        Some(op.map(|(op, _)| op))
    })
}

fn decode_one<'a>(layout: &Layout, bytes: &'a [u8]) -> Option<(Op<'a>, &'a [u8])> {
    let (header, rest) = OpHeader::read_from_prefix(bytes).ok()?;
    let (count, at) = (u64::from(header.count.get()), header.at.get());
    let page = crate::format::PAGE as u64;
    let in_a_page = |count: u64| layout.is_metadata(at, count) && at % page + count <= page;
    let map = || Map::ALL.get(usize::from(header.map)).copied();
    let bits = |on| {
        let map = map()?;
        let inside = at.checked_add(count).is_some_and(|end| end <= layout.bits(map));
        inside.then_some((Op::Bits(map, at, count, on), rest))
    };
    match header.kind {
        kind if kind == OpKind::Bytes as u8 && in_a_page(count) => {
            let padded = (count as usize).next_multiple_of(OP_ALIGN);
            let (data, behind) = rest.split_at_checked(padded)?;
            Some((Op::Bytes(at, &data[..count as usize]), behind))
        }
        kind if kind == OpKind::Zeros as u8 && in_a_page(count) => Some((Op::Zeros(at, count), rest)),
        kind if kind == OpKind::Set as u8 => bits(true),
        kind if kind == OpKind::Clear as u8 => bits(false),
        _ => None,
    }
}
