//! Mending what files use: nodes that are theirs, blocks that are nobody else's, and NAT and SIT as follows
//! from them.

use std::collections::{BTreeMap, BTreeSet};

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::Batch;
use amphi_segments::Segment;
use amphi_vfs::{Error, FileType, Ino, Result};

use super::tree::{Tree, put_record};
use crate::checkpoint;
use crate::core::Core;
use crate::format::{
    Address, INLINE_NODES, InodeRecord, Key, NAT_ENTRIES, NODES_PER_CHUNK, PAGE, decode_nodes, encode_nodes,
    key,
};
use crate::meta;

/// What files use of a domain.
#[derive(Default)]
struct Used {
    /// Blocks, and whether each holds a node.
    blocks: BTreeMap<u32, bool>,
    nids: BTreeSet<u32>,
    held: u64,
}

/// Mends what all files use, and makes a checkpoint of each domain.
///
/// # Errors
/// [`amphi_vfs::Error::Io`], [`amphi_vfs::Error::NoSpace`].
pub fn mend<D: BlockPort + MemoryArea>(core: &Core<D>, tree: &Tree) -> Result<()> {
    let mut used: Vec<_> = core.domains.iter().map(|_| Used::default()).collect();
    for (ino, (record, _)) in &tree.records {
        if record.file_type() == Some(FileType::Regular) {
            let of = &mut used[usize::from(core.domain(*ino).number)];
            mend_file(core, *ino, record, of, tree)?;
        }
    }
    for (number, used) in used.iter().enumerate() {
        settle(core, number, used)?;
    }
    Ok(())
}

/// The numbers of a file's nodes, as far as they can be read.
fn nodes_of<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    ino: Ino,
    record: &InodeRecord,
) -> Result<BTreeMap<u32, u32>> {
    let mut nodes: BTreeMap<u32, u32> = (0..).zip(record.nodes.iter().map(|nid| nid.get())).collect();
    let first = key(Key::Nodes(ino.0, 0));
    let prefix = &first[..first.len() - 8];
    core.meta.visit(prefix, prefix, |key, value| {
        let chunk = key.get(prefix.len()..).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        if let (Some(chunk), Some(nids)) = (chunk.filter(|chunk| *chunk < 1 << 24), decode_nodes(value)) {
            nodes.extend((INLINE_NODES + chunk as u32 * NODES_PER_CHUNK..).zip(nids));
        }
        Ok(true)
    })?;
    nodes.retain(|_, nid| *nid != 0);
    Ok(nodes)
}

fn mend_file<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    ino: Ino,
    was: &InodeRecord,
    used: &mut Used,
    tree: &Tree,
) -> Result<()> {
    let domain = core.domain(ino);
    let mut record = *was;
    let end = record.head.size.get().div_ceil(PAGE as u64);
    let before = nodes_of(core, ino, was)?;
    let mut nodes = before.clone();
    let mut blocks = 0;
    for (index, nid) in &before {
        let address = domain.parts.lock().node_address(*nid);
        let node = match core.ground.read_node(domain, *nid, address) {
            Ok(node) => Some(node),
            Err(Error::Corrupt(_)) => None,
            // It may be readable another time.
            Err(error) => return Err(error),
        };
        let sound = |at: u32| at < core.layout.main_blocks() as u32;
        let mine = node.filter(|node| node.ino == ino && node.index == *index && !used.nids.contains(nid));
        let free =
            |at: u32, used: &Used| sound(at) && !used.blocks.contains_key(&at) && owns(core, domain, at);
        let Some(mut node) = mine.filter(|_| address.block().is_none_or(|at| free(at, used))) else {
            nodes.remove(index);
            continue;
        };
        used.nids.insert(*nid);
        used.blocks.extend(address.block().map(|at| (at, true)));
        let first = u64::from(*index) * node.addresses.len() as u64;
        let mut changed = false;
        for (page, at) in (first..).zip(node.addresses.iter_mut()) {
            let good = match at.block() {
                Some(block) => page < end && free(block, used),
                None => true,
            };
            if !good {
                (*at, changed) = (Address::HOLE, true);
            }
            blocks += u64::from(!at.is_hole());
            used.held += u64::from(*at == Address::RESERVED);
            used.blocks.extend(at.block().map(|block| (block, false)));
        }
        if changed {
            let mut parts = domain.parts.lock();
            parts.nodes.insert(*nid, node);
            parts.nodes.touch(nid);
        }
    }
    record.blocks = blocks.into();
    record.entries = (nodes.len() as u64).into();
    for (index, nid) in (0..).zip(&mut record.nodes) {
        *nid = nodes.get(&index).copied().unwrap_or(0).into();
    }
    if zerocopy::IntoBytes::as_bytes(&record) == zerocopy::IntoBytes::as_bytes(was) && nodes == before {
        return Ok(());
    }
    let mut batch = Batch::new();
    put_record(&mut batch, tree, &record)?;
    put_chunks(&mut batch, ino, &before, &nodes)?;
    core.meta.write(&batch)
}

/// Whether a block is one of the domain's, or can be.
fn owns<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &amphi_segments::Domain, block: u32) -> bool {
    domain.parts.lock().sit.get(u64::from(block / core.layout.segment_blocks)).is_some()
}

/// Puts the chunks of numbers of nodes that are no more as they were.
fn put_chunks(
    batch: &mut Batch,
    ino: Ino,
    before: &BTreeMap<u32, u32>,
    nodes: &BTreeMap<u32, u32>,
) -> Result<()> {
    let chunk_of = |index: &u32| Some(index.checked_sub(INLINE_NODES)? / NODES_PER_CHUNK);
    let chunks: BTreeSet<u32> = before.keys().filter_map(chunk_of).collect();
    for chunk in chunks {
        let first = INLINE_NODES + chunk * NODES_PER_CHUNK;
        let mut numbers = [0; NODES_PER_CHUNK as usize];
        for (index, nid) in nodes.range(first..first + NODES_PER_CHUNK) {
            numbers[(index - first) as usize] = *nid;
        }
        let of = Key::Nodes(ino.0, chunk.into());
        if numbers.iter().any(|nid| *nid != 0) {
            meta::put(batch, of, &encode_nodes(&numbers))?;
        } else {
            meta::delete(batch, of)?;
        }
    }
    Ok(())
}

/// Has a domain's SIT, NAT and held blocks be as its files use them, and writes them.
fn settle<D: BlockPort + MemoryArea>(core: &Core<D>, number: usize, used: &Used) -> Result<()> {
    let domain = &core.domains[number];
    let _gate = domain.gate.write();
    let size = core.layout.segment_blocks;
    {
        let mut parts = domain.parts.lock();
        parts.held = used.held;
        for number in parts.segments(|_| true) {
            let first = number * size;
            let Some(segment) = parts.sit.get_mut(number.into()) else { continue };
            let mut right = Segment::new(segment.kind, size);
            for block in used.blocks.range(first..first + size).map(|(block, _)| block - first) {
                right.valid[block as usize / 64] |= 1 << (block % 64);
                right.count += 1;
            }
            if right.valid != segment.valid {
                (segment.valid, segment.count, segment.dirty) = (right.valid, right.count, true);
            }
        }
        let mut from = 0;
        while let Some((block, part)) = parts.nat.next(from) {
            from = block + 1;
            let first = block as u32 * NAT_ENTRIES as u32;
            let entries = part.entries.iter().enumerate();
            let lost: Vec<_> = entries
                .filter(|(at, address)| !address.is_hole() && !used.nids.contains(&(first + *at as u32)))
                .map(|(at, _)| at)
                .collect();
            if let Some(part) = parts.nat.get_mut(block).filter(|_| !lost.is_empty()) {
                for at in &lost {
                    part.entries[*at] = Address::HOLE;
                }
                part.dirty = true;
                parts.freed_nids.extend(lost.iter().map(|at| first + *at as u32));
            }
        }
        // Of no change, so that a checkpoint is made whatever else there is.
        parts.intents.push(0);
    }
    checkpoint::held(core, domain)
}
