//! Rename: moving, replacing and exchanging names, in one transaction (BY-17).
//!
//! A rename between directories holds the rename lock, so that no directory changes its ancestors meanwhile. What would make a directory its own
//! ancestor is refused before any child is locked, so children are never ancestors of the locked parents.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, WriteLog};
use amphi_rt::sync::RwLockWriteGuard;
use amphi_vfs::{Error, FileType, Ino, Name, RenameMode, Result};
use smallvec::SmallVec;

use crate::core::Core;
use crate::dir::Found;
use crate::format::ROOT_INO;
use crate::inode::{Inode, State};
use crate::namespace::{LINKS_MAX, add_entry, drop_link, entry_inode, lock_dir, orphan_slot_for, touch};
use crate::planted::{self, Bug};
use crate::tx::Tx;

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
}

/// Whether `ancestor` is `dir` or above it. The caller holds the rename lock.
fn is_ancestor<D: BlockPort + WriteLog>(core: &Core<D>, ancestor: u32, dir: &Inode) -> Result<bool> {
    let mut at = dir.ino;
    let mut parent = dir.parent.load(Ordering::Acquire) as u32;
    // A damaged image may have a cycle of parents: no path has more steps than there are inodes.
    for _ in 0..core.layout.inodes {
        if at == ancestor {
            return Ok(true);
        }
        if at == ROOT_INO || parent == at {
            return Ok(false);
        }
        at = parent;
        parent = core.inode(Ino(u64::from(at)))?.parent.load(Ordering::Acquire) as u32;
    }
    Err(Error::Corrupt(format!("the ancestors of directory {} form a cycle", dir.ino)))
}

/// The directories from the root down to `dir`. The caller holds the rename lock.
fn path<D: BlockPort + WriteLog>(core: &Core<D>, dir: &Inode) -> Result<SmallVec<[u32; 16]>> {
    let mut path = SmallVec::from_slice(&[dir.ino]);
    let mut at = dir.ino;
    let mut parent = dir.parent.load(Ordering::Acquire) as u32;
    while at != ROOT_INO && parent != at {
        if path.len() > core.layout.inodes as usize {
            return Err(Error::Corrupt(format!("the ancestors of directory {} form a cycle", dir.ino)));
        }
        at = parent;
        path.push(at);
        parent = core.inode(Ino(u64::from(at)))?.parent.load(Ordering::Acquire) as u32;
    }
    path.reverse();
    Ok(path)
}

/// Locks two directories in the order of their paths: an ancestor first, else by the number of where the paths part. By their own numbers would not do: with
/// `z` between `x` and its parent `y`, this task would hold `x` and want `z`, a rename within the directory of `z` and `y` hold `z` and want `y`, and a lookup hold
/// `y` and want `x`.
fn lock_both<'a, D: BlockPort + WriteLog>(
    core: &Core<D>,
    from: &'a Inode,
    to: &'a Inode,
) -> Result<Dirs<'a>> {
    if from.ino == to.ino {
        return Ok(Dirs { from: lock_dir(core, from)?, to: None });
    }
    for inode in [from, to] {
        // Only directories have parents to walk.
        inode.state.read().dir()?;
    }
    if path(core, from)? < path(core, to)? {
        let from = lock_dir(core, from)?;
        Ok(Dirs { from, to: Some(lock_dir(core, to)?) })
    } else {
        let to = lock_dir(core, to)?;
        Ok(Dirs { from: lock_dir(core, from)?, to: Some(to) })
    }
}

/// Moves a name; see [`amphi_vfs::FileSystem::rename`].
///
/// # Errors
/// As there.
pub fn rename<D: BlockPort + WriteLog>(
    core: &Core<D>,
    from: Ino,
    name: Name<'_>,
    to: Ino,
    new_name: Name<'_>,
    mode: RenameMode,
) -> Result<()> {
    let from_inode = core.inode(from)?;
    let to_inode = core.inode(to)?;
    let across = from != to;
    let _still = across.then(|| core.rename.lock());
    let mut dirs = lock_both(core, &from_inode, &to_inode)?;
    let source = dirs.from.dir()?.find(name).ok_or(Error::NotFound)?;
    let target = dirs.to().dir()?.find(new_name);
    match (mode, target) {
        (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
        (RenameMode::Exchange, None) => return Err(Error::NotFound),
        (_, Some(target)) if target.ino == source.ino => return Ok(()),
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
    let source_inode = entry_inode(core, &from_inode, source)?;
    let target_inode = target.map(|target| entry_inode(core, &to_inode, target)).transpose()?;
    let pair = Pair { from: &from_inode, to: &to_inode, source, source_inode, across };
    match (mode, target.zip(target_inode)) {
        (RenameMode::Exchange, Some((target, target_inode))) => {
            if target_is_above {
                return Err(Error::IntoItself);
            }
            exchange(core, dirs, &pair, target, &target_inode)
        }
        (_, Some((target, target_inode))) => {
            match (is_dir(source), is_dir(target)) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ if target_is_above => return Err(Error::NotEmpty),
                _ => {}
            }
            replace(core, dirs, &pair, target, &target_inode)
        }
        (_, None) => move_to_new(core, dirs, &pair, new_name),
    }
}

/// What all three kinds of rename need to know.
struct Pair<'a> {
    from: &'a Inode,
    to: &'a Inode,
    source: Found,
    source_inode: Arc<Inode>,
    across: bool,
}

impl Pair<'_> {
    /// Moves a directory's parent pointer and link count along, if it is one and changes its parent.
    fn reparent<D: BlockPort + WriteLog>(
        &self,
        core: &Core<D>,
        dirs: &mut Dirs<'_>,
        source: &mut State,
        tx: &mut Tx<'_, D>,
    ) {
        if self.across && self.source.file_type == FileType::Directory {
            self.source_inode.parent.store(u64::from(self.to.ino), Ordering::Release);
            if !planted::has(Bug::ParentNotMoved) {
                self.source_inode.write_upper(core, source, tx);
            }
            dirs.from.nlink = dirs.from.nlink.saturating_sub(1);
            dirs.to().nlink += u32::from(!planted::has(Bug::LinkCountInRename));
        }
        source.ctime = core.now();
        self.source_inode.write_lower(core, source, tx);
    }

    fn write_dirs<D: BlockPort + WriteLog>(&self, core: &Core<D>, dirs: &mut Dirs<'_>, tx: &mut Tx<'_, D>) {
        touch(core, &mut dirs.from);
        self.from.write_changed(core, &mut dirs.from, tx);
        if let Some(to) = &mut dirs.to {
            touch(core, to);
            self.to.write_changed(core, to, tx);
        }
    }
}

fn move_to_new<D: BlockPort + WriteLog>(
    core: &Core<D>,
    mut dirs: Dirs<'_>,
    pair: &Pair<'_>,
    new_name: Name<'_>,
) -> Result<()> {
    let is_dir = pair.source.file_type == FileType::Directory;
    if pair.across && is_dir && dirs.to().nlink >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    let mut source = pair.source_inode.state.write();
    let mut tx = Tx::new(core, dirs.to().dir()?.insert_needs(new_name))?;
    add_entry(dirs.to(), new_name, pair.source.ino, pair.source.file_type, &mut tx)?;
    if planted::has(Bug::RenameInTwoSteps) {
        pair.write_dirs(core, &mut dirs, &mut tx);
        tx.commit()?;
        tx = Tx::new(core, 0)?;
    }
    dirs.from.dir_mut()?.remove(pair.source, &mut tx);
    pair.reparent(core, &mut dirs, &mut source, &mut tx);
    pair.write_dirs(core, &mut dirs, &mut tx);
    tx.commit()
}

fn replace<D: BlockPort + WriteLog>(
    core: &Core<D>,
    mut dirs: Dirs<'_>,
    pair: &Pair<'_>,
    target: Found,
    target_inode: &Inode,
) -> Result<()> {
    let target_is_dir = target.file_type == FileType::Directory;
    let (mut source, mut victim) = lock_children(&pair.source_inode, target_inode);
    if target_is_dir {
        let dir = victim.dir_mut()?;
        dir.load(core, target_inode.ino)?;
        if !dir.is_empty() {
            return Err(Error::NotEmpty);
        }
    }
    let links = if target_is_dir { victim.nlink } else { 1 };
    let mut tx = Tx::new(core, 0)?;
    let slot = orphan_slot_for(core, target_inode, &victim, links)?;
    dirs.to().dir_mut()?.replace(target, pair.source.ino, pair.source.file_type, &mut tx);
    dirs.from.dir_mut()?.remove(pair.source, &mut tx);
    if target_is_dir {
        let to = dirs.to();
        to.nlink = to.nlink.saturating_sub(1);
    }
    pair.reparent(core, &mut dirs, &mut source, &mut tx);
    pair.write_dirs(core, &mut dirs, &mut tx);
    drop_link(core, target_inode, &mut victim, links, slot, tx)
}

fn exchange<D: BlockPort + WriteLog>(
    core: &Core<D>,
    mut dirs: Dirs<'_>,
    pair: &Pair<'_>,
    target: Found,
    target_inode: &Inode,
) -> Result<()> {
    let target_is_dir = target.file_type == FileType::Directory;
    let (mut source, mut other) = lock_children(&pair.source_inode, target_inode);
    let mut tx = Tx::new(core, 0)?;
    dirs.to().dir_mut()?.replace(target, pair.source.ino, pair.source.file_type, &mut tx);
    dirs.from.dir_mut()?.replace(pair.source, target.ino, target.file_type, &mut tx);
    pair.reparent(core, &mut dirs, &mut source, &mut tx);
    if pair.across && target_is_dir {
        target_inode.parent.store(u64::from(pair.from.ino), Ordering::Release);
        target_inode.write_upper(core, &mut other, &mut tx);
        dirs.from.nlink += 1;
        let to = dirs.to();
        to.nlink = to.nlink.saturating_sub(1);
    }
    other.ctime = core.now();
    target_inode.write_lower(core, &other, &mut tx);
    pair.write_dirs(core, &mut dirs, &mut tx);
    tx.commit()
}

/// Locks two inodes of which neither is above the other: directories first, since a file may have another name in the directory; else by ascending number. Whoever
/// holds one of them and not its directory, which is locked, wants only what is below it.
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
