//! The kernel's permission to use rings, given while a test mounts and taken back as it was.
//!
//! Test programs that run at the same time take turns, so that none of them takes away what another one has
//! just given itself.

use std::fs::{self, File};

use amphi_front_fuse::{MountOptions, Transport};
use rustix::fs::{FlockOperation, flock};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel offers rings, or can be made to.
pub fn can_be() -> bool {
    fs::read_to_string(PARAMETER).is_ok_and(|set| set.trim() == "Y")
        || File::options().write(true).open(PARAMETER).is_ok()
}

/// The kernel offers rings until this is dropped. What it has agreed to stays.
pub struct Offered {
    before: String,
    // Unlocked after what was set before is set again.
    _turn: File,
}

impl Offered {
    /// For a mount with such options.
    pub fn to(options: &MountOptions) -> Option<Self> {
        (options.transport == Transport::Ring).then(Self::begin)
    }

    pub fn begin() -> Self {
        let turn = File::create(std::env::temp_dir().join("amphi-test-rings.lock")).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        let offered = Self { before: fs::read_to_string(PARAMETER).unwrap(), _turn: turn };
        offered.set(true);
        offered
    }

    pub fn set(&self, is_offered: bool) {
        fs::write(PARAMETER, if is_offered { "1" } else { "0" }).unwrap();
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        drop(fs::write(PARAMETER, &self.before));
    }
}
