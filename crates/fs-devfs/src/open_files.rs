//! Which directories have open files: the entries of one may leave device memory when its last file closes.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::hash::HashMap;
use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;

/// How many files of each directory are open.
#[derive(Debug, Default)]
pub struct OpenFiles {
    by_directory: Mutex<HashMap<Ino, u32>>,
}

/// The directory that counts a file as open; 0: none.
#[derive(Debug, Default)]
pub struct CountedIn(AtomicU64);

impl OpenFiles {
    /// A file is open whose directory is `dir`.
    pub fn add(&self, dir: Ino, counted: &CountedIn) {
        let mut by_directory = self.by_directory.lock();
        if counted.0.swap(dir.0, Ordering::Relaxed) == 0 {
            *by_directory.entry(dir).or_insert(0) += 1;
        }
    }

    /// The directory of which no file is open any more, if there is one.
    pub fn remove(&self, counted: &CountedIn) -> Option<Ino> {
        let mut by_directory = self.by_directory.lock();
        let dir = Ino(counted.0.swap(0, Ordering::Relaxed));
        let count = by_directory.get_mut(&dir)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        by_directory.remove(&dir);
        Some(dir)
    }
}
