//! What this system restricts in directories that several users share: commands are refused what the kernel
//! would refuse.

use std::fs::read_to_string;

use amphi_vfs::permission::Protected;

/// What `/proc/sys/fs/protected_*` say now; what cannot be read is as on most systems.
#[must_use]
pub fn protected() -> Protected {
    let level = |name: &str, unless: u8| {
        let said = read_to_string(format!("/proc/sys/fs/protected_{name}"));
        said.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(unless)
    };
    let Protected { hardlinks, symlinks, regular } = Protected::default();
    Protected {
        hardlinks: level("hardlinks", hardlinks.into()) > 0,
        symlinks: level("symlinks", symlinks.into()) > 0,
        regular: level("regular", regular),
    }
}
