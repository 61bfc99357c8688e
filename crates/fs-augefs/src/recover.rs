//! Recovery (AU-10): each domain begins at its last checkpoint and rolls forward, all of them at the same
//! time.
//!
//! The metadata store is as it was when the power went; nodes, NAT and SIT are as of the checkpoint. What
//! lies between is in the logs of nodes, and in the intents: segments that were taken, nodes that were freed,
//! files that were cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amphi_device::{BlockPort, BytePort, MemoryArea, Structure};
use amphi_lsm::Batch;
use amphi_rt::task;
use amphi_segments::format::COUNTER_MAX;
use amphi_segments::{DATA, Domain, NODES, Node};
use amphi_vfs::{Error, Ino, Result};
use amphi_volume::io_error;

use crate::checkpoint;
use crate::core::Core;
use crate::drops::NODE_SPAN;
use crate::format::{ADDRESSES, Address, EntryRecord, Intent, Key, NAT_ENTRIES, PAGE, encode_entry};
use crate::meta::{self, damaged};
use crate::part::Home;
use crate::planted::{self, Bug};

/// Intents of a domain by their place in the order of changes.
pub type Intents = BTreeMap<u64, Vec<Intent>>;

/// What recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the last mount ended cleanly, so that there was nothing to do.
    pub clean: bool,
    /// Nodes behind checkpoints that were used.
    pub nodes: u64,
    /// Nodes whose data were on their way.
    pub doubtful: u64,
    /// Intents that were repeated.
    pub intents: u64,
}

/// Recovers all domains, each by a task of its own, and makes a checkpoint of each.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn all<D: BlockPort + MemoryArea>(core: &Arc<Core<D>>, intents: Vec<Intents>) -> Result<Recovered> {
    let tasks: Vec<_> = intents
        .into_iter()
        .enumerate()
        .map(|(number, intents)| {
            let core = Arc::clone(core);
            task::spawn("augefs-recovery", move || one(&core, &core.domains[number], &intents))
        })
        .collect();
    // All of them have ended before any failure is told.
    let outcomes: Vec<_> = tasks.into_iter().map(task::JoinHandle::join).collect();
    let mut recovered = Recovered::default();
    for outcome in outcomes {
        let found = outcome?;
        recovered.nodes += found.nodes;
        recovered.doubtful += found.doubtful;
        recovered.intents += found.intents;
    }
    Ok(recovered)
}

fn one<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain, intents: &Intents) -> Result<Recovered> {
    let _gate = domain.gate.write();
    let (mut found, mut files) = (Recovered::default(), BTreeSet::new());
    let begin = domain.parts.lock().sequence;
    let current = || intents.range(begin..).flat_map(|(at, intents)| intents.iter().map(|one| (*at, *one)));
    let mut scans = claim(core, domain, current().map(|(_, intent)| intent))?;
    let freed: BTreeSet<_> = current()
        .filter_map(|(_, intent)| if let Intent::Free(nid) = intent { Some(nid) } else { None })
        .collect();
    scans.sort_unstable();
    let nodes = scan(core, domain, &scans, &mut found)?;
    let last = nodes.values().map(|(_, node)| node.sequence).chain(intents.keys().copied()).max();
    if let Some(last) = last {
        let mut parts = domain.parts.lock();
        parts.sequence = parts.sequence.max(last + 1);
    }
    let mut sizes = Vec::new();
    for (nid, (block, node)) in nodes {
        if freed.contains(&nid) || planted::has(Bug::RollForwardForgotten) {
            continue;
        }
        if let Some(size) = size_of_owner(core, nid, &node)? {
            files.insert(node.ino);
            sizes.push((nid, node.index, size));
            use_node(core, domain, nid, block, node)?;
            found.nodes += 1;
        }
    }
    for (at, intent) in current() {
        match intent {
            Intent::Take(..) => {}
            Intent::Free(nid) => free(core, domain, nid)?,
            Intent::Cut(nid, from, _) => cut(core, domain, nid, from, Some(at))?,
        }
        found.intents += 1;
    }
    for (nid, index, size) in sizes {
        let start = u64::from(index) * NODE_SPAN;
        if size < start + NODE_SPAN {
            cut(core, domain, nid, size.saturating_sub(start) as u32, None)?;
        }
    }
    {
        let mut parts = domain.parts.lock();
        parts.intents.extend(intents.keys());
    }
    // The checkpoint ends what makes a recovery look at these nodes: if the power fails behind it, nobody
    // counts again.
    for ino in files {
        recount(core, domain, ino)?;
    }
    // Nodes that were not believed must never be: those of the next version are others.
    checkpoint::held(core, domain)?;
    Ok(found)
}

/// Has the domain own the segments that it took, and leave those that it wrote to. Returns where nodes may
/// be.
fn claim<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    intents: impl Iterator<Item = Intent>,
) -> Result<Vec<(u32, u32)>> {
    let mut parts = domain.parts.lock();
    let mut scans = Vec::new();
    let logs = parts.leave_logs();
    scans.extend(logs[NODES].map(|log| (log.segment, log.next)));
    for intent in intents {
        if let Intent::Take(number, kind) = intent {
            parts.claim(number, kind, core.layout.segment_blocks);
            if usize::from(kind) == NODES {
                scans.push((number, 0));
            }
        }
    }
    Ok(scans)
}

/// The newest believable version of each node in these segments, from these blocks on, with its block.
fn scan<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    segments: &[(u32, u32)],
    found: &mut Recovered,
) -> Result<BTreeMap<u32, (u32, Node)>> {
    let version = domain.parts.lock().version;
    let mut nodes: BTreeMap<u32, (u32, Node)> = BTreeMap::new();
    for at in segments {
        core.ground.visit_nodes(*at, Structure::Pointer, |block, node| {
            let head = node.head;
            let ours = head.domain.get() == domain.number && head.version.get() == version;
            if !ours || head.fsync.get() != 1 {
                return Ok(());
            }
            if !has_arrived(core, head.processor.get(), head.write_version.get())? {
                found.doubtful += 1;
                return Ok(());
            }
            let (nid, sequence) = (head.nid.get(), head.sequence.get());
            if sequence > COUNTER_MAX {
                return Err(damaged("the sequence number of node", nid.into()));
            }
            if nodes.get(&nid).is_none_or(|(_, other)| other.sequence <= sequence) {
                nodes.insert(nid, (block, Node::of(&node)));
            }
            Ok(())
        })?;
    }
    Ok(nodes)
}

/// Whether what a processor wrote under a write version has arrived as a whole (AU-9).
fn has_arrived<D: BlockPort + MemoryArea>(core: &Core<D>, processor: u32, version: u64) -> Result<bool> {
    if planted::has(Bug::WriteVersionIgnored) {
        return Ok(true);
    }
    let Some(now) = core.write_versions.get(processor as usize) else {
        return Err(damaged("the processor of a node:", processor.into()));
    };
    Ok(version < *now.lock())
}

/// The size of the file that has a node; none if no file has it.
fn size_of_owner<D: BlockPort + MemoryArea>(core: &Core<D>, nid: u32, node: &Node) -> Result<Option<u64>> {
    match core.find_record(node.ino) {
        Err(Error::Stale(_)) => Ok(None),
        Err(error) => Err(error),
        Ok((record, ..)) => {
            let nodes = core.find_nodes(node.ino, &record)?;
            Ok((nodes.get(&node.index) == Some(&nid)).then(|| record.head.size.get()))
        }
    }
}

/// Takes a node that is newer than the checkpoint for what it is.
fn use_node<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    nid: u32,
    block: u32,
    node: Node,
) -> Result<()> {
    let size = core.layout.segment_blocks;
    let number = nid / NAT_ENTRIES as u32;
    if number >= core.layout.nat_blocks {
        return Err(damaged("node", nid.into()));
    }
    let address = domain.parts.lock().node_address(nid);
    let old = match address.block() {
        Some(_) => *core.ground.read_node(domain, nid, address)?.addresses,
        None => [Address::HOLE; ADDRESSES],
    };
    let mut parts = domain.parts.lock();
    if parts.nat.get(number.into()).is_none() {
        core.nat_blocks.lock().remove(&number);
        parts.add_nat_block(number);
    }
    let changed = || old.iter().zip(node.addresses.iter()).enumerate().filter(|(_, (old, new))| old != new);
    for (_, (old, _)) in changed() {
        if let Some(old) = old.block() {
            parts.invalidate(old, size)?;
        }
    }
    for (slot, (old, new)) in changed() {
        parts.change_held(u64::from(*new == Address::RESERVED), u64::from(*old == Address::RESERVED));
        if let Some(new) = new.block() {
            parts.validate(new, size, nid, slot as u16)?;
        }
    }
    parts.set_node_address(nid, Address::at(block), size)?;
    parts.nodes.insert(nid, node);
    Ok(())
}

/// A node is no more, with all that it names.
fn free<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain, nid: u32) -> Result<()> {
    if domain.parts.lock().node_address(nid).is_hole() {
        return Ok(());
    }
    // As memory has it: what an earlier intent has cut is not freed once more.
    let mut parts = core.ground.with_nodes(domain, &[nid])?;
    let node = parts.nodes.remove(&nid).ok_or_else(|| damaged("node", nid.into()))?;
    for address in node.addresses.iter() {
        parts.change_held(0, u64::from(*address == Address::RESERVED));
        if let Some(block) = address.block() {
            parts.invalidate(block, core.layout.segment_blocks)?;
        }
    }
    parts.set_node_address(nid, Address::HOLE, core.layout.segment_blocks)
}

/// Bytes from `from` on of what a node covers are no more: if it is older than `than`, or, without that, what
/// was written behind the end of its file.
fn cut<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    nid: u32,
    from: u32,
    than: Option<u64>,
) -> Result<()> {
    let size = core.layout.segment_blocks;
    if planted::has(Bug::CutForgotten) || domain.parts.lock().node_address(nid).is_hole() {
        return Ok(());
    }
    let (slot, within) = (from as usize / PAGE, from as usize % PAGE);
    let mut parts = core.ground.with_nodes(domain, &[nid])?;
    let Some(node) = parts.nodes.get_mut(&nid) else { return Ok(()) };
    if than.is_some_and(|than| node.sequence >= than) {
        return Ok(());
    }
    let partial = if within > 0 { node.addresses.get(slot).and_then(|at| at.block()) } else { None };
    let (mut gone, mut held) = (Vec::new(), 0);
    for address in node.addresses.iter_mut().skip(slot + usize::from(within > 0)) {
        let is_held = *address == Address::RESERVED;
        if address.block().is_some() || (is_held && than.is_some()) {
            held += u64::from(is_held);
            gone.extend(address.block());
            *address = Address::HOLE;
        }
    }
    if held > 0 || !gone.is_empty() {
        parts.nodes.touch(&nid);
    }
    parts.change_held(0, held);
    for block in gone {
        parts.invalidate(block, size)?;
    }
    drop(parts);
    let Some(old) = partial else { return Ok(()) };
    let mut page = core.ground.read_block(old, Structure::Data)?;
    if page[within..].iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    page[within..].fill(0);
    let mut parts = domain.parts.lock();
    let mut counts = [0; 2];
    counts[DATA] = 1;
    let blocks = core.take_blocks(domain, &mut parts, counts, true)?.ok_or(Error::NoSpace)?;
    let new = blocks[DATA][0];
    core.ground.write(core.ground.lpa(new), &page, Structure::Data)?;
    if let Some(node) = parts.nodes.get_mut(&nid) {
        node.addresses[slot] = Address::at(new);
    }
    parts.nodes.touch(&nid);
    parts.invalidate(old, size)?;
    parts.validate(new, size, nid, slot as u16)
}

/// Puts right how many blocks a file has, whose nodes arrived before its inode did.
fn recount<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain, ino: Ino) -> Result<()> {
    let (mut record, home, target) = core.find_record(ino)?;
    let mut blocks = 0;
    for nid in core.find_nodes(ino, &record)?.values() {
        let parts = core.ground.with_nodes(domain, &[*nid])?;
        blocks += parts.nodes[nid].addresses.iter().filter(|address| !address.is_hole()).count() as u64;
    }
    if record.blocks.get() == blocks {
        return Ok(());
    }
    record.blocks = blocks.into();
    let value = encode_entry(&EntryRecord::Inode(record, target));
    let mut batch = Batch::new();
    match &home {
        Home::Named(parent, name) => meta::put(&mut batch, Key::Entry(parent.0, name), &value)?,
        Home::New | Home::Own => meta::put(&mut batch, Key::Inode(ino.0), &value)?,
    }
    core.meta.write(&batch)
}

/// The write versions as the memory area has them.
///
/// # Errors
/// [`Error::Io`].
pub fn write_version<D: BlockPort + MemoryArea>(device: &D, at: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    BytePort::load(device, at, &mut bytes, Structure::Journal).map_err(io_error)?;
    Ok(u64::from_le_bytes(bytes))
}
