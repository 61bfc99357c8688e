//! The list of orphans in memory; `orphans.rs` keeps the device's like it.

use amphi_rt::sync::Mutex;

/// The list, the first one last.
#[derive(Default)]
pub struct Orphans(pub(super) Mutex<Vec<u32>>);

impl Orphans {
    /// The list as found on the device, from the superblock on.
    pub fn load(&self, from_first: &[u32]) {
        *self.0.lock() = from_first.iter().rev().copied().collect();
    }

    /// All of them.
    pub fn all(&self) -> Vec<u32> {
        self.0.lock().clone()
    }
}
