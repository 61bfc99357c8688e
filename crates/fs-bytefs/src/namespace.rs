//! Operations on names but for rename: create, mkdir, symlink, link, unlink, rmdir. Each is one transaction, durable on return (BY-17).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, WriteLog};
use amphi_rt::sync::RwLockWriteGuard;
use amphi_vfs::{Cred, Entry, Error, FileType, Ino, Name, Result, acl};

use crate::core::Core;
use crate::dir::{Dir, Found};
use crate::extent::ExtentTree;
use crate::file::FileBody;
use crate::format::{INLINE_TARGET_MAX, ROOT_INO, mode};
use crate::inode::{Body, Inode, State, type_bits};
use crate::planted::{self, Bug};
use crate::symlink;
use crate::truncate::{delete, deletes_in_steps};
use crate::tx::Tx;
use crate::xattr::{Attributes, Xattrs};

/// Most names of one inode, and so most subdirectories (less two) of a directory.
pub const LINKS_MAX: u32 = 65_000;

/// Locks a directory for change, with its entries loaded.
///
/// # Errors
/// [`Error::NotDirectory`], [`Error::NotFound`] if it was deleted meanwhile.
pub fn lock_dir<'a, D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &'a Inode,
) -> Result<RwLockWriteGuard<'a, State>> {
    let mut state = inode.state.write();
    if state.gone || state.nlink == 0 {
        return Err(Error::NotFound);
    }
    state.dir_mut()?.load(core, inode.ino)?;
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
pub fn create<D: BlockPort + WriteLog>(
    core: &Core<D>,
    dir: Ino,
    name: Name<'_>,
    new: &NewInode<'_>,
    cred: &Cred,
) -> Result<Entry> {
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(core, &parent)?;
    if parent_state.dir()?.find(name).is_some() {
        return Err(Error::Exists);
    }
    let is_dir = new.file_type == FileType::Directory;
    if is_dir && parent_state.nlink >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    let (mode, attributes) = inherit(core, parent.ino, &mut parent_state, new, cred)?;
    let long_target = new.target.len() > INLINE_TARGET_MAX;
    let blocks = parent_state.dir()?.insert_needs(name)
        + if long_target { 2 } else { 0 }
        + u64::from(!attributes.is_empty());
    let mut tx = Tx::new(core, blocks)?;
    // As ext4's, top-level directories are kept apart, so that tasks that work in two of them seldom meet in one partition of the log, one bitmap group, one page.
    let ino = tx.allocate_inode(is_dir && dir == Ino::ROOT)?;
    let mut state = new_state(core, &parent_state, &NewInode { mode, ..*new }, cred)?;
    state.xattrs = Xattrs::of_new(attributes, ino, &mut tx)?;
    if let Body::Symlink(target, tree) = &mut state.body
        && long_target
    {
        symlink::write_target(core, target, tree, &mut tx)?;
        state.data_pages = 1;
    }
    add_entry(&mut parent_state, name, ino, new.file_type, &mut tx)?;
    parent_state.nlink += u32::from(is_dir);
    touch(core, &mut parent_state);
    let parent_ino = if is_dir { parent.ino } else { 0 };
    let inode = Inode::new(ino, parent_ino, state);
    {
        let mut state = inode.state.write();
        inode.write_lower(core, &state, &mut tx);
        inode.write_upper(core, &mut state, &mut tx);
    }
    parent.write_changed(core, &mut parent_state, &mut tx);
    tx.commit()?;
    inode.lookups.store(1, Ordering::Release);
    let inode = core.icache.insert_new(inode);
    let attr = inode.attr(&inode.state.read());
    Ok(Entry { attr })
}

/// Creates a regular file without a name, in the orphan table; see [`amphi_vfs::FileSystem::tmpfile`].
///
/// # Errors
/// As there.
pub fn tmpfile<D: BlockPort + WriteLog>(core: &Core<D>, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
    let new = NewInode { file_type: FileType::Regular, mode, rdev: 0, target: &[] };
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(core, &parent)?;
    let (mode, attributes) = inherit(core, parent.ino, &mut parent_state, &new, cred)?;
    let mut state = new_state(core, &parent_state, &NewInode { mode, ..new }, cred)?;
    drop(parent_state);
    let mut tx = Tx::new(core, u64::from(!attributes.is_empty()))?;
    let ino = tx.allocate_inode(false)?;
    state.xattrs = Xattrs::of_new(attributes, ino, &mut tx)?;
    let slot = core.orphans.take_slot().ok_or(Error::NoSpace)?;
    if !planted::has(Bug::OrphanNotRecorded) {
        tx.set_orphan(slot, ino);
    }
    state.nlink = 0;
    state.unnamed = true;
    state.orphan_slot = Some(slot);
    let inode = Inode::new(ino, 0, state);
    {
        let mut state = inode.state.write();
        inode.write_upper(core, &mut state, &mut tx);
        inode.write_changed(core, &mut state, &mut tx);
    }
    tx.commit()?;
    inode.lookups.store(1, Ordering::Release);
    let inode = core.icache.insert_new(inode);
    let attr = inode.attr(&inode.state.read());
    Ok(Entry { attr })
}

/// The mode and the attributes that what is made in a directory starts with.
fn inherit<D: BlockPort + WriteLog>(
    core: &Core<D>,
    dir: u32,
    state: &mut State,
    new: &NewInode<'_>,
    cred: &Cred,
) -> Result<(u16, Attributes)> {
    let default = state.xattrs.default_acl(core, dir)?;
    acl::inherit(default, new.mode, new.file_type, cred)
}

fn new_state<D: BlockPort + WriteLog>(
    core: &Core<D>,
    parent: &State,
    new: &NewInode<'_>,
    cred: &Cred,
) -> Result<State> {
    let now = core.now();
    let inherits_group = parent.mode & 0o2000 != 0;
    let is_dir = new.file_type == FileType::Directory;
    let set_gid = if inherits_group && is_dir { 0o2000 } else { 0 };
    let body = match new.file_type {
        FileType::Regular => Body::File(FileBody::new(ExtentTree::default())),
        FileType::Directory => Body::Dir(Dir::new(ExtentTree::default(), 0).map_err(Error::Corrupt)?),
        FileType::Symlink => Body::Symlink(new.target.to_vec(), ExtentTree::default()),
        _ => Body::Special,
    };
    let size = new.target.len() as u64;
    Ok(State {
        mode: type_bits(new.file_type) | (new.mode & !mode::TYPE) | set_gid,
        uid: cred.uid,
        gid: if inherits_group { parent.gid } else { cred.gid },
        nlink: if is_dir { 2 } else { 1 },
        size,
        size_on_device: size,
        atime: now,
        mtime: now,
        ctime: now,
        generation: amphi_rt::random::u64() as u32,
        rdev: if matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice) {
            new.rdev
        } else {
            0
        },
        data_pages: 0,
        xattrs: Xattrs::default(),
        orphan_slot: None,
        gone: false,
        attributes_dirty: false,
        atime_dirty: false,
        unnamed: false,
        body,
    })
}

/// Inserts an entry and lets the directory's size and page count follow.
///
/// # Errors
/// [`Error::NotDirectory`].
pub fn add_entry<D: BlockPort + WriteLog>(
    dir: &mut State,
    name: Name<'_>,
    ino: u32,
    file_type: FileType,
    tx: &mut Tx<'_, D>,
) -> Result<()> {
    let body = dir.dir_mut()?;
    let added = body.insert(name, ino, file_type, tx);
    let size = body.size();
    dir.data_pages += added;
    dir.size = size;
    dir.size_on_device = size;
    Ok(())
}

/// Sets a directory's times after its entries changed.
pub fn touch<D: BlockPort + WriteLog>(core: &Core<D>, dir: &mut State) {
    let now = core.now();
    dir.mtime = now;
    dir.ctime = now;
}

/// Gives an inode another name; see [`amphi_vfs::FileSystem::link`].
///
/// # Errors
/// As there.
pub fn link<D: BlockPort + WriteLog>(core: &Core<D>, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
    let inode = core.inode(ino)?;
    // Asked before the parent is locked: a directory might be the parent itself, or above it.
    let is_dir = matches!(inode.state.read().body, Body::Dir(_));
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(core, &parent)?;
    if parent_state.dir()?.find(name).is_some() {
        return Err(Error::Exists);
    }
    if is_dir {
        return Err(Error::NotPermitted);
    }
    let mut state = inode.state.write();
    if state.gone || (state.nlink == 0 && !state.unnamed) {
        return Err(Error::NotFound);
    }
    if state.nlink >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    let mut tx = Tx::new(core, parent_state.dir()?.insert_needs(name))?;
    add_entry(&mut parent_state, name, inode.ino, state.file_type(), &mut tx)?;
    touch(core, &mut parent_state);
    state.nlink += 1;
    state.unnamed = false;
    state.ctime = core.now();
    // A slot may also stand for blocks that are being freed, of a file with names.
    let slot = if state.nlink == 1 { state.orphan_slot.take() } else { None };
    if let Some(slot) = slot {
        tx.set_orphan(slot, 0);
    }
    if !planted::has(Bug::LinkCountNotWritten) {
        inode.write_changed(core, &mut state, &mut tx);
    }
    parent.write_changed(core, &mut parent_state, &mut tx);
    tx.commit()?;
    if let Some(slot) = slot {
        core.orphans.return_slot(slot);
    }
    inode.lookups.fetch_add(1, Ordering::AcqRel);
    Ok(Entry { attr: inode.attr(&state) })
}

/// Removes a name of a non-directory; see [`amphi_vfs::FileSystem::unlink`].
///
/// # Errors
/// As there.
pub fn unlink<D: BlockPort + WriteLog>(core: &Core<D>, dir: Ino, name: Name<'_>) -> Result<()> {
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(core, &parent)?;
    let found = parent_state.dir()?.find(name).ok_or(Error::NotFound)?;
    if found.file_type == FileType::Directory {
        return Err(Error::IsDirectory);
    }
    let inode = entry_inode(core, &parent, found)?;
    let mut state = inode.state.write();
    let mut tx = Tx::new(core, 0)?;
    let slot = orphan_slot_for(core, &inode, &state, 1)?;
    parent_state.dir_mut()?.remove(found, &mut tx);
    touch(core, &mut parent_state);
    parent.write_changed(core, &mut parent_state, &mut tx);
    drop_link(core, &inode, &mut state, 1, slot, tx)
}

/// Removes an empty directory; see [`amphi_vfs::FileSystem::rmdir`].
///
/// # Errors
/// As there.
pub fn rmdir<D: BlockPort + WriteLog>(core: &Core<D>, dir: Ino, name: Name<'_>) -> Result<()> {
    let parent = core.inode(dir)?;
    let mut parent_state = lock_dir(core, &parent)?;
    let found = parent_state.dir()?.find(name).ok_or(Error::NotFound)?;
    if found.file_type != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    let inode = entry_inode(core, &parent, found)?;
    let mut state = lock_dir(core, &inode)?;
    if !state.dir()?.is_empty() {
        return Err(Error::NotEmpty);
    }
    let mut tx = Tx::new(core, 0)?;
    let links = state.nlink;
    let slot = orphan_slot_for(core, &inode, &state, links)?;
    parent_state.dir_mut()?.remove(found, &mut tx);
    parent_state.nlink = parent_state.nlink.saturating_sub(u32::from(!planted::has(Bug::LinkCountInRmdir)));
    touch(core, &mut parent_state);
    parent.write_changed(core, &mut parent_state, &mut tx);
    drop_link(core, &inode, &mut state, links, slot, tx)
}

/// The inode that an entry of `dir`, which is locked, names. An entry that names none is damage, not a stale handle. So is one of another type, and one
/// that names a directory whose parent is another: a cycle of directories would have an operation lock what it has locked already.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn entry_inode<D: BlockPort + WriteLog>(core: &Core<D>, dir: &Inode, found: Found) -> Result<Arc<Inode>> {
    let inode = core.inode(Ino(u64::from(found.ino))).map_err(|error| match error {
        Error::Stale(_) => {
            Error::Corrupt(format!("a directory entry names inode {}, which is free", found.ino))
        }
        other => other,
    })?;
    check_entry(dir, found, &inode)?;
    Ok(inode)
}

/// Whether an entry of `dir`, which is locked, may name this inode.
///
/// # Errors
/// As [`entry_inode`].
pub fn check_entry(dir: &Inode, found: Found, inode: &Inode) -> Result<()> {
    let sound = inode.file_type == found.file_type
        && (found.file_type != FileType::Directory
            || (inode.ino != dir.ino
                && inode.ino != ROOT_INO
                && inode.parent.load(Ordering::Acquire) == u64::from(dir.ino)));
    if !sound {
        return Err(Error::Corrupt(format!(
            "directory {} names inode {}, which has another type or another parent",
            dir.ino, found.ino
        )));
    }
    Ok(())
}

/// Takes an orphan slot if removing `links` names leaves an inode that cannot be deleted at once.
///
/// # Errors
/// [`Error::NoSpace`] if the table is full.
pub fn orphan_slot_for<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &State,
    links: u32,
) -> Result<Option<u32>> {
    let lives_on = state.nlink > links || !(inode.referenced() || deletes_in_steps(state));
    if lives_on || state.orphan_slot.is_some() {
        return Ok(None);
    }
    core.orphans.take_slot().map(Some).ok_or(Error::NoSpace)
}

/// Takes `links` names off an inode and commits `tx`, which holds the removal of the entries: the inode stays with fewer names, is deleted, or, while
/// referenced, waits in orphan slot `slot`.
///
/// # Errors
/// [`Error::Io`].
pub fn drop_link<'a, D: BlockPort + WriteLog>(
    core: &'a Core<D>,
    inode: &Inode,
    state: &mut State,
    links: u32,
    slot: Option<u32>,
    mut tx: Tx<'a, D>,
) -> Result<()> {
    state.nlink = state.nlink.saturating_sub(links);
    state.ctime = core.now();
    if state.nlink > 0 {
        inode.write_lower(core, state, &mut tx);
        return tx.commit();
    }
    let Some(slot) = slot else { return delete(core, inode, state, tx) };
    tx.set_orphan(slot, inode.ino);
    state.orphan_slot = Some(slot);
    if inode.referenced() {
        inode.write_lower(core, state, &mut tx);
        return tx.commit();
    }
    delete(core, inode, state, tx)
}

/// Deletes an inode whose last reference is gone, if it has no name left.
pub fn reap<D: BlockPort + WriteLog>(core: &Core<D>, inode: &Inode) {
    let mut state = inode.state.write();
    if state.nlink > 0 || state.gone || inode.referenced() {
        return;
    }
    // What cannot be deleted now stays in the orphan table, and the next mount deletes it; a failed commit has turned the file system
    // read-only, which the next operation reports.
    if let Ok(tx) = Tx::new(core, 0) {
        let _reported_by_the_next_operation = delete(core, inode, &mut state, tx);
    }
}
