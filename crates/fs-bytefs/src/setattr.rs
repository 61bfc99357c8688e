//! Changing attributes: one transaction, whatever is asked for together (BY-17).

use amphi_device::{BlockPort, WriteLog};
use amphi_vfs::{Attr, Cred, Error, FileType, Ino, Result, SetAttr, SetTime};

use crate::core::Core;
use crate::file::clear_set_id;
use crate::format::mode;
use crate::inode::State;
use crate::truncate::set_size;
use crate::tx::Tx;

/// Changes attributes; see [`amphi_vfs::FileSystem::setattr`].
///
/// # Errors
/// As there.
pub fn setattr<D: BlockPort + WriteLog>(
    core: &Core<D>,
    ino: Ino,
    change: &SetAttr,
    cred: &Cred,
) -> Result<Attr> {
    let inode = core.inode(ino)?;
    core.writable()?;
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(ino));
    }
    if change.size.is_some() {
        state.file()?;
    }
    let before = (state.mode, state.uid, state.gid, state.atime, state.mtime, state.ctime);
    apply(core, &mut state, change, cred);
    let outcome = match change.size {
        Some(size) => set_size(core, &inode, &mut state, size),
        None => Tx::new(core, 0).and_then(|mut tx| {
            inode.write_lower(core, &state, &mut tx);
            tx.commit()?;
            state.attributes_dirty = false;
            Ok(())
        }),
    };
    if let Err(error) = outcome {
        (state.mode, state.uid, state.gid, state.atime, state.mtime, state.ctime) = before;
        return Err(error);
    }
    Ok(inode.attr(&state))
}

fn apply<D: BlockPort + WriteLog>(core: &Core<D>, state: &mut State, change: &SetAttr, cred: &Cred) {
    let now = core.now();
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::At(time) => time.ns,
    };
    let owner_changes = change.uid.is_some() || change.gid.is_some();
    state.uid = change.uid.unwrap_or(state.uid);
    state.gid = change.gid.unwrap_or(state.gid);
    match change.mode {
        Some(bits) => {
            let in_group = cred.uid == 0 || cred.gid == state.gid || cred.groups.contains(&state.gid);
            let keep = if in_group || state.file_type() == FileType::Directory { 0o7777 } else { 0o5777 };
            state.mode = (state.mode & mode::TYPE) | (bits & keep);
        }
        None if owner_changes || (change.size.is_some() && cred.uid != 0) => clear_set_id(state),
        None => {}
    }
    if change.size.is_some() {
        state.mtime = now;
    }
    state.atime = change.atime.map_or(state.atime, time);
    state.mtime = change.mtime.map_or(state.mtime, time);
    state.ctime = change.ctime.map_or(now, |time| time.ns);
}
