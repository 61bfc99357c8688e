//! Who must know what a command has changed hears of it when the command's processor is free again.
//!
//! The kernel may be in the middle of a request about the very inode, which waits for a processor; and a
//! processor of the device is not there to wait for the host.

use amphi_queue::Watcher;
use amphi_rt::sync::Mutex;
use amphi_rt::task;
use amphi_vfs::{Ino, Name};

#[derive(Debug)]
enum Change {
    Inode(Ino),
    /// With what [`Watcher::renames`] was before.
    Name(Ino, Vec<u8>, u64),
}

/// Keeps changes for a watcher.
#[derive(Debug)]
pub struct Later<W> {
    watcher: W,
    /// Each with the task whose command it was.
    changes: Mutex<Vec<(u64, Change)>>,
}

impl<W: Watcher> Later<W> {
    pub const fn new(watcher: W) -> Self {
        Self { watcher, changes: Mutex::new(Vec::new()) }
    }

    fn keep(&self, change: Change) {
        self.changes.lock().push((task::id(), change));
    }

    /// Tells what this task's command has changed.
    pub fn tell(&self) {
        let task = task::id();
        loop {
            let change = {
                let mut changes = self.changes.lock();
                let Some(at) = changes.iter().position(|(whose, _)| *whose == task) else { return };
                changes.remove(at).1
            };
            match change {
                Change::Inode(ino) => self.watcher.inode(ino),
                Change::Name(dir, name, renames) => {
                    if let Ok(name) = Name::new(&name) {
                        self.watcher.name(dir, name, renames);
                    }
                }
            }
        }
    }
}

impl<W: Watcher> Watcher for Later<W> {
    fn inode(&self, ino: Ino) {
        self.keep(Change::Inode(ino));
    }

    fn renames(&self) -> u64 {
        self.watcher.renames()
    }

    fn name(&self, dir: Ino, name: Name<'_>, renames: u64) -> bool {
        self.keep(Change::Name(dir, name.bytes().to_vec(), renames));
        // It has not been asked yet.
        true
    }

    fn pass(&self, ino: Ino) -> Option<u128> {
        self.watcher.pass(ino)
    }
}
