//! Inodes and their extents: gathers what of a damaged tree can be trusted, gives shared pages copies, and
//! writes a new tree.

use std::collections::BTreeSet;

use amphi_device::{BlockPort, WriteLog};
use zerocopy::{FromZeros, IntoBytes};

use super::super::FsckError;
use super::super::contents::attributes_problem;
use super::super::extents::FILE_PAGES_MAX;
use super::super::state::{State, parts};
use super::edit::{Edit, free_entry};
use crate::format::{
    Extent, FLAG_INLINE_TARGET, INLINE_TARGET_MAX, InodeLower, InodeUpper, LINE, NODE_ENTRIES, NodeHeader,
    PAGE, ROOT_ENTRIES, ROOT_INO, mode,
};

/// Pages that repairs copy at most, because the copies wait in memory: 64 MB.
pub(super) const COPIES_MAX: usize = 16_384;

/// Device pages that belong to something else as well: runs as (first, end), ascending and disjoint.
pub(super) type Shared = Vec<(u32, u32)>;

/// Brings one damaged inode in order; returns whether anything changed. With `copies`, the count of those
/// made so far, the pages that it shares get copies, too.
pub(super) fn mend_inode<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &mut State,
    ino: u32,
    shared: &Shared,
    mut copies: Option<&mut usize>,
) -> Result<bool, FsckError> {
    let (mut lower, mut upper) = match edit.inode(ino)? {
        (Some(lower), Some(upper)) => (lower, upper),
        (None, Some(upper)) if kind_of(state, ino) == mode::REGULAR => (blank(mode::REGULAR | 0o600), upper),
        (Some(lower), None) if is_special(lower.mode.get()) => (lower, InodeUpper::new_zeroed()),
        _ if ino == ROOT_INO => return write_root(edit),
        _ => return edit.free_inode(ino),
    };
    if !keeps_attributes(edit, state, ino, upper.xattr.get())? {
        upper.xattr = 0.into();
    }
    if let Some(copies) = copies.as_deref_mut()
        && !unshare_attributes(edit, state, &mut upper, shared, copies)?
    {
        return Ok(false);
    }
    let kind = lower.mode.get() & mode::TYPE;
    if is_special(kind) {
        let mut bare = InodeUpper::new_zeroed();
        bare.parent_or_rdev = upper.parent_or_rdev;
        bare.xattr = upper.xattr;
        lower.size = 0.into();
        lower.flags = 0.into();
        lower.pages = attribute_pages(&upper).into();
        return edit.set_inode(ino, lower, bare);
    }
    if kind == mode::SYMLINK && lower.flags.get() & FLAG_INLINE_TARGET != 0 {
        return mend_inline_target(edit, ino, lower, upper);
    }
    lower.flags = 0.into();
    let Some(mut extents) = gather(edit, state, ino, &upper, shared)? else { return Ok(false) };
    let size_pages = lower.size.get().div_ceil(PAGE as u64);
    match kind {
        mode::DIRECTORY => {
            extents.retain(|extent| extent.file_page.get() < size_pages);
            if !fill_last_page(edit, &extents, lower.size.get())? {
                return Ok(false);
            }
            cut_at(&mut extents, size_pages);
            let mut pages = 0;
            for extent in &mut extents {
                extent.file_page = pages.into();
                // An entry that is not one is found next.
                extent.mark_written();
                pages += u64::from(extent.len());
            }
            lower.size = (pages * PAGE as u64).into();
        }
        mode::SYMLINK => {
            if lower.size.get() == 0
                || lower.size.get() >= PAGE as u64
                || extents.first().is_none_or(|e| e.file_page.get() > 0)
            {
                return edit.free_inode(ino);
            }
            let Some(text) = edit.look(extents[0].lba.get())? else { return Ok(false) };
            if text[..lower.size.get() as usize].contains(&0) {
                return edit.free_inode(ino);
            }
            cut_at(&mut extents, 1);
            extents[0].mark_written();
        }
        _ => {
            // Rather bytes too many than data lost.
            let end = extents.last().map_or(0, |e| e.end());
            let beyond = extents.last().is_some_and(|e| e.file_page.get() >= size_pages);
            if beyond || size_pages > FILE_PAGES_MAX || lower.size.get() == 0 {
                lower.size = (end * PAGE as u64).into();
            }
        }
    }
    if let Some(copies) = copies
        && !unshare(edit, state, &mut extents, shared, copies)?
    {
        return Ok(false);
    }
    write_tree(edit, state, ino, lower, upper, &extents)
}

/// What directory entries say about the type of an inode that cannot be read.
fn kind_of(state: &State, ino: u32) -> u16 {
    u16::from(state.inodes.get(ino).kind) << 12
}

const fn is_special(bits: u16) -> bool {
    !matches!(bits & mode::TYPE, mode::REGULAR | mode::DIRECTORY | mode::SYMLINK)
}

/// The lower half of an inode of which nothing is known but its type.
fn blank(bits: u16) -> InodeLower {
    let mut lower = InodeLower::new_zeroed();
    lower.mode = bits.into();
    lower.nlink = 1.into();
    lower
}

/// Marks the root directory used. Unless it is sound, makes an empty one; what it held is found again by
/// having no name.
pub(super) fn write_root<D: BlockPort + WriteLog>(edit: &mut Edit<'_, D>) -> Result<bool, FsckError> {
    let marked = edit.mark_inode(ROOT_INO)?;
    if let (Some(lower), Some(_)) = edit.inode(ROOT_INO)?
        && lower.mode.get() & mode::TYPE == mode::DIRECTORY
    {
        return Ok(marked);
    }
    Ok(write_directory(edit, ROOT_INO, 0o755)? || marked)
}

/// Makes `ino` an empty directory below the root.
pub(super) fn write_directory<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    ino: u32,
    permissions: u16,
) -> Result<bool, FsckError> {
    let mut lower = blank(mode::DIRECTORY | permissions);
    lower.nlink = 2.into();
    let mut upper = InodeUpper::new_zeroed();
    upper.parent_or_rdev = ROOT_INO.into();
    edit.set_inode(ino, lower, upper)
}

/// Keeps an inline target if its length in the upper half can be right.
fn mend_inline_target<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    ino: u32,
    mut lower: InodeLower,
    mut upper: InodeUpper,
) -> Result<bool, FsckError> {
    let len = usize::from(upper.count.get());
    if len == 0 || len > INLINE_TARGET_MAX || upper.root.as_bytes()[..len].contains(&0) {
        return edit.free_inode(ino);
    }
    lower.flags = FLAG_INLINE_TARGET.into();
    lower.size = (len as u64).into();
    lower.pages = attribute_pages(&upper).into();
    upper.depth = 0.into();
    edit.set_inode(ino, lower, upper)
}

/// Every extent that can be reached through sound nodes and lies in the data area, in order and without
/// overlaps; `None` if a node cannot be read, and may be readable another time. `shared` are the pages that
/// something else claims as well.
pub(super) fn gather<D: BlockPort + WriteLog>(
    edit: &Edit<'_, D>,
    state: &State,
    ino: u32,
    upper: &InodeUpper,
    shared: &Shared,
) -> Result<Option<Vec<Extent>>, FsckError> {
    let count = usize::from(upper.count.get()).min(ROOT_ENTRIES);
    let mut seen = BTreeSet::new();
    let mut extents: Vec<Extent> = Vec::new();
    let mut pending: Vec<(u16, Vec<Extent>)> = vec![(upper.depth.get(), upper.root[..count].to_vec())];
    while let Some((depth, entries)) = pending.pop() {
        if depth == 0 {
            extents.extend(entries.iter().filter(|extent| {
                let (file_page, lba, pages) = parts(extent);
                pages > 0
                    && state.layout.holds_data(lba, pages)
                    && file_page.saturating_add(u64::from(pages)) <= FILE_PAGES_MAX
            }));
            continue;
        }
        for pointer in entries {
            let page = pointer.lba.get();
            if !state.layout.holds_data(page, 1) || !seen.insert(page) {
                continue;
            }
            let Some(bytes) = edit.look(page)? else { return Ok(None) };
            if let Ok(entries) = NodeHeader::decode(&bytes, ino, depth - 1) {
                pending.push((depth - 1, entries.to_vec()));
            }
        }
    }
    extents.sort_by_key(|extent| extent.file_page.get());
    let mut sound: Vec<Extent> = Vec::new();
    for extent in extents {
        let (file_page, lba, pages) = parts(&extent);
        let mut skip = 0;
        if let Some(last) = sound.last_mut() {
            let (first, start, len) = parts(last);
            let into = file_page - first;
            if into > 0 && into < u64::from(len) && is_shared(shared, start + into as u32) {
                // What reaches into other pages than its own is too long; the next extent is as it was.
                last.set_len(into as u32);
            } else {
                skip = (first + u64::from(len)).saturating_sub(file_page);
            }
        }
        if skip < u64::from(pages) {
            sound.push(Extent::new(
                file_page + skip,
                lba + skip as u32,
                pages - skip as u32,
                extent.unwritten(),
            ));
        }
    }
    Ok(Some(sound))
}

/// Drops what lies at or beyond file page `end`.
fn cut_at(extents: &mut Vec<Extent>, end: u64) {
    extents.retain_mut(|extent| {
        let left = end.saturating_sub(extent.file_page.get());
        extent.set_len(extent.len().min(u32::try_from(left).unwrap_or(u32::MAX)));
        !extent.is_empty()
    });
}

/// Fills the page in which a directory of `size` bytes ends with a free entry, so that the directory can end
/// with the page.
fn fill_last_page<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    extents: &[Extent],
    size: u64,
) -> Result<bool, FsckError> {
    let used = (size % PAGE as u64) as usize / LINE * LINE;
    let file_page = size / PAGE as u64;
    if size.is_multiple_of(PAGE as u64) {
        return Ok(true);
    }
    for extent in extents {
        let (first, lba, pages) = parts(extent);
        if (first..first + u64::from(pages)).contains(&file_page) {
            let Some(bytes) = edit.page(lba + (file_page - first) as u32)? else { return Ok(false) };
            bytes[used..used + size_of_val(&free_entry(1))]
                .copy_from_slice(free_entry((PAGE - used) / LINE).as_bytes());
        }
    }
    Ok(true)
}

/// Pages that extended attributes take.
const fn attribute_pages(upper: &InodeUpper) -> u32 {
    (upper.xattr.get() != 0) as u32
}

/// Whether there are extended attributes at `page` that can be used.
fn keeps_attributes<D: BlockPort + WriteLog>(
    edit: &Edit<'_, D>,
    state: &State,
    ino: u32,
    page: u32,
) -> Result<bool, FsckError> {
    if !state.layout.holds_data(page, 1) {
        return Ok(false);
    }
    // A page that cannot be read now may be readable another time.
    Ok(edit.look(page)?.is_none_or(|bytes| attributes_problem(&bytes, ino).is_none()))
}

/// Copies a page that belongs to something else as well. `None` if there is no room, or it cannot be read.
fn copy<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &mut State,
    page: u32,
    copies: &mut usize,
) -> Result<Option<u32>, FsckError> {
    *copies += 1;
    match edit.look(page)? {
        Some(bytes) if *copies <= COPIES_MAX => Ok(edit.take_page(state, bytes)),
        _ => Ok(None),
    }
}

/// Gives the page of extended attributes a copy if it belongs to something else as well. False if there is no
/// room for it.
fn unshare_attributes<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &mut State,
    upper: &mut InodeUpper,
    shared: &Shared,
    copies: &mut usize,
) -> Result<bool, FsckError> {
    let page = upper.xattr.get();
    if page == 0 || !is_shared(shared, page) {
        return Ok(true);
    }
    let copied = copy(edit, state, page, copies)?;
    upper.xattr = copied.unwrap_or(page).into();
    Ok(copied.is_some())
}

/// Gives every page that belongs to something else as well a copy. False if there is no room for them.
fn unshare<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &mut State,
    extents: &mut Vec<Extent>,
    shared: &Shared,
    copies: &mut usize,
) -> Result<bool, FsckError> {
    let mut result: Vec<Extent> = Vec::new();
    for extent in extents.iter() {
        let (file_page, lba, pages) = parts(extent);
        let end = lba + pages;
        let mut at = lba;
        while at < end {
            let (first, after) = next_shared(shared, at);
            let (first, after) = (first.clamp(at, end), after.clamp(at, end));
            if first > at {
                push(
                    &mut result,
                    Extent::new(file_page + u64::from(at - lba), at, first - at, extent.unwritten()),
                );
            }
            for page in first..after {
                let Some(copied) = copy(edit, state, page, copies)? else { return Ok(false) };
                push(
                    &mut result,
                    Extent::new(file_page + u64::from(page - lba), copied, 1, extent.unwritten()),
                );
            }
            at = after.max(first);
        }
    }
    *extents = result;
    Ok(true)
}

/// Sorts runs and joins those that overlap.
pub(super) fn join(shared: &mut Shared) {
    shared.sort_unstable();
    let mut merged: Shared = Vec::new();
    for &(first, end) in shared.iter() {
        match merged.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((first, end)),
        }
    }
    *shared = merged;
}

fn is_shared(shared: &Shared, page: u32) -> bool {
    next_shared(shared, page).0 == page
}

/// The part at or after page `at` of the first run that has one, as (first, end); the last page number twice
/// if there is none.
fn next_shared(shared: &[(u32, u32)], at: u32) -> (u32, u32) {
    let run = shared.get(shared.partition_point(|&(_, end)| end <= at));
    run.map_or((u32::MAX, u32::MAX), |&(first, end)| (first.max(at), end))
}

/// Appends an extent, or lengthens the last one if it goes on there.
pub(super) fn push(extents: &mut Vec<Extent>, new: Extent) {
    let (file_page, lba, pages) = parts(&new);
    if let Some(last) = extents.last_mut() {
        let (first, start, len) = parts(last);
        if last.unwritten() == new.unwritten()
            && first + u64::from(len) == file_page
            && start.checked_add(len) == Some(lba)
        {
            last.set_len(len + pages);
            return;
        }
    }
    extents.push(new);
}

/// Writes an inode with a new tree over `extents`. Nodes get new pages; the old ones are freed with the
/// bitmap's repair.
pub(super) fn write_tree<D: BlockPort + WriteLog>(
    edit: &mut Edit<'_, D>,
    state: &mut State,
    ino: u32,
    mut lower: InodeLower,
    mut upper: InodeUpper,
    extents: &[Extent],
) -> Result<bool, FsckError> {
    let mut pages: u64 = extents.iter().map(|extent| u64::from(extent.len())).sum();
    pages += u64::from(attribute_pages(&upper));
    let mut level = extents.to_vec();
    let mut depth = 0;
    while level.len() > ROOT_ENTRIES {
        let mut above = Vec::new();
        for entries in level.chunks(NODE_ENTRIES) {
            let mut bytes = Box::new([0; PAGE]);
            NodeHeader::encode(&mut bytes, ino, depth, entries);
            let Some(page) = edit.take_page(state, bytes) else { return Ok(false) };
            above.push(Extent::new(entries[0].file_page.get(), page, 0, false));
        }
        pages += above.len() as u64;
        level = above;
        depth += 1;
    }
    upper.depth = depth.into();
    upper.count = (level.len() as u16).into();
    upper.root = [Extent::default(); ROOT_ENTRIES];
    upper.root[..level.len()].copy_from_slice(&level);
    lower.pages = u32::try_from(pages).unwrap_or(u32::MAX).into();
    edit.set_inode(ino, lower, upper)
}
