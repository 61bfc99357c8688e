//! Reading what a device has as of its last checkpoint: pack, SIT, NAT, and over these the pack's journals.

use std::collections::BTreeSet;

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_segments::{DATA, NODES, NatPart, Parts, Segment, damaged, load_nat, read_newer};
use amphi_volume::Error as MountError;

use crate::format::{
    Address, COUNTER_MAX, Counts, Layout, NAT_ENTRIES, PACK_PAGES, PAGE, Pack, SIT_ENTRIES, SIT_FREE,
    SitBlock, SitEntry, Superblock,
};
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
    /// A file system without anything, not even a root; a new one, or one whose blocks are read yet.
    pub fn empty(layout: &Layout, is_new: bool) -> Self {
        let (version, sequence, clean) = (1.into(), 1.into(), 1.into());
        let counts = Counts { version, sequence, clean, ..Counts::default() };
        let mut loaded = Self {
            pack: Pack { counts, ..Pack::default() },
            parts: Parts { version: 1, sequence: 1, moved: Some(BTreeSet::new()), ..Parts::default() },
            sit_copies: vec![0; layout.sit_blocks() as usize],
            stale: Vec::new(),
            free: (0..layout.segments).collect(),
        };
        for block in 0..layout.nat_blocks {
            let entries = vec![Address::HOLE; NAT_ENTRIES].into();
            loaded.parts.nat.insert(block.into(), NatPart { entries, copy: 0, dirty: is_new });
        }
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
        let known = Segment::stored(entry.kind, valid, None);
        if entry.kind > SIT_FREE || known.count > layout.segment_blocks {
            return Err(damaged("what the SIT says of segment", segment.into()).into());
        }
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
    let salt = superblock.origin.salt.get();
    let mut packs = Vec::new();
    for which in 0..2 {
        let mut bytes = vec![0; PACK_PAGES * PAGE];
        device.read(Lpa(Layout::pack(which)), &mut bytes, Structure::Journal)?;
        packs.extend(Pack::decode(&bytes, salt));
    }
    let pack = packs.into_iter().max_by_key(|pack| pack.counts.version.get());
    let pack = pack.ok_or_else(|| damaged("both checkpoint packs, and so pack", 0))?;
    let nids = layout.nids();
    let Counts { version, sequence, held, inodes, .. } = pack.counts;
    let (version, sequence, held) = (version.get(), sequence.get(), held.get());
    let sound = version.max(sequence).max(inodes.get()).max(held) < COUNTER_MAX
        && pack.orphans.iter().all(|orphan| (1..nids).contains(orphan));
    if !sound {
        return Err(damaged("checkpoint", version).into());
    }
    let mut loaded = Loaded::empty(layout, false);
    (loaded.parts.version, loaded.parts.sequence, loaded.parts.held) = (version, sequence, held);
    load_sit(device, salt, layout, version, &mut loaded)?;
    let counts = |_, at| at <= version || planted::has(Bug::StaleCopyCounts);
    let (nat, areas) = (&mut loaded.parts.nat, (&**layout, salt));
    load_nat(device, areas, counts, &mut loaded.stale, |block, _, part| {
        drop(nat.insert(block.into(), part))
    })?;
    apply_journals(&pack, layout, &mut loaded)?;
    for kind in [DATA, NODES] {
        let Some(log) = pack.logs[kind] else { continue };
        if !loaded.parts.resume(kind, log, pack.summaries[kind].clone(), layout.segment_blocks) {
            return Err(damaged("checkpoint", version).into());
        }
    }
    for segment in &pack.ahead {
        if !loaded.free.remove(segment) {
            return Err(damaged("the next segment of the log of nodes:", (*segment).into()).into());
        }
    }
    loaded.pack = pack;
    Ok(loaded)
}

fn load_sit<D: BlockPort>(
    device: &D,
    salt: u64,
    layout: &Layout,
    version: u64,
    loaded: &mut Loaded,
) -> Result<()> {
    let counts = |at, _: &_| at <= version || planted::has(Bug::StaleCopyCounts);
    for number in 0..layout.sit_blocks() {
        let at = (Layout::SIT_FIRST + 2 * u64::from(number), Structure::Bitmap);
        let decode = |page: &[u8]| SitBlock::decode(page, salt, number);
        let newer = read_newer(device, at, decode, counts, &mut loaded.stale)?;
        let Some((copy, block)) = newer else { continue };
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
