//! Mending what a check finds, as long as that makes it better: names and inodes first (`tree`), then what
//! files use of each domain (`usage`).
//!
//! What has no name comes to `lost+found`. Of two places for one inode the first one has it; a file reads
//! zeros where it has lost a page. What recovery refuses, and a metadata store that cannot be read, is not
//! mended: the check after it says so.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::Error;

use super::tree::Tree;
use super::{Report, check, usage};
use crate::core::Core;
use crate::mount::{self, MountError};
use crate::options::MountOptions;
use crate::overlay::Overlay;

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repair {
    /// What was wrong before.
    pub before: Report,
    /// And after it.
    pub after: Report,
}

/// Checks the file system on a device, which nobody uses, and mends what it finds.
///
/// # Errors
/// [`MountError::NotThis`], if there is none; [`MountError::Device`].
pub fn repair<D: BlockPort + MemoryArea>(device: &Arc<D>) -> Result<Repair, MountError> {
    let before = check(device)?;
    if before.is_clean() && before.cleanly_unmounted {
        return Ok(Repair { after: before.clone(), before });
    }
    match mend(device) {
        // It says why nothing can be mended; so does the check.
        Err(MountError::Damaged(Error::Corrupt(_) | Error::NoSpace)) => {}
        done => done?,
    }
    Ok(Repair { before, after: check(device)? })
}

fn mend<D: BlockPort + MemoryArea>(device: &Arc<D>) -> Result<(), MountError> {
    let options = || MountOptions { checkpoint_interval_ns: 0, ..MountOptions::default() };
    {
        // So that opening it takes no inode, which may be damaged.
        let read_only = MountOptions { read_only: true, ..options() };
        let (core, _) = mount::open(&Overlay::through(device), read_only)?;
        mend_all(&core)?;
    }
    let (core, _) = mount::open(&Overlay::through(device), options())?;
    Ok(mount::close(&core)?)
}

fn mend_all<D: BlockPort + MemoryArea>(core: &Core<D>) -> amphi_vfs::Result<()> {
    let tree = Tree::read(core)?;
    let mended = tree.mended(core)?;
    // Until all is mended it counts as not unmounted, so that who mounts it next counts inodes anew.
    let next = core.numbers.lock().0.max(mended.highest() + 1);
    core.put_super(next, false)?;
    tree.write_difference(core, &mended)?;
    usage::mend(core, &mended)
}
