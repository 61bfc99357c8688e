//! Write-back: brings a file's dirty pages and attributes to the device, in ordered mode (BY-14, BY-16, figure 5).
//!
//! First the data: pages without a block get extents; new pages and pages modified in an eighth or more go by block, in commands as long as
//! the pages are contiguous; of the others only the modified lines go, by bytes. All of it is durable before the transaction that makes it count,
//! with the new extents, bitmap lines and the inode, commits.

use amphi_device::{BlockPort, Completion, Lpa, Structure, WriteLog};
use amphi_vfs::Result;

use crate::core::Core;
use crate::diff::{changed_lines, goes_by_bytes, runs};
use crate::extent::Mapped;
use crate::file::FileBody;
use crate::format::{LINE, PAGE};
use crate::inode::{Inode, State};
use crate::tx::Tx;

/// Most pages written by one command: 1 MB.
const WRITE_RUN_MAX: usize = 256;

/// Makes the file's data durable, and its attributes too unless `data_only` and they are not needed to read the data.
///
/// # Errors
/// [`amphi_vfs::Error::Io`]; the file system has then turned read-only.
pub fn write_back<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    data_only: bool,
) -> Result<()> {
    let grows = state.size != state.size_on_device;
    if state.file()?.dirty.is_empty() && !grows && (data_only || !state.attributes_dirty) {
        return Ok(());
    }
    core.writable()?;
    let file = state.file_mut()?;
    let mut dirty = std::mem::take(&mut file.dirty);
    dirty.sort_unstable();
    let reserved = std::mem::take(&mut file.unmapped) + std::mem::take(&mut file.reserved_nodes);
    let mut tx = Tx::with_reserved(core, reserved);
    let (new_pages, fresh) = map_pages(file, &dirty, &mut tx);
    let stored = write_data(core, file, &dirty, &fresh).map_err(|error| core.broken(error))?;
    let metadata = grows || !fresh.is_empty() || (state.attributes_dirty && !data_only);
    if metadata {
        state.data_pages += new_pages;
        state.size_on_device = state.size;
        inode.write_changed(core, state, &mut tx);
        tx.commit()?;
        state.attributes_dirty = false;
    } else {
        drop(tx);
        if stored {
            core.device.fence();
            core.device.verify_read().map_err(|error| core.broken(error))?;
        }
    }
    let file = state.file_mut()?;
    for index in dirty.iter() {
        if let Some(page) = file.pages.get_mut(*index) {
            page.written();
        }
    }
    dirty.clear();
    file.dirty = dirty;
    Ok(())
}

/// Gives every dirty page a block, or puts the one reserved for it to use. Returns how many pages had none, and the pages, ascending, of which the device
/// holds nothing.
fn map_pages<D: BlockPort + WriteLog>(
    file: &mut FileBody,
    dirty: &[u64],
    tx: &mut Tx<'_, D>,
) -> (u64, Vec<u64>) {
    let fresh: Vec<u64> =
        dirty.iter().copied().filter(|index| !matches!(file.tree.map(*index), Mapped::At { .. })).collect();
    let mut added = 0;
    for run in fresh.chunk_by(|a, b| a + 1 == *b) {
        let mut index = run[0];
        let end = index + run.len() as u64;
        while index < end {
            let hole = match file.tree.map(index) {
                Mapped::Hole { pages } => pages.min(end - index),
                Mapped::At { pages, .. } | Mapped::Unwritten { pages, .. } => {
                    let reserved = pages.min(end - index);
                    let freed = file.tree.mark_written(index, index + reserved, &mut || tx.allocate_block());
                    freed.free(tx);
                    index += reserved;
                    continue;
                }
            };
            let blocks = tx.allocate_blocks(hole, file.tree.goal(index));
            file.tree.insert(index, blocks.start as u32, blocks.len as u32, &mut || tx.allocate_block());
            index += blocks.len;
            added += blocks.len;
        }
    }
    (added, fresh)
}

/// Writes the dirty pages by block or by bytes and waits for the blocks. Returns whether bytes were stored, which a verify read must still follow.
fn write_data<D: BlockPort + WriteLog>(
    core: &Core<D>,
    file: &FileBody,
    dirty: &[u64],
    fresh: &[u64],
) -> amphi_device::Result<bool> {
    let device = &*core.device;
    let mut stored = false;
    let mut blocks: Vec<(u64, &[u8])> = Vec::with_capacity(dirty.len());
    for index in dirty {
        let (Some(page), Mapped::At { lba, .. }) = (file.pages.get(*index), file.tree.map(*index)) else {
            continue;
        };
        let original = page.original().filter(|_| fresh.binary_search(index).is_err());
        let mask = original.map(|original| changed_lines(original, &page.data));
        match mask {
            Some(mask) if goes_by_bytes(mask, core.options.byte_threshold) => {
                for (line, lines) in runs(mask) {
                    let (from, len) = (line * LINE, lines * LINE);
                    let at = Lpa(lba).byte(from);
                    device.store(at, &page.data[from..from + len], None, Structure::Data)?;
                    device.flush_lines(at, len);
                    stored = true;
                }
            }
            _ => blocks.push((lba, &page.data[..])),
        }
    }
    let pages: Vec<&[u8]> = blocks.iter().map(|(_, data)| *data).collect();
    let mut tickets = Vec::new();
    let mut from = 0;
    while from < blocks.len() {
        let mut to = from + 1;
        while to < blocks.len() && to - from < WRITE_RUN_MAX && blocks[to].0 == blocks[to - 1].0 + 1 {
            to += 1;
        }
        tickets.push(device.submit_write(Lpa(blocks[from].0), &pages[from..to], Structure::Data)?);
        from = to;
    }
    let wrote = !tickets.is_empty();
    for ticket in tickets {
        ticket.wait()?;
    }
    if wrote {
        core.settle_blocks()?;
    }
    debug_assert!(blocks.iter().all(|(_, data)| data.len() == PAGE), "pages are whole");
    Ok(stored)
}
