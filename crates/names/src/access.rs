//! Who asks, and whether they may: decided while what it depends on is locked, so that nobody changes it in
//! between.

use amphi_vfs::acl::{self, Acl};
use amphi_vfs::permission::{EXECUTE, WRITE, may_access, may_take_from_sticky};
use amphi_vfs::{Cred, Result};

use crate::inode::{Inode, State};
use crate::store::Store;
use crate::xattr;

/// Who asks for an operation.
pub trait Access {
    /// The caller who has not been checked; none if somebody has checked, as the kernel does for a mount.
    fn unchecked(&self) -> Option<&Cred>;
}

/// Somebody has checked.
#[derive(Clone, Copy, Debug)]
pub struct Trusted;

impl Access for Trusted {
    #[inline]
    fn unchecked(&self) -> Option<&Cred> {
        None
    }
}

impl Access for Cred {
    #[inline]
    fn unchecked(&self) -> Option<&Cred> {
        Some(self)
    }
}

/// Whether `cred` may do all of `wanted` with an inode that is locked.
fn may<S: Store>(
    store: &S,
    inode: &Inode<S::Part>,
    state: &mut State<S::Part>,
    cred: &Cred,
    wanted: u16,
) -> Result<()> {
    let attributes = xattr::load(store, inode.ino, state)?;
    let list = attributes.iter().find(|(name, _)| name == acl::ACCESS);
    let list = list.map(|(_, value)| Acl::decode(value)).transpose()?.flatten();
    may_access(&inode.attr(state), list.as_ref(), cred, wanted)
}

/// Whether names may be looked up in a directory that is locked.
///
/// # Errors
/// [`amphi_vfs::Error::PermissionDenied`].
#[inline]
pub(crate) fn may_search<S: Store>(
    store: &S,
    dir: &Inode<S::Part>,
    state: &mut State<S::Part>,
    who: &impl Access,
) -> Result<()> {
    who.unchecked().map_or(Ok(()), |cred| may(store, dir, state, cred, EXECUTE))
}

/// Whether the name of `victim` may be taken out of a directory; both are locked.
///
/// # Errors
/// [`amphi_vfs::Error::PermissionDenied`]; [`amphi_vfs::Error::NotPermitted`] in a sticky directory.
#[inline]
pub(crate) fn may_take<S: Store>(
    store: &S,
    (dir, state): (&Inode<S::Part>, &mut State<S::Part>),
    (victim, of_victim): (&Inode<S::Part>, &State<S::Part>),
    who: &impl Access,
) -> Result<()> {
    let Some(cred) = who.unchecked() else { return Ok(()) };
    may(store, dir, state, cred, WRITE | EXECUTE)?;
    may_take_from_sticky(&dir.attr(state), &victim.attr(of_victim), cred)
}
