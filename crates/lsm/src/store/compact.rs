//! Compaction: tables of a level merged into the next one, without versions that nobody can see.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};

use super::{Levels, Shared, Store};
use crate::Result;
use crate::entry::Entry;
use crate::format::{LEVELS, PAGE};
use crate::merge::{Merge, Source};
use crate::planted::{self, Bug};
use crate::table::Table;

/// Tables to merge.
struct Job<D: BlockPort> {
    /// The level that they go to.
    to: usize,
    /// Those of the level above it.
    upper: Vec<Arc<Table<D>>>,
    /// Those of that level whose keys are among theirs.
    lower: Vec<Arc<Table<D>>>,
    /// Whether those of the upper ones may have keys among each other's.
    overlap: bool,
}

impl<D: BlockPort + MemoryArea + 'static> Store<D> {
    /// Waits until no level has too many tables.
    ///
    /// # Errors
    /// What met the tasks behind.
    pub fn settle(&self) -> Result<()> {
        let shared = &self.shared;
        let idle = |work: &super::Work| work.full.is_none() && !work.tables_came && !work.compacting;
        shared.wait_until(shared.work.lock(), idle).map(drop)
    }

    /// Pages that tables take, and that there are for them.
    #[must_use]
    pub fn table_pages(&self) -> (u64, u64) {
        let all = self.shared.superblock.table_pages.get();
        (all.saturating_sub(self.shared.area.extents.free_pages()), all)
    }

    /// Brings all that was written into tables, and merges all of these, so that nothing is kept that nobody
    /// sees any more. While it is merged it is there twice.
    ///
    /// # Errors
    /// As for [`write`](Store::write).
    pub fn merge_all(&self) -> Result<()> {
        self.flush()?;
        let shared = &self.shared;
        if !shared.options.merges {
            return Ok(());
        }
        let mut work = shared.work.lock();
        work.merge_all = true;
        shared.changed.notify_all();
        shared.wait_until(work, |work| !work.merge_all).map(drop)
    }
}

impl<D: BlockPort + MemoryArea + 'static> Shared<D> {
    /// Merges all tables into the deepest level that has any.
    pub(super) fn compact_all(&self) -> Result<()> {
        let levels = Arc::clone(&self.view.read().levels);
        let to = (1..LEVELS).rev().find(|level| !levels[*level].is_empty()).unwrap_or(1);
        let upper: Vec<_> = levels[..to].iter().flatten().cloned().collect();
        if upper.is_empty() {
            return Ok(());
        }
        let job = Job { to, upper, lower: levels[to].clone(), overlap: true };
        self.merge(&levels, job)
    }

    /// Merges once; `false` if no level has too many tables.
    pub(super) fn compact_once(&self) -> Result<bool> {
        let levels = Arc::clone(&self.view.read().levels);
        let Some(job) = self.pick(&levels).filter(|_| self.options.merges) else { return Ok(false) };
        self.merge(&levels, job)?;
        Ok(true)
    }

    fn merge(&self, levels: &Levels<D>, job: Job<D>) -> Result<()> {
        // Of what is in tables, readers that begin now see the newest version.
        let flushed = self.manifest.lock().flushed;
        let mut oldest = self.snapshots.lock().keys().next().copied().unwrap_or(u64::MAX).min(flushed);
        if planted::has(Bug::SnapshotForgotten) {
            oldest = u64::MAX;
        }
        let mut sources = Vec::new();
        if job.overlap {
            for table in &job.upper {
                sources.push(Source::whole_tables(vec![Arc::clone(table)])?);
            }
        } else {
            sources.push(Source::whole_tables(job.upper.clone())?);
        }
        sources.push(Source::whole_tables(job.lower.clone())?);
        let mut merge = Merge(sources);
        // The key at hand, and whether a version of it has come that hides all older ones.
        let mut key: Option<Vec<u8>> = None;
        let mut hidden = false;
        let mut next = || -> Result<Option<Entry>> {
            while let Some(entry) = merge.next()? {
                if key.as_ref() != Some(&entry.key) {
                    key = Some(entry.key.clone());
                    hidden = false;
                }
                if hidden {
                    continue;
                }
                hidden = entry.seq <= oldest;
                let deeper = levels[job.to + 1..].iter().flatten();
                let hides = |table: &Arc<Table<D>>| table.overlaps(&entry.key, &entry.key);
                let needed = deeper.into_iter().any(hides) && !planted::has(Bug::DeletionDropped);
                if hidden && entry.value.is_none() && !needed {
                    continue;
                }
                return Ok(Some(entry));
            }
            Ok(None)
        };
        let new = self.write_tables(job.to as u32, &mut next)?;
        let old: Vec<_> = job.upper.into_iter().chain(job.lower).collect();
        self.install(None, new, &old, false)
    }

    /// The first level that is too large: all of level 0, or the oldest table of another.
    fn pick(&self, levels: &Levels<D>) -> Option<Job<D>> {
        let upper = |level: usize| -> Option<Vec<Arc<Table<D>>>> {
            if level == 0 {
                return (levels[0].len() >= self.options.level0_tables).then(|| levels[0].clone());
            }
            let bytes: u64 =
                levels[level].iter().map(|table| u64::from(table.record().pages.get()) * PAGE as u64).sum();
            let limit = self.options.level1_bytes.saturating_mul(10u64.pow(level as u32 - 1));
            let oldest = levels[level].iter().min_by_key(|table| table.record().number.get())?;
            (bytes > limit).then(|| vec![Arc::clone(oldest)])
        };
        let (level, upper) = (0..LEVELS - 1).find_map(|level| Some((level, upper(level)?)))?;
        let first = upper.iter().map(|table| table.first_key()).min()?;
        let last = upper.iter().map(|table| table.last_key()).max()?;
        let lower = levels[level + 1].iter().filter(|table| table.overlaps(first, last)).cloned().collect();
        Some(Job { to: level + 1, upper, lower, overlap: level == 0 })
    }
}
