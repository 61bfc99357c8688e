//! Making a store, and opening one: what the manifest names, and what the log has beyond it.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, MemoryArea, Structure};
use amphi_rt::sync::atomic::{AtomicBool, AtomicU64};
use amphi_rt::sync::{Condvar, Mutex, RwLock};
use zerocopy::IntoBytes;

use super::{Levels, Options, Place, Shared, Store, Use, View, Work, Writing};
use crate::cache::BlockCache;
use crate::extents::{Extent, Extents};
use crate::format::{self, BackingHeader, LINE, MANIFEST_PAGES_MAX, PAGE, Superblock};
use crate::log::{self, Half, Log};
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::planted::{self, Bug};
use crate::table::{Area, Table};
use crate::{Error, Result, batch};

/// The manifest has room for a table in so many pages, and some.
const PAGES_PER_TABLE: u64 = 16;

impl<D: BlockPort + MemoryArea + 'static> Store<D> {
    /// Makes an empty store. What was there is lost.
    ///
    /// # Errors
    /// [`Error::Place`] for areas that are too small or not on the device; the device's.
    pub fn format(device: &Arc<D>, place: &Place) -> Result<()> {
        let salt = amphi_rt::random::u64();
        let log = Log::new(Arc::clone(device), place.log_at, place.log_bytes, salt)?
            .shared_by(Options::default().log_tasks);
        if place.first.0.checked_add(place.pages).is_none_or(|end| end > device.capacity_pages()) {
            return Err(Error::Place("the store's pages must be on the device"));
        }
        let file_pages = 1 + log.half_bytes() / PAGE as u64;
        let files = place.backing_pages / file_pages;
        let too_small = Error::Place("the store has too few pages");
        let rest = place.pages.checked_sub(1 + files * file_pages).ok_or(too_small.clone())?;
        let manifest_pages = format::manifest_pages(rest / PAGES_PER_TABLE + 64);
        let tables = rest.checked_sub(2 * manifest_pages).filter(|pages| *pages >= 16).ok_or(too_small)?;
        let too_large = |_| Error::Place("the store has too many pages");
        let manifest_pages =
            u32::try_from(manifest_pages.min(MANIFEST_PAGES_MAX.into())).map_err(too_large)?;
        let backing = (u32::try_from(files).map_err(too_large)?, file_pages as u32);
        let superblock =
            Superblock::new(salt, (place.log_at, place.log_bytes), manifest_pages, backing, tables);
        let mut page = [0; PAGE];
        device.write(place.first, &page, Structure::Superblock)?;
        device.flush()?;
        log.format()?;
        Manifest::default().write(&**device, place.first, &superblock)?;
        page[..size_of::<Superblock>()].copy_from_slice(superblock.as_bytes());
        device.write(place.first, &page, Structure::Superblock)?;
        device.flush()?;
        Ok(())
    }

    /// Opens the store whose first page is `first`, with all that was acknowledged, and starts the tasks
    /// behind it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if what is on the device is not what a store wrote; the device's.
    pub fn open(device: Arc<D>, first: Lpa, options: Options) -> Result<Self> {
        let shared = Arc::new(Shared::open(device, first, options)?);
        let tasks = shared.start();
        Ok(Self { shared, tasks })
    }
}

/// What the log has and tables do not, while it is read.
#[derive(Default)]
struct Replay {
    memtable: Arc<Memtable>,
    bytes: usize,
    last: u64,
}

impl<D: BlockPort + MemoryArea + 'static> Shared<D> {
    fn open(device: Arc<D>, first: Lpa, options: Options) -> Result<Self> {
        let mut page = vec![0; PAGE];
        device.read(first, &mut page, Structure::Superblock)?;
        let damaged = Error::Damaged { what: "the superblock", at: first.0 };
        let superblock = Superblock::decode(&page).ok_or(damaged.clone())?;
        let end = superblock.pages().and_then(|pages| first.0.checked_add(pages));
        if end.is_none_or(|end| end > device.capacity_pages()) {
            return Err(damaged);
        }
        let salt = superblock.salt.get();
        let log = Log::new(Arc::clone(&device), superblock.log_at.get(), superblock.log_bytes.get(), salt)?
            .shared_by(options.log_tasks);
        if u64::from(superblock.backing_file_pages.get()) != 1 + log.half_bytes() / PAGE as u64 {
            return Err(damaged);
        }
        let manifest = Manifest::read(&*device, first, &superblock)?;
        let extents = Extents::new(superblock.table_pages.get());
        let area = Arc::new(Area {
            device: Arc::clone(&device),
            first: first.plus(superblock.tables()),
            extents,
            cache: BlockCache::new(options.block_cache_bytes),
        });
        let levels = open_tables(&area, &manifest)?;
        let active = Arc::new(Memtable::default());
        let flushed = manifest.flushed;
        let shared = Self {
            writing: Mutex::new(Writing {
                next_seq: flushed + 1,
                memtable: Arc::clone(&active),
                memtable_bytes: 0,
                half: Half::First,
                claimed: 0,
            }),
            view: RwLock::new(View { active, sealed: None, levels: Arc::new(levels) }),
            next_number: AtomicU64::new(manifest.next_number),
            manifest: Mutex::new(manifest),
            work: Mutex::new(Work {
                halves: [Use::Active, Use::Free],
                backing: vec![None; superblock.backing_files.get() as usize],
                full: None,
                tables_came: true,
                compacting: false,
                merge_all: false,
                ending: false,
                failed: None,
            }),
            changed: Condvar::new(),
            broken: AtomicBool::new(false),
            groups: super::group::Groups::default(),
            snapshots: Mutex::default(),
            device,
            first,
            superblock,
            options,
            log,
            area,
        };
        shared.recover(flushed)?;
        Ok(shared)
    }

    /// Brings what the log has into tables, all at once, and empties the log.
    fn recover(&self, flushed: u64) -> Result<()> {
        let mut tables = Vec::new();
        let mut replay = Replay { last: flushed, ..Replay::default() };
        let mut add = |content: &[u8]| {
            batch::visit(content, |seq, key, value| {
                if seq > flushed {
                    replay.memtable.insert(seq, key, value);
                    replay.last = replay.last.max(seq);
                    replay.bytes += format::record_bytes(key, value);
                }
            })?;
            if replay.bytes >= self.options.memtable_bytes {
                replay.bytes = 0;
                tables.extend(self.build_tables(std::mem::take(&mut replay.memtable))?);
            }
            Ok(())
        };
        self.log.recover(&mut add)?;
        if !planted::has(Bug::BackingForgotten) {
            self.recover_backing(flushed, &mut add)?;
        }
        if planted::has(Bug::LogResetEarly) {
            self.log.reset()?;
        }
        if !replay.memtable.is_empty() {
            tables.extend(self.build_tables(replay.memtable)?);
        }
        if replay.last > flushed {
            self.install(Some(replay.last), tables, &[], false)?;
        }
        let last = if planted::has(Bug::SequenceReused) { flushed } else { replay.last };
        self.writing.lock().next_seq = last + 1;
        self.log.reset()?;
        self.log.activate(Half::First)
    }

    /// Reads the files of the backing that have something that no table has.
    fn recover_backing(&self, flushed: u64, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let salt = self.superblock.salt.get();
        let mut page = vec![0; PAGE];
        for file in 0..u64::from(self.superblock.backing_files.get()) {
            let at = self.first.plus(self.superblock.backing(file));
            self.device.read(at, &mut page, Structure::Journal)?;
            let Some(header) = BackingHeader::decode(&page, salt) else { continue };
            if header.last.get() <= flushed {
                continue;
            }
            let (start, bytes) = (header.start.get(), header.bytes.get());
            let whole = bytes <= self.log.half_bytes() && bytes.is_multiple_of(LINE as u64);
            if !whole || Half::BOTH.iter().all(|half| self.log.start(*half) != start) {
                return Err(Error::Damaged { what: "a log file in the backing", at: at.0 });
            }
            if bytes > 0 {
                let mut entries = vec![0; (bytes as usize).next_multiple_of(PAGE)];
                self.device.read(at.plus(1), &mut entries, Structure::Journal)?;
                log::sealed(salt, start, &entries[..bytes as usize], visit)?;
            }
        }
        Ok(())
    }
}

/// Opens all tables that a manifest names, each in pages of its own and in order in its level.
fn open_tables<D: BlockPort>(area: &Arc<Area<D>>, manifest: &Manifest) -> Result<Levels<D>> {
    let mut levels = Levels::<D>::default();
    for record in &manifest.tables {
        area.extents.take(Extent { page: record.page.get(), pages: u64::from(record.pages.get()) })?;
        let table = Table::open(Arc::clone(area), *record)?;
        levels[record.level.get() as usize].push(Arc::new(table));
    }
    for level in &mut levels[1..] {
        level.sort_by(|one, other| one.first_key().cmp(other.first_key()));
        if let Some(pair) = level.windows(2).find(|pair| pair[0].last_key() >= pair[1].first_key()) {
            let at = area.first.0 + pair[1].record().page.get();
            return Err(Error::Damaged { what: "a table with keys of another of its level", at });
        }
    }
    Ok(levels)
}
