//! Whether the kernel's FUSE driver offers rings (FUSE over io_uring): it can since Linux 6.14, and may where
//! its parameter says so, which it does not unless somebody sets it.

use std::path::Path;

use anyhow::{Context, Result};

use crate::parameter::{self, Changed};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether it offers them now.
#[must_use]
pub fn are_offered() -> bool {
    parameter::read(Path::new(PARAMETER)).is_ok_and(|value| value == "Y")
}

/// Has the kernel offer them until what is returned is dropped. Mounts that have them keep them.
///
/// # Errors
/// The kernel is too old, or only root may.
pub fn offer() -> Result<Changed> {
    Changed::begin(Path::new(PARAMETER), "1", "--offer-rings")
        .context("rings need Linux 6.14 or later; leave --offer-rings out to measure without")
}
