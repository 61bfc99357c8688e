//! The files with writes to come, and since when.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::{Mutex, Padded};
use amphi_rt::time;
use amphi_vfs::Ino;

/// Shards of the list, which processors share as little as possible.
const SHARDS: usize = 16;

/// A file with writes to come, and since when, ns. A file that is gone stays on the list, and its number may
/// be another's by then: [`Since`] tells them apart.
pub type Listed = (Ino, u64);

/// What the list needs beside an inode's lock: when it was put on the list, ns; 0: it is not there.
#[derive(Debug, Default)]
pub struct Since(AtomicU64);

impl Since {
    /// Whether the inode is on the list.
    #[inline]
    pub fn is_listed(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Whether this is what stands on the list as `listed`, for an inode of that number.
    pub fn is(&self, (_, since_ns): Listed) -> bool {
        self.0.load(Ordering::Acquire) == since_ns
    }

    /// Takes the inode off as what was [taken](DirtyFiles::take) from the list as `listed`, so that a write
    /// from now on lists it again; false if that was another file of the number, which stands there for
    /// itself.
    pub fn take(&self, (_, since_ns): Listed) -> bool {
        self.0.compare_exchange(since_ns, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The files with writes to come.
#[derive(Default)]
pub struct DirtyFiles([Padded<Mutex<Vec<Listed>>>; SHARDS]);

impl DirtyFiles {
    fn shard(&self, ino: Ino) -> &Mutex<Vec<Listed>> {
        &self.0[ino.0 as usize % SHARDS]
    }

    /// Puts an inode on the list, if it is not there.
    #[inline]
    pub fn note(&self, ino: Ino, since: &Since) {
        if since.is_listed() {
            return;
        }
        let now_ns = time::now_ns().max(1);
        if since.0.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.shard(ino).lock().push((ino, now_ns));
        }
    }

    /// Takes an inode off the list, if it is there.
    pub fn remove(&self, ino: Ino, since: &Since) {
        let since_ns = since.0.swap(0, Ordering::AcqRel);
        if since_ns != 0 {
            let mut listed = self.shard(ino).lock();
            // What came last mostly goes first.
            if let Some(at) = listed.iter().rposition(|listed| *listed == (ino, since_ns)) {
                listed.swap_remove(at);
            }
        }
    }

    /// What has been on the list since `before_ns` or longer, oldest first. It stays there.
    pub fn since_before(&self, before_ns: u64) -> Vec<Listed> {
        let due = |shard: &Padded<Mutex<Vec<Listed>>>| -> Vec<Listed> {
            shard.lock().iter().filter(|(_, since_ns)| *since_ns <= before_ns).copied().collect()
        };
        let mut listed: Vec<Listed> = self.0.iter().flat_map(due).collect();
        listed.sort_unstable_by_key(|(ino, since_ns)| (*since_ns, *ino));
        listed
    }

    /// Takes what has been on the list since `before_ns` or longer, shard by shard, and hands it to `each`.
    pub fn take(&self, before_ns: u64, mut each: impl FnMut(Listed)) {
        for shard in &self.0 {
            let (due, young): (Vec<Listed>, Vec<Listed>) = std::mem::take(&mut *shard.lock())
                .into_iter()
                .partition(|(_, since_ns)| *since_ns <= before_ns);
            shard.lock().extend(young);
            due.into_iter().for_each(&mut each);
        }
    }

    /// Takes one after the other, those that came last to a shard first, while `wanted` says so.
    ///
    /// # Errors
    /// The first of `each`.
    pub fn take_while<E>(
        &self,
        wanted: impl Fn() -> bool,
        mut each: impl FnMut(Listed) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut shards = self.0.iter();
        while wanted() {
            let Some(shard) = shards.next() else { break };
            loop {
                let next = shard.lock().pop();
                let Some(listed) = next.filter(|_| wanted()) else {
                    shard.lock().extend(next);
                    break;
                };
                each(listed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_listed_once_and_a_later_one_of_its_number_for_itself() {
        let dirty = DirtyFiles::default();
        let (first, later) = (Since::default(), Since::default());
        dirty.note(Ino(5), &first);
        dirty.note(Ino(5), &first);
        let listed = dirty.since_before(u64::MAX);
        assert_eq!(listed.len(), 1);
        assert!(first.is(listed[0]) && !later.take(listed[0]), "the later one is not on the list");
        let mut taken = Vec::new();
        dirty.take(u64::MAX, |listed| taken.push(listed));
        assert_eq!(taken, listed);
        assert!(first.is_listed() && first.take(taken[0]) && !first.is_listed());
    }

    #[test]
    fn the_oldest_come_first_and_what_is_removed_does_not() {
        let dirty = DirtyFiles::default();
        let files: Vec<Since> = (0..40).map(|_| Since::default()).collect();
        for (number, since) in files.iter().enumerate().rev() {
            dirty.note(Ino(number as u64), since);
        }
        dirty.remove(Ino(7), &files[7]);
        dirty.remove(Ino(7), &files[7]);
        let listed = dirty.since_before(u64::MAX);
        assert!(listed.is_sorted_by_key(|(ino, since_ns)| (*since_ns, *ino)));
        assert_eq!(listed.len(), 39);
        assert!(listed.iter().all(|(ino, _)| *ino != Ino(7)));
        let mut left = std::cell::Cell::new(3);
        let take = |_| {
            left.set(left.get() - 1);
            Ok::<_, ()>(())
        };
        assert_eq!(dirty.take_while(|| left.get() > 0, take), Ok(()));
        assert_eq!((left.get_mut(), dirty.since_before(u64::MAX).len()), (&mut 0, 36));
    }
}
