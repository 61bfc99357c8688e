//! Tables on the block side: written once as a whole, read block by block. Index and filter stay in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_rt::sync::atomic::AtomicBool;

use crate::cache::{Block, BlockCache};
use crate::entry::Entry;
use crate::extents::{Extent, Extents};
use crate::format::{self, Footer, Indexed, PAGE, TABLE_PAGES_MAX, TableRecord};
use crate::{Error, Result, bloom};

/// Bytes of a block before it is written: one page, unless an entry is larger.
const BLOCK_BYTES: usize = PAGE - format::BLOCK_FRAME;
const TAG: Structure = Structure::Inode;

/// Where tables are.
#[derive(Debug)]
pub struct Area<D> {
    pub device: Arc<D>,
    /// The first page of the area.
    pub first: Lpa,
    pub extents: Extents,
    pub cache: BlockCache,
}

/// A table that is whole on the device.
#[derive(Debug)]
pub struct Table<D: BlockPort> {
    area: Arc<Area<D>>,
    record: TableRecord,
    first_key: Vec<u8>,
    blocks: Vec<Indexed>,
    filter: Vec<u8>,
    obsolete: AtomicBool,
}

impl<D: BlockPort> Table<D> {
    /// Opens a table that a manifest names. Its pages are taken already.
    ///
    /// # Errors
    /// [`Error::Damaged`] if footer, index or filter are not what was written; the device's.
    pub fn open(area: Arc<Area<D>>, record: TableRecord) -> Result<Self> {
        let damaged = |what| Error::Damaged { what, at: area.first.0 + record.page.get() };
        let pages = record.pages.get();
        if pages == 0 {
            return Err(damaged("the length of a table"));
        }
        let mut last = vec![0; PAGE];
        area.device.read(area.first.plus(record.page.get() + u64::from(pages) - 1), &mut last, TAG)?;
        let footer =
            Footer::decode(&last, record.number.get()).ok_or_else(|| damaged("the footer of a table"))?;
        let part = |page: u32, bytes: u32, crc: u32, what| {
            let count = bytes.div_ceil(PAGE as u32);
            if count == 0 || page >= pages || count > pages - 1 - page {
                return Err(damaged(what));
            }
            let mut part = vec![0; count as usize * PAGE];
            area.device.read(area.first.plus(record.page.get() + u64::from(page)), &mut part, TAG)?;
            part.truncate(bytes as usize);
            if crc32c::crc32c(&part) == crc { Ok(part) } else { Err(damaged(what)) }
        };
        let index_page = footer.index_page.get();
        let what = "the index of a table";
        let index = part(index_page, footer.index_bytes.get(), footer.index_crc.get(), what)?;
        let (first_key, blocks) = format::decode_index(&index, index_page).ok_or_else(|| damaged(what))?;
        let (page, bytes) = (footer.filter_page.get(), footer.filter_bytes.get());
        let filter = part(page, bytes, footer.filter_crc.get(), "the filter of a table")?;
        Ok(Self { area, record, first_key, blocks, filter, obsolete: AtomicBool::new(false) })
    }

    /// What the manifest says of it.
    pub fn record(&self) -> TableRecord {
        self.record
    }

    /// Its smallest key.
    pub fn first_key(&self) -> &[u8] {
        &self.first_key
    }

    /// Its largest key.
    pub fn last_key(&self) -> &[u8] {
        &self.blocks[self.blocks.len() - 1].last
    }

    /// Whether a key from `first` to `last` may be in it.
    pub fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        self.first_key() <= last && first <= self.last_key()
    }

    /// No durable manifest names it any more: its pages are free when the last reader has gone.
    pub fn retire(&self) {
        self.obsolete.store(true, Release);
    }

    /// The newest version of a key up to `seq`.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a block that is not what was written; the device's.
    pub fn get(&self, key: &[u8], hash: u64, seq: u64) -> Result<Option<Entry>> {
        if !self.overlaps(key, key) || !bloom::may_contain(&self.filter, hash) {
            return Ok(None);
        }
        // A key's versions may go on in the next block.
        for block in self.blocks.partition_point(|block| block.last.as_slice() < key)..self.blocks.len() {
            let entries = self.block(block)?;
            // The newest version of a key comes first.
            let at = entries
                .partition_point(|entry| entry.key.as_slice() < key || entry.key == key && entry.seq > seq);
            if let Some(entry) = entries.get(at) {
                return Ok((entry.key == key).then(|| entry.clone()));
            }
        }
        Ok(None)
    }

    /// A block that is likely to be asked for again.
    fn block(&self, number: usize) -> Result<Block> {
        let key = (self.record.number.get(), number);
        if let Some(found) = self.area.cache.get(key) {
            return Ok(found);
        }
        let block: Block = self.read_block(number)?.into();
        self.area.cache.put(key, &block);
        Ok(block)
    }

    fn read_block(&self, number: usize) -> Result<Vec<Entry>> {
        let Indexed { page, pages, .. } = self.blocks[number];
        let at = self.area.first.plus(self.record.page.get() + u64::from(page));
        let mut bytes = vec![0; pages as usize * PAGE];
        self.area.device.read(at, &mut bytes, TAG)?;
        let entries = format::decode_block(self.record.number.get(), &bytes)
            .ok_or(Error::Damaged { what: "a block of a table", at: at.0 })?;
        let owned = |(seq, (key, value)): (u64, (&[u8], Option<&[u8]>))| Entry {
            key: key.to_vec(),
            seq,
            value: value.map(<[u8]>::to_vec),
        };
        Ok(entries.into_iter().map(owned).collect())
    }
}

impl<D: BlockPort> Drop for Table<D> {
    fn drop(&mut self) {
        if self.obsolete.load(Acquire) {
            let (page, pages) = (self.record.page.get(), u64::from(self.record.pages.get()));
            // Advice: pages that were not trimmed are free all the same.
            let _ = self.area.device.trim(self.area.first.plus(page), pages);
            self.area.extents.free(Extent { page, pages });
        }
    }
}

/// How a cursor reads blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Each once: past the cache.
    Once,
    /// Others may ask for them again.
    Cached,
}

/// Entries of a block: somebody's own, or those of the cache from one on.
enum Entries {
    Own(std::vec::IntoIter<Entry>),
    Shared(Block, usize),
}

impl Entries {
    fn next(&mut self) -> Option<Entry> {
        match self {
            Self::Own(entries) => entries.next(),
            Self::Shared(block, at) => {
                *at += 1;
                block.get(*at - 1).cloned()
            }
        }
    }
}

/// A place in a table.
pub struct Cursor<D: BlockPort> {
    table: Arc<Table<D>>,
    reading: Reading,
    /// The block to read next.
    block: usize,
    entries: Entries,
    next: Option<Entry>,
}

impl<D: BlockPort> Cursor<D> {
    /// The first version at or behind `from`.
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn new(table: Arc<Table<D>>, from: &[u8], reading: Reading) -> Result<Self> {
        let block = table.blocks.partition_point(|block| block.last.as_slice() < from);
        let mut cursor =
            Self { table, reading, block, entries: Entries::Own(Vec::new().into_iter()), next: None };
        cursor.next = cursor.read(from)?;
        Ok(cursor)
    }

    /// The version at this place.
    pub fn peek(&self) -> Option<&Entry> {
        self.next.as_ref()
    }

    /// Takes it and goes on.
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn next(&mut self) -> Result<Option<Entry>> {
        let behind = self.read(&[])?;
        Ok(std::mem::replace(&mut self.next, behind))
    }

    /// The next version at or behind `from`.
    fn read(&mut self, from: &[u8]) -> Result<Option<Entry>> {
        loop {
            match self.entries.next() {
                Some(entry) if entry.key.as_slice() < from => {}
                Some(entry) => return Ok(Some(entry)),
                None if self.block == self.table.blocks.len() => return Ok(None),
                None => {
                    self.entries = match self.reading {
                        Reading::Once => Entries::Own(self.table.read_block(self.block)?.into_iter()),
                        Reading::Cached => {
                            let block = self.table.block(self.block)?;
                            let first = block.partition_point(|entry| entry.key.as_slice() < from);
                            Entries::Shared(block, first)
                        }
                    };
                    self.block += 1;
                }
            }
        }
    }
}

/// A table while it is made, in memory.
pub struct Builder {
    number: u64,
    pages: Vec<u8>,
    blocks: Vec<Indexed>,
    open: Vec<u8>,
    open_entries: u32,
    entries: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    hashes: Vec<u64>,
}

impl Builder {
    /// An empty table with a number.
    pub fn new(number: u64) -> Self {
        let (first_key, last_key) = (Vec::new(), Vec::new());
        let (pages, blocks, open, hashes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { number, pages, blocks, open, open_entries: 0, entries: 0, first_key, last_key, hashes }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.pages.len() + self.open.len()
    }

    /// The key added last.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds an entry, which comes behind all others.
    pub fn add(&mut self, entry: &Entry) {
        let before = self.open.len();
        format::encode_table_entry(&mut self.open, &entry.key, entry.seq, entry.value.as_deref());
        if self.open.len() > BLOCK_BYTES && before > 0 {
            let new = self.open.split_off(before);
            self.end_block();
            self.open = new;
        }
        if self.entries == 0 {
            self.first_key.clone_from(&entry.key);
        }
        if self.entries == 0 || self.last_key != entry.key {
            self.hashes.push(bloom::hash(&entry.key));
            self.last_key.clone_from(&entry.key);
        }
        self.open_entries += 1;
        self.entries += 1;
    }

    fn end_block(&mut self) {
        let block = format::encode_block(self.number, self.open_entries, &self.open);
        self.blocks.push(Indexed {
            page: (self.pages.len() / PAGE) as u32,
            pages: (block.len() / PAGE) as u32,
            last: self.last_key.clone(),
        });
        self.pages.extend_from_slice(&block);
        self.open.clear();
        self.open_entries = 0;
    }

    fn append(&mut self, part: &[u8]) -> u32 {
        let page = (self.pages.len() / PAGE) as u32;
        self.pages.extend_from_slice(part);
        self.pages.resize(self.pages.len().next_multiple_of(PAGE), 0);
        page
    }

    /// Writes the table, which has entries, and makes it durable.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::TooLarge`] above 64 MB, which only versions of one key reach; the
    /// device's.
    pub fn finish<D: BlockPort>(mut self, area: &Arc<Area<D>>, level: u32) -> Result<Table<D>> {
        self.end_block();
        let index = format::encode_index(&self.first_key, &self.blocks);
        let filter = bloom::build(&self.hashes);
        let index_page = self.append(&index);
        let filter_page = self.append(&filter);
        let footer = Footer::new(self.number, self.entries, (index_page, &index), (filter_page, &filter));
        self.append(zerocopy::IntoBytes::as_bytes(&footer));
        let pages = self.pages.len() / PAGE;
        if pages > TABLE_PAGES_MAX as usize {
            let limit = TABLE_PAGES_MAX as usize * PAGE;
            return Err(Error::TooLarge { what: "a table", bytes: self.pages.len(), limit });
        }
        let extent = area.extents.allocate(pages as u64)?;
        area.device.write(area.first.plus(extent.page), &self.pages, TAG)?;
        area.device.flush()?;
        let record = TableRecord {
            number: self.number.into(),
            page: extent.page.into(),
            pages: (pages as u32).into(),
            level: level.into(),
        };
        let obsolete = AtomicBool::new(false);
        let area = Arc::clone(area);
        Ok(Table { area, record, first_key: self.first_key, blocks: self.blocks, filter, obsolete })
    }
}
