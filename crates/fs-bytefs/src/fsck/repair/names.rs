//! Directory entries and lost files: mends or frees damaged entries, and gives files without a name one in
//! `lost+found`.

use std::collections::BTreeSet;

use amphi_device::{BlockPort, WriteLog};
use amphi_vfs::Name;
use zerocopy::{FromBytes, IntoBytes};

use super::super::FsckError;
use super::super::finding::EntryAt;
use super::super::state::{State, parts};
use super::edit::{Edit, free_entry};
use super::trees::{Shared, gather, push, write_directory, write_tree};
use crate::format::{
    DIRENT_HEADER, DirentHeader, Extent, LINE, LINES_PER_PAGE, PAGE, ROOT_INO, dirent_lines, mode,
};

/// The directory for files without a name, below the root.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Makes an entry of impossible length, and what follows up to the next plausible one, free.
pub(super) fn resynchronise<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &State,
    at: EntryAt,
) -> Result<bool, FsckError> {
    let Some(end) = end_in_page(edit, state, at)? else { return Ok(false) };
    let Some(bytes) = edit.page(at.page)? else { return Ok(false) };
    let start = usize::from(at.offset);
    let next = (start + LINE..end).step_by(LINE).find(|&offset| is_plausible(state, &bytes[offset..end]));
    let lines = (next.unwrap_or(end) - start) / LINE;
    edit.set_header(at, free_entry(lines))
}

/// Bytes of the page at `at` that belong to the directory.
fn end_in_page<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &State,
    at: EntryAt,
) -> Result<Option<usize>, FsckError> {
    let (Some(lower), Some(upper)) = edit.inode(at.dir)? else { return Ok(None) };
    for extent in gather(edit, state, at.dir, &upper, &Shared::new())?.unwrap_or_default() {
        let (file_page, lba, pages) = parts(&extent);
        if at.page >= lba && at.page - lba < pages {
            let start = (file_page + u64::from(at.page - lba)) * PAGE as u64;
            return Ok(Some(lower.size.get().saturating_sub(start).min(PAGE as u64) as usize / LINE * LINE));
        }
    }
    Ok(None)
}

/// Whether bytes start an entry as the file system would write it, naming an inode in use of its type.
fn is_plausible(state: &State, bytes: &[u8]) -> bool {
    let Ok((header, rest)) = DirentHeader::read_from_prefix(bytes) else { return false };
    let name_bytes = usize::from(header.name_bytes.get());
    let known = state.inodes.get(header.ino.get());
    name_bytes <= rest.len()
        && usize::from(header.lines) == dirent_lines(name_bytes)
        && usize::from(header.lines) * LINE <= bytes.len()
        && Name::new(&rest[..name_bytes]).is_ok()
        && known.in_use()
        && known.kind == header.file_type
}

/// Replaces the bytes that a name must not have; frees the entry if that does not make a name.
pub(super) fn mend_name<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    at: EntryAt,
) -> Result<bool, FsckError> {
    let Some(header) = edit.header(at)? else { return Ok(false) };
    let len = usize::from(header.name_bytes.get());
    let Some(bytes) = edit.page(at.page)? else { return Ok(false) };
    let start = usize::from(at.offset) + DIRENT_HEADER;
    let Some(name) = bytes.get_mut(start..start + len) else { return Ok(false) };
    name.iter_mut().filter(|byte| matches!(**byte, b'/' | 0)).for_each(|byte| *byte = b'_');
    if Name::new(name).is_ok() { Ok(true) } else { edit.free_entry(at) }
}

/// Gives entries the type of what they name.
pub(super) fn set_type<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    at: EntryAt,
    kind: u8,
) -> Result<bool, FsckError> {
    let Some(mut header) = edit.header(at)? else { return Ok(false) };
    header.file_type = kind;
    edit.set_header(at, header)
}

/// `lost+found`, with the names it has.
pub(super) struct LostAndFound {
    ino: u32,
    names: BTreeSet<Vec<u8>>,
}

impl LostAndFound {
    /// Finds the directory, or makes it. `None` if there is no room for it, the name is something else's, or
    /// what it and the root hold cannot be read.
    pub fn open<D: BlockPort + WriteLog>(
        edit: &mut Edit<'_, D>,
        state: &mut State,
    ) -> Result<Option<Self>, FsckError> {
        let kind = (mode::DIRECTORY >> 12) as u8;
        let Some(root) = entries(edit, state, ROOT_INO)? else { return Ok(None) };
        if let Some((_, ino, found)) = root.iter().find(|(name, _, _)| name == LOST_AND_FOUND) {
            if *found != kind || !state.inodes.get(*ino).is_directory() {
                return Ok(None);
            }
            let names = entries(edit, state, *ino)?;
            let names = names.map(|names| names.into_iter().map(|(name, ..)| name).collect());
            return Ok(names.map(|names| Self { ino: *ino, names }));
        }
        let Some(ino) = state.free_inode() else { return Ok(None) };
        if !write_directory(edit, ino, 0o700)? || !append(edit, state, ROOT_INO, LOST_AND_FOUND, ino, kind)? {
            return Ok(None);
        }
        edit.mark_inode(ino)?;
        Ok(Some(Self { ino, names: BTreeSet::new() }))
    }

    /// Gives an inode the name `#number`, or one like it that is free.
    pub fn add<D: BlockPort + WriteLog>(
        &mut self,
        edit: &mut Edit<'_, D>,
        state: &mut State,
        ino: u32,
    ) -> Result<bool, FsckError> {
        if ino == self.ino {
            return Ok(false);
        }
        let plain = format!("#{ino}").into_bytes();
        let numbered = (1..).map(|i| format!("#{ino}-{i}").into_bytes());
        let name = std::iter::once(plain).chain(numbered).find(|name| !self.names.contains(name));
        let Some(name) = name else { return Ok(false) };
        let kind = state.inodes.get(ino).kind;
        let added = append(edit, state, self.ino, &name, ino, kind)?;
        self.names.insert(name);
        Ok(added)
    }
}

/// A name, its inode and its type.
type Entry = (Vec<u8>, u32, u8);

/// The entries of a sound directory; `None` if a part of it cannot be read.
fn entries<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &State,
    dir: u32,
) -> Result<Option<Vec<Entry>>, FsckError> {
    let (Some(lower), Some(upper)) = edit.inode(dir)? else { return Ok(None) };
    let mut found = Vec::new();
    let Some(extents) = gather(edit, state, dir, &upper, &Shared::new())? else { return Ok(None) };
    for extent in extents {
        let (file_page, lba, pages) = parts(&extent);
        for page in 0..pages {
            let start = (file_page + u64::from(page)) * PAGE as u64;
            let end = lower.size.get().saturating_sub(start).min(PAGE as u64) as usize / LINE * LINE;
            let Some(bytes) = edit.look(lba + page)? else { return Ok(None) };
            let mut offset = 0;
            while offset < end {
                let Ok((header, rest)) = DirentHeader::read_from_prefix(&bytes[offset..end]) else { break };
                if header.lines == 0 {
                    break;
                }
                if header.ino.get() != 0
                    && let Some(name) = rest.get(..usize::from(header.name_bytes.get()))
                {
                    found.push((name.to_vec(), header.ino.get(), header.file_type));
                }
                offset += usize::from(header.lines) * LINE;
            }
        }
    }
    Ok(Some(found))
}

/// Appends an entry to a sound directory. False if there is no room for another page.
fn append<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &mut State,
    dir: u32,
    name: &[u8],
    ino: u32,
    kind: u8,
) -> Result<bool, FsckError> {
    let (Some(mut lower), Some(upper)) = edit.inode(dir)? else { return Ok(false) };
    let lines = dirent_lines(name.len());
    let Some(mut extents) = gather(edit, state, dir, &upper, &Shared::new())? else { return Ok(false) };
    let mut line = lower.size.get() / LINE as u64;
    let used = (line % LINES_PER_PAGE as u64) as usize;
    let page_of = |extents: &[Extent], file_page: u64| {
        extents.iter().map(parts).find_map(|(first, lba, pages)| {
            (first..first + u64::from(pages)).contains(&file_page).then(|| lba + (file_page - first) as u32)
        })
    };
    let mut at = EntryAt { dir, page: 0, offset: 0 };
    if used == 0 || used + lines > LINES_PER_PAGE {
        if used > 0 {
            let Some(page) = page_of(&extents, line / LINES_PER_PAGE as u64) else { return Ok(false) };
            at = EntryAt { dir, page, offset: (used * LINE) as u16 };
            if !edit.set_header(at, free_entry(LINES_PER_PAGE - used))? {
                return Ok(false);
            }
            line += (LINES_PER_PAGE - used) as u64;
        }
        let Some(page) = edit.take_page(state, Box::new([0; PAGE])) else { return Ok(false) };
        let file_page = line / LINES_PER_PAGE as u64;
        push(&mut extents, Extent { file_page: file_page.into(), lba: page.into(), pages: 1.into() });
        (at.page, at.offset) = (page, 0);
    } else {
        let Some(page) = page_of(&extents, line / LINES_PER_PAGE as u64) else { return Ok(false) };
        (at.page, at.offset) = (page, (used * LINE) as u16);
    }
    let header = DirentHeader {
        ino: ino.into(),
        file_type: kind,
        lines: lines as u8,
        name_bytes: (name.len() as u16).into(),
    };
    let Some(bytes) = edit.page(at.page)? else { return Ok(false) };
    let entry = &mut bytes[usize::from(at.offset)..][..lines * LINE];
    entry.fill(0);
    entry[..DIRENT_HEADER].copy_from_slice(header.as_bytes());
    entry[DIRENT_HEADER..DIRENT_HEADER + name.len()].copy_from_slice(name);
    lower.size = ((line + lines as u64) * LINE as u64).into();
    write_tree(edit, state, dir, lower, upper, &extents)
}
