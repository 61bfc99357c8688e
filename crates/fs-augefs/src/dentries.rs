//! Names that were found lately, by directory and name (AU-11). What is here is so: who changes a name has
//! its directory locked and changes it here too.

use amphi_names::Child;
use amphi_rt::hash::{HashMap, mix};
use amphi_rt::sync::{Padded, RwLock};
use amphi_vfs::Ino;
use hashbrown::Equivalent;

use crate::planted::{self, Bug};

const SHARDS: usize = 64;

/// A directory's names.
type Shard = HashMap<(Ino, Box<[u8]>), Child>;

/// What a name is looked for by.
#[derive(Hash)]
struct Wanted<'a>(Ino, &'a [u8]);

impl Equivalent<(Ino, Box<[u8]>)> for Wanted<'_> {
    fn equivalent(&self, (dir, name): &(Ino, Box<[u8]>)) -> bool {
        self.0 == *dir && *self.1 == **name
    }
}

/// The cache.
pub struct Dentries {
    shards: Box<[Padded<RwLock<Shard>>]>,
    /// Most names of a shard.
    limit: usize,
}

impl Dentries {
    /// One for so many names.
    pub fn new(names: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Padded::default()).collect();
        Self { shards, limit: names.div_ceil(SHARDS) }
    }

    fn shard(&self, dir: Ino, name: &[u8]) -> &RwLock<Shard> {
        // Names of one directory mostly differ in their last bytes.
        let mut last = [0; 8];
        let tail = &name[name.len().saturating_sub(8)..];
        last[..tail.len()].copy_from_slice(tail);
        &self.shards[(mix(dir.0 ^ u64::from_le_bytes(last)) % SHARDS as u64) as usize]
    }

    /// What a name names, if that is known.
    pub fn get(&self, dir: Ino, name: &[u8]) -> Option<Child> {
        self.shard(dir, name).read().get(&Wanted(dir, name)).copied()
    }

    /// A name names this now. A full shard lets go of all it has.
    pub fn keep(&self, dir: Ino, name: &[u8], child: Child) {
        if planted::has(Bug::NamesForgotten) {
            return;
        }
        let mut shard = self.shard(dir, name).write();
        if shard.len() >= self.limit {
            shard.clear();
        }
        shard.insert((dir, name.into()), child);
    }

    /// A name names nothing any more.
    pub fn forget(&self, dir: Ino, name: &[u8]) {
        self.shard(dir, name).write().remove(&Wanted(dir, name));
    }
}
