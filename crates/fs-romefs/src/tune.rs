//! Changing an unmounted file system's superblock: its label, name and default mount options, and its size,
//! which can grow as far as its bitmap of data blocks goes.
//!
//! The superblock's copy is stored first, so a power loss leaves the old one or the new one.

use amphi_device::{BlockPort, MemoryArea, PAGE_BYTES};
use amphi_volume::Changes;

use crate::format::{OPTION_BYTES, Superblock};
use crate::mount::{self, Info, MountError};
use crate::options::MountOptions;

/// Changes what the superblock of the file system on `device`, which nobody uses meanwhile, says.
///
/// # Errors
/// [`MountError::Unsuitable`] for a label or options that are too long or impossible;
/// [`MountError::NotThis`], [`MountError::Device`].
pub fn tune<D: BlockPort + MemoryArea>(device: &D, changes: &Changes) -> Result<Info, MountError> {
    let (mut sb, state, layout) = mount::read_super(device)?;
    changes.rename(&mut sb.label, &mut sb.uuid)?;
    if let Some(options) = &changes.options {
        MountOptions::default().set_all(options).map_err(MountError::Unsuitable)?;
        let why =
            || MountError::Unsuitable(format!("the mount options can have {OPTION_BYTES} bytes at most"));
        sb.options = padded(options).ok_or_else(why)?;
    }
    store(device, &mut sb)?;
    Ok(Info::of(&sb, &state, &layout))
}

fn padded<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(bytes)
}

fn store<D: BlockPort + MemoryArea>(device: &D, sb: &mut Superblock) -> Result<(), MountError> {
    sb.crc = sb.checksum().into();
    mount::write_superblock(device, sb)?;
    Ok(())
}

/// Lets the block zone of the file system on `device`, which nobody uses meanwhile, grow to `bytes`, or as
/// far as device and bitmap allow. Returns its bytes before and after, whole data blocks.
///
/// # Errors
/// [`MountError::Unsuitable`] if it is larger already, or cannot be so large; [`MountError::NotThis`],
/// [`MountError::Device`].
pub fn grow<D: BlockPort + MemoryArea>(device: &D, bytes: Option<u64>) -> Result<(u64, u64), MountError> {
    let (mut sb, _, layout) = mount::read_super(device)?;
    let plan = layout.plan;
    let room = plan.blocks_max.min(device.capacity_pages() * PAGE_BYTES as u64 / plan.block_bytes);
    let wanted = bytes.map_or(room, |bytes| bytes / plan.block_bytes);
    let in_bytes = |blocks: u64| blocks * plan.block_bytes;
    if wanted < plan.blocks {
        return Err(MountError::Unsuitable(format!(
            "its block zone has {} bytes and would be cut to {}; it can grow but not shrink",
            in_bytes(plan.blocks),
            in_bytes(wanted)
        )));
    }
    if wanted > room {
        return Err(MountError::Unsuitable(format!(
            "its block zone can grow to {} bytes, fewer than asked for",
            in_bytes(room)
        )));
    }
    sb.blocks = (wanted as u32).into();
    store(device, &mut sb)?;
    Ok((in_bytes(plan.blocks), in_bytes(wanted)))
}
