//! Extended attributes: in the inode while they fit there, else in one block, as on ext4.

use amphi_device::BlockPort;
use amphi_vfs::{Error, Ino, Result, XattrMode, acl};

use crate::buffers::{Block, Kind};
use crate::core::Core;
use crate::format::{
    DiskInode, Layout, XATTR_INLINE_MAX, decode_xattr_block, decode_xattrs, encode_xattr_block, encode_xattrs,
};
use crate::inode::{Inode, State};
use crate::journal::Handle;

/// Longest name in bytes, as Linux has it.
const NAME_MAX: usize = 255;
/// Longest value that Linux lets through.
const VALUE_MAX: usize = 65_536;
/// What gives a program capabilities. It goes with the first change of the file's contents or owner.
const CAPABILITY: &[u8] = b"security.capability";

/// The attributes of one inode.
#[derive(Default)]
pub struct Xattrs {
    /// Their block; 0: they are in the inode.
    block: u32,
    /// Names and values; none: the block was not read yet.
    list: Option<acl::Attributes>,
}

impl Xattrs {
    /// What an inode on the device says.
    ///
    /// # Errors
    /// What is impossible.
    pub fn of_inode(disk: &DiskInode, layout: &Layout) -> std::result::Result<Self, &'static str> {
        let block = disk.xattr.get();
        if block != 0 {
            return if layout.is_data(block, 1) {
                Ok(Self { block, list: None })
            } else {
                Err("its attributes are outside of the data area")
            };
        }
        let bytes = disk.xattrs.get(..usize::from(disk.xattr_bytes.get()));
        let list = bytes.and_then(decode_xattrs).ok_or("its attributes are damaged")?;
        Ok(Self { block: 0, list: Some(list) })
    }

    /// Attributes of a new inode.
    pub const fn of_new(list: acl::Attributes) -> Self {
        Self { block: 0, list: Some(list) }
    }

    /// The block that holds them.
    pub const fn block(&self) -> Option<u32> {
        if self.block == 0 { None } else { Some(self.block) }
    }

    /// Puts the part that is in the inode there.
    pub fn put_into(&self, disk: &mut DiskInode) {
        disk.xattr = self.block.into();
        if self.block == 0
            && let Some(list) = &self.list
        {
            let bytes = encode_xattrs(list);
            let len = bytes.len().min(XATTR_INLINE_MAX);
            disk.xattrs[..len].copy_from_slice(&bytes[..len]);
            disk.xattr_bytes = (len as u16).into();
        }
    }

    /// The attributes, read if need be.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load<D: BlockPort>(&mut self, core: &Core<D>) -> Result<&mut acl::Attributes> {
        if self.list.is_none() {
            let lba = u64::from(self.block);
            let block = core.block(lba, Kind::Xattr)?;
            self.list = Some(read_block(lba, &block)?);
        }
        Ok(self.list.get_or_insert_default())
    }

    fn known(&self) -> Option<&acl::Attributes> {
        self.list.as_ref()
    }
}

/// Contents in the cache are sealed when they are committed only.
fn read_block(lba: u64, block: &Block) -> Result<acl::Attributes> {
    let mut block = *block;
    crate::format::seal_block(lba, &mut block);
    decode_xattr_block(lba, &block)
        .ok_or_else(|| Error::Corrupt(format!("the attributes in block {lba} are damaged")))
}

/// A change of attributes that is known to fit: what is to be stored, and where.
pub struct Prepared {
    list: acl::Attributes,
    block: Option<Box<Block>>,
}

/// Checks that `list` can be stored.
///
/// # Errors
/// [`Error::NoSpace`] if all together do not fit one block, as on ext4.
pub fn prepare(list: acl::Attributes) -> Result<Prepared> {
    let bytes = encode_xattrs(&list);
    if bytes.len() <= XATTR_INLINE_MAX {
        return Ok(Prepared { list, block: None });
    }
    if list.iter().any(|(_, value)| value.len() > usize::from(u16::MAX)) {
        return Err(Error::NoSpace);
    }
    let block = encode_xattr_block(&bytes).ok_or(Error::NoSpace)?;
    Ok(Prepared { list, block: Some(Box::new(block)) })
}

impl Prepared {
    /// What is to be stored.
    pub const fn list(&self) -> &acl::Attributes {
        &self.list
    }

    /// Blocks to reserve for it.
    pub const fn needs(&self, state: &State) -> u64 {
        (self.block.is_some() && state.xattrs.block == 0) as u64
    }

    /// Stores it; the inode is written afterwards.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn store<D: BlockPort>(self, handle: &mut Handle<'_, D>, state: &mut State, goal: u32) -> Result<()> {
        let groups = &handle.core.groups;
        match (self.block, state.xattrs.block) {
            (None, 0) => {}
            (None, _) => free(handle, state)?,
            (Some(bytes), 0) => {
                let (block, _) = groups.allocate(handle, goal, 1)?;
                handle.fill(u64::from(block), Kind::Xattr, |block| *block = *bytes)?;
                state.xattrs.block = block;
                state.blocks += 1;
            }
            (Some(bytes), block) => {
                handle.modify(u64::from(block), Kind::Xattr, |block| *block = *bytes)?;
            }
        }
        state.xattrs.list = Some(self.list);
        Ok(())
    }
}

/// Frees the block of attributes, if there is one.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn free<D: BlockPort>(handle: &mut Handle<'_, D>, state: &mut State) -> Result<()> {
    let block = std::mem::take(&mut state.xattrs.block);
    if block != 0 {
        handle.core.groups.free_blocks(handle, block, 1, true)?;
        state.blocks -= 1;
    }
    Ok(())
}

/// Calls `body` with the inode's attributes, loading them first if need be.
fn with<T, D: BlockPort>(
    core: &Core<D>,
    ino: Ino,
    body: impl FnOnce(&acl::Attributes) -> Result<T>,
) -> Result<T> {
    let inode = core.inode(ino)?;
    {
        let state = inode.state.read();
        if state.gone {
            return Err(Error::Stale(ino));
        }
        if let Some(list) = state.xattrs.known() {
            return body(list);
        }
    }
    body(inode.state.write().xattrs.load(core)?)
}

/// See [`amphi_vfs::FileSystem::getxattr`].
///
/// # Errors
/// As there.
pub fn get<D: BlockPort>(core: &Core<D>, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
    with(core, ino, |list| {
        list.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).ok_or(Error::NoData)
    })
}

/// See [`amphi_vfs::FileSystem::listxattr`].
///
/// # Errors
/// As there.
pub fn list<D: BlockPort>(core: &Core<D>, ino: Ino) -> Result<Vec<Vec<u8>>> {
    with(core, ino, |list| Ok(list.iter().map(|(name, _)| name.clone()).collect()))
}

/// See [`amphi_vfs::FileSystem::setxattr`].
///
/// # Errors
/// As there.
pub fn set<D: BlockPort>(core: &Core<D>, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Invalid("the name of an extended attribute has 1 to 255 bytes"));
    }
    if value.len() > VALUE_MAX {
        return Err(Error::XattrTooLarge);
    }
    let inode = core.inode(ino)?;
    let effect = acl::change(name, value, inode.file_type)?;
    let (value, bits) = match &effect {
        Some(acl::Change { value, mode }) => (value.as_deref(), *mode),
        None => (Some(value), None),
    };
    change(core, &inode, bits, |list| {
        let known = list.iter().position(|(known, _)| known == name);
        match (mode, known, value) {
            (XattrMode::Create, Some(_), _) => return Err(Error::Exists),
            (XattrMode::Replace, None, _) => return Err(Error::NoData),
            (_, Some(at), Some(value)) => list[at].1 = value.to_vec(),
            (_, None, Some(value)) => list.push((name.to_vec(), value.to_vec())),
            (_, Some(at), None) => drop(list.remove(at)),
            (_, None, None) => {}
        }
        Ok(())
    })
}

/// See [`amphi_vfs::FileSystem::removexattr`].
///
/// # Errors
/// As there.
pub fn remove<D: BlockPort>(core: &Core<D>, ino: Ino, name: &[u8]) -> Result<()> {
    if acl::is_name(name) {
        return set(core, ino, name, &[], XattrMode::Set);
    }
    change(core, &*core.inode(ino)?, None, |list| {
        let at = list.iter().position(|(known, _)| known == name).ok_or(Error::NoData)?;
        list.remove(at);
        Ok(())
    })
}

fn change<D: BlockPort>(
    core: &Core<D>,
    inode: &Inode,
    bits: Option<u16>,
    body: impl FnOnce(&mut acl::Attributes) -> Result<()>,
) -> Result<()> {
    core.writable()?;
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(Ino(u64::from(inode.ino))));
    }
    let mut list = state.xattrs.load(core)?.clone();
    body(&mut list)?;
    let prepared = prepare(list)?;
    let mut reserved = core.reserve(prepared.needs(&state))?;
    let mut handle = core.handle(6)?;
    reserved.take(prepared.needs(&state));
    prepared.store(&mut handle, &mut state, core.groups.goal(inode.ino))?;
    state.ctime = core.now();
    state.mode = bits.map_or(state.mode, |bits| state.mode & !0o777 | bits);
    inode.write(&mut handle, &mut state, false)?;
    handle.finish();
    Ok(())
}

/// What a change of contents or owner leaves of the attributes, if that is not all: the file's capabilities go.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn without_capability<D: BlockPort>(core: &Core<D>, state: &mut State) -> Result<Option<Prepared>> {
    let list = state.xattrs.load(core)?;
    if !list.iter().any(|(name, _)| name == CAPABILITY) {
        return Ok(None);
    }
    prepare(list.iter().filter(|(name, _)| name != CAPABILITY).cloned().collect()).map(Some)
}

/// The attributes after a `chmod` to `mode`, if there is an access ACL, which follows it.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn following_mode(list: &acl::Attributes, mode: u16) -> Result<Option<acl::Attributes>> {
    let Some(at) = list.iter().position(|(name, _)| name == acl::ACCESS) else { return Ok(None) };
    let mut list = list.clone();
    list[at].1 = acl::after_chmod(&list[at].1, mode)?;
    Ok(Some(list))
}
