//! What an inode is in host memory beside what all file systems keep, how it is read, and what its record in
//! the table is to be.

use amphi_device::{PageView, Structure};
use amphi_direct_access::{FILE_BLOCKS_MAX, Layout as _, Medium, PAGE};
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::dir::Dir;
use crate::format::{BEHIND_END, Layout, Record, SAME_TIME, TYPES, record_checksum, valid_word};
use crate::tree::{Tree, damaged};

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// What is kept of an inode.
pub struct Part {
    /// Where its record is.
    pub at: u64,
    /// The record, as it is or will be once the change under way counts.
    pub record: Record,
    /// The change that touched it last.
    pub touched: u64,
    /// The word of extended attributes.
    pub attributes: u64,
    pub tree: Tree,
    pub dir: Dir,
    /// What a directory's `..` names.
    pub parent: Ino,
    /// A symbolic link's target.
    pub target: Vec<u8>,
}

impl amphi_names::Part for Part {
    type Beside = ();

    fn sectors(state: &State) -> u64 {
        state.part.tree.count() * (PAGE / 512)
    }
}

impl Part {
    /// That of an inode whose record is, or will be, at `at`.
    pub fn new(at: u64) -> Self {
        Self {
            at,
            record: Record::new_zeroed(),
            touched: 0,
            attributes: 0,
            tree: Tree::default(),
            dir: Dir::default(),
            parent: Ino::ROOT,
            target: Vec::new(),
        }
    }

    /// Page of extended attributes, and how long they are.
    pub const fn attributes_at(&self) -> (u64, usize) {
        (self.attributes & ((1 << 48) - 1), (self.attributes >> 48) as usize)
    }

    /// Pages that the inode has: first page and length of runs.
    pub fn pages(&self) -> Vec<(u64, u64)> {
        let mut pages = self.tree.pages();
        let (page, _) = self.attributes_at();
        pages.extend((page != 0).then_some((page, 1)));
        pages
    }
}

/// Reads the inode whose record is at `at`: the record, its tree, and a directory's entries or a link's
/// target.
///
/// # Errors
/// [`Error::Stale`] if there is none; [`Error::Corrupt`], [`Error::Io`].
pub fn load<D: PageView + 'static>(medium: &Medium<D>, layout: &Layout, ino: Ino, at: u64) -> Result<Inode> {
    let mut record = Record::new_zeroed();
    medium.load(at, record.as_mut_bytes(), Structure::Inode)?;
    let valid = record.valid.get();
    if valid == 0 {
        return Err(Error::Stale(ino));
    }
    let corrupt = |what| damaged(ino.0, what);
    let generation = (valid >> 32) as u32;
    let file_type = TYPES.file_type((valid >> 8) as u8).filter(|of| valid_word(*of, generation) == valid);
    let file_type = file_type.ok_or_else(|| corrupt("it has no type"))?;
    if record.crc.get() != record_checksum(ino.0, valid, record.rdev.get()) {
        return Err(corrupt("its checksum is wrong"));
    }
    let mut part = Part::new(at);
    part.record = record;
    part.attributes = record.attributes.get();
    let (page, bytes) = part.attributes_at();
    let size = record.size.get();
    if size > FILE_BLOCKS_MAX * PAGE
        || bytes as u64 > PAGE
        || (page != 0 || bytes != 0) && !layout.holds(page, 1)
        || record.mode.get() > 0o7777
    {
        return Err(corrupt("an attribute makes no sense"));
    }
    let behind_end = record.flags.get() & BEHIND_END != 0;
    let limit = if behind_end { FILE_BLOCKS_MAX } else { size.div_ceil(PAGE) };
    part.tree = Tree::load(medium, layout, record.root.get(), limit)?.map_err(corrupt)?;
    match file_type {
        FileType::Directory => {
            (part.dir, part.parent) = Dir::load(medium, layout, ino, size, &part.tree)?;
        }
        FileType::Symlink => {
            let target = part.tree.blocks.get(0).copied().filter(|_| (1..PAGE).contains(&size));
            let page = target.ok_or_else(|| corrupt("a symbolic link has no target"))?;
            part.target = vec![0; size as usize];
            medium.load(page * PAGE, &mut part.target, Structure::Data)?;
            if part.target.contains(&0) {
                return Err(corrupt("a symbolic link's target makes no sense"));
            }
        }
        _ => {}
    }
    let (record, parent) = (part.record, part.parent);
    let state = State {
        file_type,
        mode: record.mode.get(),
        uid: record.uid.get(),
        gid: record.gid.get(),
        nlink: record.nlink.get(),
        size,
        atime: record.atime.get(),
        mtime: record.mtime.get(),
        ctime: ctime_of(&record),
        generation,
        rdev: record.rdev.get(),
        attributes: None,
        orphan: false,
        unnamed: false,
        gone: false,
        atime_dirty: false,
        part,
    };
    Ok(Inode::new(ino, parent, state))
}

/// What an inode's record is to be.
pub fn record_of(inode: &Inode, state: &State) -> Record {
    let mut record = Record::new_zeroed();
    let valid = valid_word(inode.file_type, state.generation);
    (record.valid, record.root) = (valid.into(), state.part.tree.root.into());
    (record.size, record.mtime, record.atime) = (state.size.into(), state.mtime.into(), state.atime.into());
    record.ctime = if state.ctime == state.mtime { SAME_TIME } else { state.ctime }.into();
    (record.nlink, record.mode) = (state.nlink.into(), state.mode.into());
    let behind_end = state.part.tree.blocks.next(state.size.div_ceil(PAGE)).is_some();
    record.flags = if behind_end { BEHIND_END } else { 0 }.into();
    (record.uid, record.gid, record.rdev) = (state.uid.into(), state.gid.into(), state.rdev.into());
    record.attributes = state.part.attributes.into();
    record.crc = record_checksum(inode.ino.0, valid, state.rdev).into();
    record
}

/// The time of change that a record says.
const fn ctime_of(record: &Record) -> i64 {
    let ctime = record.ctime.get();
    if ctime == SAME_TIME { record.mtime.get() } else { ctime }
}
