//! Bringing a file's pages to the device: to new blocks at the end of the log of data. Nodes that name them
//! change in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, Structure};
use amphi_segments::{DATA, Parts, Writes, damaged};
use amphi_vfs::Result;
use zerocopy::IntoBytes;

use crate::collect;
use crate::core::Core;
use crate::format::{Address, NodeBlock, NodeHead};
use crate::inode::{Inode, State};

/// Most pages that are written together: 2 MB.
const PAGES_AT_A_TIME: usize = 512;

/// Writes a file's dirty pages back, then says so in its inode. The caller has it locked.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`]; the file system is read-only then.
pub fn write_back<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode<D>>, state: &mut State<D>) -> Result<()> {
    core.names.health.writable()?;
    let done = write_back_all(core, inode, state);
    if let Err(error) = &done {
        core.names.health.fail(error);
    }
    done
}

fn write_back_all<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode<D>>, state: &mut State<D>) -> Result<()> {
    if state.part.file.dirty.is_empty() && !state.part.file.changed && state.part.stored_size == state.size {
        core.cache.note_clean(inode.ino);
        return Ok(());
    }
    let most = PAGES_AT_A_TIME.min(core.layout.segment_blocks as usize);
    while !state.part.file.dirty.is_empty() {
        let pages: Vec<_> = state.part.file.dirty.iter().copied().take(most).collect();
        core.balance(4)?;
        if !submit(core, inode, state, &pages)? {
            collect::make_free(core, 2)?;
        }
    }
    let _gate = core.domain.gate.read();
    state.part.stored_size = state.size;
    core.put_inode(inode, state)?;
    core.cache.note_clean(inode.ino);
    Ok(())
}

/// Gives pages their blocks, and writes them. False if there are too few free segments; nothing has changed
/// then.
fn submit<D: BlockPort>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    pages: &[u64],
) -> Result<bool> {
    let _gate = core.domain.gate.read();
    let mut counts = [0; 2];
    counts[DATA] = pages.len();
    let taken = core.take_blocks(&mut core.domain.parts.lock(), counts, false)?;
    let Some([blocks, _]) = taken else { return Ok(false) };
    for (page, block) in pages.iter().zip(&blocks) {
        core.settle_page(inode.ino.0 as u32, *page, *block)?;
    }
    let bytes = |page: &u64| state.part.file.pages.get(*page).map(|page| &*page.bytes);
    let writes: Writes<'_> =
        blocks.iter().zip(pages).filter_map(|(block, page)| Some((*block, bytes(page)?))).collect();
    core.ground.write_blocks(&[(&writes, Structure::Data)])?;
    core.cache.settle(&mut state.part.file, pages);
    Ok(true)
}

/// Most nodes of a set.
const SET_MOST: usize = 4096;

/// Writes the nodes of a file that have changed as a set that recovery finds. The caller has the file locked.
/// False if it takes a checkpoint to find them.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn write_set<D: BlockPort>(core: &Core<D>, ino: u32) -> Result<bool> {
    let _gate = core.domain.gate.read();
    let mut parts = core.domain.parts.lock();
    let its = parts.nodes.iter().filter(|(_, node)| node.dirty && node.ino.0 == u64::from(ino));
    let mut nids: Vec<_> = its.map(|(nid, _)| *nid).collect();
    nids.sort_unstable();
    if nids.len() > SET_MOST {
        return Ok(false);
    }
    let Some(blocks) = core.take_ahead(&mut parts, nids.len())? else { return Ok(false) };
    let set = parts.next_sequence();
    let mut sealed = Vec::with_capacity(nids.len());
    for (nid, block) in nids.iter().zip(&blocks) {
        sealed.push((*block, seal_node(core, &mut parts, (*nid, *block), Some((set, nids.len())))?));
    }
    drop(parts);
    let writes: Writes<'_> = sealed.iter().map(|(block, node)| (*block, node.as_bytes())).collect();
    core.ground.write_blocks(&[(&writes, Structure::Inode)])?;
    Ok(true)
}

/// A node's block as it is written now, to this block of the main area; if it is one of a set, with the set's
/// number and how many there are.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`] if it is not in memory.
pub fn seal_node<D: BlockPort>(
    core: &Core<D>,
    parts: &mut Parts,
    (nid, block): (u32, u32),
    set: Option<(u64, usize)>,
) -> Result<Box<NodeBlock>> {
    parts.set_node_address(nid, Address::at(block), core.layout.segment_blocks)?;
    let sequence = parts.next_sequence();
    let version = parts.version;
    let node = parts.nodes.get_mut(&nid).ok_or_else(|| damaged("node", nid.into()))?;
    if std::mem::replace(&mut node.dirty, false) {
        core.dirtied.fetch_sub(1, Ordering::Relaxed);
    }
    node.sequence = sequence;
    let mut head = NodeHead::new(core.domain.number, node.ino.0, nid, node.index);
    (head.version, head.sequence) = (version.into(), sequence.into());
    if let Some((set, count)) = set {
        (head.write_version, head.fsync) = (set.into(), (count as u16).into());
    }
    let mut sealed = Box::new(NodeBlock { head, addresses: *node.addresses });
    sealed.seal(core.ground.salt);
    Ok(sealed)
}
