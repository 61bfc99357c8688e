//! Pages to new blocks at the end of the log of data.

use amphi_device::{BlockPort, Structure};
use amphi_segments::{DATA, Writes};
use amphi_vfs::Result;

use crate::core::Core;

/// Gives pages of files or of directories their blocks, and writes them: of each the inode, its number there,
/// and what it holds. False if there are too few free segments; nothing has changed then. `last` may take the
/// last ones. The caller has the gate.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn write_pages<'p, D: BlockPort>(
    core: &Core<D>,
    pages: impl Iterator<Item = ((u32, u64), &'p [u8])> + Clone,
    tag: Structure,
    last: bool,
) -> Result<bool> {
    let mut counts = [0; 2];
    counts[DATA] = pages.clone().count();
    let taken = core.take_blocks(&mut core.domain.parts.lock(), counts, last)?;
    let Some([blocks, _]) = taken else { return Ok(false) };
    for (((ino, page), _), block) in pages.clone().zip(&blocks) {
        core.settle_page(ino, page, *block)?;
    }
    core.fresh.lock().unsaved.extend(pages.clone().map(|((ino, _), _)| ino));
    let writes: Writes<'_> = blocks.iter().zip(pages).map(|(block, (_, bytes))| (*block, bytes)).collect();
    // Before the gate is free: no checkpoint may come behind a failure.
    core.names.health.judge(core.ground.write_blocks(&[(&writes, tag)]))?;
    Ok(true)
}
