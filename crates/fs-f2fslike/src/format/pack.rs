//! Checkpoint packs: what makes a checkpoint count. There are two places, which take turns. As on F2FS, a
//! pack has journals: the few entries of NAT and SIT that have changed since their blocks were written.

use amphi_segments::Log;
use amphi_segments::format::LogRecord;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Address, PAGE, SEGMENT_BLOCKS_MAX, SitEntry, Summary};

const PACK_MAGIC: u32 = u32::from_le_bytes(*b"F2CP");
/// Pages with numbers of orphans that a pack has room for.
const ORPHAN_PAGES: usize = 8;
/// Most orphans.
pub const ORPHANS_MAX: usize = ORPHAN_PAGES * PAGE / 4;
/// Pages of a pack: its head, the summaries of both logs' segments, orphans.
pub const PACK_PAGES: usize = 3 + ORPHAN_PAGES;
/// Segments that a checkpoint can name for the log of nodes.
const AHEAD_MAX: usize = 64;
/// Entries of the NAT that a pack has room for: F2FS's.
pub const NAT_JOURNAL: usize = 38;
/// Entries of the SIT, the same.
pub const SIT_JOURNAL: usize = 6;

/// What a checkpoint counts.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Counts {
    /// Its number.
    pub version: U64,
    /// The next place in the order of changes.
    pub sequence: U64,
    /// Pages of files for which a block is held.
    pub held: U64,
    /// Inodes.
    pub inodes: U64,
    /// How often the file system was mounted.
    pub mounts: U64,
    /// When it was mounted last, ns since 1970.
    pub mounted_ns: I64,
    /// 1: it was made by an unmount.
    pub clean: U32,
}

/// The first page of a pack.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: U32,
    /// Of all that follows, the other pages too.
    crc: U32,
    salt: U64,
    counts: Counts,
    orphans: U32,
    logs: [LogRecord; 2],
    ahead_count: U32,
    ahead: [U32; AHEAD_MAX],
    nat_count: U32,
    sit_count: U32,
    nat: [NatRecord; NAT_JOURNAL],
    sit: [SitRecord; SIT_JOURNAL],
    zero: [u8; PAGE - 100 - 4 * AHEAD_MAX - 8 * NAT_JOURNAL - 72 * SIT_JOURNAL],
}

/// Where a node is.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NatRecord {
    nid: U32,
    address: Address,
}

/// What a segment has.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SitRecord {
    segment: U32,
    entry: SitEntry,
}

const _: () = assert!(size_of::<Head>() == PAGE);
const _: () = assert!(size_of::<[Summary; SEGMENT_BLOCKS_MAX]>() <= PAGE);

/// A checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Pack {
    /// What it counts.
    pub counts: Counts,
    /// Of data and nodes: the segment that the log fills, and its first free block.
    pub logs: [Option<Log>; 2],
    /// What the blocks of these segments hold.
    pub summaries: [Vec<Summary>; 2],
    /// Segments into which the log of nodes goes next.
    pub ahead: Vec<u32>,
    /// Inodes without names.
    pub orphans: Vec<u32>,
    /// Nodes, and where they are, whatever their blocks of the NAT say.
    pub nat: Vec<(u32, Address)>,
    /// Segments, and what they have, whatever their blocks of the SIT say.
    pub sit: Vec<(u32, SitEntry)>,
}

impl Pack {
    /// Segments that [`ahead`](Self::ahead) has room for.
    pub const AHEAD_MAX: usize = AHEAD_MAX;

    /// Its pages.
    #[must_use]
    pub fn encode(&self, salt: u64) -> Vec<u8> {
        let mut head = Head::new_zeroed();
        (head.magic, head.salt) = (PACK_MAGIC.into(), salt.into());
        (head.counts, head.orphans) = (self.counts, (self.orphans.len() as u32).into());
        head.logs = self.logs.map(LogRecord::new);
        head.ahead_count = (self.ahead.len() as u32).into();
        for (into, segment) in head.ahead.iter_mut().zip(&self.ahead) {
            *into = (*segment).into();
        }
        head.nat_count = (self.nat.len() as u32).into();
        for (into, (nid, address)) in head.nat.iter_mut().zip(&self.nat) {
            *into = NatRecord { nid: (*nid).into(), address: *address };
        }
        head.sit_count = (self.sit.len() as u32).into();
        for (into, (segment, entry)) in head.sit.iter_mut().zip(&self.sit) {
            *into = SitRecord { segment: (*segment).into(), entry: *entry };
        }
        let mut bytes = vec![0; 3 * PAGE];
        for (page, summary) in bytes[PAGE..].chunks_exact_mut(PAGE).zip(&self.summaries) {
            page[..size_of_val(&summary[..])].copy_from_slice(summary.as_bytes());
        }
        bytes.extend(self.orphans.iter().flat_map(|orphan| orphan.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        bytes[..PAGE].copy_from_slice(head.as_bytes());
        head.crc = crc32c::crc32c(&bytes[8..]).into();
        bytes[..PAGE].copy_from_slice(head.as_bytes());
        bytes
    }

    /// The checkpoint that these [`PACK_PAGES`] pages hold, if they hold one of this file system.
    #[must_use]
    pub fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        let (head, _) = Head::read_from_prefix(bytes).ok()?;
        let orphans = head.orphans.get() as usize;
        if head.magic.get() != PACK_MAGIC || head.salt.get() != salt || orphans > ORPHANS_MAX {
            return None;
        }
        let bytes = bytes.get(..(3 + (4 * orphans).div_ceil(PAGE)) * PAGE)?;
        let ahead = head.ahead_count.get() as usize;
        let nat = head.nat.get(..head.nat_count.get() as usize)?;
        let sit = head.sit.get(..head.sit_count.get() as usize)?;
        if head.crc.get() != crc32c::crc32c(&bytes[8..]) || ahead > AHEAD_MAX {
            return None;
        }
        let logs = head.logs.map(LogRecord::log);
        if logs.iter().flatten().any(|log| log.next as usize > SEGMENT_BLOCKS_MAX) {
            return None;
        }
        let summary = |which: usize| -> Vec<Summary> {
            let next = logs[which].map_or(0, |log| log.next);
            let entries =
                <[Summary]>::ref_from_prefix_with_elems(&bytes[(1 + which) * PAGE..], next as usize);
            entries.map_or_else(|_| Vec::new(), |(entries, _)| entries.to_vec())
        };
        let list = bytes[3 * PAGE..].as_chunks::<4>().0;
        Some(Self {
            counts: head.counts,
            summaries: [summary(0), summary(1)],
            logs,
            ahead: head.ahead[..ahead].iter().map(|segment| segment.get()).collect(),
            orphans: list[..orphans].iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
            nat: nat.iter().map(|one| (one.nid.get(), one.address)).collect(),
            sit: sit.iter().map(|one| (one.segment.get(), one.entry)).collect(),
        })
    }
}
