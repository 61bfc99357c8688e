//! What all parts of a mounted file system of F2FS's kind share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use amphi_device::BlockPort;
use amphi_names::Names;
use amphi_rt::hash::HashMap;
use amphi_rt::sync::{Mutex, MutexGuard};
use amphi_segments::files::FileCache;
use amphi_segments::{Blocks, Domain, Ground, NODES, Parts, Segments, Space};
use amphi_vfs::{Ino, Result};
use amphi_volume::read_words;

use crate::format::{Layout, Superblock, TITLE};
use crate::part::{Dent, Inode, Part};
use crate::planted::{self, Bug};

/// Inodes and pages that are kept in memory, and how often a checkpoint is made, unless a mount says
/// otherwise. F2FS's interval is 60 s; ours is AugeFS's, so that figures compare like with like.
const CACHED_INODES: usize = 262_144;
const CACHED_PAGES: usize = 65_536;
const INTERVAL_NS: u64 = 5_000_000_000;

/// How a mount behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Refuse every change.
    pub read_only: bool,
    /// Write what is synced over its blocks; else everything goes to new ones.
    pub in_place: bool,
    /// Pages of files in host memory; as many nodes, and blocks of entries, may be there, too.
    pub page_cache_pages: usize,
    /// How often pages are written back and checkpoints are made, ns; 0: there is no background task.
    pub interval_ns: u64,
}

impl Options {
    /// The mount options, for people: F2FS's.
    pub const WORDS: &str = "mode=adaptive|lfs";

    /// Sets options that are given as words.
    ///
    /// # Errors
    /// A sentence about the first word that is unknown or impossible.
    pub fn set_all(&mut self, words: &str) -> std::result::Result<(), String> {
        read_words(words, (TITLE, Self::WORDS), |word| {
            if word.key != "mode" {
                return Ok(false);
            }
            self.in_place = word.one_of(&[("adaptive", true), ("lfs", false)])?;
            Ok(true)
        })
    }

    /// How a mount behaves that says nothing.
    pub const fn usual(read_only: bool) -> (Self, amphi_names::Options) {
        let names = amphi_names::Options {
            read_only,
            access_times: amphi_vfs::AccessTimes::Relative,
            cached_inodes: CACHED_INODES,
            tick_ns: 1,
        };
        (Self { read_only, in_place: true, page_cache_pages: CACHED_PAGES, interval_ns: INTERVAL_NS }, names)
    }
}

/// What a checkpoint says beside what the domain knows.
pub struct Standing {
    /// By SIT block, which of its two pages is the newer one.
    pub sit_copies: Vec<u8>,
    /// Nodes whose addresses stand in the pack.
    pub nat_journal: BTreeSet<u32>,
    /// Segments whose entries stand there.
    pub sit_journal: BTreeSet<u32>,
    /// How often the file system was mounted.
    pub mounts: u64,
    /// When it was mounted last, ns since 1970.
    pub mounted_ns: i64,
    /// Whether the last checkpoint is an unmount's.
    pub clean: bool,
}

/// What has happened since the last checkpoint, as far as `fsync` must know.
#[derive(Default)]
pub struct Fresh {
    /// Inodes that were made.
    pub made: BTreeSet<u32>,
    /// Inodes that have got or lost a name, or have other attributes.
    pub changed: BTreeSet<u32>,
    /// Names that were taken from what lives on.
    pub moved: BTreeSet<(u32, Box<[u8]>)>,
    /// Inodes whose nodes say more that is new than times, and have not been written since.
    pub unsaved: BTreeSet<u32>,
}

/// The heart of a mounted file system.
///
/// Lock order: what `amphi_names` locks → collection → the gate → standing → orphans → blocks of entries →
/// what the domain knows → segments ahead → free segments. Who has the gate waits for no inode.
pub struct Core<D: BlockPort + 'static> {
    /// The device, and where segments, NAT and summaries are on it.
    pub ground: Ground<D>,
    /// Where everything is.
    pub layout: Layout,
    /// Page 0.
    pub superblock: Superblock,
    /// How this mount behaves.
    pub options: Options,
    /// What operations on names need.
    pub names: Names<Part>,
    /// The only domain. Its gate is shared by who reads or changes anything, and held alone by checkpoints.
    pub domain: Domain,
    /// Free segments.
    pub segments: Segments,
    /// Blocks in use.
    pub space: Space,
    /// Blocks of entries in memory, by directory and page.
    pub dents: Mutex<HashMap<(u32, u64), Dent>>,
    /// Segments into which the log of nodes goes next, as the last checkpoint says.
    pub ahead: Mutex<Vec<u32>>,
    /// What has happened since the last checkpoint.
    pub fresh: Mutex<Fresh>,
    /// Inodes without names.
    pub orphans: Mutex<BTreeSet<u32>>,
    /// Dirty nodes and blocks of entries.
    pub dirtied: AtomicUsize,
    /// What is counted of files in memory.
    pub cache: FileCache,
    /// Inodes.
    pub inodes: AtomicU64,
    /// What a checkpoint says beside.
    pub standing: Mutex<Standing>,
    /// One collection at a time.
    pub collection: Mutex<()>,
}

impl<D: BlockPort> Core<D> {
    /// Counts what is used, and gathers the numbers that nodes can get.
    pub fn count(&self) {
        self.space.set_used(self.domain.parts.lock().settle());
    }

    /// The inode.
    ///
    /// # Errors
    /// As [`amphi_names::inode`].
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        amphi_names::inode(self, ino)
    }

    /// What the domain knows, with these nodes in memory. The caller has the gate.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn parts(&self, nids: &[u32]) -> Result<MutexGuard<'_, Parts>> {
        self.ground.with_nodes(&self.domain, nids)
    }

    /// A node will have to be written.
    pub fn touch(&self, parts: &mut Parts, nid: u32) {
        if parts.nodes.touch(&nid) {
            self.dirtied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Blocks at the ends of the logs, all that were asked for or none. `last` may take the last segments.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::NoSpace`] never.
    pub fn take_blocks(&self, parts: &mut Parts, counts: [usize; 2], last: bool) -> Result<Option<Blocks>> {
        if planted::has(Bug::SegmentFreeEarly) {
            let early: Vec<_> = parts.segments(|segment| segment.count == 0);
            let early: Vec<_> = early.into_iter().filter(|number| !parts.is_active(*number)).collect();
            early.iter().for_each(|number| drop(parts.sit.remove(u64::from(*number))));
            self.segments.give_back(early);
        }
        let size = self.layout.segment_blocks;
        let [data, nodes] = parts.segments_for(counts, size);
        let mut ahead = self.ahead.lock();
        let from_ahead = nodes.min(ahead.len());
        let Some(mut taken) = self.segments.take(data + nodes - from_ahead, last) else { return Ok(None) };
        drop(taken.splice(data..data, ahead.drain(..from_ahead)));
        parts.place(counts, taken, size).map(Some)
    }

    /// Blocks for nodes where recovery finds them.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::NoSpace`] never.
    pub fn take_ahead(&self, parts: &mut Parts, count: usize) -> Result<Option<Vec<u32>>> {
        let mut counts = [0; 2];
        counts[NODES] = count;
        let size = self.layout.segment_blocks;
        let wanted = parts.segments_for(counts, size)[NODES];
        let mut ahead = self.ahead.lock();
        if wanted > ahead.len() {
            return Ok(None);
        }
        let taken = ahead.drain(..wanted).collect();
        let [_, blocks] = parts.place(counts, taken, size)?;
        Ok(Some(blocks))
    }

    /// Whether `fsync` of a file can do without a checkpoint: recovery finds out its name, and what else it
    /// is.
    pub fn rolls(&self, ino: u32, part: &Part) -> bool {
        if planted::has(Bug::AlwaysRolls) {
            return true;
        }
        let fresh = self.fresh.lock();
        let parent = part.parent;
        let named = !fresh.made.contains(&parent)
            && !fresh.changed.contains(&parent)
            && !fresh.moved.contains(&(parent, part.name.clone()));
        !fresh.changed.contains(&ino) && (!fresh.made.contains(&ino) || named)
    }

    /// Inodes that can still be made.
    pub fn inodes_free(&self) -> u64 {
        u64::from(self.layout.nids() - 1).saturating_sub(self.inodes.load(Ordering::Acquire))
    }
}
