//! The check: walks all inodes, counts what refers to what, and compares that with what inodes and bitmaps
//! say.

use std::sync::Arc;

use amphi_device::{BlockPort, CommandPort, MemoryArea};
use amphi_rt::hash::HashMap;
use amphi_vfs::{Error, FileType, Ino, Result};

use crate::away::HostMemory;
use crate::blocks::leaves;
use crate::controller::Controller;
use crate::dir::entry_in;
use crate::finding::Finding;
use crate::format::{BODY, Layout, Map, PAGE, POINTERS, UNIT, UNITS, UNWRITTEN};
use crate::mount::{self, MountError, ones, words};
use crate::options::MountOptions;
use crate::part::Part;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub files: u64,
    pub directories: u64,
    pub symlinks: u64,
    pub pages: u64,
    pub pages_used: u64,
    pub cleanly_unmounted: bool,
}

/// What was seen of an inode.
#[derive(Default)]
struct Seen {
    names: u32,
    subdirectories: u32,
    parent: Option<Ino>,
}

struct Walk<'a, D: BlockPort + MemoryArea + 'static> {
    fs: &'a Controller<D>,
    /// Who has a page.
    pages: Vec<bool>,
    seen: HashMap<u64, Seen>,
    findings: Vec<Finding>,
}

/// Checks the one on a device, after what a mount would bring in place.
///
/// # Errors
/// [`MountError`].
pub fn check<D: BlockPort + MemoryArea + CommandPort + 'static>(
    device: &Arc<D>,
) -> std::result::Result<Report, MountError> {
    let superblock = mount::read_super(&**device)?;
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let mut report = Report { cleanly_unmounted: superblock.clean.get() == 1, ..Report::default() };
    let opened = mount::assemble(device, &options, &Arc::new(HostMemory::new(0)));
    let mounted = match opened {
        Err(MountError::Damaged(error @ Error::Corrupt(_))) => {
            report.findings.push(Finding::Unmountable(error.to_string()));
            return Ok(report);
        }
        opened => opened?,
    };
    let fs = &*mounted.controller;
    let mut walk = Walk { fs, pages: Vec::new(), seen: HashMap::default(), findings: Vec::new() };
    walk.pages = (0..fs.layout.pages).map(|page| page < fs.layout.first_block).collect();
    if let Err(error) = walk.all(&mut report) {
        walk.findings.push(Finding::Unmountable(error.to_string()));
    }
    report.pages = fs.layout.pages;
    report.pages_used = walk.pages.iter().filter(|used| **used).count() as u64;
    report.findings = walk.findings;
    Ok(report)
}

impl<D: BlockPort + MemoryArea + 'static> Walk<'_, D> {
    fn all(&mut self, report: &mut Report) -> Result<()> {
        let Layout { inodes, .. } = self.fs.layout;
        let meta = &self.fs.meta;
        let taken = words(meta, &self.fs.layout, Map::Inodes)?;
        let orphans: Vec<_> = ones(&words(meta, &self.fs.layout, Map::Orphans)?).collect();
        if taken.first().is_none_or(|word| word & 1 == 0) {
            self.findings.push(Finding::NumberFree { ino: 0 });
        }
        let taken: Vec<_> = ones(&taken).filter(|ino| *ino > 0).collect();
        for ino in (1..=inodes).filter(|ino| taken.binary_search(ino).is_err()) {
            if self.fs.inode_on_flash(Ino(ino)).is_ok() {
                self.findings.push(Finding::NumberFree { ino });
            }
        }
        for ino in &taken {
            if let Err(error) = self.inode(Ino(*ino), report) {
                let (ino, why) = (*ino, error.to_string());
                let is_damaged = matches!(error, Error::Corrupt(_));
                self.findings.push(match error {
                    Error::Io(_) => Finding::Failed { ino, why },
                    _ => Finding::Unreadable { ino, why, is_damaged },
                });
            }
        }
        for ino in &taken {
            self.judge(*ino, orphans.binary_search(ino).is_ok());
        }
        let used = words(meta, &self.fs.layout, Map::Blocks)?;
        for page in 0..self.pages.len() {
            let said = used[page / 64] >> (page % 64) & 1 == 1;
            if said != self.pages[page] {
                let page = page as u64;
                let finding = if said { Finding::PageTaken { page } } else { Finding::PageFree { page } };
                self.findings.push(finding);
            }
        }
        Ok(())
    }

    /// Notes that somebody has a page. Returns whether nobody else has.
    fn has(&mut self, ino: Ino, page: u64) -> bool {
        // What is no block was refused where the pointer was read.
        let taken = self.pages.get_mut(page as usize);
        let alone = taken.is_some_and(|taken| !std::mem::replace(taken, true));
        if !alone {
            self.findings.push(Finding::TwiceHeld { ino: ino.0, page });
        }
        alone
    }

    fn inode(&mut self, ino: Ino, report: &mut Report) -> Result<()> {
        let inode = self.fs.load_inode(ino)?;
        let state = inode.state.read();
        let mut blocks = 0;
        for block in [state.part.attributes, state.part.target_block].into_iter().filter(|block| *block != 0)
        {
            self.has(ino, block.into());
            blocks += 1;
        }
        self.fs.load_attributes(&state)?;
        let mut data = Vec::new();
        if state.part.root != 0 {
            let at = (state.part.root, state.part.levels, 0);
            blocks += self.pointers(ino, at, &mut data)?;
        }
        blocks += data.len() as u64;
        if blocks != state.part.blocks {
            let counts = state.part.blocks;
            self.findings.push(Finding::BlockCount { ino: ino.0, counts, has: blocks });
        }
        match state.file_type {
            FileType::Directory => {
                report.directories += 1;
                self.seen.entry(ino.0).or_default();
                self.directory(ino, state.size, &state.part)?;
            }
            FileType::Symlink => report.symlinks += 1,
            _ => report.files += 1,
        }
        let is_cut = data.iter().any(|(block, pointer)| {
            block * PAGE as u64 >= state.size
                && pointer & UNWRITTEN == 0
                && state.file_type == FileType::Directory
        });
        if is_cut {
            self.findings.push(Finding::BehindEnd { dir: ino.0 });
        }
        Ok(())
    }

    /// Collects the blocks below a pointer page. Returns the number of pointer pages.
    fn pointers(
        &mut self,
        ino: Ino,
        (page, level, first_leaf): (u32, u8, u64),
        data: &mut Vec<(u64, u32)>,
    ) -> Result<u64> {
        if !self.has(ino, page.into()) {
            // What is below it is another's, or its own again.
            return Ok(1);
        }
        let mut count = 1;
        for (index, pointer) in self.fs.pointers_in(page)?.into_iter().enumerate() {
            let index = index as u64;
            if pointer == 0 {
                continue;
            }
            if level == 1 {
                self.has(ino, u64::from(pointer & !UNWRITTEN));
                data.push((first_leaf * POINTERS + index, pointer));
            } else {
                let below = (pointer, level - 1, first_leaf + index * leaves(level - 1));
                count += self.pointers(ino, below, data)?;
            }
        }
        Ok(count)
    }

    fn directory(&mut self, dir: Ino, size: u64, part: &Part) -> Result<()> {
        let mut names = HashMap::default();
        for index in 0..size.div_ceil(PAGE as u64) {
            let page = self.fs.block(part, index)?;
            let bytes = self.fs.meta.with(page.into(), |bytes: &[u8; BODY]| *bytes)?;
            let mut unit = 0;
            while unit < UNITS {
                let rest = &bytes[unit * UNIT..UNITS * UNIT];
                if rest[..8] == [0; 8] {
                    unit += 1;
                    continue;
                }
                let Some((child, name, units)) = entry_in(rest) else {
                    self.findings.push(Finding::BadEntry { dir: dir.0, entry: (page, unit) });
                    unit += 1;
                    continue;
                };
                let (dir_number, entry) = (dir.0, (page, unit));
                let shown = || String::from_utf8_lossy(name).into_owned();
                if names.insert(name.to_vec(), ()).is_some() {
                    let name = shown();
                    self.findings.push(Finding::NameTwice { dir: dir_number, name, entry, units });
                }
                let there = self.fs.inode_on_flash(child.ino);
                if there.map_or(0, |inode| inode.kind) != crate::format::TYPES.code(child.file_type) {
                    let (name, ino) = (shown(), child.ino.0);
                    self.findings.push(Finding::Dangling { dir: dir_number, name, ino, entry, units });
                }
                let seen = self.seen.entry(child.ino.0).or_default();
                seen.names += 1;
                if child.is_dir() {
                    seen.parent = Some(dir);
                    self.seen.entry(dir.0).or_default().subdirectories += 1;
                }
                unit += units;
            }
        }
        Ok(())
    }

    fn judge(&mut self, ino: u64, is_orphan: bool) {
        let Ok(inode) = self.fs.inode_on_flash(Ino(ino)) else {
            self.findings.push(Finding::NumberTaken { ino });
            return;
        };
        let seen = self.seen.remove(&ino).unwrap_or_default();
        let is_root = ino == Ino::ROOT.0;
        let is_dir = inode.kind == crate::format::TYPES.code(FileType::Directory);
        let links = match (is_dir, seen.names > 0 || is_root) {
            (true, true) => 2 + seen.subdirectories,
            (true, false) => 0,
            (false, _) => seen.names,
        };
        if is_dir && seen.names > 1 {
            self.findings.push(Finding::DirectoryNames { ino, names: seen.names });
        }
        if inode.nlink.get() != links {
            self.findings.push(Finding::LinkCount { ino, counts: inode.nlink.get(), has: links });
        }
        if links == 0 && !is_orphan {
            self.findings.push(Finding::Nameless { ino });
        }
        let parent = seen.parent.filter(|parent| is_dir && !is_root && parent.0 != inode.parent.get());
        if let Some(parent) = parent {
            self.findings.push(Finding::WrongParent { ino, parent: parent.0 });
        }
    }
}
