//! Changing attributes: one transaction, whatever is asked for together (BY-17).

use amphi_device::{BlockPort, WriteLog};
use amphi_vfs::permission::mode_after_change;
use amphi_vfs::{Attr, Capabilities, Cred, Error, FileType, Ino, Result, SetAttr, SetTime};

use crate::core::Core;
use crate::format::mode;
use crate::inode::State;
use crate::truncate::set_size;
use crate::tx::Tx;
use crate::writeback::write_back;

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
    if change.size.is_some_and(|size| size > state.size_on_device || core.journals_data()) {
        // Growing, and any cut where data are journaled, writes back what was written before, in a transaction of its own: not with
        // the times of this change, which is all or nothing (crash lab: bytefs/seq1-415@3:none, bytefs-journal/seq1-411@3:none).
        write_back(core, &inode, &mut state, false)?;
    }
    let sheds = change.uid.is_some() || change.gid.is_some() || change.size.is_some();
    let xattrs_before = state.xattrs.follow(core, inode.ino, change.mode, sheds)?;
    let before = (state.mode, state.uid, state.gid, state.atime, state.mtime, state.ctime);
    apply(core, &mut state, change, cred);
    let outcome = match change.size {
        Some(size) => set_size(core, &inode, &mut state, size),
        None => Tx::new(core, 0).and_then(|mut tx| {
            inode.write_changed(core, &mut state, &mut tx);
            tx.commit()?;
            state.attributes_dirty = false;
            Ok(())
        }),
    };
    if let Err(error) = outcome {
        state.xattrs.restore(xattrs_before);
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
    let cut_by_user = change.size.is_some() && !cred.has(Capabilities::FSETID);
    // By the group before the change.
    if (owner_changes || cut_by_user) && state.file_type() != FileType::Directory {
        state.mode = mode_after_change(state.mode, state.gid, cred);
    }
    state.uid = change.uid.unwrap_or(state.uid);
    state.gid = change.gid.unwrap_or(state.gid);
    if let Some(bits) = change.mode {
        state.mode = (state.mode & mode::TYPE) | (bits & 0o7777);
    }
    if change.size.is_some() {
        state.mtime = now;
    }
    state.atime = change.atime.map_or(state.atime, time);
    state.mtime = change.mtime.map_or(state.mtime, time);
    state.ctime = change.ctime.map_or(now, |time| time.ns);
}
