//! Rename: moving, replacing and exchanging names, in one change.
//!
//! A rename between directories holds the rename lock, so that no directory changes its ancestors meanwhile.
//! What would make a directory its own ancestor is refused before any child is locked, so children are never
//! ancestors of the locked parents.

use std::sync::Arc;

use amphi_vfs::{Error, Ino, Name, Removed, RenameMode, Renamed, Result};
use smallvec::SmallVec;

use crate::attempt::with_room;
use crate::inode::{Inode, Part, State};
use crate::load::inode;
use crate::namespace::{entry_inode, lock_dir, touch};
use crate::planted::{self, Bug};
use crate::remove::{Fate, drop_links};
use crate::store::{Change, Changed, Found, Guard, Need, Store};

/// The two directories, locked; one lock if they are the same.
struct Dirs<'a, S: Store> {
    from: Guard<'a, S::Part>,
    to: Option<Guard<'a, S::Part>>,
}

impl<S: Store> Dirs<'_, S> {
    fn to(&mut self) -> &mut State<S::Part> {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

/// Whether `ancestor` is `dir` or above it. The caller holds the rename lock.
fn is_ancestor<S: Store>(store: &S, ancestor: Ino, dir: &Inode<S::Part>) -> Result<bool> {
    Ok(path(store, dir)?.contains(&ancestor))
}

/// The directories from the root down to `dir`. The caller holds the rename lock.
fn path<S: Store>(store: &S, dir: &Inode<S::Part>) -> Result<SmallVec<[Ino; 16]>> {
    let mut path = SmallVec::from_slice(&[dir.ino]);
    let (mut at, mut parent) = (dir.ino, dir.parent());
    while at != Ino::ROOT && parent != at {
        // A damaged image may have a cycle of parents: no path has more steps than there are inodes.
        if path.len() as u64 > store.inodes_max() {
            return Err(Error::corrupt("directory", dir.ino.0, "its ancestors form a cycle"));
        }
        at = parent;
        path.push(at);
        parent = inode(store, at)?.parent();
    }
    path.reverse();
    Ok(path)
}

/// Locks two directories in the order of their paths: an ancestor first, else by the number of where the
/// paths part. By their own numbers would not do: with `z` between `x` and its parent `y`, this task would
/// hold `x` and want `z`, a rename within the directory of `z` and `y` hold `z` and want `y`, and a lookup
/// hold `y` and want `x`.
fn lock_both<'a, S: Store>(
    store: &S,
    from: &'a Inode<S::Part>,
    to: &'a Inode<S::Part>,
) -> Result<Dirs<'a, S>> {
    if from.ino == to.ino {
        return Ok(Dirs { from: lock_dir(store, from)?, to: None });
    }
    // Only directories have parents to walk.
    if !from.is_dir() || !to.is_dir() {
        return Err(Error::NotDirectory);
    }
    if path(store, from)? < path(store, to)? {
        let from = lock_dir(store, from)?;
        Ok(Dirs { from, to: Some(lock_dir(store, to)?) })
    } else {
        let to = lock_dir(store, to)?;
        Ok(Dirs { from: lock_dir(store, from)?, to: Some(to) })
    }
}

/// See [`amphi_vfs::FileSystem::rename`].
///
/// # Errors
/// As there.
pub fn rename<S: Store>(
    store: &S,
    from: Ino,
    name: Name<'_>,
    to: Ino,
    new_name: Name<'_>,
    mode: RenameMode,
) -> Result<Renamed> {
    with_room(store, || rename_once(store, from, name, to, new_name, mode))
}

fn rename_once<S: Store>(
    store: &S,
    from: Ino,
    name: Name<'_>,
    to: Ino,
    new_name: Name<'_>,
    mode: RenameMode,
) -> Result<Renamed> {
    let from_dir = &*inode(store, from)?;
    let to_dir = &*inode(store, to)?;
    let across = from != to;
    let _still = across.then(|| store.names().rename.lock());
    let mut dirs = lock_both(store, from_dir, to_dir)?;
    let source = store.find(from_dir, &dirs.from, name)?.ok_or(Error::NotFound)?;
    let target = store.find(to_dir, dirs.to(), new_name)?;
    match (mode, target) {
        (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
        (RenameMode::Exchange, None) => return Err(Error::NotFound),
        (_, Some(target)) if target.child.ino == source.child.ino => {
            return Ok(Renamed { moved: source.child.ino, target: None });
        }
        _ => {}
    }
    if across && source.child.is_dir() && is_ancestor(store, source.child.ino, to_dir)? {
        return Err(Error::IntoItself);
    }
    let target_is_above = match target {
        Some(target) if across && target.child.is_dir() => is_ancestor(store, target.child.ino, from_dir)?,
        _ => false,
    };
    let moved = &*entry_inode(store, from_dir, source.child)?;
    let moving = Moving { store, from: from_dir, to: to_dir, name, new_name, source, moved, across };
    let Some(target) = target else {
        moving.to_new_name(dirs)?;
        return Ok(Renamed { moved: moved.ino, target: None });
    };
    let target_inode = entry_inode(store, to_dir, target.child)?;
    let lost = match (mode, source.child.is_dir(), target.child.is_dir()) {
        (RenameMode::Exchange, ..) if target_is_above => return Err(Error::IntoItself),
        (RenameMode::Exchange, ..) => moving.exchange(dirs, target, &target_inode)?,
        // Whatever it is that should take its place, as Linux has it.
        _ if target_is_above => return Err(Error::NotEmpty),
        (_, true, false) => return Err(Error::NotDirectory),
        (_, false, true) => return Err(Error::IsDirectory),
        _ => moving.replace(dirs, target, &target_inode)?,
    };
    Ok(Renamed { moved: moved.ino, target: Some(lost) })
}

/// What all three kinds of rename need to know.
struct Moving<'a, S: Store> {
    store: &'a S,
    from: &'a Inode<S::Part>,
    to: &'a Inode<S::Part>,
    name: Name<'a>,
    new_name: Name<'a>,
    source: Found<S::Slot>,
    moved: &'a Inode<S::Part>,
    across: bool,
}

impl<'a, S: Store> Moving<'a, S> {
    fn to_new_name(&self, mut dirs: Dirs<'_, S>) -> Result<()> {
        if self.across && self.source.child.is_dir() && dirs.to().nlink >= S::LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let mut state = self.moved.state.write();
        let place = self.store.place(self.to, dirs.to(), self.new_name)?;
        let mut change = self.store.begin(&Need { place: Some(&place), ..Need::NOTHING })?;
        let now = self.store.names().clock.now();
        change.insert(self.to, dirs.to(), place, self.new_name, self.source.child)?;
        if planted::has(Bug::RenameInTwoSteps) {
            self.write_dirs(&mut dirs, &mut change, now)?;
            change.commit()?;
            change = self.store.begin(&Need::NOTHING)?;
        }
        change.remove(self.from, &mut dirs.from, self.source.slot, self.name)?;
        self.reparent(&mut dirs, &mut state, &mut change, now)?;
        self.write_dirs(&mut dirs, &mut change, now)?;
        change.commit()
    }

    fn replace(
        &self,
        mut dirs: Dirs<'_, S>,
        target: Found<S::Slot>,
        victim: &Arc<Inode<S::Part>>,
    ) -> Result<Removed> {
        let (mut state, mut victim_state) = lock_children(self.moved, victim);
        if target.child.is_dir() {
            self.store.open_dir(victim, &mut victim_state)?;
            if !self.store.is_empty(victim, &victim_state)? {
                return Err(Error::NotEmpty);
            }
        }
        let links = if target.child.is_dir() { victim_state.nlink } else { 1 };
        let fate = Fate::of(self.store, victim, &victim_state, links);
        let mut change = self.store.begin(&fate.need())?;
        let now = self.store.names().clock.now();
        change.replace(self.to, dirs.to(), target.slot, self.new_name, self.source.child)?;
        change.remove(self.from, &mut dirs.from, self.source.slot, self.name)?;
        if target.child.is_dir() {
            let to = dirs.to();
            to.nlink = to.nlink.saturating_sub(1);
        }
        self.reparent(&mut dirs, &mut state, &mut change, now)?;
        self.write_dirs(&mut dirs, &mut change, now)?;
        drop_links(self.store, victim, &mut victim_state, links, fate, change, now)?;
        let removed = Removed { ino: victim.ino, nlink: victim_state.nlink };
        drop((state, victim_state, dirs));
        fate.finish(self.store, victim);
        Ok(removed)
    }

    fn exchange(
        &self,
        mut dirs: Dirs<'_, S>,
        target: Found<S::Slot>,
        other: &Inode<S::Part>,
    ) -> Result<Removed> {
        let (mut state, mut other_state) = lock_children(self.moved, other);
        let mut change = self.store.begin(&Need::NOTHING)?;
        let now = self.store.names().clock.now();
        change.replace(self.to, dirs.to(), target.slot, self.new_name, self.source.child)?;
        change.replace(self.from, &mut dirs.from, self.source.slot, self.name, target.child)?;
        self.reparent(&mut dirs, &mut state, &mut change, now)?;
        if self.across && target.child.is_dir() {
            other.set_parent(self.from.ino);
            change.reparent(other, &mut other_state)?;
            dirs.from.nlink += 1;
            let to = dirs.to();
            to.nlink = to.nlink.saturating_sub(1);
        }
        other_state.ctime = now;
        change.write_inode(other, &mut other_state, Changed::Links)?;
        self.write_dirs(&mut dirs, &mut change, now)?;
        change.commit()?;
        Ok(Removed { ino: other.ino, nlink: other_state.nlink })
    }

    /// Moves a directory's parent and link count along, if it is one and changes its parent.
    fn reparent(
        &self,
        dirs: &mut Dirs<'_, S>,
        state: &mut State<S::Part>,
        change: &mut S::Change<'a>,
        now: i64,
    ) -> Result<()> {
        if self.across && self.source.child.is_dir() {
            self.moved.set_parent(self.to.ino);
            change.reparent(self.moved, state)?;
            dirs.from.nlink = dirs.from.nlink.saturating_sub(1);
            dirs.to().nlink += u32::from(!planted::has(Bug::LinkCountInRename));
        }
        state.ctime = now;
        change.write_inode(self.moved, state, Changed::Links)
    }

    fn write_dirs(&self, dirs: &mut Dirs<'_, S>, change: &mut S::Change<'a>, now: i64) -> Result<()> {
        touch(&mut dirs.from, now);
        change.write_inode(self.from, &mut dirs.from, Changed::Entries)?;
        if let Some(to) = &mut dirs.to {
            touch(to, now);
            change.write_inode(self.to, to, Changed::Entries)?;
        }
        Ok(())
    }
}

/// Locks two inodes of which neither is above the other: directories first, since a file may have another
/// name in the directory; else by ascending number. Whoever holds one of them and not its directory, which is
/// locked, wants only what is below it.
fn lock_children<'a, P: Part>(a: &'a Inode<P>, b: &'a Inode<P>) -> (Guard<'a, P>, Guard<'a, P>) {
    let rank = |inode: &Inode<P>| (!inode.is_dir(), inode.ino);
    if rank(a) < rank(b) {
        let first = a.state.write();
        (first, b.state.write())
    } else {
        let first = b.state.write();
        (a.state.write(), first)
    }
}
