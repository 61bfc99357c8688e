//! Inodes between the metadata store and memory.

use std::collections::BTreeMap;

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::Batch;
use amphi_segments::files::FilePages;
use amphi_segments::format::InodeHead;
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::format::{
    EntryRecord, FILE_BYTES_MAX, INLINE_NODES, InodeRecord, Key, NODES_PER_CHUNK, TYPES, decode_nodes,
    encode_inode, encode_nodes, key,
};
use crate::meta::{self, damaged};
use crate::part::{Home, Inode, Part, State};

/// A symbolic link's target of so many bytes is in the inode's record; a longer one has a record of its own,
/// so that what changes the inode or its name does not write it again.
pub const SHORT_TARGET_BYTES: usize = 128;

/// More of anything than an inode counts.
const COUNT_MAX: u64 = (u32::MAX / 2) as u64;

/// What a record says that no inode can be, if it does.
pub fn unsound(record: &InodeRecord, target: &[u8]) -> Option<&'static str> {
    let counts = [record.blocks.get(), record.entries.get(), record.head.nlink.get().into()];
    if counts.into_iter().any(|count| count > COUNT_MAX) {
        return Some("a count of inode");
    }
    let is_link = record.file_type() == Some(FileType::Symlink);
    let is_too_large = record.head.size.get() > FILE_BYTES_MAX;
    (is_too_large || is_link && target.len() as u64 != record.head.size.get()).then_some("the size of inode")
}

/// Makes a record one that an inode can be. What names and nodes say is counted elsewhere.
pub fn make_sound(record: &mut InodeRecord, target: &[u8]) {
    match record.file_type() {
        Some(FileType::Symlink) => record.head.size = (target.len() as u64).into(),
        _ => record.head.size = record.head.size.get().min(FILE_BYTES_MAX).into(),
    }
    for count in [&mut record.blocks, &mut record.entries] {
        if count.get() > COUNT_MAX {
            *count = 0.into();
        }
    }
}

/// An inode as the metadata store keeps it, but for a symbolic link's target.
fn record(inode: &Inode, state: &State) -> InodeRecord {
    let part = &state.part;
    let regular = state.file_type == FileType::Regular;
    let mut record = InodeRecord::new_zeroed();
    record.ino = inode.ino.0.into();
    record.head = InodeHead::of(state, &TYPES);
    record.parent = inode.parent().0.into();
    record.blocks = part.blocks.into();
    record.entries = if regular { part.nodes.len() as u64 } else { part.entries }.into();
    for (index, nid) in part.nodes.range(..INLINE_NODES) {
        record.nodes[*index as usize] = (*nid).into();
    }
    record
}

/// Puts an inode where it stands, with the numbers of nodes that have changed.
///
/// # Errors
/// [`Error::Io`].
pub fn put(batch: &mut Batch, inode: &Inode, state: &mut State) -> Result<()> {
    let target = if state.part.target.len() > SHORT_TARGET_BYTES { &[] } else { &state.part.target[..] };
    let value = encode_inode(&record(inode, state), target);
    match &state.part.home {
        Home::Named(parent, name) => meta::put(batch, Key::Entry(parent.0, name), &value)?,
        Home::New | Home::Own => meta::put(batch, Key::Inode(inode.ino.0), &value)?,
    }
    let chunks = std::mem::take(&mut state.part.chunks);
    for chunk in chunks {
        let of = Key::Nodes(inode.ino.0, chunk.into());
        match state.part.chunk(chunk) {
            Some(nodes) => meta::put(batch, of, &encode_nodes(&nodes))?,
            None => meta::delete(batch, of)?,
        }
    }
    if state.part.target.len() > SHORT_TARGET_BYTES && !state.part.target_apart {
        meta::put(batch, Key::Target(inode.ino.0), &state.part.target)?;
        state.part.target_apart = true;
    }
    state.part.file.changed = false;
    Ok(())
}

/// An inode's record, where it stands, and a symbolic link's target if it is in the record.
pub type Found = (Box<InodeRecord>, Home, Vec<u8>);

impl<D: BlockPort + MemoryArea> Core<D> {
    /// What the metadata store has of an inode.
    ///
    /// # Errors
    /// [`Error::Stale`] if it has nothing; [`Error::Corrupt`], [`Error::Io`].
    pub fn find_record(&self, ino: Ino) -> Result<Found> {
        let wrong = || damaged("inode", ino.0);
        let (home, entry) = match self.meta.entry(Key::Inode(ino.0))? {
            None => return Err(Error::Stale(ino)),
            Some(EntryRecord::Locator(parent, name)) => {
                let entry = self.meta.entry(Key::Entry(parent.0, &name))?;
                (Home::Named(parent, name.into()), entry.ok_or_else(wrong)?)
            }
            Some(own) => (Home::Own, own),
        };
        match entry {
            EntryRecord::Inode(record, target) if record.ino.get() == ino.0 => Ok((record, home, target)),
            _ => Err(wrong()),
        }
    }

    /// A symbolic link's target that is not in its record; nothing, if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn find_target(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(self.meta.get(Key::Target(ino.0))?.unwrap_or_default())
    }

    /// The numbers of a file's nodes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn find_nodes(&self, ino: Ino, record: &InodeRecord) -> Result<BTreeMap<u32, u32>> {
        let some = |(index, nid): (u32, u32)| (nid != 0).then_some((index, nid));
        let inline = record.nodes.iter().map(|nid| nid.get());
        let mut nodes: BTreeMap<_, _> = (0..).zip(inline).filter_map(some).collect();
        if nodes.len() as u64 == record.entries.get() {
            return Ok(nodes);
        }
        let first = key(Key::Nodes(ino.0, 0));
        let prefix = &first[..first.len() - 8];
        self.meta.visit(prefix, prefix, |key, value| {
            let wrong = || damaged("the nodes of inode", ino.0);
            let chunk =
                key.get(prefix.len()..).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            let most = u64::from((u32::MAX - INLINE_NODES) / NODES_PER_CHUNK - 1);
            let chunk = chunk.filter(|chunk| *chunk < most).ok_or_else(wrong)? as u32;
            let nids = decode_nodes(value).ok_or_else(wrong)?;
            let indices = INLINE_NODES + chunk * NODES_PER_CHUNK..;
            nodes.extend(indices.zip(nids).filter_map(some));
            Ok(true)
        })?;
        if nodes.len() as u64 == record.entries.get() {
            Ok(nodes)
        } else {
            Err(damaged("the nodes of inode", ino.0))
        }
    }

    /// Reads an inode.
    ///
    /// # Errors
    /// [`Error::Stale`] if there is none; [`Error::Corrupt`], [`Error::Io`].
    pub fn load_inode(&self, ino: Ino) -> Result<Inode> {
        let (record, home, target) = self.find_record(ino)?;
        let file_type = record.file_type().ok_or_else(|| damaged("inode", ino.0))?;
        let target_apart = file_type == FileType::Symlink && target.is_empty();
        let target = if target_apart { self.find_target(ino)? } else { target };
        if let Some(what) = unsound(&record, &target) {
            return Err(damaged(what, ino.0));
        }
        let file = FilePages::of_size(record.head.size.get());
        let mut part = Part { home, file, blocks: record.blocks.get(), ..Part::default() };
        match file_type {
            FileType::Regular => part.nodes = self.find_nodes(ino, &record)?,
            FileType::Symlink => (part.target, part.target_apart) = (target.into(), target_apart),
            _ => part.entries = record.entries.get(),
        }
        let state = record.head.state(file_type, part);
        Ok(Inode::new(ino, Ino(record.parent.get()), state))
    }
}
