//! A file gets another size.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Change, Changed, Need, Store};
use amphi_vfs::{Error, Result};

use crate::change::Batched;
use crate::core::Core;
use crate::drops::plan_cut;
use crate::format::FILE_BYTES_MAX;
use crate::inode::{Inode, State};
use crate::writeback::{Edit, write_back};

/// See [`Store::resize`].
///
/// # Errors
/// As there.
pub fn resize<'a, D: BlockPort + MemoryArea>(
    core: &'a Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    size: u64,
    apply: impl FnOnce(&mut Batched<'a, D>, &mut State<D>) -> Result<()>,
) -> Result<()> {
    if size > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    if state.part.stored_size < size.min(state.size) {
        // What lies before the new end must be there when it counts.
        write_back(core, inode, state, &Edit::default())?;
    }
    let mut change = core.begin(&Need::NOTHING)?;
    let cuts = size < state.size;
    if cuts {
        let drops = plan_cut(core, inode, state, size)?;
        core.cut_pages(state, size);
        if let Some(drops) = drops {
            change.drop_blocks(drops);
        }
    }
    apply(&mut change, state)?;
    state.size = size;
    state.part.stored_size = size;
    change.write_inode(inode, state, Changed::Contents)?;
    change.commit()?;
    if state.part.file.dirty.is_empty() {
        core.cache.note_clean(inode.ino);
    }
    Ok(())
}
