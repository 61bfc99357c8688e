//! Checkpoints: blocks of entries and nodes go to the ends of the logs, NAT and SIT blocks beside their older
//! copies, or, if few have changed, into the journals of the pack; then the pack makes all of it count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_segments::{DATA, NODES, Parts, as_writes, write_nat, write_summaries};
use amphi_vfs::{Error, Result};
use zerocopy::IntoBytes;

use crate::append::write_pages;
use crate::core::{Core, Fresh, Standing};
use crate::format::{
    Counts, DentryBlock, Layout, NAT_ENTRIES, NAT_JOURNAL, Pack, SIT_ENTRIES, SIT_JOURNAL, SitBlock, SitEntry,
};
use crate::planted::{self, Bug};

/// Segments that a checkpoint names for the log of nodes: with 2 MB each, room for 2048 nodes until the next.
pub const AHEAD: usize = 4;

/// Makes a checkpoint.
///
/// # Errors
/// As for [`sync`].
pub fn now<D: BlockPort>(core: &Core<D>) -> Result<()> {
    let _gate = core.domain.gate.write();
    held(core, false)
}

/// Makes a checkpoint, if anything has changed. The caller holds the gate alone.
///
/// # Errors
/// As for [`sync`].
pub fn held<D: BlockPort>(core: &Core<D>, clean: bool) -> Result<()> {
    // One that has failed meanwhile takes for written what is not.
    core.names.health.sound()?;
    core.names.health.judge(make(core, clean))
}

fn make<D: BlockPort>(core: &Core<D>, clean: bool) -> Result<()> {
    let mut standing = core.standing.lock();
    let entries = write_entries(core)?;
    let parts = &mut *core.domain.parts.lock();
    let nodes = write_nodes(core, parts)?;
    let changed = entries + nodes > 0 || !parts.segments(|segment| segment.dirty).is_empty();
    if !changed && parts.freed_nids.is_empty() && standing.clean == clean {
        return core.ground.settle();
    }
    let version = parts.version + 1;
    standing.clean = clean;
    if !planted::has(Bug::PackBeforeNat) {
        bring_nat(core, parts, &mut standing, version)?;
    }
    if !planted::has(Bug::PackBeforeSit) {
        write_sit(core, parts, &mut standing, version)?;
    }
    write_summaries(&core.ground, parts)?;
    if !planted::has(Bug::PackBeforeNodes) {
        core.ground.settle()?;
    }
    look_ahead(core);
    write_pack(core, parts, &standing, version)?;
    if planted::has(Bug::PackBeforeNat) {
        bring_nat(core, parts, &mut standing, version)?;
    }
    if planted::has(Bug::PackBeforeSit) {
        write_sit(core, parts, &mut standing, version)?;
    }
    parts.version = version;
    *core.fresh.lock() = Fresh::default();
    core.segments.give_back(parts.hand_out());
    Ok(())
}

/// Writes blocks of entries that have changed, or puts them into their inodes. Returns how many.
fn write_entries<D: BlockPort>(core: &Core<D>) -> Result<usize> {
    if planted::has(Bug::EntriesForgotten) {
        return Ok(0);
    }
    let mut dirty: Vec<((u32, u64), Box<DentryBlock>)> = Vec::new();
    for (at, dent) in core.dents.lock().iter_mut().filter(|(_, dent)| dent.dirty) {
        dent.block.seal(core.ground.salt);
        dirty.push((*at, dent.block.clone()));
    }
    dirty.sort_unstable_by_key(|(at, _)| *at);
    let mut outside = Vec::new();
    for ((dir, page), block) in &dirty {
        if *page > 0 || !core.put_in_inode(*dir, block)? {
            outside.push(((*dir, *page), block));
        }
    }
    let pages = outside.iter().map(|(at, block)| (*at, block.as_bytes()));
    if !write_pages(core, pages, Structure::Dentry, true)? {
        return Err(Error::NoSpace);
    }
    // Those that could not be written stay in memory: the device does not have them.
    let mut dents = core.dents.lock();
    for (at, _) in &dirty {
        if let Some(dent) = dents.get_mut(at) {
            dent.dirty = false;
        }
    }
    core.dirtied.fetch_sub(dirty.len(), Ordering::Relaxed);
    Ok(dirty.len())
}

/// Writes nodes that have changed. Returns how many.
fn write_nodes<D: BlockPort>(core: &Core<D>, parts: &mut Parts) -> Result<usize> {
    let take = |parts: &mut Parts, counts| core.take_blocks(parts, counts, true);
    let sealed = core.ground.seal_dirty(&core.domain, parts, take)?;
    core.dirtied.fetch_sub(sealed.len(), Ordering::Relaxed);
    core.ground.write_blocks(&[(&as_writes(&sealed), Structure::Inode)])?;
    parts.arrived(&sealed);
    Ok(sealed.len())
}

/// Decides where the entries of these numbers go, as F2FS does: to the pack, if their block's set fits
/// with those that are there, small sets first; else to their blocks, which are returned. An unmount leaves
/// none in the pack.
fn divide(
    journal: &mut BTreeSet<u32>,
    mut changed: BTreeSet<u32>,
    (most, per_block): (usize, usize),
    clean: bool,
) -> BTreeSet<u32> {
    let most = if clean { 0 } else { most };
    if planted::has(Bug::JournalDropped) && changed.len() + journal.len() > most {
        journal.clear();
    } else if changed.len() + journal.len() > most {
        changed.append(journal);
    }
    let mut sets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in changed {
        sets.entry(number / per_block as u32).or_default().push(number);
    }
    let mut sets: Vec<_> = sets.into_iter().collect();
    sets.sort_by_key(|(_, set)| set.len());
    let mut blocks = BTreeSet::new();
    for (block, set) in sets {
        if journal.len() + set.len() > most {
            blocks.insert(block);
        } else {
            journal.extend(set);
        }
    }
    blocks
}

fn bring_nat<D: BlockPort>(
    core: &Core<D>,
    parts: &mut Parts,
    standing: &mut Standing,
    version: u64,
) -> Result<()> {
    let moved = parts.moved.replace(BTreeSet::new()).unwrap_or_default();
    let touched: BTreeSet<_> = moved.iter().map(|nid| nid / NAT_ENTRIES as u32).collect();
    let blocks = divide(&mut standing.nat_journal, moved, (NAT_JOURNAL, NAT_ENTRIES), standing.clean);
    for block in touched.union(&blocks) {
        if let Some(part) = parts.nat.get_mut((*block).into()) {
            part.dirty = blocks.contains(block);
        }
    }
    if planted::has(Bug::NatInPlace) {
        for number in 0..u64::from(core.layout.nat_blocks) {
            if let Some(part) = parts.nat.get_mut(number).filter(|part| part.dirty) {
                part.copy = 1 - part.copy;
            }
        }
    }
    write_nat(&core.ground, &core.domain, parts, version)
}

/// What the SIT has to say of a segment.
fn sit_entry(parts: &Parts, segment: u32) -> SitEntry {
    let known = parts.sit.get(segment.into());
    let known = known.filter(|known| known.count > 0 || parts.is_active(segment));
    SitEntry::new(known.map(|known| (known.kind, &known.valid[..])))
}

/// Writes SIT blocks of which much has changed, each over its older copy.
fn write_sit<D: BlockPort>(
    core: &Core<D>,
    parts: &Parts,
    standing: &mut Standing,
    version: u64,
) -> Result<()> {
    let changed = parts.segments(|segment| segment.dirty).into_iter().collect();
    let room = (SIT_JOURNAL, SIT_ENTRIES);
    for number in divide(&mut standing.sit_journal, changed, room, standing.clean) {
        let first = number * SIT_ENTRIES as u32;
        let end = (first + SIT_ENTRIES as u32).min(core.layout.segments);
        let entries: Vec<_> = (first..end).map(|segment| sit_entry(parts, segment)).collect();
        let copy = &mut standing.sit_copies[number as usize];
        if !planted::has(Bug::SitInPlace) {
            *copy = 1 - *copy;
        }
        let at = Layout::SIT_FIRST + 2 * u64::from(number) + u64::from(*copy);
        let block = SitBlock::new(core.ground.salt, number, version, &entries);
        core.ground.write(Lpa(at), block.as_bytes(), Structure::Bitmap)?;
    }
    Ok(())
}

/// Decides into which segments the log of nodes goes next, as far as some are free.
fn look_ahead<D: BlockPort>(core: &Core<D>) {
    let mut ahead = core.ahead.lock();
    while ahead.len() < AHEAD {
        let Some(taken) = core.segments.take(1, false) else { break };
        ahead.extend(taken);
    }
}

/// Makes the checkpoint count.
fn write_pack<D: BlockPort>(core: &Core<D>, parts: &Parts, standing: &Standing, version: u64) -> Result<()> {
    let orphans = core.orphans.lock();
    let forgets = planted::has(Bug::OrphansForgotten);
    let counts = Counts {
        version: version.into(),
        sequence: parts.sequence.into(),
        held: parts.held.into(),
        inodes: core.inodes.load(Ordering::Acquire).into(),
        mounts: standing.mounts.into(),
        mounted_ns: standing.mounted_ns.into(),
        clean: u32::from(standing.clean).into(),
    };
    let pack = Pack {
        counts,
        logs: parts.logs,
        summaries: [DATA, NODES].map(|kind| parts.log_summary(kind)),
        ahead: core.ahead.lock().clone(),
        orphans: if forgets { Vec::new() } else { orphans.iter().copied().collect() },
        nat: standing.nat_journal.iter().map(|nid| (*nid, parts.node_address(*nid))).collect(),
        sit: standing.sit_journal.iter().map(|segment| (*segment, sit_entry(parts, *segment))).collect(),
    };
    let which = if planted::has(Bug::PackInPlace) { 0 } else { version % 2 };
    let at = Lpa(Layout::pack(which));
    core.ground.write(at, &pack.encode(core.ground.salt), Structure::Journal)?;
    core.ground.settle()
}
