//! Changing attributes: one change, whatever is asked for together.

use amphi_vfs::permission::mode_after_change;
use amphi_vfs::{Attr, Capabilities, Cred, Error, FileType, Ino, Result, SetAttr, SetTime};

use crate::attempt::with_room;
use crate::inode::{Part, State};
use crate::load::inode;
use crate::store::{Change, Changed, Need, Store, regular};
use crate::xattr;

/// See [`amphi_vfs::FileSystem::setattr`].
///
/// # Errors
/// As there.
pub fn setattr<S: Store>(store: &S, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
    with_room(store, || setattr_once(store, ino, change, cred))
}

fn setattr_once<S: Store>(store: &S, ino: Ino, asked: &SetAttr, cred: &Cred) -> Result<Attr> {
    let inode = inode(store, ino)?;
    store.names().health.writable()?;
    if asked.size.is_some() {
        regular(inode.file_type)?;
    }
    let mut state = store.lock(&inode, asked.size)?;
    if state.gone {
        return Err(Error::Stale(ino));
    }
    let attributes = xattr::following(store, ino, &mut state, asked)?;
    let now = store.names().clock.now();
    let apply = |change: &mut S::Change<'_>, state: &mut State<S::Part>| {
        if let Some(attributes) = attributes {
            change.set_attributes(ino, state, &attributes)?;
            state.attributes = Some(attributes);
        }
        set(state, asked, cred, now);
        Ok(())
    };
    if let Some(size) = asked.size {
        store.resize(&inode, &mut state, size, apply)?;
    } else {
        let mut change = store.begin(&Need::NOTHING)?;
        apply(&mut change, &mut state)?;
        change.write_inode(&inode, &mut state, Changed::Attributes)?;
        change.commit()?;
    }
    Ok(inode.attr(&state))
}

/// Sets all attributes but the size.
fn set<P: Part>(state: &mut State<P>, asked: &SetAttr, cred: &Cred, now: i64) {
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::At(time) => time.ns,
    };
    let owner_changes = asked.uid.is_some() || asked.gid.is_some();
    let cut_by_user = asked.size.is_some() && !cred.has(Capabilities::FSETID);
    // By the group before the change.
    if (owner_changes || cut_by_user) && state.file_type != FileType::Directory {
        state.mode = mode_after_change(state.mode, state.gid, cred);
    }
    state.uid = asked.uid.unwrap_or(state.uid);
    state.gid = asked.gid.unwrap_or(state.gid);
    state.mode = asked.mode.map_or(state.mode, |mode| mode & 0o7777);
    if asked.size.is_some() {
        state.mtime = now;
    }
    state.atime = asked.atime.map_or(state.atime, time);
    state.mtime = asked.mtime.map_or(state.mtime, time);
    state.ctime = asked.ctime.map_or(now, |time| time.ns);
}

/// Moves the times of a file whose contents change, and clears set-id bits unless a privileged caller changes
/// them. In memory only.
pub fn note_write<S: Store>(store: &S, state: &mut State<S::Part>, cred: &Cred) {
    let now = store.names().clock.now();
    state.mtime = now;
    state.ctime = now;
    if !cred.has(Capabilities::FSETID) {
        state.mode = mode_after_change(state.mode, state.gid, cred);
    }
}
