//! Reading what a device has as of its last checkpoint: pack, SIT, NAT, and over these the pack's journals.

use std::collections::BTreeSet;

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_segments::{DATA, Log, NODES, NatPart, Parts, Segment, damaged};

use crate::format::{
    Address, COUNTER_MAX, Layout, NAT_ENTRIES, NatBlock, PACK_PAGES, PAGE, Pack, SIT_ENTRIES, SIT_FREE,
    SitBlock, SitEntry, Summary, Superblock,
};
use crate::mount::MountError;
use crate::planted::{self, Bug};

type Result<T> = std::result::Result<T, MountError>;

/// What a device has.
pub struct Loaded {
    /// The last checkpoint that counts.
    pub pack: Pack,
    /// What the domain knows.
    pub parts: Parts,
    /// By SIT block, which of its pages is the newer one.
    pub sit_copies: Vec<u8>,
    /// Copies of SIT and NAT blocks that no checkpoint counts. The next one would.
    pub stale: Vec<Lpa>,
    /// Segments that nobody owns.
    pub free: BTreeSet<u32>,
}

impl Loaded {
    /// A file system without anything, not even a root.
    pub fn empty(layout: &Layout) -> Self {
        let mut loaded = Self {
            pack: Pack { version: 1, sequence: 1, clean: true, ..Pack::default() },
            parts: Parts { version: 1, sequence: 1, moved: Some(BTreeSet::new()), ..Parts::default() },
            sit_copies: vec![0; layout.sit_blocks() as usize],
            stale: Vec::new(),
            free: (0..layout.segments).collect(),
        };
        (0..layout.nat_blocks).for_each(|block| loaded.parts.add_nat_block(block));
        loaded
    }

    fn set_segment(&mut self, segment: u32, entry: &SitEntry, layout: &Layout) -> Result<()> {
        if entry.kind == SIT_FREE {
            self.parts.sit.remove(segment.into());
            self.free.insert(segment);
            return Ok(());
        }
        let words = layout.segment_blocks.div_ceil(64) as usize;
        let valid: Vec<u64> = entry.valid[..words].iter().map(|word| word.get()).collect();
        let count = valid.iter().map(|word| word.count_ones()).sum();
        if entry.kind > SIT_FREE || count > layout.segment_blocks {
            return Err(damaged("what the SIT says of segment", segment.into()).into());
        }
        let known = Segment { kind: entry.kind, valid, count, summary: None, dirty: false, stored: None };
        self.parts.sit.insert(segment.into(), known);
        self.free.remove(&segment);
        Ok(())
    }
}

/// Reads everything.
///
/// # Errors
/// [`MountError::Damaged`], [`MountError::Device`].
pub fn load<D: BlockPort>(device: &D, superblock: &Superblock, layout: &Layout) -> Result<Loaded> {
    let salt = superblock.salt.get();
    let mut packs = Vec::new();
    for which in 0..2 {
        let mut bytes = vec![0; PACK_PAGES * PAGE];
        device.read(Lpa(layout.pack(which)), &mut bytes, Structure::Journal)?;
        packs.extend(Pack::decode(&bytes, salt));
    }
    let pack = packs.into_iter().max_by_key(|pack| pack.version);
    let pack = pack.ok_or_else(|| damaged("both checkpoint packs, and so pack", 0))?;
    let nids = layout.nids();
    let sound = pack.version.max(pack.sequence).max(pack.inodes).max(pack.held) < COUNTER_MAX
        && pack.orphans.iter().all(|orphan| (1..nids).contains(orphan));
    if !sound {
        return Err(damaged("checkpoint", pack.version).into());
    }
    let mut loaded = Loaded::empty(layout);
    (loaded.parts.version, loaded.parts.sequence) = (pack.version, pack.sequence);
    loaded.parts.held = pack.held;
    load_sit(device, salt, layout, pack.version, &mut loaded)?;
    load_nat(device, salt, layout, pack.version, &mut loaded)?;
    apply_journals(&pack, layout, &mut loaded)?;
    for kind in [DATA, NODES] {
        let Some((segment, next)) = pack.logs[kind] else { continue };
        let wrong = || damaged("checkpoint", pack.version);
        let sit = loaded.parts.sit.get_mut(segment.into()).filter(|_| next <= layout.segment_blocks);
        let sit = sit.filter(|sit| usize::from(sit.kind) == kind).ok_or_else(wrong)?;
        let one = |(nid, slot): &(u32, u16)| Summary { nid: (*nid).into(), slot: (*slot).into() };
        sit.summary = Some(pack.summaries[kind].iter().map(one).collect());
        loaded.parts.logs[kind] = Some(Log { segment, next });
    }
    for segment in &pack.ahead {
        if !loaded.free.remove(segment) {
            return Err(damaged("the next segment of the log of nodes:", (*segment).into()).into());
        }
    }
    loaded.pack = pack;
    Ok(loaded)
}

/// Of two copies from page `first` on, with their versions, the newer one that a checkpoint counts; and those
/// that none does.
fn newer<T>(
    copies: [Option<(u64, T)>; 2],
    first: u64,
    version: u64,
    stale: &mut Vec<Lpa>,
) -> Option<(u8, T)> {
    let mut best: Option<(u64, u8, T)> = None;
    for (copy, found) in (0_u8..).zip(copies) {
        let Some((at, found)) = found else { continue };
        if at > version && !planted::has(Bug::StaleCopyCounts) {
            stale.push(Lpa(first + u64::from(copy)));
        } else if best.as_ref().is_none_or(|(other, ..)| at > *other) {
            best = Some((at, copy, found));
        }
    }
    best.map(|(_, copy, found)| (copy, found))
}

fn load_sit<D: BlockPort>(
    device: &D,
    salt: u64,
    layout: &Layout,
    version: u64,
    loaded: &mut Loaded,
) -> Result<()> {
    let mut pages = vec![0; 2 * PAGE];
    for number in 0..layout.sit_blocks() {
        let first = layout.sit_first() + 2 * u64::from(number);
        device.read(Lpa(first), &mut pages, Structure::Bitmap)?;
        let copy = |at: usize| SitBlock::decode(&pages[at * PAGE..][..PAGE], salt, number);
        let Some((copy, block)) = newer([copy(0), copy(1)], first, version, &mut loaded.stale) else {
            continue;
        };
        loaded.sit_copies[number as usize] = copy;
        let segments = number * SIT_ENTRIES as u32..layout.segments;
        for (segment, entry) in segments.zip(&block.entries) {
            loaded.set_segment(segment, entry, layout)?;
        }
    }
    Ok(())
}

/// What the pack says counts, whatever the blocks say.
fn apply_journals(pack: &Pack, layout: &Layout, loaded: &mut Loaded) -> Result<()> {
    if planted::has(Bug::JournalForgotten) {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    for (nid, address) in &pack.nat {
        let inside = address.block().is_none_or(|block| u64::from(block) < layout.main_blocks());
        let part = loaded.parts.nat.get_mut(u64::from(*nid) / NAT_ENTRIES as u64);
        let part = part.filter(|_| *nid > 0 && inside && seen.insert(*nid));
        let part = part.ok_or_else(|| damaged("what the checkpoint says of node", (*nid).into()))?;
        part.entries[*nid as usize % NAT_ENTRIES] = *address;
    }
    seen.clear();
    for (segment, entry) in &pack.sit {
        if *segment >= layout.segments || !seen.insert(*segment) {
            return Err(damaged("what the checkpoint says of segment", (*segment).into()).into());
        }
        loaded.set_segment(*segment, entry, layout)?;
    }
    Ok(())
}

fn load_nat<D: BlockPort>(
    device: &D,
    salt: u64,
    layout: &Layout,
    version: u64,
    loaded: &mut Loaded,
) -> Result<()> {
    let mut pages = vec![0; 2 * PAGE];
    for number in 0..layout.nat_blocks {
        let first = layout.nat_first() + 2 * u64::from(number);
        device.read(Lpa(first), &mut pages, Structure::Pointer)?;
        let copy = |at: usize| {
            let (_, version, block) = NatBlock::decode(&pages[at * PAGE..][..PAGE], salt, number)?;
            Some((version, block))
        };
        let (copy, entries) = match newer([copy(0), copy(1)], first, version, &mut loaded.stale) {
            Some((copy, block)) => (copy, block.entries.into()),
            // Nothing has ever had a number in it.
            None => (0, vec![Address::HOLE; NAT_ENTRIES].into()),
        };
        let most = layout.main_blocks();
        let entries: Box<[Address]> = entries;
        if entries.iter().any(|at| at.block().is_some_and(|block| u64::from(block) >= most)) {
            return Err(damaged("a block of the NAT:", number.into()).into());
        }
        loaded.parts.nat.insert(number.into(), NatPart { entries, copy, dirty: false });
    }
    Ok(())
}
