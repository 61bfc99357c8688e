//! How often the kernel has been given each inode and has not given it back: by the answers to `lookup` and
//! the like, and by `FORGET`.
//!
//! A file system counts that too, together with what its other doors hold. Here it is told apart: an inode
//! that the kernel was given and does not know is either on its way there or on its way back.

use amphi_rt::hash::HashMap;
use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;

/// Inodes are told apart by so many locks.
const SHARDS: usize = 64;

/// The counts, all above zero.
#[derive(Debug)]
pub(crate) struct Given(Box<[Mutex<HashMap<Ino, u64>>]>);

impl Default for Given {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Given {
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, u64>> {
        &self.0[ino.0 as usize % SHARDS]
    }

    /// It is about to be given once more.
    pub(crate) fn give(&self, ino: Ino) {
        *self.shard(ino).lock().entry(ino).or_insert(0) += 1;
    }

    /// It was given back `count` times, or was not given after all.
    pub(crate) fn take_back(&self, ino: Ino, count: u64) {
        let mut shard = self.shard(ino).lock();
        if let Some(given) = shard.get_mut(&ino) {
            *given = given.saturating_sub(count);
            if *given == 0 {
                shard.remove(&ino);
            }
        }
    }

    /// Whether the kernel has it, or is about to.
    pub(crate) fn is_given(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_given_until_it_was_given_back_as_often() {
        let given = Given::default();
        let (one, same_shard) = (Ino(7), Ino(7 + SHARDS as u64));
        given.give(one);
        given.give(one);
        given.take_back(one, 1);
        assert!(given.is_given(one) && !given.is_given(same_shard));
        given.take_back(same_shard, 1);
        given.take_back(one, 1);
        assert!(!given.is_given(one));
    }
}
