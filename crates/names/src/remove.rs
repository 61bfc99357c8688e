//! The end of inodes: names that go, references that go, and deletion, in steps where it takes more than one
//! change.

use std::sync::Arc;

use amphi_vfs::Result;

use crate::attempt::set_orphan;
use crate::inode::{Inode, State};
use crate::planted::{self, Bug};
use crate::store::{Change, Changed, Need, Store};

/// What becomes of an inode when names are taken off it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has other names.
    Stays,
    /// It goes with its last name.
    Deleted,
    /// It waits among the orphans for its last reference to go.
    Waits,
    /// Nobody uses it, but it takes several changes to delete.
    Reaped,
}

impl Fate {
    /// When `links` names are taken off an inode that is locked. Nobody comes to refer to it before its lock
    /// and its directory's are released.
    #[inline]
    pub fn of<S: Store>(store: &S, inode: &Inode<S::Part>, state: &State<S::Part>, links: u32) -> Self {
        if state.nlink > links {
            Self::Stays
        } else if inode.referenced() {
            Self::Waits
        } else if store.deletes_at_once(state) {
            Self::Deleted
        } else {
            Self::Reaped
        }
    }

    /// What the change needs for it.
    #[inline]
    pub const fn need<S: Store>(self) -> Need<'static, S> {
        let orphan = matches!(self, Self::Waits | Self::Reaped);
        Need { orphan, frees: matches!(self, Self::Deleted), ..Need::NOTHING }
    }

    /// Once all locks are released.
    #[inline]
    pub fn finish<S: Store>(self, store: &S, inode: &Arc<Inode<S::Part>>) {
        if self == Self::Reaped {
            reap(store, inode);
        }
    }
}

/// Takes `links` names off an inode and commits `change`, which holds the removal of the entries.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
#[inline]
pub(crate) fn drop_links<'a, S: Store>(
    store: &'a S,
    inode: &Inode<S::Part>,
    state: &mut State<S::Part>,
    links: u32,
    fate: Fate,
    mut change: S::Change<'a>,
    now: i64,
) -> Result<()> {
    state.nlink = state.nlink.saturating_sub(links);
    state.ctime = now;
    if fate == Fate::Deleted {
        let all = change.free_step(inode, state)?;
        debug_assert!(all, "the store said that one change is enough");
        forget(store, inode, state);
        return change.commit();
    }
    if matches!(fate, Fate::Waits | Fate::Reaped) && !state.orphan {
        if planted::has(Bug::OrphanOfOpenNotRecorded) {
            state.orphan = true;
        } else {
            set_orphan(&mut change, inode, state, true)?;
        }
    }
    change.write_inode(inode, state, Changed::Links)?;
    change.commit()
}

/// Notes that an inode is deleted with the change that is about to be committed.
fn forget<S: Store>(store: &S, inode: &Inode<S::Part>, state: &mut State<S::Part>) {
    state.orphan = false;
    state.gone = true;
    store.names().cache.remove(inode);
}

/// Deletes an inode that has neither names nor references.
///
/// # Errors
/// [`amphi_vfs::Error::ReadOnly`], [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
fn delete<S: Store>(store: &S, inode: &Inode<S::Part>, state: &mut State<S::Part>) -> Result<()> {
    debug_assert!(state.nlink == 0 && !state.gone, "only what has no name is deleted, and once");
    loop {
        let mut change = store.begin(&Need { frees: true, ..Need::NOTHING })?;
        if change.free_step(inode, state)? {
            forget(store, inode, state);
            return change.commit();
        }
        debug_assert!(state.orphan, "what is deleted in steps is an orphan meanwhile");
        change.write_inode(inode, state, Changed::Contents)?;
        change.commit()?;
    }
}

/// Deletes an inode that may have lost its last name or reference. The caller has no lock.
pub(crate) fn reap<S: Store>(store: &S, inode: &Arc<Inode<S::Part>>) {
    // What cannot be deleted now stays among the orphans, and the next mount deletes it; a failed commit has
    // turned the file system read-only, which the next operation reports.
    let _reported_by_the_next_operation = delete_unused(store, inode);
}

/// Deletes an inode if nobody uses it any more and it has no names.
///
/// # Errors
/// [`amphi_vfs::Error::ReadOnly`], [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
fn delete_unused<S: Store>(store: &S, inode: &Arc<Inode<S::Part>>) -> Result<()> {
    let mut state = store.lock(inode, None)?;
    if state.nlink > 0 || state.gone || inode.referenced() {
        return Ok(());
    }
    delete(store, inode, &mut state)
}

/// Deletes an orphan, whoever refers to it: its file system is being mounted or unmounted.
///
/// # Errors
/// As the deletion's changes.
pub fn delete_orphan<S: Store>(store: &S, inode: &Arc<Inode<S::Part>>) -> Result<()> {
    let mut state = store.lock(inode, None)?;
    if state.nlink > 0 || state.gone {
        return Ok(());
    }
    state.orphan = true;
    delete(store, inode, &mut state)
}
