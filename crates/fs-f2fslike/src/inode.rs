//! Inodes between their nodes and memory.

use amphi_device::BlockPort;
use amphi_segments::damaged;
use amphi_segments::files::FilePages;
use amphi_segments::format::InodeHead;
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::core::Core;
use crate::dir::LEVELS_MAX;
use crate::format::{
    Address, FILE_PAGES_MAX, INODE, InodeRecord, LINK, LINK_BYTES, LINK_BYTES_MAX, LINK_WORD, PAGE, TYPES,
    record_of, set_record,
};
use crate::part::{Inode, Part, State};

/// An inode as its node has it.
fn record(inode: &Inode, state: &State) -> InodeRecord {
    let part = &state.part;
    let mut record = InodeRecord::new_zeroed();
    record.head = InodeHead::of(state, &TYPES);
    (record.blocks, record.entries) = (part.blocks.into(), part.entries.into());
    record.parent = if inode.is_dir() { inode.parent().0 as u32 } else { part.parent }.into();
    (record.xattr, record.levels) = (part.xattr.into(), part.levels.into());
    record.name_len = (part.name.len() as u16).into();
    record.name[..part.name.len()].copy_from_slice(&part.name);
    record
}

/// What of a symbolic link's target stands in its inode, and what in a node of its own.
pub fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    target.split_at(target.len().min(LINK_BYTES))
}

impl<D: BlockPort> Core<D> {
    /// Puts what is known of an inode into its node.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn put_inode(&self, inode: &Inode, state: &mut State) -> Result<()> {
        let nid = inode.ino.0 as u32;
        let mut parts = self.parts(&[nid])?;
        if let Some(node) = parts.nodes.get_mut(&nid) {
            let (before, record) = (record_of(&node.addresses), record(inode, state));
            // A write may take the mode's set-user-ID bit away.
            let says = |record: &InodeRecord| (record.head.size, record.blocks, record.head.mode);
            if says(&before) != says(&record) {
                self.fresh.lock().unsaved.insert(nid);
            }
            set_record(&mut node.addresses, &record);
            if state.file_type == FileType::Symlink {
                let (start, _) = split_target(&state.part.target);
                node.addresses.as_mut_bytes()[..start.len()].copy_from_slice(start);
                node.addresses[LINK_WORD] = Address::of_word(state.part.rest);
            }
        }
        self.touch(&mut parts, nid);
        (state.part.file.changed, state.atime_dirty) = (false, false);
        Ok(())
    }

    /// Whether a number is one that an inode can have.
    pub fn is_number(&self, ino: Ino) -> bool {
        (1..u64::from(self.layout.nids())).contains(&ino.0)
    }

    /// Reads an inode.
    ///
    /// # Errors
    /// [`Error::Stale`] if there is none; [`Error::Corrupt`], [`Error::Io`].
    pub fn load_inode(&self, ino: Ino) -> Result<Inode> {
        let nid = ino.0 as u32;
        if !self.is_number(ino) {
            return Err(Error::Stale(ino));
        }
        {
            let parts = self.domain.parts.lock();
            if !parts.nodes.contains_key(&nid) && parts.node_address(nid).is_hole() {
                return Err(Error::Stale(ino));
            }
        }
        let parts = self.parts(&[nid])?;
        let node = &parts.nodes[&nid];
        if node.index != INODE {
            return Err(Error::Stale(ino));
        }
        let record = record_of(&node.addresses);
        let wrong = || damaged("inode", ino.0);
        let file_type = TYPES.file_type(record.head.kind).filter(|_| node.ino == ino).ok_or_else(wrong)?;
        let (size, name_len) = (record.head.size.get(), usize::from(record.name_len.get()));
        let sound = record.blocks.get().max(record.entries.get()) <= u64::from(u32::MAX / 2)
            && record.head.nlink.get() <= u32::MAX / 2
            && size <= FILE_PAGES_MAX * PAGE as u64
            && (file_type != FileType::Symlink || size <= LINK_BYTES_MAX as u64)
            && record.levels.get() <= LEVELS_MAX
            && name_len <= record.name.len();
        if !sound {
            return Err(wrong());
        }
        let mut target = Vec::new();
        if file_type == FileType::Symlink {
            target.extend(&node.addresses.as_bytes()[..LINK_BYTES.min(size as usize)]);
        }
        drop(parts);
        let mut rest = 0;
        if target.len() < size as usize && file_type == FileType::Symlink {
            rest = self.named(nid, LINK_WORD, nid, LINK)?.ok_or_else(wrong)?;
            let parts = self.parts(&[rest])?;
            target.extend(&parts.nodes[&rest].addresses.as_bytes()[..size as usize - LINK_BYTES]);
        }
        let part = Part {
            target: target.into(),
            rest,
            entries: record.entries.get(),
            levels: record.levels.get(),
            blocks: record.blocks.get(),
            xattr: record.xattr.get(),
            parent: record.parent.get(),
            name: record.name[..name_len].into(),
            file: FilePages::of_size(size),
        };
        let orphan = self.orphans.lock().contains(&nid);
        let state = State { orphan, ..record.head.state(file_type, part) };
        Ok(Inode::new(ino, Ino(record.parent.get().into()), state))
    }
}
