//! Inodes between the metadata and host memory.

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::core::Core;
use crate::dir::{self, Dir};
use crate::entries;
use crate::format::{
    FLAG_UNNAMED, INLINE_SLOTS, INLINE_TARGET_BYTES, INODE_HEAD_BYTES, InodeHead, PAGE, PAGE_UNITS, Slot,
    TYPES,
};
use crate::mapping::Mapping;
use crate::part::{Body, Inode, Part, State};
use crate::planted::{self, Bug};

/// An inode's bytes as a transaction stores them: all of them, or only the first half.
pub fn encode(inode: &Inode, state: &State) -> [u8; 2 * INODE_HEAD_BYTES] {
    let mut bytes = [0; 2 * INODE_HEAD_BYTES];
    let mut head = InodeHead::new_zeroed();
    head.mode = state.mode.into();
    head.kind = TYPES.code(state.file_type);
    head.flags = if state.unnamed { FLAG_UNNAMED } else { 0 };
    head.nlink = state.nlink.into();
    head.uid = state.uid.into();
    head.gid = state.gid.into();
    head.size = stored_size(state).into();
    head.atime = state.atime.into();
    head.mtime = state.mtime.into();
    head.ctime = state.ctime.into();
    head.generation = state.generation.into();
    head.rdev = state.rdev.into();
    head.parent = inode.parent().0.into();
    head.blocks = state.part.blocks.into();
    head.logs = state.part.logs.into();
    head.entries = state.part.entries.into();
    head.root = state.part.mapping.root.into();
    head.depth = state.part.mapping.depth;
    head.attributes = state.part.attributes_page.into();
    bytes[..INODE_HEAD_BYTES].copy_from_slice(head.as_bytes());
    match &state.part.body {
        Body::Target(target) if target.len() <= INLINE_TARGET_BYTES => {
            bytes[INODE_HEAD_BYTES..][..target.len()].copy_from_slice(target);
        }
        Body::Target(_) => {}
        _ => bytes[INODE_HEAD_BYTES..].copy_from_slice(state.part.mapping.slots.as_bytes()),
    }
    bytes
}

impl<D: BlockPort + MemoryArea> Core<D> {
    /// Reads an inode.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is free; [`Error::Corrupt`], [`Error::Io`].
    pub fn load_inode(&self, ino: Ino) -> Result<Inode> {
        if ino.0 == 0 || ino.0 >= self.layout.plan.inodes {
            return Err(Error::Stale(ino));
        }
        let at = self.layout.inode(ino.0);
        let head: InodeHead = self.meta.read(at)?;
        if head.kind == 0 {
            return Err(Error::Stale(ino));
        }
        let damaged = |what: &'static str| Error::corrupt("inode", ino.0, what);
        let file_type = TYPES.file_type(head.kind).ok_or_else(|| damaged("it has an impossible type"))?;
        let size = head.size.get();
        if file_type != FileType::Symlink && size > self.layout.file_bytes_max() {
            return Err(damaged("it is larger than a file can be"));
        }
        let plan = &self.layout.plan;
        let pages_max = plan.blocks.max(plan.pages);
        let is_sound = head.blocks.get() <= pages_max
            && head.logs.get() <= plan.logs
            && head.entries.get() <= plan.pages * PAGE_UNITS as u64;
        if !is_sound {
            return Err(damaged("it says that it has more than there is"));
        }
        let mut part = Part {
            blocks: head.blocks.get(),
            logs: head.logs.get(),
            entries: head.entries.get(),
            attributes_page: head.attributes.get(),
            block_sectors: self.block_sectors(),
            ..Part::default()
        };
        if file_type == FileType::Symlink {
            part.mapping.root = head.root.get();
            part.body = Body::Target(self.load_target(at, &head, size)?);
        } else {
            let slots: [Slot; INLINE_SLOTS as usize] = self.meta.read(at + INODE_HEAD_BYTES as u64)?;
            part.mapping = Mapping { slots, root: head.root.get(), depth: head.depth };
            part.mapping.check(&self.layout).map_err(|()| damaged("its mapping is impossible"))?;
        }
        let state = State {
            file_type,
            mode: head.mode.get() & 0o7777,
            uid: head.uid.get(),
            gid: head.gid.get(),
            nlink: head.nlink.get(),
            size,
            atime: head.atime.get(),
            mtime: head.mtime.get(),
            ctime: head.ctime.get(),
            generation: head.generation.get(),
            rdev: head.rdev.get(),
            attributes: None,
            orphan: false,
            unnamed: head.flags & FLAG_UNNAMED != 0,
            gone: false,
            atime_dirty: false,
            part,
        };
        Ok(Inode::new(ino, Ino(head.parent.get()), state))
    }

    fn load_target(&self, at: u64, head: &InodeHead, size: u64) -> Result<Box<[u8]>> {
        let damaged = || Error::corrupt("inode at byte", at, "a symbolic link's target is nowhere");
        let from = if size <= INLINE_TARGET_BYTES as u64 {
            at + INODE_HEAD_BYTES as u64
        } else {
            let page =
                head.root.get().checked_sub(1).filter(|page| u64::from(*page) < self.layout.plan.pages);
            self.layout.page(page.ok_or_else(damaged)?)
        };
        if size == 0 || size >= PAGE as u64 {
            return Err(damaged());
        }
        self.meta.with(from, size as usize, |bytes| Box::from(bytes))
    }
}

/// Makes a directory's entries known.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn open_dir<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode, state: &mut State) -> Result<()> {
    let open = entries::read(core, inode, state)?;
    if open.len() != state.part.entries {
        return Err(dir::damaged(inode.ino));
    }
    state.part.body = Body::Dir(Box::new(open));
    Ok(())
}

/// The entries of an open directory.
pub fn opened_dir(state: &State) -> Result<&Dir> {
    match &state.part.body {
        Body::Dir(dir) => Ok(dir),
        _ => Err(Error::NotDirectory),
    }
}

/// A file's size on the device.
fn stored_size(state: &State) -> u64 {
    match &state.part.buffer {
        Some(buffer) if !planted::has(Bug::BufferedSizeStored) => buffer.stored_size,
        _ => state.size,
    }
}

/// Notes that the device has the file up to `end`.
pub fn note_stored(state: &mut State, end: u64) {
    if let Some(buffer) = &mut state.part.buffer {
        buffer.stored_size = buffer.stored_size.max(end);
    }
}
