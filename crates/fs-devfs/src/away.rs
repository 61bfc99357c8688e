//! Reverse caching (§4.4): inodes and entries of what nobody uses go to host memory, and come back when
//! somebody does. The device keeps a seal of each, a keyed hash of what it gave away: the host is not
//! trusted. What does not match its seal, or has gone, is read from flash, which has all of it anyway.

use std::hash::Hasher;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_radix::Radix;
use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;
use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

use crate::memory::{DeviceMemory, Kind};
use crate::planted::{self, Bug};
use crate::stats::Counters;

/// What goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Away {
    /// An inode.
    Inode,
    /// A directory's entries.
    Dir,
}

type Bytes = HashMap<(Away, Ino), Box<[u8]>, amphi_rt::hash::State>;

/// Memory of the host that the device reaches by DMA. It is the host's: whoever has it may do with it what it
/// likes.
#[derive(Debug)]
pub struct HostMemory {
    budget: u64,
    kept: Mutex<(Bytes, u64)>,
}

impl HostMemory {
    /// So many bytes.
    pub fn new(budget: u64) -> Self {
        Self { budget, kept: Mutex::default() }
    }

    /// Bytes that are kept.
    pub fn used(&self) -> u64 {
        self.kept.lock().1
    }

    /// Changes whatever is kept.
    pub fn scribble(&self, mut over: impl FnMut(&mut [u8])) {
        self.kept.lock().0.values_mut().for_each(|bytes| over(bytes));
    }

    /// Keeps bytes. False: there is no room for them.
    fn put(&self, key: (Away, Ino), bytes: Vec<u8>) -> bool {
        let (kept, used) = &mut *self.kept.lock();
        if *used + bytes.len() as u64 > self.budget {
            return false;
        }
        *used += bytes.len() as u64;
        if let Some(old) = kept.insert(key, bytes.into_boxed_slice()) {
            *used -= old.len() as u64;
        }
        true
    }

    fn clear(&self) {
        *self.kept.lock() = Default::default();
    }

    fn take(&self, key: (Away, Ino)) -> Option<Box<[u8]>> {
        let (kept, used) = &mut *self.kept.lock();
        let bytes = kept.remove(&key)?;
        *used -= bytes.len() as u64;
        Some(bytes)
    }
}

/// The device's part of what is away, by inode number: inodes', then directories'.
type Seals = [Radix<NonZeroU64>; 2];

/// What the device knows of what it gave away.
pub struct AwayTable {
    host: Arc<HostMemory>,
    memory: Arc<DeviceMemory>,
    /// Never leaves the device.
    key: [u64; 2],
    seals: Mutex<Seals>,
    /// What was moved since somebody asked: structures, and their bytes.
    moved: [AtomicU64; 2],
}

/// Bytes of device memory that one thing which is away takes: its seal, and its share of the tree's nodes.
/// Numbers are given one after the other, so that leaves are full.
pub const SEAL_BYTES: u64 = size_of::<Option<NonZeroU64>>() as u64 + 1;

impl AwayTable {
    /// Nothing is away.
    pub fn new(host: &Arc<HostMemory>, memory: &Arc<DeviceMemory>) -> Self {
        let key = [amphi_rt::random::u64(), amphi_rt::random::u64()];
        Self {
            host: Arc::clone(host),
            memory: Arc::clone(memory),
            key,
            seals: Mutex::default(),
            moved: Default::default(),
        }
    }

    /// Structures and bytes that were moved to and from the host since the last time of asking.
    pub fn take_moved(&self) -> (u64, u64) {
        if self.moved[0].load(Ordering::Relaxed) == 0 {
            return (0, 0);
        }
        let [count, bytes] = self.moved.each_ref().map(|moved| moved.swap(0, Ordering::Relaxed));
        (count, bytes)
    }

    fn note_move(&self, bytes: usize) {
        self.moved[0].fetch_add(1, Ordering::Relaxed);
        self.moved[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn seal(&self, (what, ino): (Away, Ino), bytes: &[u8]) -> NonZeroU64 {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u8(what as u8);
        hasher.write_u64(ino.0);
        hasher.write(bytes);
        NonZeroU64::MIN | hasher.finish()
    }

    /// Gives something away. Where the host has no room for it, it is forgotten: flash has it.
    pub fn give(&self, what: Away, ino: Ino, bytes: Vec<u8>, counters: &Counters) {
        let key = (what, ino);
        let (seal, length) = (self.seal(key, &bytes), bytes.len());
        let count = if !self.host.put(key, bytes) {
            &counters.host_full
        } else {
            self.note_move(length);
            if self.seals.lock()[what as usize].insert(ino.0, seal).is_none() {
                self.memory.take(Kind::InodesAway, 1, SEAL_BYTES);
            }
            if what == Away::Inode { &counters.inodes_away } else { &counters.dentries_away }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes something back. `None`: it was not away, or the host returns something else.
    pub fn take(&self, what: Away, ino: Ino, counters: &Counters) -> Option<Box<[u8]>> {
        let key = (what, ino);
        let seal = self.seals.lock()[what as usize].remove(ino.0)?;
        self.memory.give(Kind::InodesAway, 1, SEAL_BYTES);
        let bytes = self
            .host
            .take(key)
            .inspect(|bytes| self.note_move(bytes.len()))
            .filter(|bytes| self.seal(key, bytes) == seal || planted::has(Bug::SealNotCompared));
        let count = match (&bytes, what) {
            (None, _) => &counters.host_damage,
            (_, Away::Inode) => &counters.inodes_back,
            (_, Away::Dir) => &counters.dentries_back,
        };
        count.fetch_add(1, Ordering::Relaxed);
        bytes
    }

    /// Forgets all that is away: flash has it.
    pub fn forget_all(&self) {
        let seals = std::mem::take(&mut *self.seals.lock());
        let count = seals.iter().map(Radix::len).sum::<usize>() as u64;
        self.memory.give(Kind::InodesAway, count, count * SEAL_BYTES);
        self.host.clear();
    }
}
