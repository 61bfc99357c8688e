//! What extended attributes mean: names and values in a list, ACLs that follow the mode and that the mode
//! follows, capabilities that go with the first change of the file. Where the list is kept is the store's
//! business.

use amphi_vfs::acl::{self, Attributes};
use amphi_vfs::{Error, Ino, Result, SetAttr, XattrMode};

use crate::attempt::with_room;
use crate::inode::{Inode, Part, State};
use crate::load::inode;
use crate::store::{Change, Changed, Need, Store};

/// Longest name in bytes, as Linux has it.
const NAME_MAX: usize = 255;
/// Longest value in bytes that Linux lets through.
const VALUE_MAX: usize = 65_536;
/// What gives a program capabilities. It goes with the first change of the file's contents or owner.
const CAPABILITY: &[u8] = b"security.capability";

fn position(attributes: &Attributes, name: &[u8]) -> Option<usize> {
    attributes.iter().position(|(known, _)| known == name)
}

/// The attributes, read if need be.
#[inline]
pub(crate) fn load<'a, S: Store>(
    store: &S,
    ino: Ino,
    state: &'a mut State<S::Part>,
) -> Result<&'a Attributes> {
    if state.attributes.is_none() {
        state.attributes = Some(store.attributes(ino, state)?);
    }
    Ok(state.attributes.get_or_insert_default())
}

/// Calls `body` with the inode's attributes, read if need be.
fn with<T, S: Store>(store: &S, ino: Ino, body: impl FnOnce(&Attributes) -> Result<T>) -> Result<T> {
    let inode = inode(store, ino)?;
    {
        let state = inode.state.read();
        if state.gone {
            return Err(Error::Stale(ino));
        }
        if let Some(attributes) = &state.attributes {
            return body(attributes);
        }
    }
    let mut state = inode.state.write();
    // It may have gone while nobody had it locked.
    if state.gone {
        return Err(Error::Stale(ino));
    }
    body(load(store, ino, &mut state)?)
}

/// See [`amphi_vfs::FileSystem::getxattr`].
///
/// # Errors
/// As there.
pub fn getxattr<S: Store>(store: &S, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
    with(store, ino, |attributes| {
        position(attributes, name).map(|at| attributes[at].1.clone()).ok_or(Error::NoData)
    })
}

/// See [`amphi_vfs::FileSystem::listxattr`].
///
/// # Errors
/// As there.
pub fn listxattr<S: Store>(store: &S, ino: Ino) -> Result<Vec<Vec<u8>>> {
    with(store, ino, |attributes| Ok(attributes.iter().map(|(name, _)| name.clone()).collect()))
}

/// See [`amphi_vfs::FileSystem::setxattr`].
///
/// # Errors
/// As there; [`Error::NoSpace`] if all attributes together do not fit where the store keeps them.
pub fn setxattr<S: Store>(store: &S, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Invalid("the name of an extended attribute has 1 to 255 bytes"));
    }
    if value.len() > VALUE_MAX {
        return Err(Error::XattrTooLarge);
    }
    let inode = &*inode(store, ino)?;
    let effect = acl::change(name, value, inode.file_type)?;
    let (value, bits) = match &effect {
        Some(acl::Change { value, mode }) => (value.as_deref(), *mode),
        None => (Some(value), None),
    };
    change(store, inode, bits, |attributes| {
        let known = position(attributes, name);
        match (mode, known, value) {
            (XattrMode::Create, Some(_), _) => return Err(Error::Exists),
            (XattrMode::Replace, None, _) => return Err(Error::NoData),
            (_, Some(at), Some(value)) => attributes[at].1 = value.to_vec(),
            (_, None, Some(value)) => attributes.push((name.to_vec(), value.to_vec())),
            (_, Some(at), None) => drop(attributes.remove(at)),
            (_, None, None) => {}
        }
        Ok(())
    })
}

/// See [`amphi_vfs::FileSystem::removexattr`].
///
/// # Errors
/// As there.
pub fn removexattr<S: Store>(store: &S, ino: Ino, name: &[u8]) -> Result<()> {
    if acl::is_name(name) {
        return setxattr(store, ino, name, &[], XattrMode::Set);
    }
    change(store, &*inode(store, ino)?, None, |attributes| {
        let at = position(attributes, name).ok_or(Error::NoData)?;
        attributes.remove(at);
        Ok(())
    })
}

/// Changes the attributes as `body` does, and the permission bits to `bits`.
fn change<S: Store>(
    store: &S,
    inode: &Inode<S::Part>,
    bits: Option<u16>,
    body: impl Fn(&mut Attributes) -> Result<()>,
) -> Result<()> {
    with_room(store, || {
        store.names().health.writable()?;
        let mut state = inode.state.write();
        if state.gone {
            return Err(Error::Stale(inode.ino));
        }
        change_locked(store, inode, &mut state, bits, &body)
    })
}

fn change_locked<S: Store>(
    store: &S,
    inode: &Inode<S::Part>,
    state: &mut State<S::Part>,
    bits: Option<u16>,
    body: impl FnOnce(&mut Attributes) -> Result<()>,
) -> Result<()> {
    let mut attributes = load(store, inode.ino, state)?.clone();
    body(&mut attributes)?;
    let need = Need { attributes: Some((&attributes, Some(&state.part))), ..Need::NOTHING };
    let mut change = store.begin(&need)?;
    change.set_attributes(inode.ino, state, &attributes)?;
    state.attributes = Some(attributes);
    state.ctime = store.names().clock.now();
    state.mode = bits.map_or(state.mode, |bits| state.mode & !0o777 | bits);
    change.write_inode(inode, state, Changed::Attributes)?;
    change.commit()
}

/// Whether a file may have capabilities, as far as is known without the device.
#[inline]
fn may_have_capability<P: Part>(state: &State<P>) -> bool {
    state.attributes.as_ref().is_none_or(|attributes| position(attributes, CAPABILITY).is_some())
}

/// Removes the capabilities of a program whose contents are about to change, in a change of its own.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
#[inline]
pub fn shed_capability<S: Store>(
    store: &S,
    inode: &Inode<S::Part>,
    state: &mut State<S::Part>,
) -> Result<()> {
    if may_have_capability(state) { shed(store, inode, state) } else { Ok(()) }
}

fn shed<S: Store>(store: &S, inode: &Inode<S::Part>, state: &mut State<S::Part>) -> Result<()> {
    if position(load(store, inode.ino, state)?, CAPABILITY).is_none() {
        return Ok(());
    }
    change_locked(store, inode, state, None, |attributes| {
        attributes.retain(|(name, _)| name != CAPABILITY);
        Ok(())
    })
}

/// What a change of attributes makes of the extended ones, if anything: the access ACL follows the mode,
/// capabilities go with a new owner, group or size.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn following<S: Store>(
    store: &S,
    ino: Ino,
    state: &mut State<S::Part>,
    asked: &SetAttr,
) -> Result<Option<Attributes>> {
    let sheds =
        (asked.uid.is_some() || asked.gid.is_some() || asked.size.is_some()) && may_have_capability(state);
    if asked.mode.is_none() && !sheds {
        return Ok(None);
    }
    let known = load(store, ino, state)?;
    let list = asked.mode.and_then(|mode| Some((position(known, acl::ACCESS)?, mode)));
    let capability = position(known, CAPABILITY).filter(|_| sheds);
    if list.is_none() && capability.is_none() {
        return Ok(None);
    }
    let mut attributes = known.clone();
    if let Some((at, mode)) = list {
        attributes[at].1 = acl::after_chmod(&attributes[at].1, mode)?;
    }
    if let Some(at) = capability {
        attributes.remove(at);
    }
    Ok(Some(attributes))
}
