//! Second pass: directories. Parses every entry, checks its name and what it points to, and counts names and
//! finds parents on the way.
//!
//! Entries never cross a page, so a damaged one costs no more than the rest of its page.

use amphi_device::{BlockPort, Structure};
use amphi_vfs::Name;
use amphi_volume::Progress;
use zerocopy::FromBytes;

use super::FsckError;
use super::finding::{EntryAt, FindingKind, FoundName};
use super::inodes::check_marked_free;
use super::read::{Page, Reader, Run};
use super::report::Report;
use super::state::{DirExtent, State};
use crate::format::{DIRENT_HEADER, DirentHeader, LINE, PAGE, ROOT_INO};

/// Directory extents read between two reports of progress.
const BATCH: usize = 4096;

/// A name in the directory being read.
struct NameRef {
    start: usize,
    len: u8,
    line: u8,
    page: u32,
}

/// An entry that names an inode marked free.
struct Unresolved {
    at: EntryAt,
    name: FoundName,
    ino: u32,
    kind: u8,
}

/// The names of the directory being read, and what is left for later.
#[derive(Default)]
struct Names {
    dir: Option<u32>,
    bytes: Vec<u8>,
    refs: Vec<NameRef>,
    unresolved: Vec<Unresolved>,
}

/// Checks every directory known so far, then those that turn up because entries name them though they are
/// marked free.
pub(super) fn check_directories<D: BlockPort>(
    state: &mut State,
    reader: &mut Reader<'_, D>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), FsckError> {
    let mut done = 0;
    loop {
        let mut extents = std::mem::take(&mut state.dir_extents);
        if extents.is_empty() {
            break;
        }
        extents.sort_unstable();
        let mut names = Names::default();
        for batch in extents.chunks(BATCH) {
            progress(Progress { phase: "directories", done, total: state.dirs.len() as u64 });
            let runs: Vec<Run> = batch.iter().map(|e| Run { first: e.first, pages: e.pages }).collect();
            reader.read(&runs, Structure::Dentry, &mut |i, page, bytes| {
                let extent = &batch[i];
                if names.dir != Some(extent.dir) {
                    names.finish(state);
                    names.dir = Some(extent.dir);
                    done += 1;
                }
                match bytes {
                    Ok(bytes) => names.page(state, extent, page, bytes),
                    Err(error) => state.findings.add_unreadable(page, "a directory", &error),
                }
            })?;
        }
        names.finish(state);
        resolve(state, reader, names.unresolved)?;
    }
    let total = state.dirs.len() as u64;
    progress(Progress { phase: "directories", done: total, total });
    Ok(())
}

/// Looks at the inodes that entries name though they are marked free.
fn resolve<D: BlockPort>(
    state: &mut State,
    reader: &mut Reader<'_, D>,
    unresolved: Vec<Unresolved>,
) -> Result<(), FsckError> {
    let mut wanted: Vec<(u32, u8)> = unresolved.iter().map(|entry| (entry.ino, entry.kind)).collect();
    wanted.sort_unstable();
    wanted.dedup_by_key(|(ino, _)| *ino);
    check_marked_free(state, reader, &wanted)?;
    for Unresolved { at, name, ino, kind } in unresolved {
        if state.inodes.get(ino).in_use() {
            count_entry(state, at, &name.0, ino, kind);
        } else {
            state.findings.add(FindingKind::EntryToFreeInode { at, name, ino });
        }
    }
    Ok(())
}

impl Names {
    /// Parses one page of a directory.
    fn page(&mut self, state: &mut State, extent: &DirExtent, page: u32, bytes: &Page) {
        let dir = &mut state.dirs[extent.dir as usize];
        let start = (u64::from(extent.file_page) + u64::from(page - extent.first)) * PAGE as u64;
        let end = dir.size.saturating_sub(start).min(PAGE as u64) as usize / LINE * LINE;
        let dir_ino = dir.ino;
        let mut offset = 0;
        while offset < end {
            let at = EntryAt { dir: dir_ino, page, offset: offset as u16 };
            let Ok((header, _)) = DirentHeader::read_from_prefix(&bytes[offset..]) else { return };
            let len = usize::from(header.lines) * LINE;
            let name_bytes = usize::from(header.name_bytes.get());
            let ino = header.ino.get();
            if len == 0 || offset + len > end || (ino != 0 && DIRENT_HEADER + name_bytes > len) {
                state.findings.add(FindingKind::EntryLengthBad { at });
                return;
            }
            if ino != 0 {
                state.dirs[extent.dir as usize].entries += 1;
                let name = &bytes[offset + DIRENT_HEADER..][..name_bytes];
                self.entry(state, at, name, ino, header.file_type);
            }
            offset += len;
        }
    }

    fn entry(&mut self, state: &mut State, at: EntryAt, name: &[u8], ino: u32, kind: u8) {
        if Name::new(name).is_err() {
            state.findings.add(FindingKind::EntryNameBad { at, name: FoundName(name.to_vec()) });
        } else {
            self.refs.push(NameRef {
                start: self.bytes.len(),
                len: name.len() as u8,
                line: (usize::from(at.offset) / LINE) as u8,
                page: at.page,
            });
            self.bytes.extend_from_slice(name);
        }
        if state.inodes.get(ino).in_use() {
            count_entry(state, at, name, ino, kind);
        } else if ino < state.layout.inodes && self.unresolved.len() < Report::LISTED {
            self.unresolved.push(Unresolved { at, name: FoundName(name.to_vec()), ino, kind });
        } else {
            state.findings.add(FindingKind::EntryToFreeInode { at, name: FoundName(name.to_vec()), ino });
        }
    }

    /// Looks for names that occur twice, once the whole directory was read. Sorting rather than hashing: no
    /// image can make it slow.
    fn finish(&mut self, state: &mut State) {
        let Some(dir) = self.dir.take() else { return };
        let dir = state.dirs[dir as usize].ino;
        let bytes = &self.bytes;
        let name = |at: &NameRef| &bytes[at.start..at.start + usize::from(at.len)];
        self.refs.sort_by(|a, b| name(a).cmp(name(b)));
        for pair in self.refs.windows(2) {
            if name(&pair[0]) == name(&pair[1]) {
                let at = EntryAt { dir, page: pair[1].page, offset: u16::from(pair[1].line) * LINE as u16 };
                state
                    .findings
                    .add(FindingKind::EntryNameDuplicate { at, name: FoundName(name(&pair[1]).to_vec()) });
            }
        }
        self.refs.clear();
        self.bytes.clear();
    }
}

/// Counts an entry that names an inode in use.
fn count_entry(state: &mut State, at: EntryAt, name: &[u8], ino: u32, kind: u8) {
    let State { inodes, findings, dirs, .. } = state;
    let Some(known) = inodes.get_mut(ino) else { return };
    known.names = known.names.saturating_add(1);
    if known.unreadable() {
        // All that is known of its type.
        known.kind = kind;
        return;
    }
    if known.kind != kind {
        findings.add(FindingKind::EntryTypeWrong {
            at,
            name: FoundName(name.to_vec()),
            ino,
            found: kind,
            expected: known.kind,
        });
    }
    if !known.is_directory() {
        return;
    }
    let child = &mut dirs[known.dir as usize];
    if ino == ROOT_INO {
        findings.add(FindingKind::DirectoryTwoParents { ino, at });
    } else if child.found.dir == 0 {
        child.found = at;
    } else {
        // The parent that the directory itself names is the more likely one.
        let second = if at.dir == child.parent_stored && child.found.dir != at.dir {
            std::mem::replace(&mut child.found, at)
        } else {
            at
        };
        findings.add(FindingKind::DirectoryTwoParents { ino, at: second });
    }
}
