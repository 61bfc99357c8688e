//! The tasks behind the store: memtables into tables, tables into deeper levels, full halves of a small log
//! to the block side.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_rt::sync::MutexGuard;
use amphi_rt::task::{self, JoinHandle};

use super::{Levels, Shared, Use, Work};
use crate::Result;
use crate::entry::Entry;
use crate::format::{BackingHeader, PAGE};
use crate::log::Half;
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::merge::{Merge, Source};
use crate::planted::{self, Bug};
use crate::table::{Builder, Table};
use zerocopy::IntoBytes;

/// Tables of level 0 that may come while as many as it should have at the most are being merged.
const LEVEL0_MORE: usize = 2;

impl<D: BlockPort + MemoryArea + 'static> Shared<D> {
    /// Starts the tasks.
    pub(super) fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let run = |name, step: fn(&Self) -> Result<bool>| {
            let shared = Arc::clone(self);
            task::spawn(name, move || shared.work_on(step))
        };
        let mut tasks = vec![run("lsm-flush", Self::flush_step), run("lsm-compact", Self::compact_step)];
        if self.superblock.backing_files.get() > 0 {
            tasks.push(run("lsm-move", Self::move_step));
        }
        tasks
    }

    /// Takes one step after the other; sleeps while there is none to take.
    fn work_on(&self, step: fn(&Self) -> Result<bool>) {
        loop {
            match step(self) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Sleeps until there is something to do; `None` when there is nothing to do any more.
    fn next_work<'a, T>(
        &'a self,
        find: impl Fn(&mut Work) -> Option<T>,
    ) -> Option<(MutexGuard<'a, Work>, T)> {
        let mut work = self.work.lock();
        loop {
            if work.failed.is_some() {
                return None;
            }
            if let Some(found) = find(&mut work) {
                return Some((work, found));
            }
            if work.ending {
                return None;
            }
            self.changed.wait(&mut work);
        }
    }

    /// Brings the full memtable into tables of level 0, then gives its log up. While level 0 has far too many
    /// tables it waits for those to be merged, and writers wait for it: tables that came faster than they are
    /// merged would fill the area with versions that nobody sees.
    fn flush_step(&self) -> Result<bool> {
        // A half of its log that is on its way to the backing arrives there first.
        let ready = |work: &mut Work| {
            let moving = work.halves.iter().any(|half| matches!(half, Use::Moving { .. }));
            let waits = moving || !work.ending && self.is_far_behind();
            work.full.clone().filter(|_| !waits)
        };
        let Some((work, (memtable, last))) = self.next_work(ready) else { return Ok(false) };
        drop(work);
        if planted::has(Bug::LogClearedEarly) {
            self.give_up_log(last)?;
        }
        let tables = self.build_tables(memtable)?;
        self.install(Some(last), tables, &[], true)?;
        self.give_up_log(last)?;
        let mut work = self.work.lock();
        work.full = None;
        work.tables_came = true;
        self.changed.notify_all();
        Ok(true)
    }

    /// Whether level 0 has so many tables that no more may come before some are merged.
    fn is_far_behind(&self) -> bool {
        self.options.merges && self.view.read().levels[0].len() >= self.options.level0_tables + LEVEL0_MORE
    }

    /// Tables of level 0 with all that is in a memtable.
    pub(super) fn build_tables(&self, memtable: Arc<Memtable>) -> Result<Vec<Arc<Table<D>>>> {
        let mut merge = Merge::<D>(vec![Source::memory(memtable, &[])]);
        self.write_tables(0, &mut || merge.next())
    }

    /// Writes entries that come in order into tables of a level. Versions of one key stay in one table.
    pub(super) fn write_tables(
        &self,
        level: u32,
        next: &mut dyn FnMut() -> Result<Option<Entry>>,
    ) -> Result<Vec<Arc<Table<D>>>> {
        let mut tables = Vec::new();
        let mut open: Option<Builder> = None;
        while let Some(entry) = next()? {
            if let Some(full) = open.take_if(|open| {
                open.bytes() >= self.options.table_bytes && open.last_key() != entry.key.as_slice()
            }) {
                tables.push(Arc::new(full.finish(&self.area, level)?));
            }
            open.get_or_insert_with(|| Builder::new(self.take_number())).add(&entry);
        }
        if let Some(last) = open {
            tables.push(Arc::new(last.finish(&self.area, level)?));
        }
        Ok(tables)
    }

    fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Makes tables part of the store and others not, durably; `flushed` says that the memtable up to it is
    /// in tables now.
    pub(super) fn install(
        &self,
        flushed: Option<u64>,
        new: Vec<Arc<Table<D>>>,
        old: &[Arc<Table<D>>],
        sealed_is_in: bool,
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut levels: Levels<D> = (*self.view.read().levels).clone();
        for level in &mut levels {
            level.retain(|table| !old.iter().any(|old| Arc::ptr_eq(old, table)));
        }
        for table in new {
            levels[table.record().level.get() as usize].push(table);
        }
        for level in &mut levels[1..] {
            level.sort_by(|one, other| one.first_key().cmp(other.first_key()));
        }
        // It counts once it is written: where that fails, another task may still write the next one.
        let mut next = Manifest {
            generation: manifest.generation,
            flushed: flushed.unwrap_or(manifest.flushed).max(manifest.flushed),
            next_number: self.next_number.load(std::sync::atomic::Ordering::Relaxed),
            tables: levels.iter().flatten().map(|table| table.record()).collect(),
        };
        next.write(&*self.device, self.first, &self.superblock)?;
        *manifest = next;
        let mut view = self.view.write();
        view.levels = Arc::new(levels);
        if sealed_is_in {
            view.sealed = None;
        }
        drop(view);
        old.iter().for_each(|table| table.retire());
        Ok(())
    }

    /// Everything up to `last` is in tables: clears the halves and the files of the backing that have nothing
    /// else.
    fn give_up_log(&self, last: u64) -> Result<()> {
        let kept = self.work.lock().halves;
        for half in Half::BOTH.into_iter().filter(|half| kept[*half as usize] == Use::Kept) {
            self.log.clear(half)?;
            self.work.lock().halves[half as usize] = Use::Free;
        }
        let mut work = self.work.lock();
        for file in &mut work.backing {
            *file = file.filter(|in_it| *in_it > last);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Moves a full half of the log to its file of the backing, and clears it.
    fn move_step(&self) -> Result<bool> {
        let moving = |work: &mut Work| {
            Half::BOTH.into_iter().find_map(|half| match work.halves[half as usize] {
                Use::Moving { file, last } => Some((half, file, last)),
                _ => None,
            })
        };
        let Some((work, (half, file, last))) = self.next_work(moving) else { return Ok(false) };
        drop(work);
        let mut bytes = self.log.read(half)?;
        if planted::has(Bug::HalfClearedEarly) {
            self.log.clear(half)?;
        }
        let header =
            BackingHeader::new(self.superblock.salt.get(), self.log.start(half), bytes.len() as u64, last);
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        let at = self.first.plus(self.superblock.backing(file as u64));
        self.device.write(at.plus(1), &bytes, Structure::Journal)?;
        self.device.flush()?;
        let mut page = [0; PAGE];
        page[..size_of::<BackingHeader>()].copy_from_slice(header.as_bytes());
        self.device.write(at, &page, Structure::Journal)?;
        self.device.flush()?;
        self.log.clear(half)?;
        self.work.lock().halves[half as usize] = Use::Free;
        self.changed.notify_all();
        Ok(true)
    }

    /// Merges tables where a level has too many.
    fn compact_step(&self) -> Result<bool> {
        let came = |work: &mut Work| {
            let came = std::mem::take(&mut work.tables_came);
            (came || work.merge_all).then_some(work.merge_all)
        };
        let Some((mut work, all)) = self.next_work(came) else { return Ok(false) };
        work.compacting = true;
        drop(work);
        if all {
            self.compact_all()?;
            self.work.lock().merge_all = false;
            self.changed.notify_all();
        }
        while !self.work.lock().ending && self.compact_once()? {
            // A flush may wait for level 0.
            self.changed.notify_all();
        }
        self.work.lock().compacting = false;
        self.changed.notify_all();
        Ok(true)
    }
}
