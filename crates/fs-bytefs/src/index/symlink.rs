//! Symbolic links: targets up to 48 B in the inode, longer ones in a block of their own.

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::base::Base;
use crate::commit::tx::Tx;
use crate::format::{INLINE_TARGET_MAX, PAGE};
use crate::index::extent::ExtentTree;

/// Longest target in bytes, as Linux's PATH_MAX has it.
pub const TARGET_BYTES_MAX: usize = 4095;

/// Reads a target that has a block of its own.
///
/// # Errors
/// [`Error::Corrupt`] if there is no such block or the length is impossible; [`Error::Io`].
pub fn read_target<D: BlockPort + WriteLog>(
    base: &Base<D>,
    ino: u32,
    tree: &ExtentTree,
    size: u64,
) -> Result<Vec<u8>> {
    let Mapped::At { lba, .. } = tree.map(0) else {
        return Err(Error::corrupt("symlink", u64::from(ino), "it has no block"));
    };
    // A shorter one is in the inode, and would be written there.
    if size <= INLINE_TARGET_MAX as u64 || size > TARGET_BYTES_MAX as u64 {
        return Err(Error::corrupt(
            "symlink",
            u64::from(ino),
            format!("no target in a block has {size} bytes"),
        ));
    }
    let mut page = Box::new([0; PAGE]);
    base.device.read(Lpa(lba), &mut page[..], Structure::Data).map_err(io_error)?;
    Ok(page[..size as usize].to_vec())
}

/// Writes a long target into a new block, which `tx` has reserved. The link does not exist before `tx`
/// commits, so the block may be written at once.
///
/// # Errors
/// [`Error::Io`].
pub fn write_target<D: BlockPort + WriteLog>(
    base: &Base<D>,
    target: &[u8],
    tree: &mut ExtentTree,
    tx: &mut Tx<'_, D>,
) -> Result<()> {
    let lba = tx.allocate_block();
    let mut page = Box::new([0; PAGE]);
    page[..target.len()].copy_from_slice(target);
    base.device.write(Lpa(u64::from(lba)), &page[..], Structure::Data).map_err(io_error)?;
    base.settle_blocks().map_err(io_error)?;
    tree.insert(0, lba, 1, &mut || tx.allocate_block());
    Ok(())
}
