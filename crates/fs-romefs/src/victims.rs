//! Data blocks that have logs, by how many: which of them are written back first (RO-8).

use amphi_rt::hash::HashMap;
use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::Ino;

use crate::format::LEAF_ENTRIES;

const SHARDS: usize = 16;

/// A data block of a file.
type Block = (Ino, u64);

#[derive(Default)]
struct Shard {
    /// Blocks with so many logs, one bucket for each number.
    buckets: [Vec<Block>; LEAF_ENTRIES],
    /// Bucket and place of each block.
    places: HashMap<Block, (usize, usize)>,
    /// Where in a bucket the last block was claimed.
    hand: usize,
}

/// The blocks.
#[derive(Default)]
pub struct Victims {
    shards: [Padded<Mutex<Shard>>; SHARDS],
}

impl Shard {
    /// Moves a block that has as many logs as before to the end of its bucket. Whether it had.
    fn renew(&mut self, block: Block, logs: usize) -> bool {
        let Some((bucket, place)) = self.places.get_mut(&block) else { return false };
        if *bucket + 1 != logs {
            return false;
        }
        let (bucket, from) = (&mut self.buckets[*bucket], *place);
        let last = bucket.len() - 1;
        *place = last;
        bucket.swap(from, last);
        if from != last
            && let Some((_, place)) = self.places.get_mut(&bucket[from])
        {
            *place = from;
        }
        true
    }

    fn remove(&mut self, block: Block) {
        let Some((bucket, place)) = self.places.remove(&block) else { return };
        self.buckets[bucket].swap_remove(place);
        if let Some(moved) = self.buckets[bucket].get(place) {
            self.places.insert(*moved, (bucket, place));
        }
    }
}

impl Victims {
    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// A block has so many logs now.
    pub fn note(&self, ino: Ino, block: u64, logs: usize) {
        let mut shard = self.shard(ino).lock();
        if shard.renew((ino, block), logs) {
            return;
        }
        shard.remove((ino, block));
        if let Some(bucket) = logs.checked_sub(1) {
            let place = shard.buckets[bucket].len();
            shard.buckets[bucket].push((ino, block));
            shard.places.insert((ino, block), (bucket, place));
        }
    }

    /// A file is gone.
    pub fn forget(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        let gone: Vec<_> = shard.places.keys().filter(|(other, _)| *other == ino).copied().collect();
        gone.into_iter().for_each(|block| shard.remove(block));
    }

    /// Takes out a block of those with the most logs, with their number, so that no two tasks have the same
    /// one. It comes back when somebody notes its logs, or with [`give_back`](Self::give_back).
    pub fn claim(&self) -> Option<(Ino, u64, usize)> {
        for bucket in (0..LEAF_ENTRIES).rev() {
            for shard in &self.shards {
                let mut shard = shard.lock();
                let candidates = shard.buckets[bucket].len();
                if candidates > 0 {
                    // Round the bucket: what came last is the likeliest to be written again soon.
                    shard.hand = (shard.hand + 1) % candidates;
                    let block = shard.buckets[bucket][shard.hand];
                    shard.remove(block);
                    return Some((block.0, block.1, bucket + 1));
                }
            }
        }
        None
    }

    /// A block that was claimed keeps its logs. Whoever has noted them anew meanwhile knows better.
    pub fn give_back(&self, (ino, block, logs): (Ino, u64, usize)) {
        let is_there = self.shard(ino).lock().places.contains_key(&(ino, block));
        if !is_there {
            self.note(ino, block, logs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_the_most_logs_come_first() {
        let victims = Victims::default();
        for (ino, block, logs) in [(1, 0, 3), (1, 1, 16), (2, 0, 7), (2, 5, 1), (1, 0, 9), (2, 5, 0)] {
            victims.note(Ino(ino), block, logs);
        }
        let largest = victims.claim().expect("there are some");
        assert_eq!(largest, (Ino(1), 1, 16));
        assert_eq!(victims.claim(), Some((Ino(1), 0, 9)), "nobody gets one that another has");
        victims.give_back(largest);
        assert_eq!(victims.claim(), Some(largest));
        victims.note(Ino(1), 1, 2);
        victims.give_back(largest);
        assert_eq!(victims.claim(), Some((Ino(2), 0, 7)), "what was noted later holds");
        victims.forget(Ino(1));
        assert_eq!(victims.claim(), None);
    }
}
