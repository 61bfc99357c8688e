//! Inodes in host DRAM: what hangs below them, and how they become the two halves on the device (BY-9).

use amphi_device::{BlockPort, Structure, WriteLog};
use amphi_page_cache::Since;
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::base::Base;
use crate::commit::tx::Tx;
use crate::data::body::FileBody;
use crate::format::{
    FLAG_INLINE_TARGET, INLINE_TARGET_MAX, INODE_BYTES, InodeLower, InodeUpper, LINE, PAGE, mode,
};
use crate::index::dir::Dir;
use crate::index::extent::ExtentTree;
use crate::index::xattr::Xattrs;
use crate::planted::{self, Bug};

/// The number of an inode, which was in range when it was loaded or made.
pub fn number(inode: &Inode) -> u32 {
    inode.ino.0 as u32
}

/// What ByteFS keeps of an inode beside its lock.
#[derive(Default)]
pub struct Beside {
    /// Since when it has writes to come.
    pub dirty: Since,
}

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// What ByteFS keeps in an inode.
pub struct Part {
    /// Length that the device holds; less or more than `size` while a file has writes to come.
    pub size_on_device: u64,
    /// Data pages allocated; extent nodes come on top.
    pub data_pages: u64,
    /// Where extended attributes are.
    pub xattrs: Xattrs,
    /// Slot in the orphan table, while it has one.
    pub orphan_slot: Option<u32>,
    /// Attributes changed in DRAM only (times and size of writes to come).
    pub attributes_dirty: bool,
    /// By type.
    pub body: Body,
}

impl amphi_names::Part for Part {
    type Beside = Beside;

    #[inline]
    fn sectors(state: &State) -> u64 {
        let reserved = if let Body::File(file) = &state.body { file.unmapped } else { 0 };
        (state.pages() + reserved) * (PAGE / 512) as u64
    }
}

/// What hangs below an inode. Directories are boxed, since most inodes are files, and would be as large; a
/// link has its target and, where that is not in the inode, its block.
pub type Body = amphi_names::Body<FileBody, Box<Dir>, (Vec<u8>, ExtentTree)>;

impl Part {
    /// What a new inode starts with: `size` bytes that the device holds.
    pub fn new(body: Body, size: u64) -> Self {
        Self {
            size_on_device: size,
            data_pages: 0,
            xattrs: Xattrs::default(),
            orphan_slot: None,
            attributes_dirty: false,
            body,
        }
    }

    /// The extent tree, of what has one.
    pub fn tree(&self) -> Option<&ExtentTree> {
        match &self.body {
            Body::File(file) => Some(&file.tree),
            Body::Dir(dir) => Some(&dir.tree),
            Body::Symlink((_, tree)) => Some(tree),
            Body::Special => None,
        }
    }

    /// As [`tree`](Self::tree), to change.
    pub fn tree_mut(&mut self) -> Option<&mut ExtentTree> {
        match &mut self.body {
            Body::File(file) => Some(&mut file.tree),
            Body::Dir(dir) => Some(&mut dir.tree),
            Body::Symlink((_, tree)) => Some(tree),
            Body::Special => None,
        }
    }

    /// Pages that the device holds for the inode.
    pub fn pages(&self) -> u64 {
        self.data_pages + self.xattrs.pages() + self.tree().map_or(0, |tree| u64::from(tree.node_pages()))
    }
}

/// Decodes the 128 bytes of inode `ino` and loads what hangs below it, but for a directory's entries.
///
/// # Errors
/// [`Error::Corrupt`] naming the inode; [`Error::Io`].
pub fn decode<D: BlockPort + WriteLog>(base: &Base<D>, ino: u32, bytes: &[u8; INODE_BYTES]) -> Result<Inode> {
    let corrupt = |what: &str| Error::corrupt("inode", u64::from(ino), what.to_owned());
    let lower = InodeLower::decode(&bytes[..LINE], ino).map_err(|error| corrupt(&error.to_string()))?;
    let upper = InodeUpper::decode(&bytes[LINE..], ino).map_err(|error| corrupt(&error.to_string()))?;
    let kind = FileType::of_mode(lower.mode.get()).ok_or_else(|| corrupt("unknown file type"))?;
    let attributes = upper.xattr.get();
    if attributes != 0 && !base.layout.holds_data(attributes, 1) {
        return Err(corrupt("the page of extended attributes is outside the data area"));
    }
    let inline = lower.flags.get() & FLAG_INLINE_TARGET != 0;
    let size = lower.size.get();
    let load_tree = || ExtentTree::load(base, ino, &upper);
    let body = match kind {
        FileType::Regular => Body::File(FileBody::new(load_tree()?)),
        FileType::Directory => {
            Body::Dir(Box::new(Dir::new(load_tree()?, size).map_err(|what| corrupt(&what))?))
        }
        FileType::Symlink if inline => {
            let len = usize::from(upper.count.get());
            if len == 0 || len > INLINE_TARGET_MAX || len as u64 != size {
                return Err(corrupt("the symlink's target has an impossible length"));
            }
            Body::Symlink((upper.root.as_bytes()[..len].to_vec(), ExtentTree::default()))
        }
        FileType::Symlink => {
            let tree = load_tree()?;
            Body::Symlink((crate::index::symlink::read_target(base, ino, &tree, size)?, tree))
        }
        _ => Body::Special,
    };
    let mut part = Part { xattrs: Xattrs::at(attributes), ..Part::new(body, size) };
    part.data_pages = u64::from(lower.pages.get()).saturating_sub(part.pages());
    let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
    let state = State {
        file_type: kind,
        mode: lower.mode.get() & !mode::TYPE,
        uid: lower.uid.get(),
        gid: lower.gid.get(),
        nlink: lower.nlink.get(),
        size,
        atime: lower.atime.get(),
        mtime: lower.mtime.get(),
        ctime: lower.ctime.get(),
        generation: lower.generation.get(),
        rdev: if is_device { upper.parent_or_rdev.get() } else { 0 },
        attributes: (attributes == 0).then(Vec::new),
        orphan: false,
        unnamed: false,
        gone: false,
        atime_dirty: false,
        part,
    };
    Ok(Inode::new(Ino(u64::from(ino)), Ino(u64::from(upper.parent_or_rdev.get())), state))
}

impl<D: BlockPort + WriteLog> Tx<'_, D> {
    /// Adds an inode's lower half: one line (BY-9). The size written is `size_on_device`.
    pub fn write_lower(&mut self, inode: &Inode, state: &State) {
        let inline = matches!(&state.body, Body::Symlink((target, _)) if target.len() <= INLINE_TARGET_MAX);
        let lower = InodeLower {
            size: state.size_on_device.into(),
            atime: state.atime.into(),
            mtime: state.mtime.into(),
            ctime: state.ctime.into(),
            uid: state.uid.into(),
            gid: state.gid.into(),
            mode: (state.file_type.mode_bits() | state.mode).into(),
            flags: if inline { FLAG_INLINE_TARGET } else { 0 }.into(),
            nlink: state.nlink.into(),
            pages: (state.pages() as u32).into(),
            generation: state.generation.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        let ino = number(inode);
        self.write(self.base.layout.inode_address(ino), &lower.encode(ino), Structure::Inode);
    }

    /// Adds an inode's upper half, and the extent nodes that changed.
    pub fn write_upper(&mut self, inode: &Inode, state: &mut State) {
        let ino = number(inode);
        let mut upper = InodeUpper::new_zeroed();
        upper.xattr = state.xattrs.lba.into();
        upper.parent_or_rdev = match state.file_type {
            FileType::Directory => inode.parent().0 as u32,
            _ => state.rdev,
        }
        .into();
        if let Some(tree) = state.tree_mut() {
            tree.flush(ino, self);
            tree.fill(&mut upper);
        }
        if let Body::Symlink((target, _)) = &state.body
            && target.len() <= INLINE_TARGET_MAX
        {
            let mut inline = [0; INLINE_TARGET_MAX];
            inline[..target.len()].copy_from_slice(target);
            upper.count = (target.len() as u16).into();
            if let Ok(root) = FromBytes::read_from_bytes(&inline[..]) {
                upper.root = root;
            }
        }
        let at = self.base.layout.inode_address(ino) + LINE as u64;
        let tag = if upper.count.get() > 0 { Structure::Pointer } else { Structure::Inode };
        self.write(at, &upper.encode(ino), tag);
        state.xattrs.moved = false;
    }

    /// Adds what differs from the device: the lower half always, the upper half if extents or the page of
    /// extended attributes changed.
    pub fn write_changed(&mut self, inode: &Inode, state: &mut State) {
        self.write_lower(inode, state);
        state.atime_dirty = false;
        if planted::has(Bug::BothHalvesWritten)
            || state.xattrs.moved
            || state.tree().is_some_and(ExtentTree::dirty)
        {
            self.write_upper(inode, state);
        }
    }
}
