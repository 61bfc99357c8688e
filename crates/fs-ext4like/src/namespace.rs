//! Operations on names but for rename. Each is one handle: after a crash it has happened or not, with everything else of its transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_rt::sync::RwLockWriteGuard;
use amphi_vfs::{Cred, Entry, Error, FileType, Ino, Name, Removed, Result, acl};

use crate::buffers::Kind;
use crate::core::Core;
use crate::dir::{self, Found, INSERT_BLOCKS, INSERT_CREDITS};
use crate::extent::{Extents, Run};
use crate::file::FileBody;
use crate::format::{INLINE_TARGET_MAX, ROOT_INO, mode};
use crate::inode::{Body, Inode, State, type_bits};
use crate::journal::Handle;
use crate::truncate::delete;
use crate::writeback::settled;
use crate::xattr::{self, Xattrs};

/// Most names of one inode, and so most subdirectories (less two) of a directory, as on ext4.
pub const LINKS_MAX: u32 = 65_000;
/// Blocks that a new inode may change: bitmap, descriptor and table, its first block with bitmap and descriptor, attributes, its parent, the list of orphans.
const CREATE_CREDITS: usize = INSERT_CREDITS + 14;
/// Blocks that taking a name away may change: the directory's block, both inodes, superblock, a neighbour in the list of orphans.
const REMOVE_CREDITS: usize = 8;

/// Locks a directory for change.
///
/// # Errors
/// [`Error::NotDirectory`], [`Error::NotFound`] if it was deleted meanwhile.
pub fn lock_dir(inode: &Inode) -> Result<RwLockWriteGuard<'_, State>> {
    let state = inode.state.write();
    if state.gone || state.nlink == 0 {
        return Err(Error::NotFound);
    }
    state.dir()?;
    Ok(state)
}

/// What the caller asks of a new inode.
pub struct NewInode<'a> {
    /// Its type.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: u16,
    /// Device number.
    pub rdev: u32,
    /// Symlink target.
    pub target: &'a [u8],
}

/// Creates any kind of inode under a name and takes a reference to it.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::create`], `mkdir` and `symlink`.
pub fn create<D: BlockPort>(
    core: &Core<D>,
    dir: Ino,
    name: Name<'_>,
    new: &NewInode<'_>,
    cred: &Cred,
) -> Result<Entry> {
    core.writable()?;
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(&parent)?;
    if dir::find(core, &parent_state, name)?.is_some() {
        return Err(Error::Exists);
    }
    let is_dir = new.file_type == FileType::Directory;
    if is_dir && parent_state.nlink >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    let place = dir::place(core, &parent_state, name)?;
    let mut made = Made::prepare(core, &mut parent_state, new, cred)?;
    let mut reserved = core.reserve(INSERT_BLOCKS + made.blocks(new))?;
    let mut handle = core.handle(CREATE_CREDITS)?;
    let ino = core.groups.allocate_inode(&mut handle, parent.ino, is_dir)?;
    reserved.take(made.blocks(new));
    made.fill(&mut handle, ino, parent.ino, new)?;
    reserved.take(dir::insert(
        &mut handle,
        parent.ino,
        &mut parent_state,
        place,
        name,
        (ino, new.file_type),
    )?);
    parent_state.nlink += u32::from(is_dir);
    touch(core, &mut parent_state);
    let inode = Inode::new(ino, new.file_type, if is_dir { parent.ino } else { 0 }, made.state);
    let attr = {
        let mut state = inode.state.write();
        inode.write(&mut handle, &mut state, true)?;
        inode.attr(&state)
    };
    parent.write(&mut handle, &mut parent_state, true)?;
    inode.lookups.store(1, Ordering::Release);
    core.icache.insert(&inode);
    handle.finish();
    Ok(Entry { attr })
}

/// Creates a regular file without a name, in the list of orphans; see [`amphi_vfs::FileSystem::tmpfile`].
///
/// # Errors
/// As there.
pub fn tmpfile<D: BlockPort>(core: &Core<D>, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
    core.writable()?;
    let new = NewInode { file_type: FileType::Regular, mode, rdev: 0, target: &[] };
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(&parent)?;
    let mut made = Made::prepare(core, &mut parent_state, &new, cred)?;
    drop(parent_state);
    let mut reserved = core.reserve(made.blocks(&new))?;
    let mut handle = core.handle(CREATE_CREDITS)?;
    let ino = core.groups.allocate_inode(&mut handle, parent.ino, false)?;
    reserved.take(made.blocks(&new));
    made.fill(&mut handle, ino, parent.ino, &new)?;
    made.state.nlink = 0;
    made.state.unnamed = true;
    made.state.orphan = true;
    let inode = Inode::new(ino, FileType::Regular, 0, made.state);
    let attr = {
        let mut state = inode.state.write();
        inode.write(&mut handle, &mut state, true)?;
        inode.attr(&state)
    };
    core.orphans.add(&mut handle, ino)?;
    inode.lookups.store(1, Ordering::Release);
    core.icache.insert(&inode);
    handle.finish();
    Ok(Entry { attr })
}

/// A new inode before it has a number.
struct Made {
    state: State,
    attributes: xattr::Prepared,
}

impl Made {
    /// What the directory it is made in and the caller make of it.
    fn prepare<D: BlockPort>(
        core: &Core<D>,
        parent: &mut State,
        new: &NewInode<'_>,
        cred: &Cred,
    ) -> Result<Self> {
        let default = parent.xattrs.load(core)?.iter().find(|(name, _)| name == acl::DEFAULT);
        let (mode, attributes) =
            acl::inherit(default.map(|(_, value)| &value[..]), new.mode, new.file_type, cred)?;
        let attributes = xattr::prepare(attributes)?;
        let now = core.now();
        let inherits_group = parent.mode & 0o2000 != 0;
        let is_dir = new.file_type == FileType::Directory;
        let set_gid = if inherits_group && is_dir { 0o2000 } else { 0 };
        let body = match new.file_type {
            FileType::Regular => Body::File(FileBody::default()),
            FileType::Directory => Body::Dir { indexed: false },
            FileType::Symlink => Body::Symlink(new.target.to_vec()),
            _ => Body::Special,
        };
        let is_device = matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice);
        let size = new.target.len() as u64;
        let state = State {
            mode: type_bits(new.file_type) | (mode & !mode::TYPE) | set_gid,
            uid: cred.uid,
            gid: if inherits_group { parent.gid } else { cred.gid },
            nlink: if is_dir { 2 } else { 1 },
            size,
            size_on_disk: size,
            atime: now,
            mtime: now,
            ctime: now,
            generation: amphi_rt::random::u64() as u32,
            rdev: if is_device { new.rdev } else { 0 },
            blocks: 0,
            extents: Extents::default(),
            xattrs: Xattrs::of_new(Vec::new()),
            orphan: false,
            unnamed: false,
            gone: false,
            sync_tid: 0,
            datasync_tid: 0,
            body,
        };
        Ok(Self { state, attributes })
    }

    /// Blocks that it needs beside the inode.
    fn blocks(&self, new: &NewInode<'_>) -> u64 {
        let first = new.file_type == FileType::Directory || new.target.len() > INLINE_TARGET_MAX;
        u64::from(first) + self.attributes.needs(&self.state)
    }

    /// Gives it those.
    fn fill<D: BlockPort>(
        &mut self,
        handle: &mut Handle<'_, D>,
        ino: u32,
        parent: u32,
        new: &NewInode<'_>,
    ) -> Result<()> {
        let goal = handle.core.groups.goal(ino);
        if new.file_type == FileType::Directory {
            dir::begin(handle, ino, parent, &mut self.state)?;
        } else if new.target.len() > INLINE_TARGET_MAX {
            let (start, _) = handle.core.groups.allocate(handle, goal, 1)?;
            handle.fill(u64::from(start), Kind::Data, |block| {
                block[..new.target.len()].copy_from_slice(new.target)
            })?;
            self.state.extents.insert(Run { file_block: 0, start, len: 1, unwritten: false });
            self.state.blocks += 1;
        }
        let none = xattr::prepare(Vec::new())?;
        std::mem::replace(&mut self.attributes, none).store(handle, &mut self.state, goal)
    }
}

/// Sets a directory's times after its entries changed.
pub fn touch<D: BlockPort>(core: &Core<D>, dir: &mut State) {
    let now = core.now();
    dir.mtime = now;
    dir.ctime = now;
}

/// Gives an inode another name; see [`amphi_vfs::FileSystem::link`].
///
/// # Errors
/// As there.
pub fn link<D: BlockPort>(core: &Core<D>, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
    let inode = core.inode(ino)?;
    core.writable()?;
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(&parent)?;
    if dir::find(core, &parent_state, name)?.is_some() {
        return Err(Error::Exists);
    }
    if inode.file_type == FileType::Directory {
        return Err(Error::NotPermitted);
    }
    let mut state = inode.state.write();
    if state.gone || (state.nlink == 0 && !state.unnamed) {
        return Err(Error::NotFound);
    }
    if state.nlink >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    let place = dir::place(core, &parent_state, name)?;
    let mut reserved = core.reserve(INSERT_BLOCKS)?;
    let mut handle = core.handle(INSERT_CREDITS + REMOVE_CREDITS)?;
    let child = (inode.ino, inode.file_type);
    reserved.take(dir::insert(&mut handle, parent.ino, &mut parent_state, place, name, child)?);
    touch(core, &mut parent_state);
    state.nlink += 1;
    state.ctime = core.now();
    if std::mem::take(&mut state.unnamed) {
        core.orphans.remove(&mut handle, inode.ino)?;
        state.orphan = false;
    }
    inode.write(&mut handle, &mut state, false)?;
    parent.write(&mut handle, &mut parent_state, true)?;
    handle.finish();
    inode.lookups.fetch_add(1, Ordering::AcqRel);
    Ok(Entry { attr: inode.attr(&state) })
}

/// Removes a name of a non-directory; see [`amphi_vfs::FileSystem::unlink`].
///
/// # Errors
/// As there.
pub fn unlink<D: BlockPort>(core: &Core<D>, dir: Ino, name: Name<'_>) -> Result<Removed> {
    core.writable()?;
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(&parent)?;
    let found = dir::find(core, &parent_state, name)?.ok_or(Error::NotFound)?;
    if found.file_type == FileType::Directory {
        return Err(Error::IsDirectory);
    }
    let inode = entry_inode(core, &parent, found)?;
    let mut state = inode.state.write();
    let mut handle = core.handle(REMOVE_CREDITS)?;
    dir::remove(&mut handle, &parent_state, found)?;
    touch(core, &mut parent_state);
    parent.write(&mut handle, &mut parent_state, true)?;
    drop_links(&mut handle, &inode, &mut state, 1)?;
    handle.finish();
    let removed = Removed { ino: Ino(u64::from(inode.ino)), nlink: state.nlink };
    drop(state);
    drop(parent_state);
    reap(core, &inode);
    Ok(removed)
}

/// Removes an empty directory; see [`amphi_vfs::FileSystem::rmdir`].
///
/// # Errors
/// As there.
pub fn rmdir<D: BlockPort>(core: &Core<D>, dir: Ino, name: Name<'_>) -> Result<Removed> {
    core.writable()?;
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(&parent)?;
    let found = dir::find(core, &parent_state, name)?.ok_or(Error::NotFound)?;
    if found.file_type != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    let inode = entry_inode(core, &parent, found)?;
    let mut state = lock_dir(&inode)?;
    if !dir::is_empty(core, &state)? {
        return Err(Error::NotEmpty);
    }
    let mut handle = core.handle(REMOVE_CREDITS)?;
    dir::remove(&mut handle, &parent_state, found)?;
    parent_state.nlink = parent_state.nlink.saturating_sub(1);
    touch(core, &mut parent_state);
    parent.write(&mut handle, &mut parent_state, true)?;
    let links = state.nlink;
    drop_links(&mut handle, &inode, &mut state, links)?;
    handle.finish();
    let removed = Removed { ino: Ino(u64::from(inode.ino)), nlink: state.nlink };
    drop(state);
    drop(parent_state);
    reap(core, &inode);
    Ok(removed)
}

/// The inode that an entry of `dir`, which is locked, names. An entry that names none is damage, and so is one of another type, and one
/// that names a directory whose parent is another: a cycle of directories would have an operation lock what it has locked already.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn entry_inode<D: BlockPort>(core: &Core<D>, dir: &Inode, found: Found) -> Result<Arc<Inode>> {
    let damaged = || {
        Error::Corrupt(format!(
            "directory {} names inode {}, which is free, of another type or elsewhere",
            dir.ino, found.ino
        ))
    };
    let inode = core.inode(Ino(u64::from(found.ino))).map_err(|error| match error {
        Error::Stale(_) => damaged(),
        other => other,
    })?;
    let sound = inode.file_type == found.file_type
        && (found.file_type != FileType::Directory
            || (inode.ino != dir.ino
                && inode.ino != ROOT_INO
                && inode.parent.load(Ordering::Acquire) == u64::from(dir.ino)));
    if sound { Ok(inode) } else { Err(damaged()) }
}

/// Takes `links` names off an inode; without any it joins the list of orphans, to be deleted by [`reap`] at once or when its last reference goes.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn drop_links<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    inode: &Inode,
    state: &mut State,
    links: u32,
) -> Result<()> {
    let core = handle.core;
    state.nlink = state.nlink.saturating_sub(links);
    state.ctime = core.now();
    inode.write(handle, state, false)?;
    if state.nlink == 0 && !state.orphan {
        core.orphans.add(handle, inode.ino)?;
        state.orphan = true;
    }
    Ok(())
}

/// Deletes an inode without names and references. The caller has no lock.
pub fn reap<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>) {
    let mut state = settled(inode);
    if state.nlink > 0 || state.gone || inode.referenced() || core.writable().is_err() {
        return;
    }
    // What cannot be deleted now stays in the list of orphans, and the next mount deletes it; a failure has turned the file system read-only, which the
    // next operation reports.
    let _reported_by_the_next_operation = delete(core, inode, &mut state);
}
