//! First pass: the inode table. Decodes every inode in use, checks its fields against its type, and hands its
//! extents on.

use amphi_device::{BlockPort, Structure};
use amphi_volume::Progress;

use super::FsckError;
use super::contents;
use super::extents::{FILE_PAGES_MAX, Tree, Walk};
use super::finding::{EntryAt, FindingKind, Half};
use super::read::{Page, Reader, Run};
use super::state::{DirState, LongTarget, State};
use crate::format::{
    FLAG_INLINE_TARGET, INLINE_TARGET_MAX, INODE_BYTES, INODES_PER_PAGE, InodeLower, InodeUpper, LINE, PAGE,
    ROOT_ENTRIES, ROOT_INO, mode,
};

/// Inode table pages between two looks at the extent nodes that they need.
const BATCH_PAGES: usize = 1024;

/// Longest symbolic link target.
const TARGET_MAX: u64 = 4095;

/// Checks every inode that the bitmap says is in use.
pub(super) fn check_table<D: BlockPort>(
    state: &mut State,
    reader: &mut Reader<'_, D>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), FsckError> {
    let pages_of = |(word, _): (u64, u64)| [2 * word as u32, 2 * word as u32 + 1];
    let occupied: Vec<u32> = state
        .inode_bits
        .words()
        .flat_map(pages_of)
        .filter(|&page| used_in_page(state, page) != 0)
        .map(|page| state.layout.inode_page(page * INODES_PER_PAGE as u32).0 as u32)
        .collect();
    let mut walk = Walk::default();
    let mut done = 0;
    for batch in occupied.chunks(BATCH_PAGES) {
        progress(Progress { phase: "inodes and extents", done, total: occupied.len() as u64 });
        let runs = coalesce(batch);
        reader.read(&runs, Structure::Inode, &mut |_, page, bytes| match bytes {
            Ok(bytes) => table_page(state, &mut walk, page, bytes),
            Err(error) => unreadable_page(state, page, &error.to_string()),
        })?;
        walk.run(state, reader)?;
        done += batch.len() as u64;
    }
    progress(Progress { phase: "inodes and extents", done, total: done });
    if !state.inodes.get(ROOT_INO).is_directory() {
        state.findings.add(FindingKind::RootMissing);
    }
    Ok(())
}

/// Checks inodes that directories name though they are marked free, and takes those that are plainly in use
/// as such. `wanted` is in ascending order without repetitions and gives the type that an entry expects.
pub(super) fn check_marked_free<D: BlockPort>(
    state: &mut State,
    reader: &mut Reader<'_, D>,
    wanted: &[(u32, u8)],
) -> Result<(), FsckError> {
    let mut walk = Walk::default();
    let runs: Vec<Run> = wanted
        .iter()
        .map(|&(ino, _)| Run { first: state.layout.inode_page(ino).0 as u32, pages: 1 })
        .collect();
    reader.read(&runs, Structure::Inode, &mut |i, _, page| {
        let (ino, kind) = wanted[i];
        let Ok(page) = page else { return };
        let bytes = inode_bytes(page, ino);
        let Ok(lower) = InodeLower::decode(&bytes[..LINE], ino) else { return };
        if InodeUpper::decode(&bytes[LINE..], ino).is_err()
            || lower.nlink.get() == 0
            || (lower.mode.get() >> 12) as u8 != kind
        {
            return;
        }
        state.findings.add(FindingKind::InodeMarkedFree { ino });
        inode(state, &mut walk, ino, bytes);
    })?;
    walk.run(state, reader)
}

/// Bits of the inodes of one page of the table; pages are counted without what lies between the parts of the
/// table.
fn used_in_page(state: &State, page: u32) -> u32 {
    let word = state.inode_bits.word(u64::from(page) / 2);
    if page.is_multiple_of(2) { word as u32 } else { (word >> 32) as u32 }
}

/// Joins ascending page numbers to runs.
fn coalesce(pages: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if run.first + run.pages == page => run.pages += 1,
            _ => runs.push(Run { first: page, pages: 1 }),
        }
    }
    runs
}

fn inode_bytes(page: &Page, ino: u32) -> &[u8] {
    let at = ino as usize % INODES_PER_PAGE * INODE_BYTES;
    &page[at..at + INODE_BYTES]
}

/// Inodes in use, number 0 excluded, in a page of the table.
fn used_inodes(state: &State, page: u32) -> impl Iterator<Item = u32> + use<> {
    let first = state.layout.first_inode(u64::from(page)).unwrap_or_default();
    let used = used_in_page(state, first / INODES_PER_PAGE as u32);
    (0..INODES_PER_PAGE as u32)
        .filter(move |i| used >> i & 1 == 1)
        .map(move |i| first + i)
        .filter(|&ino| ino != 0)
}

fn table_page(state: &mut State, walk: &mut Walk, page: u32, bytes: &Page) {
    for ino in used_inodes(state, page) {
        inode(state, walk, ino, inode_bytes(bytes, ino));
    }
}

fn unreadable_page(state: &mut State, page: u32, reason: &str) {
    state.findings.add_unreadable(page, "inodes", &reason);
    for ino in used_inodes(state, page) {
        if let Some(known) = state.inodes.get_mut(ino) {
            known.set_in_use();
            known.set_unreadable();
        }
    }
}

fn inode(state: &mut State, walk: &mut Walk, ino: u32, bytes: &[u8]) {
    let lower = InodeLower::decode(&bytes[..LINE], ino);
    let upper = InodeUpper::decode(&bytes[LINE..], ino);
    let State { inodes, findings, .. } = state;
    let Some(known) = inodes.get_mut(ino) else { return };
    known.set_in_use();
    if let Err(error) = &lower {
        findings.add(FindingKind::InodeHalfBad { ino, half: Half::Lower, reason: error.to_string() });
    }
    if let Err(error) = &upper {
        findings.add(FindingKind::InodeHalfBad { ino, half: Half::Upper, reason: error.to_string() });
    }
    let (Ok(lower), Ok(upper)) = (lower, upper) else {
        known.set_unreadable();
        return;
    };
    known.nlink = lower.nlink.get();
    known.kind = (lower.mode.get() >> 12) as u8;
    let orphan = known.orphan();
    let size = lower.size.get();
    let mut tree = Tree {
        ino,
        dir: None,
        end_page: size.div_ceil(PAGE as u64),
        orphan,
        stored: lower.pages.get(),
        counted: 0,
        broken: false,
        found_to: 0,
    };
    attribute_page(state, &mut tree, upper.xattr.get());
    match lower.mode.get() & mode::TYPE {
        mode::REGULAR => {
            state.findings.report.files += 1;
            if tree.end_page > FILE_PAGES_MAX {
                state.findings.add(FindingKind::InodeFieldBad { ino, field: "size" });
            }
        }
        mode::DIRECTORY => directory(state, &mut tree, &lower, &upper),
        mode::SYMLINK => {
            state.findings.report.symlinks += 1;
            if lower.flags.get() & FLAG_INLINE_TARGET != 0 {
                return inline_target(state, walk, tree, &lower, &upper);
            }
            long_target(state, &mut tree, size, &upper);
        }
        _ => {
            state.findings.report.special += 1;
            if size != 0 || upper.count.get() != 0 || upper.depth.get() != 0 {
                state.findings.add(FindingKind::SpecialHasContents { ino });
            }
        }
    }
    if lower.flags.get() != 0 {
        state.findings.add(FindingKind::InodeFieldBad { ino, field: "set of flags" });
    }
    let count = usize::from(upper.count.get());
    if count > ROOT_ENTRIES || (count == 0 && upper.depth.get() > 0) {
        state.findings.add(FindingKind::InodeFieldBad { ino, field: "number of extents" });
        return;
    }
    walk.root(state, tree, upper.depth.get(), &upper.root[..count]);
}

/// Claims the page of extended attributes.
fn attribute_page(state: &mut State, tree: &mut Tree, page: u32) {
    let ino = tree.ino;
    if page == 0 {
        return;
    }
    if !state.layout.holds_data(page, 1) {
        tree.broken = true;
        state.findings.add(FindingKind::ExtentOutOfRange {
            ino,
            what: "the attribute page",
            file_page: 0,
            page,
            pages: 1,
        });
        return;
    }
    tree.counted += 1;
    if state.claim(ino, page, 1).alone {
        state.attribute_pages.push((page, ino));
    }
}

fn directory(state: &mut State, tree: &mut Tree, lower: &InodeLower, upper: &InodeUpper) {
    let (ino, size) = (tree.ino, lower.size.get());
    let index = state.dirs.len() as u32;
    if size % LINE as u64 != 0 || size.div_ceil(PAGE as u64) > u64::from(u32::MAX) {
        state.findings.add(FindingKind::DirectorySizeWrong { ino, size });
    }
    state.dirs.push(DirState {
        ino,
        parent_stored: upper.parent_or_rdev.get(),
        found: EntryAt { dir: 0, page: 0, offset: 0 },
        subdirs: 0,
        entries: 0,
        size,
    });
    if let Some(known) = state.inodes.get_mut(ino) {
        known.dir = index;
    }
    tree.dir = Some(index);
}

fn inline_target(state: &mut State, walk: &mut Walk, tree: Tree, lower: &InodeLower, upper: &InodeUpper) {
    let (ino, size) = (tree.ino, lower.size.get());
    if lower.flags.get() != FLAG_INLINE_TARGET {
        state.findings.add(FindingKind::InodeFieldBad { ino, field: "set of flags" });
    }
    let bytes = zerocopy::IntoBytes::as_bytes(&upper.root);
    if upper.depth.get() != 0 || size != u64::from(upper.count.get()) || size > INLINE_TARGET_MAX as u64 {
        let reason = "its length in the inode contradicts its size";
        state.findings.add(FindingKind::SymlinkTargetBad { ino, reason });
    } else {
        contents::check_target(state, ino, &bytes[..size as usize]);
    }
    walk.root(state, tree, 0, &[]);
}

fn long_target(state: &mut State, tree: &mut Tree, size: u64, upper: &InodeUpper) {
    let ino = tree.ino;
    let first = upper.root[0];
    let reason = if size == 0 {
        "it is empty"
    } else if size <= INLINE_TARGET_MAX as u64 {
        "it is short and not in the inode"
    } else if size > TARGET_MAX {
        "it is longer than 4095 bytes"
    } else if upper.depth.get() != 0 || upper.count.get() == 0 || first.file_page.get() != 0 {
        "its page is missing"
    } else if first.unwritten() {
        "its page is only reserved"
    } else {
        if state.layout.holds_data(first.lba.get(), 1) && !first.is_empty() {
            state.long_targets.push(LongTarget { ino, page: first.lba.get(), bytes: size as u16 });
        }
        return;
    };
    state.findings.add(FindingKind::SymlinkTargetBad { ino, reason });
}
