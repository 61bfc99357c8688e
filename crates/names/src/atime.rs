//! Access times: when reading moves them, and how they reach the device.

use std::ops::ControlFlow;
use std::sync::Arc;

use amphi_vfs::{AccessTimes, Result};
use smallvec::SmallVec;

use crate::inode::{Inode, State};
use crate::store::{Change, Changed, Need, Store};

/// Access times written by one change.
const ATIMES_PER_CHANGE: usize = 32;

/// Whether reading what has this state moves its access time.
#[inline]
pub fn read_moves_atime<S: Store>(store: &S, state: &State<S::Part>) -> bool {
    let names = store.names();
    let now = match names.options.access_times {
        AccessTimes::Strict => names.clock.now(),
        _ => names.clock.recent(),
    };
    names.options.access_times.moves(state.atime, state.mtime, state.ctime, now)
        && names.health.writable().is_ok()
}

/// Moves the access time: in memory, if the store has it travel with the inode's next change or when the
/// inode leaves the cache. Whoever reads does not fail by it.
pub fn move_atime<S: Store>(store: &S, inode: &Inode<S::Part>, state: &mut State<S::Part>) {
    state.atime = store.names().clock.now();
    state.atime_dirty = true;
    if !S::LAZY_TIMES
        && let Ok(mut change) = store.begin(&Need::NOTHING)
    {
        let written = change.write_inode(inode, state, Changed::Times).and_then(|()| change.commit());
        let _reported_by_the_next_operation = written;
    }
}

/// As [`move_atime`], of an inode that is not locked. One that others use just now has been read and is read
/// again.
pub fn note_read<S: Store>(store: &S, inode: &Inode<S::Part>) {
    let mut state = inode.state.write();
    if !state.gone && read_moves_atime(store, &state) {
        move_atime(store, inode, &mut state);
    }
}

/// Brings access times that are in memory only to the device.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn write_atimes<S: Store>(store: &S, inodes: &[Arc<Inode<S::Part>>]) -> Result<()> {
    for some in inodes.chunks(ATIMES_PER_CHANGE) {
        // Inodes in use keep theirs until the next time.
        let mut locked: SmallVec<[_; ATIMES_PER_CHANGE]> =
            some.iter().filter_map(|inode| Some((inode, inode.state.try_write()?))).collect();
        locked.retain(|(_, state)| state.atime_dirty && !state.gone);
        let mut change = store.begin(&Need::NOTHING)?;
        for (inode, state) in &mut locked {
            change.write_inode(inode, state, Changed::Times)?;
        }
        change.commit()?;
    }
    Ok(())
}

/// Brings all access times that are in memory only to the device.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn write_all_atimes<S: Store>(store: &S) -> Result<()> {
    let mut lately_read = Vec::new();
    store.names().cache.visit(0, |inode| {
        if inode.state.read().atime_dirty {
            lately_read.push(Arc::clone(inode));
        }
        ControlFlow::Continue(())
    });
    write_atimes(store, &lately_read)
}
