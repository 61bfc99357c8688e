//! `fallocate`: space held for writes to come, holes, zeros.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::{Change, Changed, Need, Store, note_write};
use amphi_segments::ranges::{begin_allocate, zero_edges};
use amphi_segments::reads::load_pages;
use amphi_vfs::{Allocate, Cred, Result};

use crate::core::Core;
use crate::format::PAGE;
use crate::part::{Inode, State};
use crate::writeback::{Goes, write_back};

const PAGE_BYTES: u64 = PAGE as u64;
/// Pages for which one node is made, at the least.
const PAGE_NODES: usize = 512;

/// See [`amphi_vfs::FileSystem::allocate`].
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    range: (u64, u64),
    what: Allocate,
    cred: &Cred,
) -> Result<()> {
    let (mut state, bytes) = begin_allocate(core, inode, range, what)?;
    let (keep_size, size) = (what.keeps_size(), state.size);
    if !size.is_multiple_of(PAGE_BYTES) && bytes.end > size && !keep_size {
        load_pages(core, inode, &mut state, size..size + 1)?;
    }
    if what.reserves() && !bytes.is_empty() {
        let pages = bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES);
        hold(core, inode, &mut state, pages)?;
    }
    if what.clears() && !bytes.is_empty() {
        clear(core, inode, &mut state, bytes.clone(), what.reserves())?;
    }
    // What was written before is there when this counts.
    write_back(core, inode, &mut state, Goes::Away)?;
    if !keep_size {
        state.size = state.size.max(bytes.end);
        state.part.file.stored_size = state.size;
    }
    note_write(core, &mut state, cred);
    let mut change = core.begin(&Need::NOTHING)?;
    change.write_inode(inode, &mut state, Changed::Contents)?;
    change.commit()
}

/// Makes a range read as zeros: whole pages become holes, or stay held; others are written.
fn clear<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    bytes: Range<u64>,
    held: bool,
) -> Result<()> {
    let whole = zero_edges(core, inode, state, bytes)?;
    if whole.is_empty() {
        return Ok(());
    }
    core.cache.drop_range(&mut state.part.file, whole.clone());
    core.balance(0)?;
    {
        let _gate = core.domain.gate.read();
        let cleared = core.punch(inode.ino.0 as u32, whole.clone()).and_then(|cleared| {
            state.part.blocks = state.part.blocks.saturating_sub(cleared);
            core.put_inode(inode, state)
        });
        core.names.health.judge(cleared)?;
    }
    if held { hold(core, inode, state, whole) } else { Ok(()) }
}

/// Holds a block for each page of a range that has none.
///
/// # Errors
/// [`amphi_vfs::Error::NoSpace`]; then nothing has changed. [`amphi_vfs::Error::Corrupt`],
/// [`amphi_vfs::Error::Io`].
pub fn hold<D: BlockPort>(core: &Core<D>, inode: &Inode, state: &mut State, pages: Range<u64>) -> Result<()> {
    core.balance((pages.end - pages.start) as usize / PAGE_NODES + 4)?;
    let _gate = core.domain.gate.read();
    let ino = inode.ino.0 as u32;
    let wanted = core.lacking(ino, pages.clone())?;
    core.space.promise(wanted)?;
    let held = core.hold(ino, pages).and_then(|(held, made)| {
        state.part.blocks += held;
        // What the nodes name and what the inode counts come to the device together.
        if held + made > 0 {
            core.put_inode(inode, state)?;
        }
        Ok(held + made)
    });
    core.space.give_back(wanted.saturating_sub(core.names.health.judge(held)?));
    Ok(())
}
