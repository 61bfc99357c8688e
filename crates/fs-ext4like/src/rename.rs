//! Rename: moving, replacing and exchanging names, in one handle.
//!
//! A rename between directories holds the rename lock, so that no directory changes its ancestors meanwhile. What would make a directory its own
//! ancestor is refused before any child is locked, so children are never ancestors of the locked parents.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_rt::sync::RwLockWriteGuard;
use amphi_vfs::{Error, FileType, Ino, Name, Removed, RenameMode, Renamed, Result};
use smallvec::SmallVec;

use crate::core::Core;
use crate::dir::{self, Found, INSERT_BLOCKS, INSERT_CREDITS};
use crate::format::ROOT_INO;
use crate::inode::{Inode, State};
use crate::journal::Handle;
use crate::namespace::{LINKS_MAX, drop_links, entry_inode, lock_dir, reap, touch};

/// Blocks that a rename may change beside an insertion: two directory blocks, four inodes, two blocks with dots, superblock, a neighbour in the list of orphans.
const CREDITS: usize = INSERT_CREDITS + 12;

type Guard<'a> = RwLockWriteGuard<'a, State>;

/// The two directories, locked; one lock if they are the same.
struct Dirs<'a> {
    from: Guard<'a>,
    to: Option<Guard<'a>>,
}

impl Dirs<'_> {
    fn to(&mut self) -> &mut State {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn to_ref(&self) -> &State {
        self.to.as_ref().unwrap_or(&self.from)
    }
}

fn parent_of(dir: &Inode) -> u32 {
    dir.parent.load(Ordering::Acquire) as u32
}

/// Whether `ancestor` is `dir` or above it. The caller holds the rename lock.
fn is_ancestor<D: BlockPort>(core: &Core<D>, ancestor: u32, dir: &Inode) -> Result<bool> {
    let (mut at, mut parent) = (dir.ino, parent_of(dir));
    // A damaged image may have a cycle of parents: no path has more steps than there are inodes.
    for _ in 0..core.layout.inodes() {
        if at == ancestor || at == ROOT_INO {
            return Ok(at == ancestor);
        }
        at = parent;
        parent = parent_of(&*core.inode(Ino(u64::from(at)))?);
    }
    Err(Error::Corrupt(format!("the ancestors of directory {} form a cycle", dir.ino)))
}

/// The directories from the root down to `dir`. The caller holds the rename lock.
fn path<D: BlockPort>(core: &Core<D>, dir: &Inode) -> Result<SmallVec<[u32; 16]>> {
    let mut path = SmallVec::from_slice(&[dir.ino]);
    let (mut at, mut parent) = (dir.ino, parent_of(dir));
    while at != ROOT_INO && parent != at {
        if path.len() > core.layout.inodes() as usize {
            return Err(Error::Corrupt(format!("the ancestors of directory {} form a cycle", dir.ino)));
        }
        at = parent;
        path.push(at);
        parent = parent_of(&*core.inode(Ino(u64::from(at)))?);
    }
    path.reverse();
    Ok(path)
}

/// Locks both directories in the order of their paths: the one above the other first, else by the number of where the paths part. By their own numbers a
/// rename across two directories, one within a directory above them and a lookup could wait for one another in a circle.
fn lock_both<'a, D: BlockPort>(core: &Core<D>, from: &'a Inode, to: &'a Inode) -> Result<Dirs<'a>> {
    if from.ino == to.ino {
        return Ok(Dirs { from: lock_dir(from)?, to: None });
    }
    // Only directories have parents to walk.
    if from.file_type != FileType::Directory || to.file_type != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    if path(core, from)? < path(core, to)? {
        let from = lock_dir(from)?;
        return Ok(Dirs { from, to: Some(lock_dir(to)?) });
    }
    let to = lock_dir(to)?;
    Ok(Dirs { from: lock_dir(from)?, to: Some(to) })
}

/// Moves a name; see [`amphi_vfs::FileSystem::rename`].
///
/// # Errors
/// As there.
pub fn rename<D: BlockPort>(
    core: &Core<D>,
    from: Ino,
    name: Name<'_>,
    to: Ino,
    new_name: Name<'_>,
    mode: RenameMode,
) -> Result<Renamed> {
    core.writable()?;
    let (from_inode, to_inode) = (core.inode(from)?, core.inode(to)?);
    let across = from != to;
    let _still = across.then(|| core.rename.lock());
    let mut dirs = lock_both(core, &from_inode, &to_inode)?;
    let source = dir::find(core, &dirs.from, name)?.ok_or(Error::NotFound)?;
    let target = dir::find(core, dirs.to_ref(), new_name)?;
    match (mode, target) {
        (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
        (RenameMode::Exchange, None) => return Err(Error::NotFound),
        (_, Some(target)) if target.ino == source.ino => {
            return Ok(Renamed { moved: Ino(u64::from(source.ino)), target: None });
        }
        _ => {}
    }
    let is_dir = |found: Found| found.file_type == FileType::Directory;
    if across && is_dir(source) && is_ancestor(core, source.ino, &to_inode)? {
        return Err(Error::IntoItself);
    }
    let target_is_above = match target {
        Some(target) if across && is_dir(target) => is_ancestor(core, target.ino, &from_inode)?,
        _ => false,
    };
    let moved = Moved {
        from: &from_inode,
        to: &to_inode,
        source,
        inode: entry_inode(core, &from_inode, source)?,
        across,
    };
    let moved_ino = Ino(u64::from(source.ino));
    let Some(target) = target else {
        moved.to_new_name(core, &mut dirs, new_name)?;
        return Ok(Renamed { moved: moved_ino, target: None });
    };
    let target_inode = entry_inode(core, &to_inode, target)?;
    let lost = match (mode, is_dir(source), is_dir(target)) {
        (RenameMode::Exchange, ..) if target_is_above => return Err(Error::IntoItself),
        (RenameMode::Exchange, ..) => moved.exchange(core, &mut dirs, target, &target_inode)?,
        (_, true, false) => return Err(Error::NotDirectory),
        (_, false, true) => return Err(Error::IsDirectory),
        _ if target_is_above => return Err(Error::NotEmpty),
        _ => moved.replace(core, &mut dirs, target, &target_inode)?,
    };
    drop(dirs);
    if mode != RenameMode::Exchange {
        reap(core, &target_inode);
    }
    Ok(Renamed { moved: moved_ino, target: Some(lost) })
}

/// What is moved, from where to where.
struct Moved<'a> {
    from: &'a Inode,
    to: &'a Inode,
    source: Found,
    inode: Arc<Inode>,
    across: bool,
}

impl Moved<'_> {
    const fn child(&self) -> (u32, FileType) {
        (self.source.ino, self.source.file_type)
    }

    /// Moves a directory's `..` and its parent's link count along, if it is one and changes its parent.
    fn reparent<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        dirs: &mut Dirs<'_>,
        state: &mut State,
    ) -> Result<()> {
        if self.across && self.source.file_type == FileType::Directory {
            dir::set_parent(handle, state, self.to.ino)?;
            self.inode.parent.store(u64::from(self.to.ino), Ordering::Release);
            dirs.from.nlink = dirs.from.nlink.saturating_sub(1);
            dirs.to().nlink += 1;
        }
        state.ctime = handle.core.now();
        self.inode.write(handle, state, false)
    }

    fn write_dirs<D: BlockPort>(&self, handle: &mut Handle<'_, D>, dirs: &mut Dirs<'_>) -> Result<()> {
        touch(handle.core, &mut dirs.from);
        self.from.write(handle, &mut dirs.from, true)?;
        if let Some(to) = &mut dirs.to {
            touch(handle.core, to);
            self.to.write(handle, to, true)?;
        }
        Ok(())
    }

    fn to_new_name<D: BlockPort>(
        &self,
        core: &Core<D>,
        dirs: &mut Dirs<'_>,
        new_name: Name<'_>,
    ) -> Result<()> {
        let is_dir = self.source.file_type == FileType::Directory;
        if self.across && is_dir && dirs.to().nlink >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let mut state = self.inode.state.write();
        let place = dir::place(core, dirs.to_ref(), new_name)?;
        let mut reserved = core.reserve(INSERT_BLOCKS)?;
        let mut handle = core.handle(CREDITS)?;
        // First out, then in: an insertion may part the block that the old name is in.
        dir::remove(&mut handle, &dirs.from, self.source)?;
        reserved.take(dir::insert(&mut handle, self.to.ino, dirs.to(), place, new_name, self.child())?);
        self.reparent(&mut handle, dirs, &mut state)?;
        self.write_dirs(&mut handle, dirs)?;
        handle.finish();
        Ok(())
    }

    fn replace<D: BlockPort>(
        &self,
        core: &Core<D>,
        dirs: &mut Dirs<'_>,
        target: Found,
        target_inode: &Arc<Inode>,
    ) -> Result<Removed> {
        let target_is_dir = target.file_type == FileType::Directory;
        let (mut state, mut victim) = lock_children(&self.inode, target_inode);
        if target_is_dir && !dir::is_empty(core, &victim)? {
            return Err(Error::NotEmpty);
        }
        let links = if target_is_dir { victim.nlink } else { 1 };
        let mut handle = core.handle(CREDITS)?;
        dir::replace(&mut handle, dirs.to_ref(), target, self.child())?;
        dir::remove(&mut handle, &dirs.from, self.source)?;
        if target_is_dir {
            let to = dirs.to();
            to.nlink = to.nlink.saturating_sub(1);
        }
        self.reparent(&mut handle, dirs, &mut state)?;
        self.write_dirs(&mut handle, dirs)?;
        drop_links(&mut handle, target_inode, &mut victim, links)?;
        handle.finish();
        Ok(Removed { ino: Ino(u64::from(target.ino)), nlink: victim.nlink })
    }

    fn exchange<D: BlockPort>(
        &self,
        core: &Core<D>,
        dirs: &mut Dirs<'_>,
        target: Found,
        target_inode: &Inode,
    ) -> Result<Removed> {
        let (mut state, mut other) = lock_children(&self.inode, target_inode);
        let mut handle = core.handle(CREDITS)?;
        dir::replace(&mut handle, dirs.to_ref(), target, self.child())?;
        dir::replace(&mut handle, &dirs.from, self.source, (target.ino, target.file_type))?;
        self.reparent(&mut handle, dirs, &mut state)?;
        if self.across && target.file_type == FileType::Directory {
            dir::set_parent(&mut handle, &other, self.from.ino)?;
            target_inode.parent.store(u64::from(self.from.ino), Ordering::Release);
            dirs.from.nlink += 1;
            let to = dirs.to();
            to.nlink = to.nlink.saturating_sub(1);
        }
        other.ctime = core.now();
        target_inode.write(&mut handle, &mut other, false)?;
        self.write_dirs(&mut handle, dirs)?;
        handle.finish();
        Ok(Removed { ino: Ino(u64::from(target.ino)), nlink: other.nlink })
    }
}

/// Locks two inodes that are not related: directories first, since a file may have another name in the directory; else by ascending number.
fn lock_children<'a>(a: &'a Inode, b: &'a Inode) -> (Guard<'a>, Guard<'a>) {
    let rank = |inode: &Inode| (inode.file_type != FileType::Directory, inode.ino);
    if rank(a) < rank(b) {
        let first = a.state.write();
        (first, b.state.write())
    } else {
        let first = b.state.write();
        (a.state.write(), first)
    }
}
