//! Rolling forward: what `fsync` has written since the last checkpoint.
//!
//! An `fsync` writes the nodes of its file that have changed as one set: each says how many there are, and a
//! set that is there as a whole counts. The checkpoint names the segments where sets can be. A file that was
//! made since then gets its name from its inode.

use std::collections::{BTreeMap, BTreeSet};

use amphi_device::{BlockPort, Structure};
use amphi_segments::{DATA, NODES, Node, damaged};
use amphi_vfs::{FileType, Ino, Result};
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::format::{
    ADDRESSES, Address, COUNTER_MAX, INODE, InodeRecord, NodeBlock, PAGE, TYPES, record_of, set_record,
};
use crate::planted::{self, Bug};

/// The newest nodes of a file, by number, with the blocks where they are.
type Newer = BTreeMap<u32, (u32, Box<NodeBlock>)>;

/// What was written together, with the blocks where it is; by number.
type Sets = BTreeMap<u64, Vec<(u32, Box<NodeBlock>)>>;

/// What a file uses.
#[derive(Default)]
struct Uses {
    nodes: BTreeSet<u32>,
    /// Blocks of pages, with the node and the word that name each.
    pages: BTreeMap<u32, (u32, u16)>,
    held: u64,
}

/// Rolls forward from the last checkpoint, in memory. Returns how many files it found. The next checkpoint
/// makes it last; until then it can be done again.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn roll_forward<D: BlockPort>(core: &Core<D>) -> Result<usize> {
    let sets = scan(core)?;
    if sets.is_empty() || planted::has(Bug::RollForwardForgotten) {
        return Ok(0);
    }
    leave_logs(core, sets.values().flatten().map(|(block, _)| *block));
    let mut files: BTreeMap<u32, Newer> = BTreeMap::new();
    let mut order = Vec::new();
    for (block, node) in sets.into_values().flatten() {
        let ino = node.head.ino.get();
        let ino = u32::try_from(ino).ok().filter(|ino| (1..core.layout.nids()).contains(ino));
        let ino = ino.ok_or_else(|| damaged("the file of node", node.head.nid.get().into()))?;
        order.retain(|other| *other != ino);
        order.push(ino);
        files.entry(ino).or_default().insert(node.head.nid.get(), (block, node));
    }
    let mut new = Vec::new();
    for ino in &order {
        if core.domain.parts.lock().node_address(*ino).is_hole() {
            new.push(*ino);
        }
        install(core, *ino, &files[ino])?;
    }
    // Directories may take new nodes for names.
    core.count();
    for ino in new {
        core.inodes.fetch_add(1, Ordering::AcqRel);
        if !planted::has(Bug::NameForgotten) {
            name(core, ino)?;
        }
    }
    Ok(order.len())
}

/// The sets that are there as a whole, in the order in which they were written.
fn scan<D: BlockPort>(core: &Core<D>) -> Result<Sets> {
    let (version, log) = {
        let parts = core.domain.parts.lock();
        (parts.version, parts.logs[NODES])
    };
    let mut segments: Vec<_> = log.map(|log| (log.segment, log.next)).into_iter().collect();
    if !planted::has(Bug::AheadForgotten) {
        segments.extend(core.ahead.lock().iter().map(|segment| (*segment, 0)));
    }
    let mut sets = Sets::new();
    for (segment, from) in segments {
        let mut any = false;
        core.ground.visit_nodes((segment, from), Structure::Inode, |block, node| {
            if node.head.version.get() == version && node.head.fsync.get() > 0 {
                any = true;
                sets.entry(node.head.write_version.get()).or_default().push((block, node));
            }
            Ok(())
        })?;
        if !any && from == 0 {
            // Segments are filled one after the other.
            break;
        }
    }
    let whole = |set: &Vec<(u32, Box<NodeBlock>)>| {
        set.iter().all(|(_, node)| usize::from(node.head.fsync.get()) == set.len())
    };
    sets.retain(|_, set| whole(set) || planted::has(Bug::SetInPartCounts));
    Ok(sets)
}

/// The logs go on elsewhere: behind their ends is what is found now. So do segments with blocks of nodes.
fn leave_logs<D: BlockPort>(core: &Core<D>, blocks: impl Iterator<Item = u32>) {
    core.domain.parts.lock().leave_logs();
    let segments: BTreeSet<_> = blocks.map(|block| block / core.layout.segment_blocks).collect();
    segments.into_iter().for_each(|segment| claim(core, segment, NODES));
}

/// A segment that the checkpoint knows as free holds something.
fn claim<D: BlockPort>(core: &Core<D>, segment: u32, kind: usize) {
    let mut parts = core.domain.parts.lock();
    if parts.sit.get(segment.into()).is_none() {
        parts.claim(segment, kind as u8, core.layout.segment_blocks);
        core.segments.claim(segment);
        core.ahead.lock().retain(|ahead| *ahead != segment);
    }
}

/// Takes the newer nodes of a file for what they are.
fn install<D: BlockPort>(core: &Core<D>, ino: u32, newer: &Newer) -> Result<()> {
    let size = core.layout.segment_blocks;
    let existed = !core.domain.parts.lock().node_address(ino).is_hole();
    let old = if existed { uses(core, ino)? } else { Uses::default() };
    for (nid, (_, node)) in newer {
        let words = (core.ground.addresses)(node.head.index.get(), &node.addresses);
        let inside = |at: &Address| at.block().is_none_or(|at| u64::from(at) < core.layout.main_blocks());
        let sound = *nid < core.layout.nids() && node.head.sequence.get() < COUNTER_MAX;
        if !sound || !node.addresses[words].iter().all(inside) {
            return Err(damaged("node", (*nid).into()));
        }
        // It stays in memory until its block is known.
        let mut parts = core.domain.parts.lock();
        parts.nodes.insert(*nid, Node::of(node));
        parts.nodes.touch(nid);
    }
    let new = uses(core, ino)?;
    for block in new.pages.keys().filter(|block| !old.pages.contains_key(*block)) {
        claim(core, block / size, DATA);
    }
    let mut parts = core.domain.parts.lock();
    for nid in old.nodes.difference(&new.nodes) {
        parts.nodes.remove(nid);
        parts.set_node_address(*nid, Address::HOLE, size)?;
    }
    for (nid, (block, node)) in newer {
        if !new.nodes.contains(nid) {
            parts.nodes.remove(nid);
            continue;
        }
        parts.set_node_address(*nid, Address::at(*block), size)?;
        parts.sequence = parts.sequence.max(node.head.sequence.get() + 1);
        parts.nodes.settle(nid);
    }
    for block in old.pages.keys().filter(|block| !new.pages.contains_key(*block)) {
        parts.invalidate(*block, size)?;
    }
    for (block, (nid, word)) in new.pages.iter().filter(|(block, _)| !old.pages.contains_key(*block)) {
        parts.validate(*block, size, *nid, *word)?;
    }
    parts.change_held(new.held, old.held);
    Ok(())
}

/// What a regular file uses.
fn uses<D: BlockPort>(core: &Core<D>, ino: u32) -> Result<Uses> {
    let mut uses = Uses::default();
    let words = core.parts(&[ino])?.nodes[&ino].clone();
    let record = record_of(&words.addresses);
    if words.index != INODE || TYPES.file_type(record.head.kind) != Some(FileType::Regular) {
        return Err(damaged("inode", ino.into()));
    }
    uses.add(ino, INODE, &words.addresses, core);
    core.each_node(ino, &mut |nid, index, words| uses.add(nid, index, words, core))?;
    Ok(uses)
}

impl Uses {
    fn add<D: BlockPort>(&mut self, nid: u32, index: u32, words: &[Address; ADDRESSES], core: &Core<D>) {
        self.nodes.insert(nid);
        let pages = (core.ground.addresses)(index, words);
        for (word, address) in pages.clone().zip(&words[pages]) {
            self.held += u64::from(*address == Address::RESERVED);
            self.pages.extend(address.block().map(|block| (block, (nid, word as u16))));
        }
    }
}

/// Calls `body` with what is known of an inode, and puts it back.
fn change<D: BlockPort, R>(core: &Core<D>, ino: u32, body: impl FnOnce(&mut InodeRecord) -> R) -> Result<R> {
    let mut parts = core.parts(&[ino])?;
    let node = parts.nodes.get_mut(&ino).ok_or_else(|| damaged("inode", ino.into()))?;
    let mut record = record_of(&node.addresses);
    let done = body(&mut record);
    set_record(&mut node.addresses, &record);
    core.touch(&mut parts, ino);
    Ok(done)
}

/// Gives a file that was made since the checkpoint its name. Whatever had it has been deleted meanwhile.
fn name<D: BlockPort>(core: &Core<D>, ino: u32) -> Result<()> {
    let record = record_of(&core.parts(&[ino])?.nodes[&ino].addresses);
    let (dir, len) = (record.parent.get(), usize::from(record.name_len.get()));
    let wrong = || damaged("the name of inode", ino.into());
    let name = record.name.get(..len).filter(|name| !name.is_empty()).ok_or_else(wrong)?;
    if !core.is_number(Ino(dir.into())) || core.domain.parts.lock().node_address(dir).is_hole() {
        return Err(wrong());
    }
    let known = record_of(&core.parts(&[dir])?.nodes[&dir].addresses);
    if TYPES.file_type(known.head.kind) != Some(FileType::Directory) {
        return Err(wrong());
    }
    let entry = (ino, TYPES.code(FileType::Regular));
    if let Some((spot, other, kind)) = core.find_entry(dir, known.levels.get(), name)? {
        if TYPES.file_type(kind) == Some(FileType::Directory) || !core.is_number(Ino(other.into())) {
            return Err(wrong());
        }
        core.set_entry(dir, spot, entry)?;
        return if other == ino { Ok(()) } else { unlink(core, other) };
    }
    let mut levels = known.levels.get();
    let (page, pages, _) = core.add_entry(dir, &mut levels, name, entry)?;
    change(core, dir, |record| {
        record.levels = levels.into();
        record.entries = (record.entries.get() + 1).into();
        record.blocks = (record.blocks.get() + pages).into();
        record.head.size = record.head.size.get().max((page + 1) * PAGE as u64).into();
    })
}

/// An inode has lost a name.
fn unlink<D: BlockPort>(core: &Core<D>, ino: u32) -> Result<()> {
    let record = change(core, ino, |record| {
        record.head.nlink = record.head.nlink.get().saturating_sub(1).into();
        *record
    })?;
    if record.head.nlink.get() > 0 {
        return Ok(());
    }
    core.free_inode(ino, &record)?;
    core.inodes.fetch_sub(1, Ordering::AcqRel);
    Ok(())
}
