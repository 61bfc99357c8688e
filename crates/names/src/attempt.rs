//! Steps that changes of names, sizes and attributes share.

use amphi_vfs::{Error, Result};

use crate::inode::{Inode, State};
use crate::store::{Change, Store};

/// Tries once more where no space is left, if the store has made room.
///
/// # Errors
/// Those of the last attempt; [`Error::Io`] of making room.
pub fn with_room<S: Store, T>(store: &S, attempt: impl Fn() -> Result<T>) -> Result<T> {
    match attempt() {
        Err(Error::NoSpace) if store.make_room()? => attempt(),
        outcome => outcome,
    }
}

/// Puts an inode among the orphans, or takes it out.
pub(crate) fn set_orphan<S: Store>(
    change: &mut impl Change<S>,
    inode: &Inode<S::Part>,
    state: &mut State<S::Part>,
    orphan: bool,
) -> Result<()> {
    change.set_orphan(inode, state, orphan)?;
    state.orphan = orphan;
    Ok(())
}
