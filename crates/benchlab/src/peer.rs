//! A file system that takes part in a run, and the names of ours.

use serde::Serialize;

/// The name of ByteFS as a library.
pub const LIBRARY: &str = "library";
/// The name of RomeFS as a library.
pub const ROMEFS: &str = "romefs";
/// The name of ours through FUSE and `/dev/fuse`.
pub const MOUNTED: &str = "fuse";
/// The name of ours through FUSE and the kernel's rings.
pub const RINGS: &str = "fuse-ring";
/// The name of ours through the kernel, by the same programs as those by the queue.
pub const PATHS: &str = "fuse-paths";
/// The name of ours by the queue, with the kernel's descriptors.
pub const QUEUE: &str = "queue";
/// The name of ours by the queue, with placeholders.
pub const QUEUE_ALL: &str = "queue-all";
/// The name of ours in a range that processes share, with placeholders.
pub const RANGE_ALL: &str = "range-all";
/// The name of ours in such a range behind a protection key.
pub const RANGE_KEYS: &str = "range-keys";
/// The name of AugeFS as a library.
pub const AUGEFS: &str = "augefs";
/// The name of AugeFS in a range that processes share, with placeholders.
pub const AUGEFS_RANGE: &str = "augefs-range";
/// The name of DevFS by command buffers of the device, with placeholders.
pub const DEVFS_ALL: &str = "devfs-all";

/// A file system that took part.
#[derive(Clone, Debug, Serialize)]
pub struct Peer {
    /// A short name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Whether it is ours; the others are compared with it.
    pub ours: bool,
    /// Whether what it calls durable survives a power failure. tmpfs calls everything so.
    pub durable: bool,
    /// Whether it only shows what FUSE costs: no rival, but our mount is compared with it.
    pub trivial: bool,
}
