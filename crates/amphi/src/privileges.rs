//! What the daemon gives up before it serves anybody: capabilities it never needs, for good.
//!
//! A daemon that root starts keeps `CAP_SYS_ADMIN`, without which it could neither mount nor unmount, and
//! `CAP_DAC_OVERRIDE` only if it cannot reach the image or the directory otherwise (they belong to somebody
//! else). It cannot gain others: the bounding set is cut down alike, and `no_new_privs` is set. An ordinary
//! user's daemon has none to give up; it must be able to run `fusermount3`, which `no_new_privs` would break.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Gives up what is not needed to serve `image` on `directory`. Threads started later have no more than this
/// one.
///
/// # Errors
/// If the kernel does not let go of them.
pub fn drop_unneeded(image: &Path, directory: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let held = capabilities(None).context("capabilities cannot be read")?.permitted;
    let sparse = CapabilitySet::SYS_ADMIN & held;
    // Tried, not guessed: with the few capabilities alone, can both be reached?
    set_effective(sparse, held)?;
    let reached = accessat(CWD, image, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS)
        .and_then(|()| accessat(CWD, directory, Access::EXISTS, AtFlags::EACCESS));
    let kept = if reached.is_ok() { sparse } else { sparse | (CapabilitySet::DAC_OVERRIDE & held) };
    set_effective(held, held)?;
    // A root that may not change it (in a container) leaves the bounding set as it is.
    let unneeded =
        if held.contains(CapabilitySet::SETPCAP) { held.difference(kept) } else { CapabilitySet::empty() };
    for capability in unneeded.iter() {
        remove_capability_from_bounding_set(capability)
            .context("a capability cannot be taken out of the bounding set")?;
    }
    set_effective(kept, kept)?;
    set_no_new_privs(true).context("no_new_privs cannot be set")
}

fn set_effective(effective: CapabilitySet, permitted: CapabilitySet) -> Result<()> {
    let sets = CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).context("capabilities cannot be given up")
}
