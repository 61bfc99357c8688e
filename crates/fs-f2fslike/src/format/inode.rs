//! Inodes: a node whose words are addresses of the file's first pages, numbers of further nodes, and what is
//! known of the inode.

use std::ops::Range;

use amphi_segments::format::InodeHead;
use amphi_vfs::FileType;
use amphi_vfs::acl::Attributes;
use amphi_volume::{TypeCodes, attributes_bytes};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ADDRESSES, Address};

/// The index of an inode's own node.
pub const INODE: u32 = u32::MAX;
/// The index of the node that holds an inode's extended attributes.
pub const XATTR: u32 = u32::MAX - 1;
/// The index of the node that holds the end of a symbolic link's target.
pub const LINK: u32 = u32::MAX - 2;
/// From this index on nodes hold numbers of nodes.
const INDIRECT: u32 = 1 << 31;
/// Pages of a file that its inode names.
pub const INODE_PAGES: usize = 864;
/// Bytes of a symbolic link's target that stand where others have addresses.
pub const LINK_BYTES: usize = INODE_PAGES * 4;
/// Longest target.
pub const LINK_BYTES_MAX: usize = 4095;
/// Words of an inode's node that name further nodes: of pages, of those, and of these.
const NAMED: [usize; 3] = [20, 18, 2];
/// The word of an inode's node where what is known of it begins.
const RECORD: usize = INODE_PAGES + NAMED[0] + NAMED[1] + NAMED[2];
/// Where an inode names the node with what its link's target has beyond.
pub const LINK_WORD: usize = INODE_PAGES;
/// By how many levels are between, the first node of pages that an inode reaches so.
const FIRST: [u32; 4] = {
    let two = NAMED[0] as u32 + NAMED[1] as u32 * ADDRESSES as u32;
    [0, NAMED[0] as u32, two, two + NAMED[2] as u32 * (ADDRESSES * ADDRESSES) as u32]
};
/// Most pages of a file.
pub const FILE_PAGES_MAX: u64 = INODE_PAGES as u64 + FIRST[3] as u64 * ADDRESSES as u64;

/// What is known of an inode.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeRecord {
    /// What every inode says.
    pub head: InodeHead,
    /// Blocks of pages, and those that are held.
    pub blocks: U64,
    /// Of a directory: its entries.
    pub entries: U64,
    /// The directory of its last name.
    pub parent: U32,
    /// The node of its extended attributes.
    pub xattr: U32,
    /// Of a directory: its levels; of none, its entries stand in place of addresses.
    pub levels: U32,
    /// Bytes of its last name.
    pub name_len: U16,
    /// That name.
    pub name: [u8; 255],
    /// Zero.
    pub zero: [u8; 75],
}

const _: () = assert!(size_of::<InodeRecord>() == (ADDRESSES - RECORD) * 4);

/// Nodes of pages below a node with so many levels below it.
#[must_use]
pub const fn span(levels: usize) -> u32 {
    (ADDRESSES as u32).pow(levels as u32)
}

/// How an inode names a node of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Nodes of nodes on the way.
    pub levels: usize,
    /// The word of the inode's node.
    pub word: usize,
    /// The node of pages.
    index: u32,
}

impl Route {
    /// That to a file's node of pages with this index.
    #[must_use]
    pub const fn to(index: u32) -> Self {
        let levels = if index < FIRST[1] {
            0
        } else if index < FIRST[2] {
            1
        } else {
            2
        };
        let before =
            INODE_PAGES + if levels > 0 { NAMED[0] } else { 0 } + if levels > 1 { NAMED[1] } else { 0 };
        Self { levels, word: before + ((index - FIRST[levels]) / span(levels)) as usize, index }
    }

    /// The node on the way that has `levels` levels below it: its index.
    #[must_use]
    pub const fn index(&self, levels: usize) -> u32 {
        let first = FIRST[self.levels];
        index_of(levels, first + (self.index - first) / span(levels) * span(levels))
    }

    /// The node of pages behind all that are below that node.
    #[must_use]
    pub const fn end(&self, levels: usize) -> u32 {
        let first = FIRST[self.levels];
        first + ((self.index - first) / span(levels) + 1) * span(levels)
    }

    /// The word of that node that names the next.
    #[must_use]
    pub const fn word_in(&self, levels: usize) -> usize {
        ((self.index - FIRST[self.levels]) / span(levels - 1)) as usize % ADDRESSES
    }

    /// Of each word of an inode that names nodes: the word, levels below the node it names, and the first
    /// node of pages there.
    pub fn all() -> impl Iterator<Item = (usize, usize, u32)> {
        let mut word = INODE_PAGES;
        (0..3).flat_map(move |levels| {
            let first = word;
            word += NAMED[levels];
            (0..NAMED[levels])
                .map(move |nth| (first + nth, levels, FIRST[levels] + nth as u32 * span(levels)))
        })
    }
}

/// The index of a node with so many levels of nodes below it, the first of which is this node of pages.
#[must_use]
pub const fn index_of(levels: usize, first: u32) -> u32 {
    if levels == 0 { first } else { INDIRECT + ((levels as u32) << 28) + first }
}

/// Which words of a node with this index are addresses of pages.
#[must_use]
pub fn address_words(index: u32, words: &[Address; ADDRESSES]) -> Range<usize> {
    match index {
        INODE => {
            let record = record_of(words);
            let in_inode = match TYPES.file_type(record.head.kind) {
                Some(FileType::Directory) => record.levels.get() == 0,
                kind => kind == Some(FileType::Symlink),
            };
            if in_inode { 0..0 } else { 0..INODE_PAGES }
        }
        INDIRECT.. => 0..0,
        _ => 0..ADDRESSES,
    }
}

/// What is known of the inode whose node this is.
#[must_use]
pub fn record_of(words: &[Address; ADDRESSES]) -> InodeRecord {
    let (record, _) = InodeRecord::read_from_prefix(words[RECORD..].as_bytes())
        .unwrap_or_else(|_| unreachable!("the rest of a node is as long as a record, which is asserted"));
    record
}

/// Puts it there.
pub fn set_record(words: &mut [Address; ADDRESSES], record: &InodeRecord) {
    words[RECORD..].as_mut_bytes().copy_from_slice(record.as_bytes());
}

/// The codes of types.
pub const TYPES: TypeCodes = TypeCodes([
    FileType::Regular,
    FileType::Directory,
    FileType::CharDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
    FileType::Symlink,
]);

/// Extended attributes as a node has them, a list as most formats have it. Nothing if they are too many for
/// one.
#[must_use]
pub fn encode_attributes(attributes: &Attributes) -> Option<Box<[Address; ADDRESSES]>> {
    let mut words = Box::new([Address::HOLE; ADDRESSES]);
    let bytes = words.as_mut_bytes().get_mut(..attributes_bytes(attributes))?;
    bytes.copy_from_slice(&amphi_volume::encode_attributes(attributes));
    Some(words)
}
