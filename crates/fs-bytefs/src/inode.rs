//! Inodes in host DRAM: attributes, what hangs below them, and how both become the two halves on the device (BY-9).

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{BlockPort, Structure, WriteLog};
use amphi_rt::sync::RwLock;
use amphi_vfs::{Attr, Error, FileType, Ino, Result, TimeSpec};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::core::Core;
use crate::dir::Dir;
use crate::extent::ExtentTree;
use crate::file::FileBody;
use crate::format::{FLAG_INLINE_TARGET, INLINE_TARGET_MAX, INODE_BYTES, InodeLower, InodeUpper, LINE, mode};
use crate::tx::Tx;
use crate::xattr::Xattrs;

/// A cached inode.
pub struct Inode {
    /// Its number.
    pub ino: u32,
    /// Its type, which never changes: readable without the lock.
    pub file_type: FileType,
    /// Lookup references (`FileSystem::forget`).
    pub lookups: AtomicU64,
    /// Open references.
    pub opens: AtomicU64,
    /// A directory's parent, readable without the lock: renames walk ancestors by it.
    pub parent: AtomicU64,
    /// When the inode was put on the list of those with writes to come, ns; 0: it is not there.
    pub listed_ns: AtomicU64,
    /// Everything else.
    pub state: RwLock<State>,
}

/// What an inode's lock protects.
pub struct State {
    /// Type and permission bits as `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Length in bytes, of writes not yet durable too.
    pub size: u64,
    /// Length that the device holds; less or more than `size` while a file has writes to come.
    pub size_on_device: u64,
    /// Access time, ns since 1970.
    pub atime: i64,
    /// Modification time.
    pub mtime: i64,
    /// Change time.
    pub ctime: i64,
    /// Distinguishes successive files with one number.
    pub generation: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Data pages allocated; extent nodes come on top.
    pub data_pages: u64,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// Slot in the orphan table, once it has one.
    pub orphan_slot: Option<u32>,
    /// Deleted: the number may already be somebody else's.
    pub gone: bool,
    /// Attributes changed in DRAM only (times and size of writes to come).
    pub attributes_dirty: bool,
    /// The access time changed in DRAM only, which is in no hurry.
    pub atime_dirty: bool,
    /// Made without a name, and has had none since.
    pub unnamed: bool,
    /// By type.
    pub body: Body,
}

/// What hangs below an inode.
pub enum Body {
    /// Regular file.
    File(FileBody),
    /// Directory.
    Dir(Dir),
    /// Symbolic link, with its target.
    Symlink(Vec<u8>, ExtentTree),
    /// FIFO, socket, device.
    Special,
}

/// `st_mode` type bits of a file type.
pub const fn type_bits(file_type: FileType) -> u16 {
    match file_type {
        FileType::Regular => mode::REGULAR,
        FileType::Directory => mode::DIRECTORY,
        FileType::Symlink => mode::SYMLINK,
        FileType::Fifo => mode::FIFO,
        FileType::Socket => mode::SOCKET,
        FileType::CharDevice => mode::CHAR,
        FileType::BlockDevice => mode::BLOCK,
    }
}

/// The file type of `st_mode` bits; `None` if they are none.
pub const fn file_type(bits: u16) -> Option<FileType> {
    Some(match bits & mode::TYPE {
        mode::REGULAR => FileType::Regular,
        mode::DIRECTORY => FileType::Directory,
        mode::SYMLINK => FileType::Symlink,
        mode::FIFO => FileType::Fifo,
        mode::SOCKET => FileType::Socket,
        mode::CHAR => FileType::CharDevice,
        mode::BLOCK => FileType::BlockDevice,
        _ => return None,
    })
}

impl State {
    /// The file's type.
    pub fn file_type(&self) -> FileType {
        file_type(self.mode).expect("checked when the inode was read or made")
    }

    /// The extent tree, of what has one.
    pub const fn tree(&self) -> Option<&ExtentTree> {
        match &self.body {
            Body::File(file) => Some(&file.tree),
            Body::Dir(dir) => Some(&dir.tree),
            Body::Symlink(_, tree) => Some(tree),
            Body::Special => None,
        }
    }

    /// As [`tree`](Self::tree), to change.
    pub const fn tree_mut(&mut self) -> Option<&mut ExtentTree> {
        match &mut self.body {
            Body::File(file) => Some(&mut file.tree),
            Body::Dir(dir) => Some(&mut dir.tree),
            Body::Symlink(_, tree) => Some(tree),
            Body::Special => None,
        }
    }

    fn pages(&self) -> u64 {
        self.data_pages + self.xattrs.pages() + self.tree().map_or(0, |tree| u64::from(tree.node_pages()))
    }

    /// The directory this is.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub const fn dir(&self) -> Result<&Dir> {
        match &self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Error::NotDirectory),
        }
    }

    /// As [`dir`](Self::dir), to change.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub const fn dir_mut(&mut self) -> Result<&mut Dir> {
        match &mut self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The regular file this is.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`].
    pub const fn file(&self) -> Result<&FileBody> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Dir(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// As [`file`](Self::file), to change.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`].
    pub const fn file_mut(&mut self) -> Result<&mut FileBody> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Dir(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }
}

impl Inode {
    /// A cached inode with no references yet.
    pub fn new(ino: u32, parent: u32, state: State) -> Self {
        Self {
            ino,
            file_type: state.file_type(),
            lookups: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            parent: AtomicU64::new(parent as u64),
            listed_ns: AtomicU64::new(0),
            state: RwLock::new(state),
        }
    }

    /// Whether any caller may still use the number.
    pub fn referenced(&self) -> bool {
        self.lookups.load(Ordering::Acquire) > 0 || self.opens.load(Ordering::Acquire) > 0
    }

    /// The answer to `stat`.
    pub fn attr(&self, state: &State) -> Attr {
        Attr {
            ino: Ino(u64::from(self.ino)),
            generation: state.generation,
            file_type: state.file_type(),
            mode: state.mode & !mode::TYPE,
            nlink: state.nlink,
            uid: state.uid,
            gid: state.gid,
            rdev: state.rdev,
            size: state.size,
            blocks: (state.pages() + state.file().map_or(0, FileBody::reserved_pages)) * 8,
            atime: TimeSpec { ns: state.atime },
            mtime: TimeSpec { ns: state.mtime },
            ctime: TimeSpec { ns: state.ctime },
        }
    }

    /// Decodes the 128 bytes of inode `ino` and loads what hangs below it, but for a directory's entries.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming the inode; [`Error::Io`].
    pub fn load<D: BlockPort + WriteLog>(
        core: &Core<D>,
        ino: u32,
        bytes: &[u8; INODE_BYTES],
    ) -> Result<Self> {
        let corrupt = |what: &str| Error::Corrupt(format!("inode {ino}: {what}"));
        let lower = InodeLower::decode(&bytes[..LINE], ino).map_err(|error| corrupt(&error.to_string()))?;
        let upper = InodeUpper::decode(&bytes[LINE..], ino).map_err(|error| corrupt(&error.to_string()))?;
        let kind = file_type(lower.mode.get()).ok_or_else(|| corrupt("unknown file type"))?;
        let attributes = upper.xattr.get();
        if attributes != 0 && !core.layout.holds_data(attributes, 1) {
            return Err(corrupt("the page of extended attributes is outside the data area"));
        }
        let inline = lower.flags.get() & FLAG_INLINE_TARGET != 0;
        let size = lower.size.get();
        let load_tree = || ExtentTree::load(&*core.device, ino, &upper, &core.layout);
        let body = match kind {
            FileType::Regular => Body::File(FileBody::new(load_tree()?)),
            FileType::Directory => Body::Dir(Dir::new(load_tree()?, size).map_err(|what| corrupt(&what))?),
            FileType::Symlink if inline => {
                let len = usize::from(upper.count.get());
                if len == 0 || len > INLINE_TARGET_MAX || len as u64 != size {
                    return Err(corrupt("the symlink's target has an impossible length"));
                }
                Body::Symlink(upper.root.as_bytes()[..len].to_vec(), ExtentTree::default())
            }
            FileType::Symlink => {
                let tree = load_tree()?;
                Body::Symlink(crate::symlink::read_target(core, ino, &tree, size)?, tree)
            }
            _ => Body::Special,
        };
        let node_pages = match &body {
            Body::File(file) => file.tree.node_pages(),
            Body::Dir(dir) => dir.tree.node_pages(),
            Body::Symlink(_, tree) => tree.node_pages(),
            Body::Special => 0,
        };
        let xattrs = Xattrs::at(upper.xattr.get());
        let other_pages = u64::from(node_pages) + xattrs.pages();
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let state = State {
            mode: lower.mode.get(),
            uid: lower.uid.get(),
            gid: lower.gid.get(),
            nlink: lower.nlink.get(),
            size,
            size_on_device: size,
            atime: lower.atime.get(),
            mtime: lower.mtime.get(),
            ctime: lower.ctime.get(),
            generation: lower.generation.get(),
            rdev: if is_device { upper.parent_or_rdev.get() } else { 0 },
            data_pages: u64::from(lower.pages.get()).saturating_sub(other_pages),
            xattrs,
            orphan_slot: None,
            gone: false,
            attributes_dirty: false,
            atime_dirty: false,
            unnamed: false,
            body,
        };
        Ok(Self::new(ino, upper.parent_or_rdev.get(), state))
    }

    /// Adds the lower half to `tx`: one line (BY-9). The size written is `size_on_device`.
    pub fn write_lower<D: BlockPort + WriteLog>(&self, core: &Core<D>, state: &State, tx: &mut Tx<'_, D>) {
        let inline = matches!(&state.body, Body::Symlink(target, _) if target.len() <= INLINE_TARGET_MAX);
        let lower = InodeLower {
            size: state.size_on_device.into(),
            atime: state.atime.into(),
            mtime: state.mtime.into(),
            ctime: state.ctime.into(),
            uid: state.uid.into(),
            gid: state.gid.into(),
            mode: state.mode.into(),
            flags: if inline { FLAG_INLINE_TARGET } else { 0 }.into(),
            nlink: state.nlink.into(),
            pages: (state.pages() as u32).into(),
            generation: state.generation.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        tx.write(core.layout.inode_address(self.ino), &lower.encode(self.ino), Structure::Inode);
    }

    /// Adds the upper half, and the extent nodes that changed, to `tx`.
    pub fn write_upper<D: BlockPort + WriteLog>(
        &self,
        core: &Core<D>,
        state: &mut State,
        tx: &mut Tx<'_, D>,
    ) {
        let mut upper = InodeUpper::new_zeroed();
        upper.xattr = state.xattrs.lba.into();
        upper.parent_or_rdev = match state.file_type() {
            FileType::Directory => self.parent.load(Ordering::Acquire) as u32,
            _ => state.rdev,
        }
        .into();
        if let Some(tree) = state.tree_mut() {
            tree.flush(self.ino, tx);
            tree.fill(&mut upper);
        }
        if let Body::Symlink(target, _) = &state.body
            && target.len() <= INLINE_TARGET_MAX
        {
            let mut inline = [0; INLINE_TARGET_MAX];
            inline[..target.len()].copy_from_slice(target);
            upper.count = (target.len() as u16).into();
            if let Ok(root) = FromBytes::read_from_bytes(&inline[..]) {
                upper.root = root;
            }
        }
        let at = core.layout.inode_address(self.ino) + LINE as u64;
        let tag = if upper.count.get() > 0 { Structure::Pointer } else { Structure::Inode };
        tx.write(at, &upper.encode(self.ino), tag);
    }

    /// Adds what differs from the device: the lower half always, staged attributes, the upper half if the extent tree changed.
    pub fn write_changed<D: BlockPort + WriteLog>(
        &self,
        core: &Core<D>,
        state: &mut State,
        tx: &mut Tx<'_, D>,
    ) {
        let freed_xattrs = state.xattrs.flush(tx);
        self.write_lower(core, state, tx);
        state.atime_dirty = false;
        if freed_xattrs || state.tree().is_some_and(ExtentTree::dirty) {
            self.write_upper(core, state, tx);
        }
    }
}
