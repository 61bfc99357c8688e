//! Values of the metadata store.

use amphi_vfs::acl::Attributes;
use amphi_vfs::{FileType, Ino};
use amphi_volume::TypeCodes;
use smallvec::SmallVec;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use amphi_segments::format::InodeHead;

use super::{LogRecord, Summary};

/// Nodes whose numbers are in the inode.
pub const INLINE_NODES: u32 = 8;
/// Numbers of nodes in one record behind it.
pub const NODES_PER_CHUNK: u32 = 64;

/// An inode. A symbolic link's target follows, if it is short.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeRecord {
    /// Its number.
    pub ino: U64,
    /// What every inode says.
    pub head: InodeHead,
    /// A directory's parent.
    pub parent: U64,
    /// Blocks of data that its nodes name, and that are held.
    pub blocks: U64,
    /// A directory's entries; of a file, nodes.
    pub entries: U64,
    /// Numbers of its first nodes; 0 for none.
    pub nodes: [U32; INLINE_NODES as usize],
}

const _: () = assert!(size_of::<InodeRecord>() == 120);

/// What stands under `m:` and `i:`.
#[derive(Clone, Debug)]
pub enum EntryRecord {
    /// The inode, and a symbolic link's target if it is short.
    Inode(Box<InodeRecord>, Vec<u8>),
    /// Under `m:`: an inode that stands under `i:`, and its type.
    Reference(Ino, FileType),
    /// Under `i:`: the directory and the name where the inode stands.
    Locator(Ino, Vec<u8>),
}

/// Types by their codes, which are never 0.
pub const TYPES: TypeCodes = TypeCodes([
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::CharDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
]);

impl InodeRecord {
    /// Its type.
    #[must_use]
    pub fn file_type(&self) -> Option<FileType> {
        TYPES.file_type(self.head.kind)
    }
}

/// The bytes of an inode's value; those without a target need no memory of their own.
#[must_use]
pub fn encode_inode(record: &InodeRecord, target: &[u8]) -> SmallVec<[u8; 128]> {
    let mut bytes = SmallVec::new();
    bytes.push(1);
    bytes.extend_from_slice(record.as_bytes());
    if !target.is_empty() {
        bytes.extend_from_slice(target);
    }
    bytes
}

/// The bytes of a locator's value; with a short name they need no memory of their own.
#[must_use]
pub fn encode_locator(parent: Ino, name: &[u8]) -> SmallVec<[u8; 64]> {
    let mut bytes = SmallVec::new();
    bytes.push(3);
    bytes.extend_from_slice(&parent.0.to_le_bytes());
    bytes.extend_from_slice(name);
    bytes
}

/// The bytes of an entry's or an inode's value.
#[must_use]
pub fn encode_entry(entry: &EntryRecord) -> Vec<u8> {
    match entry {
        EntryRecord::Inode(record, target) => encode_inode(record, target).into_vec(),
        EntryRecord::Reference(ino, kind) => [&[2, TYPES.code(*kind)], &ino.0.to_le_bytes()[..]].concat(),
        EntryRecord::Locator(parent, name) => encode_locator(*parent, name).into_vec(),
    }
}

/// What a value says; none for nonsense.
#[must_use]
pub fn decode_entry(value: &[u8]) -> Option<EntryRecord> {
    let (tag, rest) = value.split_first()?;
    let number = |bytes: &[u8]| Some(Ino(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?)));
    match tag {
        1 => {
            let (record, target) = InodeRecord::read_from_prefix(rest).ok()?;
            record.file_type()?;
            Some(EntryRecord::Inode(Box::new(record), target.to_vec()))
        }
        2 => Some(EntryRecord::Reference(number(rest.get(1..)?)?, TYPES.file_type(rest[0])?)),
        3 => Some(EntryRecord::Locator(number(rest)?, rest[8..].to_vec())),
        _ => None,
    }
}

/// The value of a chunk of numbers of nodes.
#[must_use]
pub fn encode_nodes(nodes: &[u32; NODES_PER_CHUNK as usize]) -> Vec<u8> {
    nodes.iter().flat_map(|nid| nid.to_le_bytes()).collect()
}

/// The numbers of a chunk.
#[must_use]
pub fn decode_nodes(value: &[u8]) -> Option<Vec<u32>> {
    let whole = value.len() == 4 * NODES_PER_CHUNK as usize;
    whole.then(|| <[U32]>::ref_from_bytes(value).ok().map(|nodes| nodes.iter().map(|n| n.get()).collect()))?
}

/// The value of extended attributes: for each, the bytes of its name and of its value, then both.
#[must_use]
pub fn encode_attributes(attributes: &Attributes) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in attributes {
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    bytes
}

/// The attributes that a value holds.
#[must_use]
pub fn decode_attributes(mut value: &[u8]) -> Option<Attributes> {
    let mut attributes = Attributes::default();
    while !value.is_empty() {
        let (name, rest) = U16::read_from_prefix(value).ok()?;
        let (bytes, rest) = U32::read_from_prefix(rest).ok()?;
        let (name, rest) = rest.split_at_checked(usize::from(name.get()))?;
        let (bytes, rest) = rest.split_at_checked(bytes.get() as usize)?;
        attributes.push((name.into(), bytes.into()));
        value = rest;
    }
    Some(attributes)
}

/// What changes of the file system as a whole.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperRecord {
    /// No inode has this number or a higher one.
    pub next_ino: U64,
    /// Inodes, if the last mount ended cleanly.
    pub inodes: U64,
    /// 1 after a clean unmount.
    pub clean: U64,
}

/// Which blocks of a segment are valid. The bits follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SitRecord {
    /// The domain that owns it.
    pub domain: U16,
    /// 0 for data, 1 for nodes, 2 for a segment that has become free.
    pub kind: u8,
    /// Zero.
    pub zero: u8,
}

/// A domain's checkpoint. The summaries of both segments follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CheckpointRecord {
    /// Its number.
    pub version: U64,
    /// The first place in the order of changes behind it.
    pub sequence: U64,
    /// Pages of files for which a block is held.
    pub held: U64,
    /// Where data, and where nodes go next.
    pub logs: [LogRecord; 2],
}

impl CheckpointRecord {
    /// The value.
    #[must_use]
    pub fn encode(&self, summaries: [&[Summary]; 2]) -> Vec<u8> {
        [self.as_bytes(), summaries[0].as_bytes(), summaries[1].as_bytes()].concat()
    }

    /// What a value says, with the summaries of both segments.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<(Self, [Vec<Summary>; 2])> {
        let (record, rest) = Self::read_from_prefix(value).ok()?;
        let all = <[Summary]>::ref_from_bytes(rest).ok()?;
        let (data, nodes) = all.split_at_checked(record.logs[0].next.get() as usize)?;
        (nodes.len() == record.logs[1].next.get() as usize).then(|| (record, [data.to_vec(), nodes.to_vec()]))
    }
}

/// What has become of a segment or a node since the last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The domain has taken a segment: 0 for data, 1 for nodes.
    Take(u32, u8),
    /// A node is no more, with all that it names.
    Free(u32),
    /// Bytes of what a node covers are no more, in what was written before.
    Cut(u32, u32, u32),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IntentRecord {
    kind: U32,
    number: U32,
    from: U32,
    to: U32,
}

/// The value of intents.
#[must_use]
pub fn encode_intents(intents: &[Intent]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(intents.len() * size_of::<IntentRecord>());
    for intent in intents {
        let mut record = IntentRecord::new_zeroed();
        match *intent {
            Intent::Take(segment, log) => {
                (record.kind, record.number) = (1.into(), segment.into());
                record.from = u32::from(log).into();
            }
            Intent::Free(nid) => (record.kind, record.number) = (2.into(), nid.into()),
            Intent::Cut(nid, from, to) => {
                (record.kind, record.number) = (3.into(), nid.into());
                (record.from, record.to) = (from.into(), to.into());
            }
        }
        bytes.extend_from_slice(record.as_bytes());
    }
    bytes
}

/// The intents of a value.
#[must_use]
pub fn decode_intents(value: &[u8]) -> Option<Vec<Intent>> {
    let records = <[IntentRecord]>::ref_from_bytes(value).ok()?;
    let decoded = records.iter().map(|record| {
        let number = record.number.get();
        match record.kind.get() {
            1 if record.from.get() < 2 => Some(Intent::Take(number, record.from.get() as u8)),
            2 => Some(Intent::Free(number)),
            3 if record.from <= record.to => Some(Intent::Cut(number, record.from.get(), record.to.get())),
            _ => None,
        }
    });
    decoded.collect()
}

impl SitRecord {
    /// The value, with the valid bits.
    #[must_use]
    pub fn encode(&self, valid: &[u64]) -> Vec<u8> {
        let mut bytes = self.as_bytes().to_vec();
        valid.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    }

    /// What a value says of a segment of so many blocks.
    #[must_use]
    pub fn decode(value: &[u8], blocks: u32) -> Option<(Self, Vec<u64>)> {
        let (record, rest) = Self::read_from_prefix(value).ok()?;
        let words = <[U64]>::ref_from_bytes(rest).ok()?;
        let words: Vec<_> = words.iter().map(|word| word.get()).collect();
        let free = record.kind == 2 && words.is_empty();
        let whole = words.len() == blocks.div_ceil(64) as usize
            && (blocks.is_multiple_of(64) || words.last().is_some_and(|last| last >> (blocks % 64) == 0));
        (free || (record.kind < 2 && whole)).then_some((record, words))
    }
}
