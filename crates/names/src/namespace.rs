//! Operations on names but for rename: lookup, create, mkdir, symlink, tmpfile, link, unlink, rmdir. Each is
//! one change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_vfs::acl::{self, Attributes};
use amphi_vfs::{Cred, Entry, Error, FileType, Ino, Name, Removed, Result};

use crate::access::{Access, may_search, may_take};
use crate::attempt::{set_orphan, with_room};
use crate::inode::{Inode, Part, State};
use crate::load::{inode, shrink};
use crate::planted::{self, Bug};
use crate::remove::{Fate, drop_links};
use crate::store::{Change, Changed, Child, Found, Guard, Need, NewInode, Store};
use crate::xattr;

/// Locks a directory for change, open.
///
/// # Errors
/// [`Error::NotDirectory`], [`Error::NotFound`] if it was deleted meanwhile; [`Error::Corrupt`],
/// [`Error::Io`].
pub(crate) fn lock_dir<'a, S: Store>(store: &S, inode: &'a Inode<S::Part>) -> Result<Guard<'a, S::Part>> {
    if !inode.is_dir() {
        return Err(Error::NotDirectory);
    }
    let mut state = inode.state.write();
    if state.gone || state.nlink == 0 {
        return Err(Error::NotFound);
    }
    store.open_dir(inode, &mut state)?;
    Ok(state)
}

/// See [`amphi_vfs::FileSystem::lookup`].
///
/// # Errors
/// As there.
pub fn lookup<S: Store>(store: &S, dir: Ino, name: Name<'_>) -> Result<Entry> {
    let parent = inode(store, dir)?;
    if !parent.is_dir() {
        return Err(Error::NotDirectory);
    }
    loop {
        {
            let state = parent.state.read();
            if state.gone {
                return Err(Error::NotFound);
            }
            if S::is_open(&state) {
                let (found, cached) = store.find_inode(&parent, &state, name)?.ok_or(Error::NotFound)?;
                let inode = match cached {
                    // What is cached is as good as looked up; an entry that was replaced names the inode it
                    // does now.
                    Some(inode) if inode.ino == found.child.ino => {
                        check_entry(&parent, found.child, &inode)?;
                        inode
                    }
                    _ => entry_inode(store, &parent, found.child)?,
                };
                // Under the directory's lock, so that nobody takes the name away before the reference counts.
                inode.lookups.fetch_add(1, Ordering::AcqRel);
                let attr = inode.attr(&inode.state.read());
                return Ok(Entry { attr });
            }
        }
        drop(lock_dir(store, &parent)?);
    }
}

/// The inode that an entry of `dir`, which is locked, names. An entry that names none is damage, not a stale
/// handle. So is one of another type, and one that names a directory whose parent is another: a cycle of
/// directories would have an operation lock what it has locked already.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn entry_inode<S: Store>(
    store: &S,
    dir: &Inode<S::Part>,
    child: Child,
) -> Result<Arc<Inode<S::Part>>> {
    let named = inode(store, child.ino).map_err(|error| match error {
        Error::Stale(_) => Error::corrupt(
            "directory",
            dir.ino.0,
            format!("an entry names inode {}, which is free", child.ino.0),
        ),
        other => other,
    })?;
    check_entry(dir, child, &named)?;
    Ok(named)
}

/// Whether an entry of `dir`, which is locked, may name this inode.
fn check_entry<P: Part>(dir: &Inode<P>, child: Child, inode: &Inode<P>) -> Result<()> {
    let sound = inode.file_type == child.file_type
        && (!child.is_dir() || (inode.ino != dir.ino && inode.ino != Ino::ROOT && inode.parent() == dir.ino));
    if sound {
        return Ok(());
    }
    Err(Error::corrupt(
        "directory",
        dir.ino.0,
        format!("an entry names inode {}, which has another type or another parent", child.ino.0),
    ))
}

/// See [`amphi_vfs::FileSystem::create`].
///
/// # Errors
/// As there.
pub fn create<S: Store>(
    store: &S,
    dir: Ino,
    name: Name<'_>,
    file_type: FileType,
    mode: u16,
    rdev: u32,
    cred: &Cred,
) -> Result<Entry> {
    if matches!(file_type, FileType::Directory | FileType::Symlink) {
        return Err(Error::Invalid("directories and symlinks have operations of their own"));
    }
    make(store, dir, name, &NewInode { file_type, mode, rdev, target: &[] }, cred)
}

/// See [`amphi_vfs::FileSystem::mkdir`].
///
/// # Errors
/// As there.
pub fn mkdir<S: Store>(store: &S, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
    let new = NewInode { file_type: FileType::Directory, mode, rdev: 0, target: &[] };
    make(store, dir, name, &new, cred)
}

/// See [`amphi_vfs::FileSystem::symlink`].
///
/// # Errors
/// As there.
pub fn symlink<S: Store>(store: &S, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
    if target.is_empty() {
        return Err(Error::Invalid("a symlink needs a target"));
    }
    if target.len() > S::TARGET_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    make(store, dir, name, &NewInode { file_type: FileType::Symlink, mode: 0o777, rdev: 0, target }, cred)
}

/// Makes any kind of inode under a name and takes a reference to it.
fn make<S: Store>(store: &S, dir: Ino, name: Name<'_>, new: &NewInode<'_>, cred: &Cred) -> Result<Entry> {
    let made = with_room(store, || make_once(store, dir, name, new, cred))?;
    shrink(store, made.attr.ino);
    Ok(made)
}

fn make_once<S: Store>(
    store: &S,
    dir: Ino,
    name: Name<'_>,
    new: &NewInode<'_>,
    cred: &Cred,
) -> Result<Entry> {
    let parent = inode(store, dir)?;
    let mut parent_state = lock_dir(store, &parent)?;
    if store.find(&parent, &parent_state, name)?.is_some() {
        return Err(Error::Exists);
    }
    let is_dir = new.file_type == FileType::Directory;
    if is_dir && parent_state.nlink >= S::LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    let place = store.place(&parent, &parent_state, name)?;
    let (mode, attributes) = inherit(store, &parent, &mut parent_state, new, cred)?;
    let new = &NewInode { mode, ..*new };
    let need = Need { place: Some(&place), new: Some(new), attributes: stored(&attributes), ..Need::NOTHING };
    let mut change = store.begin(&need)?;
    let now = store.names().clock.now();
    let (ino, part) = change.new_inode(&parent, new)?;
    let write = || {
        let mut state = new_state::<S>(&parent_state, new, part, now, cred);
        give(&mut change, ino, &mut state, attributes)?;
        change.insert(&parent, &mut parent_state, place, name, Child { ino, file_type: new.file_type })?;
        parent_state.nlink += u32::from(is_dir);
        touch(&mut parent_state, now);
        let made = Inode::new(ino, parent.ino, state);
        change.write_inode(&made, &mut made.state.write(), Changed::New)?;
        change.write_inode(&parent, &mut parent_state, Changed::Entries)?;
        change.commit().map(|()| made)
    };
    // If that fails, the name may be there.
    let made = store.names().health.judge_written(ino, write())?;
    Ok(keep(store, made))
}

/// See [`amphi_vfs::FileSystem::tmpfile`].
///
/// # Errors
/// As there.
pub fn tmpfile<S: Store>(store: &S, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
    let made = with_room(store, || tmpfile_once(store, dir, mode, cred))?;
    shrink(store, made.attr.ino);
    Ok(made)
}

fn tmpfile_once<S: Store>(store: &S, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
    let new = NewInode { file_type: FileType::Regular, mode, rdev: 0, target: &[] };
    let parent = inode(store, dir)?;
    let mut parent_state = lock_dir(store, &parent)?;
    let (mode, attributes) = inherit(store, &parent, &mut parent_state, &new, cred)?;
    let new = NewInode { mode, ..new };
    let need = Need { new: Some(&new), attributes: stored(&attributes), orphan: true, ..Need::NOTHING };
    let mut change = store.begin(&need)?;
    let (ino, part) = change.new_inode(&parent, &new)?;
    let mut state = new_state::<S>(&parent_state, &new, part, store.names().clock.now(), cred);
    drop(parent_state);
    give(&mut change, ino, &mut state, attributes)?;
    state.nlink = 0;
    state.unnamed = true;
    let made = Inode::new(ino, parent.ino, state);
    {
        let mut state = made.state.write();
        change.write_inode(&made, &mut state, Changed::New)?;
        set_orphan(&mut change, &made, &mut state, true)?;
    }
    change.commit()?;
    Ok(keep(store, made))
}

/// The mode and the attributes that what is made in a directory starts with.
fn inherit<S: Store>(
    store: &S,
    dir: &Inode<S::Part>,
    state: &mut State<S::Part>,
    new: &NewInode<'_>,
    cred: &Cred,
) -> Result<(u16, Attributes)> {
    let known = xattr::load(store, dir.ino, state)?;
    let default = known.iter().find(|(name, _)| name == acl::DEFAULT);
    acl::inherit(default.map(|(_, value)| &value[..]), new.mode, new.file_type, cred)
}

/// Attributes of a new inode, as something to ask room for.
fn stored<P>(attributes: &Attributes) -> Option<(&Attributes, Option<&P>)> {
    (!attributes.is_empty()).then_some((attributes, None))
}

/// Stores the attributes that a new inode starts with.
fn give<S: Store>(
    change: &mut impl Change<S>,
    ino: Ino,
    state: &mut State<S::Part>,
    attributes: Attributes,
) -> Result<()> {
    if !attributes.is_empty() {
        change.set_attributes(ino, state, &attributes)?;
    }
    state.attributes = Some(attributes);
    Ok(())
}

/// What a new inode starts with.
fn new_state<S: Store>(
    parent: &State<S::Part>,
    new: &NewInode<'_>,
    part: S::Part,
    now: i64,
    cred: &Cred,
) -> State<S::Part> {
    let inherits_group = parent.mode & 0o2000 != 0;
    let is_dir = new.file_type == FileType::Directory;
    let is_device = matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice);
    State {
        file_type: new.file_type,
        mode: new.mode & 0o7777 | if inherits_group && is_dir { 0o2000 } else { 0 },
        uid: cred.uid,
        gid: if inherits_group { parent.gid } else { cred.gid },
        nlink: if is_dir { 2 } else { 1 },
        size: if is_dir { S::NEW_DIR_BYTES } else { new.target.len() as u64 },
        atime: now,
        mtime: now,
        ctime: now,
        generation: amphi_rt::random::u64() as u32,
        rdev: if is_device { new.rdev } else { 0 },
        attributes: None,
        orphan: false,
        unnamed: false,
        gone: false,
        atime_dirty: false,
        part,
    }
}

/// Caches what was made, with a reference on it.
fn keep<S: Store>(store: &S, made: Inode<S::Part>) -> Entry {
    made.lookups.store(1, Ordering::Release);
    let made = store.names().cache.insert_new(made);
    let attr = made.attr(&made.state.read());
    Entry { attr }
}

/// Sets a directory's times after its entries changed.
pub(crate) const fn touch<P: Part>(dir: &mut State<P>, now: i64) {
    dir.mtime = now;
    dir.ctime = now;
}

/// See [`amphi_vfs::FileSystem::link`].
///
/// # Errors
/// As there.
pub fn link<S: Store>(store: &S, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
    with_room(store, || link_once(store, ino, dir, name))
}

fn link_once<S: Store>(store: &S, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
    let linked = inode(store, ino)?;
    let parent = inode(store, dir)?;
    let mut parent_state = lock_dir(store, &parent)?;
    if store.find(&parent, &parent_state, name)?.is_some() {
        return Err(Error::Exists);
    }
    // Before it is locked: a directory might be the parent itself, or above it.
    if linked.is_dir() {
        return Err(Error::NotPermitted);
    }
    let mut state = linked.state.write();
    if state.gone || (state.nlink == 0 && !state.unnamed) {
        return Err(Error::NotFound);
    }
    if state.nlink >= S::LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    let place = store.place(&parent, &parent_state, name)?;
    let mut change = store.begin(&Need { place: Some(&place), ..Need::NOTHING })?;
    let now = store.names().clock.now();
    let child = Child { ino: linked.ino, file_type: linked.file_type };
    change.insert(&parent, &mut parent_state, place, name, child)?;
    touch(&mut parent_state, now);
    state.nlink += 1;
    state.ctime = now;
    if std::mem::take(&mut state.unnamed) {
        set_orphan(&mut change, &linked, &mut state, false)?;
    }
    if !planted::has(Bug::LinkCountNotWritten) {
        change.write_inode(&linked, &mut state, Changed::Links)?;
    }
    change.write_inode(&parent, &mut parent_state, Changed::Entries)?;
    change.commit()?;
    linked.lookups.fetch_add(1, Ordering::AcqRel);
    Ok(Entry { attr: linked.attr(&state) })
}

/// See [`amphi_vfs::FileSystem::unlink`] and [`amphi_vfs::FileSystem::unlink_as`].
///
/// # Errors
/// As there.
pub fn unlink<S: Store>(store: &S, dir: Ino, name: Name<'_>, who: &impl Access) -> Result<Removed> {
    let parent = inode(store, dir)?;
    let mut parent_state = lock_dir(store, &parent)?;
    may_search(store, &parent, &mut parent_state, who)?;
    let found = store.find(&parent, &parent_state, name)?.ok_or(Error::NotFound)?;
    let victim = entry_inode(store, &parent, found.child)?;
    let state = victim.state.write();
    may_take(store, (&parent, &mut parent_state), (&victim, &state), who)?;
    if found.child.is_dir() {
        return Err(Error::IsDirectory);
    }
    take_name(store, (&parent, parent_state), found, name, (&victim, state), 1)
}

/// See [`amphi_vfs::FileSystem::rmdir`] and [`amphi_vfs::FileSystem::rmdir_as`].
///
/// # Errors
/// As there.
pub fn rmdir<S: Store>(store: &S, dir: Ino, name: Name<'_>, who: &impl Access) -> Result<Removed> {
    let parent = inode(store, dir)?;
    let mut parent_state = lock_dir(store, &parent)?;
    may_search(store, &parent, &mut parent_state, who)?;
    let found = store.find(&parent, &parent_state, name)?.ok_or(Error::NotFound)?;
    let victim = entry_inode(store, &parent, found.child)?;
    let mut state = victim.state.write();
    may_take(store, (&parent, &mut parent_state), (&victim, &state), who)?;
    if !found.child.is_dir() {
        return Err(Error::NotDirectory);
    }
    if state.nlink == 0 {
        return Err(Error::NotFound);
    }
    store.open_dir(&victim, &mut state)?;
    if !store.is_empty(&victim, &state)? {
        return Err(Error::NotEmpty);
    }
    let links = state.nlink;
    take_name(store, (&parent, parent_state), found, name, (&victim, state), links)
}

/// Takes an entry out of a directory, and `links` names off what it names.
fn take_name<S: Store>(
    store: &S,
    (parent, mut parent_state): (&Inode<S::Part>, Guard<'_, S::Part>),
    found: Found<S::Slot>,
    name: Name<'_>,
    (victim, mut state): (&Arc<Inode<S::Part>>, Guard<'_, S::Part>),
    links: u32,
) -> Result<Removed> {
    let fate = Fate::of(store, victim, &state, links);
    let mut change = store.begin(&fate.need())?;
    let now = store.names().clock.now();
    change.remove(parent, &mut parent_state, found.slot, name)?;
    if found.child.is_dir() && !planted::has(Bug::LinkCountInRmdir) {
        parent_state.nlink = parent_state.nlink.saturating_sub(1);
    }
    touch(&mut parent_state, now);
    change.write_inode(parent, &mut parent_state, Changed::Entries)?;
    drop_links(store, victim, &mut state, links, fate, change, now)?;
    let removed = Removed { ino: victim.ino, nlink: state.nlink };
    drop((state, parent_state));
    fate.finish(store, victim);
    Ok(removed)
}
