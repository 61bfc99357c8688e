//! Bringing a file's pages to the device: to new blocks at the end of the log of data or, where F2FS does so,
//! over the blocks that they have. Nodes that name new ones change in memory.

use std::sync::Arc;

use amphi_device::{BlockPort, Structure};
use amphi_segments::Writes;
use amphi_vfs::{Error, Result};

use crate::append::write_pages;
use crate::collect;
use crate::core::Core;
use crate::format::PAGE;
use crate::nodes::spot;
use crate::part::{Inode, State};

/// Most pages that are written together: 2 MB.
const PAGES_AT_A_TIME: usize = 512;
/// Most dirty pages of a file that its `fsync` writes over their blocks (F2FS's `min_fsync_blocks`).
const FSYNC_IN_PLACE: usize = 8;

/// Where pages go that have a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    /// To a new one.
    Away,
    /// There, as with `fdatasync` and direct writes on F2FS.
    InPlace,
    /// There, if they are few, as with its `fsync`.
    InPlaceIfFew,
}

/// Writes a file's dirty pages back, then says so in its inode. The caller has it locked.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`]; the file system is read-only then.
pub fn write_back<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    goes: Goes,
) -> Result<()> {
    core.names.health.writable()?;
    core.names.health.judge(write_back_all(core, inode, state, goes))
}

fn write_back_all<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    goes: Goes,
) -> Result<()> {
    if state.part.file.pages.is_clean()
        && !state.part.file.changed
        && state.part.file.stored_size == state.size
    {
        core.cache.note_clean(inode);
        return Ok(());
    }
    let mut dirty = state.part.file.pages.first_dirty(usize::MAX);
    let few = dirty.len() <= FSYNC_IN_PLACE;
    if core.options.in_place && (goes == Goes::InPlace || goes == Goes::InPlaceIfFew && few) {
        overwrite(core, inode, state, &dirty)?;
        dirty = state.part.file.pages.first_dirty(usize::MAX);
    }
    let nodes = dirty.chunk_by(|one, next| spot(*one).0 == spot(*next).0).count();
    loop {
        core.balance(nodes + 4)?;
        if submit(core, inode, state)? {
            break;
        }
        if !collect::make_free(core, 2)? {
            return Err(Error::NoSpace);
        }
    }
    core.cache.note_clean(inode);
    Ok(())
}

/// Writes those of a file's pages that have a block over what it holds.
fn overwrite<D: BlockPort>(core: &Core<D>, inode: &Inode, state: &mut State, pages: &[u64]) -> Result<()> {
    let _gate = core.domain.gate.read();
    let mut written = Vec::new();
    let mut writes: Writes<'_> = Vec::new();
    for page in pages {
        let block = core.addresses(inode.ino.0 as u32, *page, page + 1)?[0].block();
        if let (Some(block), Some(cached)) = (block, state.part.file.pages.get(*page)) {
            written.push(*page);
            writes.push((block, cached.data.as_slice()));
        }
    }
    if written.is_empty() {
        return Ok(());
    }
    core.ground.write_blocks(&[(&writes, Structure::Data)])?;
    core.cache.settle_pages(&mut state.part.file, &written)
}

/// Gives all dirty pages their blocks, writes them, and says how long the file is now: no checkpoint comes in
/// between, which would know pages behind the end. False if there are too few free segments; then the file
/// ends where what has been written does.
fn submit<D: BlockPort>(core: &Core<D>, inode: &Inode, state: &mut State) -> Result<bool> {
    let most = PAGES_AT_A_TIME.min(core.layout.segment_blocks as usize);
    let mut some = false;
    let _gate = core.domain.gate.read();
    loop {
        let pages = state.part.file.pages.first_dirty(most);
        let Some(first) = pages.first() else { break };
        let cached = &state.part.file.pages;
        let bytes = |page| cached.get(page).map(|page| page.data.as_slice());
        let there = pages.iter().filter_map(|page| Some(((inode.ino.0 as u32, *page), bytes(*page)?)));
        if !write_pages(core, there, Structure::Data, false)? {
            if some {
                let written = state.size.min(first * PAGE as u64);
                state.part.file.stored_size = state.part.file.stored_size.max(written);
                core.put_inode(inode, state)?;
            }
            return Ok(false);
        }
        core.cache.settle_pages(&mut state.part.file, &pages)?;
        some = true;
    }
    state.part.file.stored_size = state.size;
    core.put_inode(inode, state)?;
    Ok(true)
}
