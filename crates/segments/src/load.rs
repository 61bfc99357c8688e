//! Reading what a device has: the superblock; as of a checkpoint blocks of which there are two copies, and
//! the NAT. And what the domain knows from then on.

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_volume::Error as MountError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::damaged;
use crate::domain::{Log, NatPart, Parts, Segment};
use crate::format::{Areas, NAT_ENTRIES, NatBlock, PAGE, Summary};

/// What page 0 holds: the superblock, if it is one of the file system that is called so.
///
/// # Errors
/// [`MountError::Device`]; [`MountError::NotThis`].
pub fn read_superblock<D: BlockPort, S: FromBytes>(device: &D, title: &'static str) -> Result<S, MountError> {
    let mut page = vec![0; PAGE];
    device.read(Lpa(0), &mut page, Structure::Superblock)?;
    let read = S::read_from_prefix(&page).map(|(superblock, _)| superblock);
    read.map_err(|_| MountError::NotThis { title })
}

/// Writes the superblock, which makes a new file system count.
///
/// # Errors
/// [`MountError::Device`].
pub fn write_superblock<D: BlockPort>(
    device: &D,
    superblock: &(impl IntoBytes + Immutable),
) -> Result<(), MountError> {
    let mut page = vec![0; PAGE];
    let bytes = superblock.as_bytes();
    page[..bytes.len()].copy_from_slice(bytes);
    device.write(Lpa(0), &page, Structure::Superblock)?;
    device.flush()?;
    Ok(())
}

/// Reads both copies of a block, from page `first` on, and returns the newer one of those that count, with
/// which it is; `decode` knows the number of the checkpoint that each is of. Those that do not count are
/// noted: the next checkpoint with their number would count them.
///
/// # Errors
/// [`MountError::Device`].
pub fn read_newer<D: BlockPort, T>(
    device: &D,
    (first, tag): (u64, Structure),
    decode: impl Fn(&[u8]) -> Option<(u64, T)>,
    counts: impl Fn(u64, &T) -> bool,
    stale: &mut Vec<Lpa>,
) -> Result<Option<(u8, T)>, MountError> {
    let mut pages = vec![0; 2 * PAGE];
    device.read(Lpa(first), &mut pages, tag)?;
    let mut best: Option<(u64, u8, T)> = None;
    for (copy, page) in (0_u8..).zip(pages.chunks_exact(PAGE)) {
        let Some((version, found)) = decode(page) else { continue };
        if !counts(version, &found) {
            stale.push(Lpa(first + u64::from(copy)));
        } else if best.as_ref().is_none_or(|(other, ..)| version >= *other) {
            best = Some((version, copy, found));
        }
    }
    Ok(best.map(|(_, copy, found)| (copy, found)))
}

/// Reads the NAT, as far as its blocks count: `counts` is told of each copy's domain and checkpoint. Calls
/// `found` with each block's number, its domain and what it says.
///
/// # Errors
/// [`MountError::Device`], [`MountError::Damaged`].
pub fn load_nat<D: BlockPort>(
    device: &D,
    (areas, salt): (&Areas, u64),
    counts: impl Fn(u16, u64) -> bool,
    stale: &mut Vec<Lpa>,
    mut found: impl FnMut(u32, u16, NatPart),
) -> Result<(), MountError> {
    for number in 0..areas.nat_blocks {
        let first = areas.nat_first + 2 * u64::from(number);
        let decode = |page: &[u8]| {
            let (domain, version, block) = NatBlock::decode(page, salt, number)?;
            Some((version, (domain, block)))
        };
        let counts = |version, (domain, _): &(u16, _)| counts(*domain, version);
        let newer = read_newer(device, (first, Structure::Pointer), decode, counts, stale)?;
        let Some((copy, (domain, block))) = newer else { continue };
        let outside = |block: u32| u64::from(block) >= areas.main_blocks();
        if block.entries.iter().any(|at| at.block().is_some_and(outside)) {
            return Err(damaged("a block of the NAT:", number.into()).into());
        }
        found(number, domain, NatPart { entries: block.entries.into(), copy, dirty: false });
    }
    Ok(())
}

impl Segment {
    /// One with these valid blocks, as a checkpoint has it. If it has none, the next one looks at it again:
    /// unless a log goes on there, it is free.
    #[must_use]
    pub fn stored(kind: u8, valid: Vec<u64>, stored: Option<u64>) -> Self {
        let count = valid.iter().map(|word| word.count_ones()).sum();
        Self { kind, valid, count, summary: None, dirty: count == 0, stored }
    }
}

impl Parts {
    /// A log goes on where a checkpoint says, whose segment's blocks hold this. False if it cannot.
    #[must_use]
    pub fn resume(&mut self, kind: usize, log: Log, summary: Vec<Summary>, segment_blocks: u32) -> bool {
        let segment = self.sit.get_mut(log.segment.into()).filter(|_| log.next <= segment_blocks);
        let Some(segment) = segment.filter(|segment| usize::from(segment.kind) == kind) else { return false };
        segment.summary = Some(summary);
        self.logs[kind] = Some(log);
        true
    }

    /// The logs go on elsewhere, since behind their ends is what recovery finds. Returns where they were.
    pub fn leave_logs(&mut self) -> [Option<Log>; 2] {
        let logs = std::mem::take(&mut self.logs);
        for log in logs.into_iter().flatten() {
            if let Some(segment) = self.sit.get_mut(log.segment.into()) {
                segment.dirty = true;
            }
            self.full.push(log.segment);
        }
        logs
    }

    /// A segment that the checkpoint knows as free is the domain's, and full.
    pub fn claim(&mut self, segment: u32, kind: u8, segment_blocks: u32) {
        self.sit.insert(segment.into(), Segment::new(kind, segment_blocks));
        self.full.push(segment);
    }

    /// Gathers the numbers that nodes can get, and counts blocks in use: those that are held, and those for
    /// nodes that recovery has made and that have none yet, too.
    pub fn settle(&mut self) -> u64 {
        let nodes = self.nodes.keys().filter(|nid| self.node_address(*nid).is_hole());
        let unplaced: std::collections::BTreeSet<u32> = nodes.collect();
        let (mut used, mut from) = (self.held + unplaced.len() as u64, 0);
        while let Some((number, segment)) = self.sit.next(from) {
            used += u64::from(segment.count);
            from = number + 1;
        }
        let (mut free, mut from) = (Vec::new(), 0);
        while let Some((number, part)) = self.nat.next(from) {
            let nids = number as u32 * NAT_ENTRIES as u32..;
            let holes = nids.zip(&part.entries).filter(|(nid, at)| *nid > 0 && at.is_hole());
            free.extend(holes.map(|(nid, _)| nid).filter(|nid| !unplaced.contains(nid)));
            from = number + 1;
        }
        free.reverse();
        self.free_nids = free;
        self.freed_nids.clear();
        used
    }
}
