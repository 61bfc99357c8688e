//! Checkpoints, one domain at a time (AU-10): from then on recovery begins here.
//!
//! Nodes, NAT blocks and summaries go to the device, NAT blocks beside their older copies; SIT records go to
//! the metadata store under the new number; then the record with that number makes all of it count. What is
//! superfluous by it goes last, and only then are segments and numbers of nodes free.

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_lsm::Batch;
use amphi_segments::{DATA, Domain, NODES, Parts, as_writes, write_nat, write_summaries};
use amphi_vfs::Result;

use crate::core::Core;
use crate::format::{CheckpointRecord, Key, LogRecord, SitRecord};
use crate::meta::{self, damaged};
use crate::planted::{self, Bug};

/// Changes in one batch.
const CHANGES: usize = 64;
/// What a SIT record says of a segment that is free.
const FREE: u8 = 2;

/// Makes a checkpoint of each domain (`sync`).
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`]; the file system is read-only then.
pub fn all<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    let _one = core.sync.lock();
    for domain in &core.domains {
        let _gate = domain.gate.write();
        held(core, domain)?;
    }
    Ok(())
}

/// Makes a checkpoint of a domain whose gate the caller holds alone.
///
/// # Errors
/// As for [`all`].
pub fn held<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain) -> Result<()> {
    // What has failed meanwhile is in memory, and not on the device.
    core.names.health.sound()?;
    let mut parts = domain.parts.lock();
    core.names.health.judge(make(core, domain, &mut parts))
}

fn make<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain, parts: &mut Parts) -> Result<()> {
    write_nodes(core, domain, parts)?;
    let segments = parts.segments(|segment| segment.dirty);
    if segments.is_empty() && parts.intents.is_empty() && parts.freed_nids.is_empty() {
        return Ok(());
    }
    let version = parts.version + 1;
    if !planted::has(Bug::CheckpointBeforeNat) {
        write_nat(&core.ground, domain, parts, version)?;
    }
    write_summaries(&core.ground, parts)?;
    core.ground.settle()?;
    let mut writer = Writer { core, batch: Batch::new() };
    for number in &segments {
        let active = parts.is_active(*number);
        let Some(segment) = parts.sit.get(u64::from(*number)) else { continue };
        let free = segment.count == 0 && !active;
        let record =
            SitRecord { domain: domain.number.into(), kind: if free { FREE } else { segment.kind }, zero: 0 };
        let value = record.encode(if free { &[] } else { &segment.valid });
        meta::put(&mut writer.batch, Key::Sit(*number, version), &value)?;
        writer.write_if_full()?;
    }
    writer.write()?;
    put_record(core, domain, parts, version)?;
    if planted::has(Bug::CheckpointBeforeNat) {
        write_nat(&core.ground, domain, parts, version)?;
        core.ground.settle()?;
    }
    parts.version = version;
    tidy(core, domain, parts, &segments)?;
    core.counters.checkpoints.add(1);
    Ok(())
}

/// Writes nodes that have changed.
fn write_nodes<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain, parts: &mut Parts) -> Result<()> {
    let take = |parts: &mut Parts, counts| core.take_blocks(domain, parts, counts, true);
    let sealed = core.ground.seal_dirty(domain, parts, take)?;
    core.counters.node_blocks.add(sealed.len() as u64);
    core.ground.write_blocks(&[(&as_writes(&sealed), Structure::Pointer)])?;
    parts.arrived(&sealed);
    core.ground.settle()
}

/// Makes the checkpoint count.
fn put_record<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    parts: &Parts,
    version: u64,
) -> Result<()> {
    let record = CheckpointRecord {
        version: version.into(),
        sequence: parts.sequence.into(),
        held: parts.held.into(),
        logs: parts.logs.map(LogRecord::new),
    };
    let mut batch = Batch::new();
    let value = record.encode([&parts.log_summary(DATA), &parts.log_summary(NODES)]);
    meta::put(&mut batch, Key::Checkpoint(domain.number), &value)?;
    core.meta.write(&batch)
}

/// Deletes what the checkpoint has made superfluous, and hands out what is free by it.
fn tidy<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    parts: &mut Parts,
    segments: &[u32],
) -> Result<()> {
    let mut writer = Writer { core, batch: Batch::new() };
    for sequence in std::mem::take(&mut parts.intents) {
        meta::delete(&mut writer.batch, Key::Intents(domain.number, sequence))?;
        writer.write_if_full()?;
    }
    for number in segments {
        let active = parts.is_active(*number);
        let version = parts.version;
        let wrong = || damaged("segment", u64::from(*number));
        let segment = parts.sit.get_mut(u64::from(*number)).ok_or_else(wrong)?;
        let old = segment.stored.replace(version);
        if let Some(old) = old {
            meta::delete(&mut writer.batch, Key::Sit(*number, old))?;
        }
        if segment.count == 0 && !active {
            meta::delete(&mut writer.batch, Key::Sit(*number, version))?;
        }
        writer.write_if_full()?;
    }
    writer.write()?;
    core.segments.give_back(parts.hand_out());
    Ok(())
}

/// Writes changes in batches of some size, none of which must come together with others.
struct Writer<'a, D: BlockPort + MemoryArea + 'static> {
    core: &'a Core<D>,
    batch: Batch,
}

impl<D: BlockPort + MemoryArea> Writer<'_, D> {
    fn write_if_full(&mut self) -> Result<()> {
        if self.batch.len() >= CHANGES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.core.meta.write(&std::mem::take(&mut self.batch))
    }
}
