//! Extended attributes: one page per inode that has any, loaded by block at first use, updated by bytes.
//!
//! The page holds a header and the attributes packed one after another. A change builds the new page, and only the lines that differ travel, in one
//! transaction with the inode.

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_vfs::{Error, Ino, Result, XattrMode, acl};

use crate::bitmap::Run;
use crate::core::{Core, io_error};
use crate::format::{LINE, LINES_PER_PAGE, PAGE, XattrHeader};
use crate::inode::{Inode, State};
use crate::tx::Tx;

/// Longest name in bytes, as Linux has it.
const NAME_MAX: usize = 255;
/// Longest value that Linux lets through.
const VALUE_MAX: usize = 65_536;

/// What gives a program capabilities. It goes with the first change of the file's contents or owner.
const CAPABILITY: &[u8] = b"security.capability";

/// The attributes of one inode, as names and values in the order they were first set.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What an inode knows of its attributes.
#[derive(Default)]
pub struct Xattrs {
    /// The page that holds them; 0: there are none.
    pub lba: u32,
    /// The page as the device has it, once loaded.
    page: Option<Box<[u8; PAGE]>>,
    /// Lines of `page` that are known; of a page fresh from the allocator those behind are whatever was there before.
    lines_known: usize,
    attributes: Attributes,
    staged: Option<Staged>,
}

/// What the inode's next transaction does with the page.
enum Staged {
    /// Writes it; so many bytes of it are in use.
    Page(Box<[u8; PAGE]>, usize),
    /// Frees it: no attribute is left.
    Free,
}

impl Xattrs {
    /// Attributes not yet loaded from page `lba`, or none.
    pub fn at(lba: u32) -> Self {
        Self { lba, ..Self::default() }
    }

    /// Pages taken.
    pub const fn pages(&self) -> u64 {
        (self.lba != 0) as u64
    }

    fn loaded(&self) -> bool {
        self.lba == 0 || self.page.is_some()
    }

    fn load<D: BlockPort + WriteLog>(&mut self, core: &Core<D>, ino: u32) -> Result<()> {
        if self.loaded() {
            return Ok(());
        }
        let corrupt = |what: &str| Error::Corrupt(format!("inode {ino}: {what}"));
        let mut page = Box::new([0; PAGE]);
        core.device.read(Lpa(u64::from(self.lba)), &mut page[..], Structure::Inode).map_err(io_error)?;
        self.attributes = XattrHeader::decode(&page, ino).map_err(|error| corrupt(&error.to_string()))?;
        self.page = Some(page);
        self.lines_known = LINES_PER_PAGE;
        Ok(())
    }

    /// Adds the lines of the first `used` bytes of `page` that the device lacks to `tx`.
    fn write<D: BlockPort + WriteLog>(&mut self, mut page: Box<[u8; PAGE]>, used: usize, tx: &mut Tx<'_, D>) {
        let lines = used.div_ceil(LINE);
        for (i, line) in page.as_chunks::<LINE>().0.iter().enumerate().take(lines) {
            let at = i * LINE;
            let known = self.page.as_ref().filter(|_| i < self.lines_known);
            if known.is_none_or(|disk| disk[at..at + LINE] != line[..]) {
                tx.write(Lpa(u64::from(self.lba)).byte(at), line, Structure::Inode);
            }
        }
        if let Some(disk) = &self.page {
            page[lines * LINE..].copy_from_slice(&disk[lines * LINE..]);
        }
        self.page = Some(page);
        self.lines_known = self.lines_known.max(lines);
    }

    /// Puts attributes that a new inode starts with, which fit one page, on a page of their own.
    pub fn of_new<D: BlockPort + WriteLog>(
        attributes: Attributes,
        ino: u32,
        tx: &mut Tx<'_, D>,
    ) -> Result<Self> {
        let mut xattrs = Self::default();
        if !attributes.is_empty() {
            let mut page = Box::new([0; PAGE]);
            let used = XattrHeader::encode(&mut page, ino, &attributes).ok_or(Error::NoSpace)?;
            xattrs.lba = tx.allocate_block();
            xattrs.write(page, used, tx);
            xattrs.attributes = attributes;
        }
        Ok(xattrs)
    }

    /// Adds what is staged to `tx`. Returns whether the inode has no page any more.
    pub fn flush<D: BlockPort + WriteLog>(&mut self, tx: &mut Tx<'_, D>) -> bool {
        match self.staged.take() {
            Some(Staged::Page(page, used)) => self.write(page, used, tx),
            Some(Staged::Free) => {
                tx.free_blocks(Run { start: u64::from(std::mem::take(&mut self.lba)), len: 1 });
                (self.page, self.lines_known) = (None, 0);
                return true;
            }
            None => {}
        }
        false
    }

    /// Whether the inode may have capabilities, as far as is known without the device.
    pub fn may_have_capability(&self) -> bool {
        self.lba != 0 && (self.page.is_none() || self.position(CAPABILITY).is_some())
    }

    /// The value of the default ACL.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn default_acl<D: BlockPort + WriteLog>(
        &mut self,
        core: &Core<D>,
        ino: u32,
    ) -> Result<Option<&[u8]>> {
        self.load(core, ino)?;
        Ok(self.position(acl::DEFAULT).map(|at| &self.attributes[at].1[..]))
    }

    /// Stages what follows from a change of attributes: the access ACL as it is after a `chmod` to `mode`, and no capabilities if it `sheds` them.
    /// Returns all attributes before, for [`restore`](Self::restore), if that changes any.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn follow<D: BlockPort + WriteLog>(
        &mut self,
        core: &Core<D>,
        ino: u32,
        mode: Option<u16>,
        sheds: bool,
    ) -> Result<Option<Attributes>> {
        let sheds = sheds && self.may_have_capability();
        if self.lba == 0 || (mode.is_none() && !sheds) {
            return Ok(None);
        }
        self.load(core, ino)?;
        let list = mode.and_then(|mode| Some((self.position(acl::ACCESS)?, mode)));
        let capability = self.position(CAPABILITY).filter(|_| sheds);
        if list.is_none() && capability.is_none() {
            return Ok(None);
        }
        let mut attributes = self.attributes.clone();
        if let Some((at, mode)) = list {
            attributes[at].1 = acl::after_chmod(&attributes[at].1, mode)?;
        }
        if let Some(at) = capability {
            attributes.remove(at);
        }
        self.staged = Some(if attributes.is_empty() {
            Staged::Free
        } else {
            let mut page = Box::new([0; PAGE]);
            let used = XattrHeader::encode(&mut page, ino, &attributes).ok_or(Error::NoSpace)?;
            Staged::Page(page, used)
        });
        Ok(Some(std::mem::replace(&mut self.attributes, attributes)))
    }

    /// Takes back what [`follow`](Self::follow) did.
    pub fn restore(&mut self, before: Option<Attributes>) {
        self.staged = None;
        if let Some(before) = before {
            self.attributes = before;
        }
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.attributes.iter().position(|(known, _)| known == name)
    }
}

/// Calls `body` with the inode's attributes, loading them first if need be.
fn with<T, D: BlockPort + WriteLog>(
    core: &Core<D>,
    ino: Ino,
    body: impl FnOnce(&Xattrs) -> Result<T>,
) -> Result<T> {
    let inode = core.inode(ino)?;
    {
        let state = inode.state.read();
        if state.gone {
            return Err(Error::Stale(ino));
        }
        if state.xattrs.loaded() {
            return body(&state.xattrs);
        }
    }
    let mut state = inode.state.write();
    state.xattrs.load(core, inode.ino)?;
    body(&state.xattrs)
}

/// See [`amphi_vfs::FileSystem::getxattr`].
///
/// # Errors
/// As there.
pub fn get<D: BlockPort + WriteLog>(core: &Core<D>, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
    with(core, ino, |xattrs| {
        let at = xattrs.position(name).ok_or(Error::NoData)?;
        Ok(xattrs.attributes[at].1.clone())
    })
}

/// See [`amphi_vfs::FileSystem::listxattr`].
///
/// # Errors
/// As there.
pub fn list<D: BlockPort + WriteLog>(core: &Core<D>, ino: Ino) -> Result<Vec<Vec<u8>>> {
    with(core, ino, |xattrs| Ok(xattrs.attributes.iter().map(|(name, _)| name.clone()).collect()))
}

/// See [`amphi_vfs::FileSystem::setxattr`].
///
/// # Errors
/// As there; [`Error::NoSpace`] if all attributes together do not fit into one page, as on ext4.
pub fn set<D: BlockPort + WriteLog>(
    core: &Core<D>,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<()> {
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
    change(core, &inode, bits, |attributes| {
        let known = attributes.iter().position(|(known, _)| known == name);
        match (mode, known) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists),
            (XattrMode::Replace, None) => return Err(Error::NoData),
            _ => {}
        }
        match (value, known) {
            (Some(value), Some(at)) => attributes[at].1 = value.to_vec(),
            (Some(value), None) => attributes.push((name.to_vec(), value.to_vec())),
            (None, Some(at)) => drop(attributes.remove(at)),
            (None, None) => {}
        }
        Ok(())
    })
}

/// See [`amphi_vfs::FileSystem::removexattr`].
///
/// # Errors
/// As there.
pub fn remove<D: BlockPort + WriteLog>(core: &Core<D>, ino: Ino, name: &[u8]) -> Result<()> {
    if acl::is_name(name) {
        return set(core, ino, name, &[], XattrMode::Set);
    }
    change(core, &*core.inode(ino)?, None, |attributes| {
        let at = attributes.iter().position(|(known, _)| known == name).ok_or(Error::NoData)?;
        attributes.remove(at);
        Ok(())
    })
}

/// Changes the attributes as `body` does, and the permission bits to `bits`.
fn change<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    bits: Option<u16>,
    body: impl FnOnce(&mut Attributes) -> Result<()>,
) -> Result<()> {
    core.writable()?;
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(Ino(u64::from(inode.ino))));
    }
    change_locked(core, inode, &mut state, bits, body)
}

fn change_locked<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    bits: Option<u16>,
    body: impl FnOnce(&mut Attributes) -> Result<()>,
) -> Result<()> {
    state.xattrs.load(core, inode.ino)?;
    let mut attributes = state.xattrs.attributes.clone();
    body(&mut attributes)?;
    let mut page = Box::new([0; PAGE]);
    let used = XattrHeader::encode(&mut page, inode.ino, &attributes).ok_or(Error::NoSpace)?;
    let fresh = state.xattrs.lba == 0;
    let mut tx = Tx::new(core, u64::from(fresh && !attributes.is_empty()))?;
    if attributes.is_empty() {
        free(state, &mut tx);
    } else {
        if fresh {
            state.xattrs.lba = tx.allocate_block();
        }
        state.xattrs.write(page, used, &mut tx);
    }
    state.xattrs.attributes = attributes;
    state.ctime = core.now();
    state.mode = bits.map_or(state.mode, |bits| state.mode & !0o777 | bits);
    if fresh != (state.xattrs.lba == 0) {
        inode.write_upper(core, state, &mut tx);
    }
    inode.write_changed(core, state, &mut tx);
    tx.commit()
}

/// Removes the capabilities of a program that is about to change.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn shed_capability<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
) -> Result<()> {
    if !state.xattrs.may_have_capability() {
        return Ok(());
    }
    state.xattrs.load(core, inode.ino)?;
    if state.xattrs.position(CAPABILITY).is_none() {
        return Ok(());
    }
    change_locked(core, inode, state, None, |attributes| {
        attributes.retain(|(name, _)| name != CAPABILITY);
        Ok(())
    })
}

/// Frees the page of attributes, if there is one, when `tx` commits.
pub fn free<D: BlockPort + WriteLog>(state: &mut State, tx: &mut Tx<'_, D>) {
    let xattrs = std::mem::take(&mut state.xattrs);
    if xattrs.lba != 0 {
        tx.free_blocks(Run { start: u64::from(xattrs.lba), len: 1 });
    }
}
