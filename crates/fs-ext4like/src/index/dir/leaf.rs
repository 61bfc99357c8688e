//! Blocks of entries. Each entry says where the next one starts; one that is removed is joined to the one
//! before it.

use amphi_vfs::{Error, FileType, Name, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{BLOCK, DIR_TAIL, DIRENT_HEADER, DirentHeader, dirent_bytes, name_hash};
use crate::journal::buffers::Block;

/// Where entries end.
pub const END: usize = BLOCK - DIR_TAIL;
/// Where `..` stands in block 0.
pub const DOTDOT_AT: usize = 12;

/// An entry in use.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Byte in the block.
    pub at: usize,
    /// Inode number.
    pub ino: u32,
    /// Type bits of `st_mode`, shifted right by 12.
    pub file_type: u8,
    /// Name.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Whether it is `.` or `..`.
    pub fn is_dot(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

fn damaged(at: usize) -> Error {
    Error::corrupt("directory entry at byte", at as u64, "it is impossible")
}

/// Header and name of the entry at `at`, free or in use; its length is checked.
fn raw(block: &Block, at: usize) -> Result<(DirentHeader, &[u8])> {
    let rest = block.get(at..END).ok_or_else(|| damaged(at))?;
    let (header, name) = DirentHeader::read_from_prefix(rest).map_err(|_| damaged(at))?;
    let (bytes, name_bytes) = (usize::from(header.bytes.get()), usize::from(header.name_bytes));
    let sound = bytes >= DIRENT_HEADER && bytes.is_multiple_of(4) && bytes <= rest.len();
    if !sound || (header.ino.get() != 0 && dirent_bytes(name_bytes) > bytes) {
        return Err(damaged(at));
    }
    Ok((header, name.get(..name_bytes).unwrap_or(&[])))
}

fn set_header(block: &mut Block, at: usize, header: DirentHeader) {
    block[at..at + DIRENT_HEADER].copy_from_slice(header.as_bytes());
}

/// The entries in use, the dots too.
pub fn entries(block: &Block) -> impl Iterator<Item = Result<Entry<'_>>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < END {
            let here = at;
            match raw(block, here) {
                Ok((header, name)) => {
                    at += usize::from(header.bytes.get());
                    if header.ino.get() != 0 {
                        let (ino, file_type) = (header.ino.get(), header.file_type);
                        return Some(Ok(Entry { at: here, ino, file_type, name }));
                    }
                }
                Err(error) => {
                    at = END;
                    return Some(Err(error));
                }
            }
        }
        None
    })
}

/// The entries without the dots, by hash.
pub fn sorted(block: &Block, seed: u64) -> Result<Vec<(u64, Entry<'_>)>> {
    let mut all = Vec::new();
    for entry in entries(block) {
        let entry = entry?;
        if !entry.is_dot() {
            Name::new(entry.name).map_err(|_| damaged(entry.at))?;
            all.push((name_hash(seed, entry.name), entry));
        }
    }
    all.sort_unstable_by_key(|(hash, entry)| (*hash, entry.at));
    Ok(all)
}

/// Inode and parent that the dots of block 0 name.
pub fn dots(block: &Block) -> Option<(u32, u32)> {
    let (this, name) = raw(block, 0).ok()?;
    let (parent, parent_name) = raw(block, DOTDOT_AT).ok()?;
    let sound = name == b"." && parent_name == b".." && usize::from(this.bytes.get()) == DOTDOT_AT;
    sound.then(|| (this.ino.get(), parent.ino.get()))
}

/// Fills block 0 of a new directory, which is zeros.
pub fn begin(block: &mut Block, ino: u32, parent: u32) {
    let file_type = (FileType::Directory.mode_bits() >> 12) as u8;
    let dot = DirentHeader { ino: ino.into(), bytes: (DOTDOT_AT as u16).into(), name_bytes: 1, file_type };
    set_header(block, 0, dot);
    block[DIRENT_HEADER] = b'.';
    let rest = ((END - DOTDOT_AT) as u16).into();
    set_header(block, DOTDOT_AT, DirentHeader { ino: parent.into(), bytes: rest, name_bytes: 2, file_type });
    block[DOTDOT_AT + DIRENT_HEADER..DOTDOT_AT + DIRENT_HEADER + 2].copy_from_slice(b"..");
}

/// Makes a block of zeros one without entries.
pub fn begin_empty(block: &mut Block) {
    let header = DirentHeader { ino: 0.into(), bytes: (END as u16).into(), name_bytes: 0, file_type: 0 };
    set_header(block, 0, header);
}

/// Where an entry of `need` bytes fits: the entry whose space it takes, and how many bytes that one keeps.
fn room(block: &Block, need: usize) -> Result<Option<(usize, usize)>> {
    let mut at = 0;
    while at < END {
        let (header, _) = raw(block, at)?;
        let bytes = usize::from(header.bytes.get());
        let kept = if header.ino.get() == 0 { 0 } else { dirent_bytes(usize::from(header.name_bytes)) };
        if bytes - kept >= need {
            return Ok(Some((at, kept)));
        }
        at += bytes;
    }
    Ok(None)
}

/// Whether a name fits.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn has_room(block: &Block, name_bytes: usize) -> Result<bool> {
    Ok(room(block, dirent_bytes(name_bytes))?.is_some())
}

/// Adds an entry, for which there is room.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn put(block: &mut Block, name: &[u8], ino: u32, file_type: FileType) -> Result<()> {
    let (mut at, kept) = room(block, dirent_bytes(name.len()))?.ok_or_else(|| damaged(END))?;
    let (mut header, _) = raw(block, at)?;
    let mut bytes = usize::from(header.bytes.get());
    if kept > 0 {
        header.bytes = (kept as u16).into();
        set_header(block, at, header);
        at += kept;
        bytes -= kept;
    }
    let file_type = (file_type.mode_bits() >> 12) as u8;
    let header = DirentHeader {
        ino: ino.into(),
        bytes: (bytes as u16).into(),
        name_bytes: name.len() as u8,
        file_type,
    };
    set_header(block, at, header);
    block[at + DIRENT_HEADER..at + DIRENT_HEADER + name.len()].copy_from_slice(name);
    Ok(())
}

/// Whether an entry at byte `at` has this name. Names may look like entries, so the block is walked.
pub fn holds(block: &Block, at: usize, name: &[u8]) -> bool {
    entries(block).map_while(Result::ok).any(|entry| entry.at == at && entry.name == name)
}

/// Removes the entry at `at`.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn remove(block: &mut Block, at: usize) -> Result<()> {
    let (mut header, _) = raw(block, at)?;
    let mut before = None;
    let mut walk = 0;
    while walk < at {
        before = Some(walk);
        walk += usize::from(raw(block, walk)?.0.bytes.get());
    }
    if let Some(before) = before {
        let (mut joined, _) = raw(block, before)?;
        joined.bytes = (joined.bytes.get() + header.bytes.get()).into();
        set_header(block, before, joined);
    } else {
        header.ino = 0.into();
        set_header(block, at, header);
    }
    Ok(())
}

/// Makes the entry at `at`, which was found there, name another inode.
pub fn point(block: &mut Block, at: usize, ino: u32, file_type: FileType) {
    block[at..at + 4].copy_from_slice(&ino.to_le_bytes());
    block[at + 7] = (file_type.mode_bits() >> 12) as u8;
}

/// Fills a block with entries, which fit.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn fill(block: &mut Block, entries: &[(u64, Entry<'_>)]) -> Result<()> {
    block.fill(0);
    begin_empty(block);
    let mut at = 0;
    for (_, entry) in entries {
        let bytes = dirent_bytes(entry.name.len());
        let header = DirentHeader {
            ino: entry.ino.into(),
            bytes: (bytes as u16).into(),
            name_bytes: entry.name.len() as u8,
            file_type: entry.file_type,
        };
        if at + bytes > END {
            return Err(damaged(at));
        }
        set_header(block, at, header);
        block[at + DIRENT_HEADER..at + DIRENT_HEADER + entry.name.len()].copy_from_slice(entry.name);
        at += bytes;
    }
    if let Some((_, last)) = entries.last() {
        let bytes = dirent_bytes(last.name.len());
        let start = at - bytes;
        block[start + 4..start + 6].copy_from_slice(&((END - start) as u16).to_le_bytes());
    }
    Ok(())
}

/// Where a full block's sorted entries are parted: about in the middle, and between two hashes that the index
/// tells apart.
///
/// # Errors
/// [`Error::NoSpace`] if there is no such place.
pub fn split_point(sorted: &[(u64, Entry<'_>)]) -> Result<usize> {
    let total: usize = sorted.iter().map(|(_, entry)| dirent_bytes(entry.name.len())).sum();
    let mut best = None;
    let mut before = 0;
    for at in 1..sorted.len() {
        before += dirent_bytes(sorted[at - 1].1.name.len());
        if super::upper(sorted[at - 1].0) != super::upper(sorted[at].0) {
            let distance = before.abs_diff(total / 2);
            if best.is_none_or(|(least, _)| distance < least) {
                best = Some((distance, at));
            }
        }
    }
    best.map(|(_, at)| at).ok_or(Error::NoSpace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_space_is_used_again_and_others_stay_where_they_are() {
        let mut block = [0; BLOCK];
        begin(&mut block, 7, 3);
        assert_eq!(dots(&block), Some((7, 3)));
        let names: Vec<String> = (0..40).map(|i| format!("a-name-with-number-{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            put(&mut block, name.as_bytes(), i as u32 + 20, FileType::Regular).unwrap();
        }
        let place = |block: &Block, name: &str| {
            entries(block)
                .map(Result::unwrap)
                .find(|entry| entry.name == name.as_bytes())
                .map(|entry| entry.at)
        };
        let (second, last) = (place(&block, &names[1]).unwrap(), place(&block, &names[39]));
        remove(&mut block, second).unwrap();
        assert_eq!(place(&block, &names[1]), None);
        put(&mut block, b"shorter", 99, FileType::Fifo).unwrap();
        assert_eq!(place(&block, "shorter"), Some(second));
        assert_eq!(place(&block, &names[39]), last);
        assert_eq!(entries(&block).count(), 42);
    }

    #[test]
    fn a_block_takes_entries_until_it_is_full_and_can_be_parted() {
        let mut block = [0; BLOCK];
        begin_empty(&mut block);
        let mut count = 0;
        while has_room(&block, 8).unwrap() {
            put(&mut block, format!("{count:08}").as_bytes(), 20, FileType::Regular).unwrap();
            count += 1;
        }
        assert_eq!(count, END / 16);
        let copy = block;
        let all = sorted(&copy, 5).unwrap();
        let at = split_point(&all).unwrap();
        fill(&mut block, &all[..at]).unwrap();
        assert_eq!(entries(&block).count(), at);
        assert!(has_room(&block, 8).unwrap() && at.abs_diff(count / 2) < 3);
    }

    #[test]
    fn impossible_lengths_are_damage() {
        for bytes in [0_u16, 4, 7, 13, 4092] {
            let mut block = [0; BLOCK];
            begin_empty(&mut block);
            block[4..6].copy_from_slice(&bytes.to_le_bytes());
            assert!(entries(&block).any(|entry| entry.is_err()), "{bytes}");
        }
    }
}
