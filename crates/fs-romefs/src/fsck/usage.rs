//! What is in use by what the inodes say, against the bitmaps.

use amphi_device::{BlockPort, MemoryArea};
use amphi_rt::hash::HashMap;
use amphi_vfs::{FileType, Result};

use super::Report;
use super::finding::{Finding, things};
use crate::core::Core;
use crate::format::{Layout, Map, PAGE};

/// What is known of an inode after the first pass.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its type.
    pub file_type: FileType,
    /// Names that it says it has.
    pub nlink: u32,
    /// Its parent, for a directory.
    pub parent: u64,
    /// Entries that name it; of a directory, with its own and its children's.
    pub names: u32,
    /// Whether an entry of another directory names it.
    pub is_named: bool,
}

/// What is in use.
pub struct Usage {
    used: [Vec<u64>; Map::ALL.len()],
    /// The inodes that can be read.
    pub inodes: HashMap<u64, Known>,
}

impl Usage {
    /// Nothing yet.
    pub fn new(layout: &Layout) -> Self {
        Self {
            used: Map::ALL.map(|map| vec![0; layout.bits(map).div_ceil(64) as usize]),
            inodes: HashMap::default(),
        }
    }

    /// Notes that an inode uses something. False if another one does.
    pub fn take(&mut self, map: Map, number: u64, ino: u64, report: &mut Report) -> bool {
        let word = &mut self.used[map as usize][(number / 64) as usize];
        let mask = 1 << (number % 64);
        if *word & mask != 0 {
            report.findings.push(Finding::Shared { map: things(map), number, ino });
            return false;
        }
        *word |= mask;
        true
    }

    /// Compares with the bitmaps.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn compare<D: BlockPort + MemoryArea>(&self, core: &Core<D>, report: &mut Report) -> Result<()> {
        for map in [Map::Blocks, Map::Pages, Map::Leaves, Map::Logs, Map::Inodes] {
            let mut leaked = Runs::default();
            let mut missing = Runs::default();
            let bits = core.layout.bits(map);
            core.meta.words(map, |number, said| {
                let used = self.used[map as usize].get(number as usize).copied().unwrap_or(0);
                for bit in 0..64.min(bits.saturating_sub(number * 64)) {
                    match (said >> bit & 1, used >> bit & 1) {
                        (1, 0) => leaked.add(number * 64 + bit),
                        (0, 1) => missing.add(number * 64 + bit),
                        _ => {}
                    }
                }
            })?;
            let map = things(map);
            let leaked = leaked.0.into_iter().map(|(first, count)| Finding::Leaked { map, first, count });
            let missing =
                missing.0.into_iter().map(|(first, count)| Finding::NotMarked { map, first, count });
            report.findings.extend(leaked.chain(missing));
        }
        let used = |map: Map| -> u64 {
            self.used[map as usize].iter().map(|word| u64::from(word.count_ones())).sum()
        };
        let block_pages = core.block_bytes() / PAGE as u64;
        report.block_pages = core.layout.plan.blocks * block_pages;
        report.block_pages_used = used(Map::Blocks) * block_pages;
        report.logs_used = used(Map::Logs);
        Ok(())
    }
}

/// Runs of numbers.
#[derive(Default)]
struct Runs(Vec<(u64, u64)>);

impl Runs {
    fn add(&mut self, number: u64) {
        match self.0.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => self.0.push((number, 1)),
        }
    }
}
