//! Directories (BY-10): an array of entries in directory blocks, a hash index over it in host DRAM.
//!
//! Entries take one to five 64 B lines and never cross a page. Bytes at and beyond the directory's size mean
//! nothing, so a new block needs no clearing. A removed entry keeps its length with inode number 0 and is
//! used again for a name that takes as many lines. The first use of a directory loads all its blocks by
//! block; lookups then touch no device, and updates write just the entry's lines.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_names::{Child, FIRST_COOKIE, Inode, InodeCache, Part};
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{DirEntry, DirSink, Error, FileType, Ino, NAME_BYTES_MAX, Name, Result};
use amphi_volume::io_error;
use zerocopy::{FromBytes, IntoBytes};

use crate::base::Base;
use crate::commit::tx::Tx;
use crate::format::{DIRENT_HEADER, DirentHeader, LINE, LINES_PER_PAGE, PAGE, dirent_lines};
use crate::index::dir_index::{DirIndex, Slot};
use crate::index::extent::ExtentTree;
use crate::planted::{self, Bug};

/// Most lines an entry takes.
const LINES_MAX: usize = dirent_lines(NAME_BYTES_MAX);

/// A directory's entries.
pub struct Dir {
    /// Where its blocks are.
    pub tree: ExtentTree,
    size: u64,
    loaded: bool,
    pages: Vec<Box<[u8; PAGE]>>,
    /// The entries, by hashed name.
    index: DirIndex,
    /// Line numbers of free entries, by lines taken.
    free: [Vec<u32>; LINES_MAX + 1],
}

/// An entry found, and where: its first line's number in the directory.
pub type Found = amphi_names::Found<u32>;

fn hash(name: &[u8]) -> u64 {
    // The index takes a bucket from the low bits and a tag from the high ones; the product spreads the 32
    // bits over both.
    (u64::from(crc32c::crc32c(name)) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Dir {
    /// A directory of `size` bytes, its entries not yet read.
    ///
    /// # Errors
    /// What is impossible about it.
    pub fn new(tree: ExtentTree, size: u64) -> std::result::Result<Self, String> {
        if !size.is_multiple_of(LINE as u64) || size > u64::from(u32::MAX) * LINE as u64 {
            return Err(format!("a directory cannot have {size} bytes"));
        }
        Ok(Self {
            tree,
            size,
            loaded: size == 0,
            pages: Vec::new(),
            index: DirIndex::default(),
            free: Default::default(),
        })
    }

    /// Bytes in use.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Whether the entries are in DRAM.
    pub const fn loaded(&self) -> bool {
        self.loaded
    }

    /// Whether there are no entries. The directory is loaded.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Reads all blocks by block and indexes the entries.
    ///
    /// # Errors
    /// [`Error::Corrupt`] saying which entry is impossible; [`Error::Io`].
    pub fn load<D: BlockPort + WriteLog>(&mut self, base: &Base<D>, ino: u32) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        let count = self.size.div_ceil(PAGE as u64);
        let mut pages: Vec<Box<[u8; PAGE]>> = Vec::new();
        while (pages.len() as u64) < count {
            let at = pages.len() as u64;
            let Mapped::At { lba, pages: run } = self.tree.map(at) else {
                return Err(Error::corrupt(
                    "directory",
                    u64::from(ino),
                    format!("it has a hole at page {at}"),
                ));
            };
            let run = run.min(count - at).min(256) as usize;
            let mut bytes = vec![0; run * PAGE];
            base.read_metadata(Lpa(lba), &mut bytes, Structure::Dentry).map_err(io_error)?;
            pages.extend(bytes.as_chunks::<PAGE>().0.iter().map(|page| Box::new(*page)));
        }
        self.pages = pages;
        let outcome = self.index_all(base.layout.inodes);
        match outcome {
            Ok(()) => self.loaded = true,
            Err(what) => {
                self.pages.clear();
                self.index.clear();
                self.free = Default::default();
                return Err(Error::corrupt("directory", u64::from(ino), what));
            }
        }
        Ok(())
    }

    fn index_all(&mut self, inodes: u32) -> std::result::Result<(), String> {
        let end = self.size / LINE as u64;
        let mut line = 0_u64;
        while line < end {
            let header = self.header(line as u32);
            let lines = usize::from(header.lines);
            let name_bytes = usize::from(header.name_bytes.get());
            if lines == 0 || line as usize % LINES_PER_PAGE + lines > LINES_PER_PAGE {
                return Err(format!("the entry at line {line} cannot take {lines} lines"));
            }
            if header.ino.get() == 0 {
                if lines <= LINES_MAX {
                    self.free[lines].push(line as u32);
                }
            } else {
                if header.ino.get() >= inodes || dirent_lines(name_bytes) > lines {
                    return Err(format!("the entry at line {line} has an impossible inode or name length"));
                }
                if FileType::of_mode(u16::from(header.file_type) << 12).is_none() {
                    return Err(format!("the entry at line {line} has an unknown type"));
                }
                if Name::new(self.name(line as u32)).is_err() {
                    return Err(format!("the entry at line {line} has an impossible name"));
                }
                self.insert_index(Slot { line: line as u32, ino: header.ino.get() });
            }
            line += lines as u64;
        }
        Ok(())
    }

    fn insert_index(&mut self, slot: Slot) {
        let Self { index, pages, .. } = self;
        let hash = |slot: Slot| hash(name_at(pages, slot.line));
        index.insert(hash(slot), slot, hash);
    }

    fn header(&self, line: u32) -> DirentHeader {
        header_at(&self.pages, line)
    }

    fn name(&self, line: u32) -> &[u8] {
        name_at(&self.pages, line)
    }

    fn found(&self, line: u32) -> Found {
        let header = self.header(line);
        let file_type = FileType::of_mode(u16::from(header.file_type) << 12)
            .expect("types are checked when a directory is loaded");
        Found { slot: line, child: Child { ino: Ino(u64::from(header.ino.get())), file_type } }
    }

    /// Finds a name. The directory is loaded.
    pub fn find(&self, name: Name<'_>) -> Option<Found> {
        debug_assert!(self.loaded, "callers load the directory first");
        let name = name.bytes();
        let slot = self.index.find(hash(name), |slot| self.name(slot.line) == name)?;
        Some(self.found(slot.line))
    }

    /// As [`find`](Self::find), with the entry's inode if it is cached. In a directory that no processor's
    /// cache holds, an entry and its inode come from memory at the same time.
    pub fn find_inode<P: Part>(
        &self,
        name: Name<'_>,
        cache: &InodeCache<P>,
    ) -> Option<(Found, Option<Arc<Inode<P>>>)> {
        debug_assert!(self.loaded, "callers load the directory first");
        let name = name.bytes();
        let mut cached = None;
        let slot = self.index.find(hash(name), |slot| {
            let looked_up = cache.get_if(Ino(u64::from(slot.ino)), || self.name(slot.line) == name);
            looked_up.is_some_and(|inode| {
                cached = inode;
                true
            })
        })?;
        Some((self.found(slot.line), cached))
    }

    fn fits_in_place(&self, lines: usize) -> bool {
        if !self.free[lines].is_empty() {
            return true;
        }
        let used = (self.size / LINE as u64) as usize % LINES_PER_PAGE;
        used != 0 && used + lines <= LINES_PER_PAGE
    }

    /// Blocks that inserting a name may need.
    pub fn insert_needs(&self, name: Name<'_>) -> u64 {
        if self.fits_in_place(dirent_lines(name.bytes().len())) { 0 } else { 1 + self.tree.insert_needs() }
    }

    /// Inserts an entry; `tx` has room for [`insert_needs`](Self::insert_needs) blocks. Returns the number of
    /// blocks added to the directory.
    pub fn insert<D: BlockPort + WriteLog>(
        &mut self,
        name: Name<'_>,
        child: Child,
        tx: &mut Tx<'_, D>,
    ) -> u64 {
        let ino = child.ino.0 as u32;
        let lines = dirent_lines(name.bytes().len());
        let mut blocks = 0;
        let line = match self.free[lines].pop() {
            Some(line) => line,
            None => {
                let (line, added) = self.append(lines, tx);
                blocks = added;
                line
            }
        };
        let (page, offset) = place(line);
        let header = DirentHeader {
            ino: ino.into(),
            file_type: (child.file_type.mode_bits() >> 12) as u8,
            lines: lines as u8,
            name_bytes: (name.bytes().len() as u16).into(),
        };
        let entry = &mut self.pages[page][offset..offset + lines * LINE];
        entry.fill(0);
        entry[..DIRENT_HEADER].copy_from_slice(header.as_bytes());
        entry[DIRENT_HEADER..DIRENT_HEADER + name.bytes().len()].copy_from_slice(name.bytes());
        self.write(line, lines, tx);
        self.insert_index(Slot { line, ino });
        blocks
    }

    /// Finds room at the end, filling up the last page if the entry does not fit there, and adding a block if
    /// need be.
    fn append<D: BlockPort + WriteLog>(&mut self, lines: usize, tx: &mut Tx<'_, D>) -> (u32, u64) {
        let mut line = (self.size / LINE as u64) as u32;
        let left = LINES_PER_PAGE - line as usize % LINES_PER_PAGE;
        if left < lines {
            self.write_free(line, left, tx);
            self.free[left].push(line);
            line += left as u32;
        }
        let mut added = 0;
        if place(line).0 == self.pages.len() {
            let run = tx.allocate_blocks(1, self.tree.goal(self.pages.len() as u64));
            self.tree.insert(self.pages.len() as u64, run.start as u32, 1, &mut || tx.allocate_block());
            self.pages.push(Box::new([0; PAGE]));
            added = 1;
        }
        self.size = (u64::from(line) + lines as u64) * LINE as u64;
        (line, added)
    }

    /// Makes `lines` lines from `line` a free entry.
    fn write_free<D: BlockPort + WriteLog>(&mut self, line: u32, lines: usize, tx: &mut Tx<'_, D>) {
        let header = DirentHeader { ino: 0.into(), file_type: 0, lines: lines as u8, name_bytes: 0.into() };
        let (page, offset) = place(line);
        self.pages[page][offset..offset + DIRENT_HEADER].copy_from_slice(header.as_bytes());
        self.write(line, 1, tx);
    }

    /// Removes an entry.
    pub fn remove<D: BlockPort + WriteLog>(&mut self, line: u32, tx: &mut Tx<'_, D>) {
        let Self { index, pages, .. } = self;
        index.remove(hash(name_at(pages, line)), line);
        let lines = usize::from(self.header(line).lines);
        self.write_free(line, lines, tx);
        if lines <= LINES_MAX {
            self.free[lines].push(line);
        }
    }

    /// Makes an entry point to another inode: a rename over it, or an exchange.
    pub fn replace<D: BlockPort + WriteLog>(&mut self, line: u32, child: Child, tx: &mut Tx<'_, D>) {
        let ino = child.ino.0 as u32;
        let Self { index, pages, .. } = self;
        index.set_inode(hash(name_at(pages, line)), line, ino);
        let mut header = self.header(line);
        header.ino = ino.into();
        header.file_type = (child.file_type.mode_bits() >> 12) as u8;
        let (page, offset) = place(line);
        self.pages[page][offset..offset + DIRENT_HEADER].copy_from_slice(header.as_bytes());
        self.write(line, 1, tx);
    }

    fn write<D: BlockPort + WriteLog>(&self, line: u32, lines: usize, tx: &mut Tx<'_, D>) {
        let (page, offset) = place(line);
        let lines = match planted::has(Bug::EntriesPadded) {
            true => LINES_MAX.min((PAGE - offset) / LINE),
            false => lines,
        };
        let Mapped::At { lba, .. } = self.tree.map(page as u64) else {
            unreachable!("every page of a loaded directory is mapped");
        };
        tx.write(Lpa(lba).byte(offset), &self.pages[page][offset..offset + lines * LINE], Structure::Dentry);
    }

    /// Lists entries from `cookie` on until `sink` declines one. The directory is loaded.
    pub fn list(&self, cookie: u64, sink: &mut DirSink<'_>) {
        let from = cookie.saturating_sub(FIRST_COOKIE);
        let end = self.size / LINE as u64;
        if from >= end {
            return;
        }
        // Entries never cross a page, so a page's first line starts one, wherever an outdated cookie points.
        let mut line = from - from % LINES_PER_PAGE as u64;
        while line < end {
            let header = self.header(line as u32);
            let next = line + u64::from(header.lines);
            if line >= from && header.ino.get() != 0 {
                let Child { ino, file_type } = self.found(line as u32).child;
                let entry = DirEntry {
                    ino,
                    file_type,
                    name: self.name(line as u32),
                    next_cookie: next + FIRST_COOKIE,
                };
                if !sink(entry) {
                    return;
                }
            }
            line = next;
        }
    }
}

/// Page of a directory and byte in it where a line is.
const fn place(line: u32) -> (usize, usize) {
    (line as usize / LINES_PER_PAGE, line as usize % LINES_PER_PAGE * LINE)
}

fn header_at(pages: &[Box<[u8; PAGE]>], line: u32) -> DirentHeader {
    let (page, offset) = place(line);
    let (header, _) = DirentHeader::read_from_prefix(&pages[page][offset..]).expect("a line holds a header");
    header
}

fn name_at(pages: &[Box<[u8; PAGE]>], line: u32) -> &[u8] {
    let (page, offset) = place(line);
    let len = usize::from(header_at(pages, line).name_bytes.get());
    &pages[page][offset + DIRENT_HEADER..offset + DIRENT_HEADER + len]
}
