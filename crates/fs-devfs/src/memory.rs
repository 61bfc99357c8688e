//! The device's memory (§4.4): how much of it there is, and what has it. The structures are the controller's
//! own; this room counts their bytes by kind and says when one has to go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

/// What takes device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Journals and queues: protected memory.
    Slots,
    /// Metadata pages.
    Metadata,
    /// Inodes of files in use.
    Inodes,
    /// What stays of inodes that the host keeps.
    InodesAway,
    /// Directories' entries.
    Dentries,
    /// Maps from blocks of files to blocks of flash.
    Filemaps,
    /// The credential table.
    Credentials,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Slots, "slots"),
    (Kind::Metadata, "metadata"),
    (Kind::Inodes, "inodes"),
    (Kind::InodesAway, "inodes_away"),
    (Kind::Dentries, "dentries"),
    (Kind::Filemaps, "filemaps"),
    (Kind::Credentials, "credentials"),
];

/// What a command takes at the most before another one makes room: pages of metadata, a leaf of a map.
const COMMAND_BYTES: u64 = 64 << 10;

/// The device's memory.
#[derive(Debug)]
pub struct DeviceMemory {
    budget: u64,
    /// Bytes that stay free for the commands under way.
    reserve: u64,
    used: [AtomicU64; KINDS.len()],
    /// Pages, structures or entries that these bytes are for.
    counts: [AtomicU64; KINDS.len()],
    used_max: AtomicU64,
}

impl DeviceMemory {
    /// So many bytes, for so many commands at once.
    pub fn new(budget: u64, commands: u64) -> Self {
        let reserve = (commands * COMMAND_BYTES).min(budget / 8);
        Self {
            budget,
            reserve,
            used: Default::default(),
            counts: Default::default(),
            used_max: AtomicU64::new(0),
        }
    }

    /// Bytes that there are.
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes that are taken.
    pub fn used(&self) -> u64 {
        self.used.iter().map(|used| used.load(Ordering::Relaxed)).sum()
    }

    /// The most that was ever taken, in bytes.
    pub fn used_max(&self) -> u64 {
        self.used_max.load(Ordering::Relaxed)
    }

    /// Bytes of one kind.
    pub fn used_by(&self, kind: Kind) -> u64 {
        self.used[kind as usize].load(Ordering::Relaxed)
    }

    /// Takes bytes for so many of a kind.
    pub fn take(&self, kind: Kind, count: u64, bytes: u64) {
        self.counts[kind as usize].fetch_add(count, Ordering::Relaxed);
        self.used[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        self.used_max.fetch_max(self.used(), Ordering::Relaxed);
    }

    /// Gives bytes of so many back.
    pub fn give(&self, kind: Kind, count: u64, bytes: u64) {
        self.counts[kind as usize].fetch_sub(count, Ordering::Relaxed);
        self.used[kind as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What slots leave, which never go.
    fn shared(&self) -> u64 {
        self.budget.saturating_sub(self.used_by(Kind::Slots))
    }

    /// Whether commands under way may come to lack memory: what can be had again has to go.
    pub fn is_short(&self) -> bool {
        self.used() > self.budget - self.reserve
    }

    /// Whether there is no room for so many bytes more.
    fn lacks(&self, bytes: u64) -> bool {
        self.used() + bytes > self.budget
    }

    /// Whether metadata pages need not go: there is memory left, or they have less than a quarter of what
    /// slots leave.
    pub fn has_room_for_pages(&self) -> bool {
        !self.is_short() || self.used_by(Kind::Metadata) <= self.shared() / 4
    }

    /// Whether inodes have more than their half of what slots leave, so that those go which nobody has open.
    pub fn has_too_many_inodes(&self) -> bool {
        self.used_by(Kind::Inodes) > self.shared() / 2
    }

    /// Whether one more inode may be opened, which then has to stay: three eighths of what slots leave.
    pub fn may_open(&self) -> bool {
        self.used_by(Kind::Inodes) <= self.shared() / 8 * 3
    }

    /// Whether the names of one directory have no room: they come to more than a quarter of what slots leave,
    /// or what holds them would grow by more than there is.
    pub fn has_no_room_for_names(&self, bytes: u64, more: u64) -> bool {
        bytes > self.shared() / 4 || more > 0 && self.lacks(more)
    }

    /// Bytes by kind, and how many they are for; for reports.
    pub fn report(&self) -> Map<String, Value> {
        let by_kind = KINDS.iter().flat_map(|(kind, name)| {
            let count = self.counts[*kind as usize].load(Ordering::Relaxed);
            [((*name).to_owned(), self.used_by(*kind)), (format!("{name}_count"), count)]
        });
        let totals = [("budget", self.budget), ("used", self.used()), ("used_max", self.used_max())];
        let totals = totals.map(|(name, bytes)| (name.to_owned(), bytes));
        by_kind.chain(totals).map(|(name, value)| (name, json!(value))).collect()
    }
}

/// Bytes that something has taken, until it goes; it counts as one, or as what it holds.
#[derive(Debug)]
pub struct Hold {
    memory: Arc<DeviceMemory>,
    kind: Kind,
    /// There is one of these in each inode: no wider than it has to be.
    count: u32,
    bytes: u64,
}

impl Hold {
    /// Takes bytes for so many.
    pub fn new(memory: &Arc<DeviceMemory>, kind: Kind, count: u32, bytes: u64) -> Self {
        memory.take(kind, count.into(), bytes);
        Self { memory: Arc::clone(memory), kind, count, bytes }
    }

    /// The memory that it is taken from.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Bytes that it has.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has so many bytes from now on, for so many.
    pub fn resize(&mut self, count: u32, bytes: u64) {
        self.memory.give(self.kind, self.count.into(), self.bytes);
        self.memory.take(self.kind, count.into(), bytes);
        (self.count, self.bytes) = (count, bytes);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.memory.give(self.kind, self.count.into(), self.bytes);
    }
}
