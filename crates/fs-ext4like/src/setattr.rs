//! Changing attributes: one handle, whatever is asked for together.

use amphi_device::BlockPort;
use amphi_vfs::permission::mode_after_change;
use amphi_vfs::{Attr, Capabilities, Cred, Error, Ino, Result, SetAttr, SetTime};

use crate::core::Core;
use crate::format::mode;
use crate::inode::State;
use crate::truncate::{lock_for_size, set_size};
use crate::writeback::settled;
use crate::xattr::{self, following_mode};

/// Changes attributes; see [`amphi_vfs::FileSystem::setattr`].
///
/// # Errors
/// As there.
pub fn setattr<D: BlockPort>(core: &Core<D>, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
    let inode = core.inode(ino)?;
    core.writable()?;
    let mut state = match change.size {
        Some(size) => lock_for_size(core, &inode, size)?,
        None => settled(&inode),
    };
    if state.gone {
        return Err(Error::Stale(ino));
    }
    // An access ACL follows the mode; capabilities go with a new owner, group or size.
    let owner_or_size = change.uid.is_some() || change.gid.is_some() || change.size.is_some();
    let mut prepared = if owner_or_size { xattr::without_capability(core, &mut state)? } else { None };
    if let Some(mode) = change.mode {
        let list =
            prepared.as_ref().map_or_else(|| state.xattrs.load(core).cloned(), |p| Ok(p.list().clone()))?;
        if let Some(list) = following_mode(&list, mode)? {
            prepared = Some(xattr::prepare(list)?);
        }
    }
    let goal = core.groups.goal(inode.ino);
    if let Some(size) = change.size {
        set_size(core, &inode, &mut state, size, |handle, state| {
            prepared.map_or(Ok(()), |prepared| prepared.store(handle, state, goal))?;
            apply(core, state, change, cred);
            Ok(())
        })?;
    } else {
        let mut handle = core.handle(6)?;
        prepared.map_or(Ok(()), |prepared| prepared.store(&mut handle, &mut state, goal))?;
        apply(core, &mut state, change, cred);
        inode.write(&mut handle, &mut state, false)?;
        handle.finish();
    }
    Ok(inode.attr(&state))
}

fn apply<D: BlockPort>(core: &Core<D>, state: &mut State, change: &SetAttr, cred: &Cred) {
    let now = core.now();
    let time = |set: Option<SetTime>, before: i64| match set {
        None => before,
        Some(SetTime::Now) => now,
        Some(SetTime::At(time)) => time.ns,
    };
    let sheds = change.uid.is_some()
        || change.gid.is_some()
        || (change.size.is_some() && !cred.has(Capabilities::FSETID));
    // By the group before the change.
    if sheds && state.mode & mode::TYPE != mode::DIRECTORY {
        state.mode = mode_after_change(state.mode, state.gid, cred);
    }
    state.uid = change.uid.unwrap_or(state.uid);
    state.gid = change.gid.unwrap_or(state.gid);
    state.mode = change.mode.map_or(state.mode, |bits| (state.mode & mode::TYPE) | (bits & 0o7777));
    let mtime = if change.size.is_some() { now } else { state.mtime };
    state.atime = time(change.atime, state.atime);
    state.mtime = time(change.mtime, mtime);
    state.ctime = change.ctime.map_or(now, |time| time.ns);
}
