//! Reading what a device has: checkpoints, SIT, NAT, intents.

use std::collections::{BTreeMap, BTreeSet};

use amphi_device::{BlockPort, Lpa, MemoryArea};
use amphi_segments::format::COUNTER_MAX;
use amphi_segments::{Parts, Segment, load_nat};
use amphi_volume::Error as MountError;

use crate::format::{
    CheckpointRecord, Intent, Key, Layout, NAT_ENTRIES, SitRecord, Superblock, decode_intents, key,
};
use crate::meta::{Meta, damaged};
use crate::recover::Intents;

type Result<T> = std::result::Result<T, MountError>;

/// What a device has, before recovery.
pub struct Loaded {
    /// Domains.
    pub domains: Vec<Parts>,
    /// Of each, what it intended since.
    pub intents: Vec<Intents>,
    /// Segments of no domain.
    pub free_segments: BTreeSet<u32>,
    /// NAT blocks of no domain.
    pub free_nat: BTreeSet<u32>,
    /// Copies of NAT blocks that no checkpoint counts. The next one with their number would.
    pub stale_nat: Vec<Lpa>,
    /// SIT records that no checkpoint counts.
    pub stale: Vec<(u32, u64)>,
}

/// Reads all domains as of their last checkpoints, and what they intended since.
///
/// # Errors
/// [`MountError::Damaged`], [`MountError::Device`].
pub fn load<D: BlockPort + MemoryArea>(
    device: &D,
    superblock: &Superblock,
    layout: &Layout,
    meta: &Meta<D>,
) -> Result<Loaded> {
    let mut loaded = Loaded {
        domains: Vec::new(),
        intents: Vec::new(),
        free_segments: (0..layout.segments).collect(),
        free_nat: (0..layout.nat_blocks).collect(),
        stale_nat: Vec::new(),
        stale: Vec::new(),
    };
    let mut logs = Vec::new();
    for number in 0..layout.domains as u16 {
        let wrong = || damaged("the checkpoint of domain", number.into());
        let value = meta.get(Key::Checkpoint(number))?.ok_or_else(wrong)?;
        let (record, summaries) = CheckpointRecord::decode(&value).ok_or_else(wrong)?;
        let (version, sequence) = (record.version.get(), record.sequence.get());
        if version.max(sequence).max(record.held.get()) > COUNTER_MAX {
            return Err(wrong().into());
        }
        loaded.domains.push(Parts { version, sequence, held: record.held.get(), ..Parts::default() });
        loaded.intents.push(load_intents(layout, meta, number)?);
        logs.push((record.logs, summaries));
    }
    load_sit(layout, meta, &mut loaded)?;
    for (number, (records, summaries)) in logs.into_iter().enumerate() {
        let parts = &mut loaded.domains[number];
        for (kind, (record, summary)) in records.into_iter().zip(summaries).enumerate() {
            let Some(log) = record.log() else { continue };
            if !parts.resume(kind, log, summary, layout.segment_blocks) {
                return Err(damaged("the checkpoint of domain", number as u64).into());
            }
        }
    }
    for (number, intents) in loaded.intents.iter().enumerate() {
        let begin = loaded.domains[number].sequence;
        for intent in intents.range(begin..).flat_map(|(_, intents)| intents) {
            if let Intent::Take(segment, _) = intent
                && !loaded.free_segments.remove(segment)
            {
                return Err(damaged("the owner of segment", u64::from(*segment)).into());
            }
        }
    }
    let versions: Vec<_> = loaded.domains.iter().map(|parts| parts.version).collect();
    let counts = |of: u16, version| versions.get(usize::from(of)).is_some_and(|known| version <= *known);
    let (domains, free_nat) = (&mut loaded.domains, &mut loaded.free_nat);
    let found = |block: u32, domain: u16, part| {
        domains[usize::from(domain)].nat.insert(block.into(), part);
        free_nat.remove(&block);
    };
    load_nat(device, (layout, superblock.origin.salt.get()), counts, &mut loaded.stale_nat, found)?;
    Ok(loaded)
}

fn load_intents<D: BlockPort + MemoryArea>(layout: &Layout, meta: &Meta<D>, domain: u16) -> Result<Intents> {
    let first = key(Key::Intents(domain, 0));
    let prefix = &first[..first.len() - 8];
    let nids = layout.nat_blocks * NAT_ENTRIES as u32;
    let mut all = Intents::new();
    meta.visit(prefix, prefix, |key, value| {
        let wrong = || damaged("an intent of domain", domain.into());
        let at = key.get(prefix.len()..).and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)?;
        let intents = decode_intents(value).ok_or_else(wrong)?;
        let sound = intents.iter().all(|intent| match intent {
            Intent::Take(segment, _) => *segment < layout.segments,
            Intent::Free(nid) | Intent::Cut(nid, ..) => *nid < nids,
        });
        let at = Some(u64::from_be_bytes(at)).filter(|at| sound && *at <= COUNTER_MAX).ok_or_else(wrong)?;
        all.insert(at, intents);
        Ok(true)
    })?;
    Ok(all)
}

/// Reads the SIT: of each segment the newest record that its domain's checkpoint counts.
fn load_sit<D: BlockPort + MemoryArea>(layout: &Layout, meta: &Meta<D>, loaded: &mut Loaded) -> Result<()> {
    let mut newest: BTreeMap<u32, (u64, SitRecord, Vec<u64>)> = BTreeMap::new();
    meta.visit(b"sit:", b"sit:", |key, value| {
        let wrong = || damaged("a record of the SIT", 0);
        let (segment, version) = key[4..].split_at_checked(4).ok_or_else(wrong)?;
        let segment = u32::from_be_bytes(segment.try_into().map_err(|_| wrong())?);
        let version = version.strip_prefix(b":").and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)?;
        let version = u64::from_be_bytes(version);
        let (record, valid) = SitRecord::decode(value, layout.segment_blocks).ok_or_else(wrong)?;
        let domain = usize::from(record.domain.get());
        if segment >= layout.segments || domain >= loaded.domains.len() {
            return Err(wrong());
        }
        if version > loaded.domains[domain].version {
            loaded.stale.push((segment, version));
        } else if let Some((older, ..)) = newest.insert(segment, (version, record, valid)) {
            // Keys are in order of versions.
            loaded.stale.push((segment, older));
        }
        Ok(true)
    })?;
    for (number, (version, record, valid)) in newest {
        if record.kind == 2 {
            loaded.stale.push((number, version));
            continue;
        }
        let segment = Segment::stored(record.kind, valid, Some(version));
        loaded.domains[usize::from(record.domain.get())].sit.insert(number.into(), segment);
        loaded.free_segments.remove(&number);
    }
    Ok(())
}
