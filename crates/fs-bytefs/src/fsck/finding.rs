//! What a check can find, one typed variant each, with the sentence that tells a user about it and its
//! severity.

use std::fmt;

use amphi_volume::{Found, Severity};
use serde::{Serialize, Serializer};

/// A file name as it was found, which need not be valid text. Displays and serialises with unprintable bytes
/// escaped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundName(pub Vec<u8>);

impl fmt::Display for FoundName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl fmt::Debug for FoundName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for FoundName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which half of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Half {
    /// Size, times, owner, mode: [`InodeLower`](crate::format::InodeLower).
    Lower,
    /// Extent tree root, parent: [`InodeUpper`](crate::format::InodeUpper).
    Upper,
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lower => "lower",
            Self::Upper => "upper",
        })
    }
}

fn owner_text(owner: Option<u32>) -> String {
    owner.map_or_else(|| "something else".to_owned(), |ino| format!("inode {ino}"))
}

/// Where a directory entry is: the device page and the byte offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EntryAt {
    /// The directory.
    pub dir: u32,
    /// Device page.
    pub page: u32,
    /// Byte offset in the page, a multiple of 64.
    pub offset: u16,
}

impl fmt::Display for EntryAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "directory {} (page {}, offset {})", self.dir, self.page, self.offset)
    }
}

/// Everything a check can find. Inode numbers and device pages are as on the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "finding", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingKind {
    /// The superblock's contents contradict its checksum, themselves, or the device; nothing else can be
    /// checked.
    #[error("the superblock cannot be used ({reason}); nothing else was checked")]
    SuperblockUnreadable {
        /// What is wrong with it.
        reason: String,
    },
    /// The line with mount times and counts fails its checksum.
    #[error("the superblock's mount state is damaged")]
    SuperStateDamaged,
    /// The last mount did not end with an unmount.
    #[error("the file system was not cleanly unmounted; the device's log was replayed")]
    NotCleanlyUnmounted,
    /// The superblock's mount options are none that this version knows.
    #[error("the default mount options cannot be used: {reason}")]
    MountOptionsBad {
        /// What is wrong.
        reason: String,
    },
    /// A slot of the data journal is in use, but neither it nor its record can be.
    #[error("slot {slot} of the data journal cannot be replayed: {reason}")]
    JournalSlotBad {
        /// The slot.
        slot: u32,
        /// What is wrong.
        reason: String,
    },
    /// The device reports a media error.
    #[error("page {page} ({structure}) cannot be read: {reason}")]
    PageUnreadable {
        /// The page.
        page: u32,
        /// What it holds.
        structure: &'static str,
        /// What the device said.
        reason: String,
    },
    /// The root directory is missing, so no file has a path.
    #[error("inode 1, the root directory, is missing or not a directory")]
    RootMissing,
    /// One half of an inode cannot be decoded.
    #[error("the {half} half of inode {ino} cannot be used: {reason}")]
    InodeHalfBad {
        /// The inode.
        ino: u32,
        /// Which half.
        half: Half,
        /// What is wrong with it.
        reason: String,
    },
    /// A field of an inode cannot be right for its type.
    #[error("inode {ino} has an impossible {field}")]
    InodeFieldBad {
        /// The inode.
        ino: u32,
        /// The field, in words.
        field: &'static str,
    },
    /// Inode number 0, which is never a file, is not marked used.
    #[error("inode 0 is marked free in the inode bitmap; it must never be given out")]
    InodeZeroFree,
    /// A directory entry and both halves of the inode say that it is in use, the bitmap says not.
    #[error("inode {ino} is in use but marked free")]
    InodeMarkedFree {
        /// The inode.
        ino: u32,
    },
    /// An inode has no name and is not waiting for its deletion.
    #[error("{what} with inode {ino} has no name in any directory")]
    InodeUnreachable {
        /// The inode.
        ino: u32,
        /// Its type, in words.
        what: &'static str,
    },
    /// An inode with link count 0 and no name is not in the orphan table, so no mount will delete it.
    #[error("inode {ino} was deleted but is not in the orphan table: it would never be freed")]
    OrphanNotInTable {
        /// The inode.
        ino: u32,
    },
    /// An orphan slot names an inode that is impossible or free.
    #[error("orphan slot {slot} names inode {ino}, which is not in use")]
    OrphanSlotInvalid {
        /// The slot's index.
        slot: u32,
        /// What it holds.
        ino: u32,
    },
    /// An inode is in the orphan table twice.
    #[error("orphan slot {slot} names inode {ino} a second time")]
    OrphanSlotDuplicate {
        /// The later slot's index.
        slot: u32,
        /// The inode.
        ino: u32,
    },
    /// A directory about to be deleted by the next mount has entries.
    #[error("directory {ino} is marked deleted but has {entries} entries")]
    OrphanDirectoryNotEmpty {
        /// The directory.
        ino: u32,
        /// Its entries.
        entries: u64,
    },
    /// Names and link count differ.
    #[error("inode {ino} has link count {stored}, but {actual} is right")]
    LinkCountWrong {
        /// The inode.
        ino: u32,
        /// In the inode.
        stored: u32,
        /// Counted.
        actual: u32,
    },
    /// The pages counted by walking the extent tree are not what the inode says.
    #[error("inode {ino} says that it has {stored} pages, but {actual} is right")]
    PageCountWrong {
        /// The inode.
        ino: u32,
        /// In the inode.
        stored: u32,
        /// Counted.
        actual: u64,
    },
    /// An extent, extent node or attribute page lies outside the data area, or beyond the largest file.
    #[error(
        "inode {ino}: {what} at file page {file_page} points to {pages} pages at {page}, outside the data area"
    )]
    ExtentOutOfRange {
        /// The inode.
        ino: u32,
        /// Extent, extent node or attribute page.
        what: &'static str,
        /// First file page.
        file_page: u64,
        /// First device page.
        page: u32,
        /// Length in pages.
        pages: u32,
    },
    /// An extent of no pages, or a child pointer with a length.
    #[error("inode {ino}: {what} at file page {file_page} has an impossible length of {pages} pages")]
    ExtentLengthBad {
        /// The inode.
        ino: u32,
        /// Extent or child pointer.
        what: &'static str,
        /// First file page.
        file_page: u64,
        /// Length in pages.
        pages: u32,
    },
    /// Extents or child pointers are not in ascending order.
    #[error("inode {ino}: the extent at file page {file_page} is out of order")]
    ExtentsUnsorted {
        /// The inode.
        ino: u32,
        /// First file page of the later one.
        file_page: u64,
    },
    /// Two extents of one file hold the same file page.
    #[error("inode {ino}: two extents hold file page {file_page}")]
    ExtentsOverlap {
        /// The inode.
        ino: u32,
        /// First file page held twice.
        file_page: u64,
    },
    /// A child's first key is not its parent's.
    #[error("inode {ino}: the extent node for file page {file_page} starts at file page {found}")]
    NodeKeyWrong {
        /// The inode.
        ino: u32,
        /// Key in the parent.
        file_page: u64,
        /// Key in the child.
        found: u64,
    },
    /// An extent node cannot be decoded.
    #[error("inode {ino}: the extent node at page {page} cannot be used: {reason}")]
    NodeBad {
        /// The inode.
        ino: u32,
        /// The node's page.
        page: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// Pages belong to an earlier inode, or to another part of the same one.
    #[error("{pages} pages from {page} on belong to inode {ino}, but {} has them already", owner_text(*owner))]
    BlocksClaimedTwice {
        /// The inode whose claim came second.
        ino: u32,
        /// The inode whose claim came first, if it was found; it can be the same.
        owner: Option<u32>,
        /// First device page.
        page: u32,
        /// Length in pages.
        pages: u32,
    },
    /// So many pages are claimed more than once that the rest was not listed.
    #[error("too many pages are claimed more than once to list them all")]
    ClaimsNotListed,
    /// Pages in use are marked free: they would be given out again.
    #[error("{pages} pages from {page} on are in use but marked free")]
    BlocksMarkedFree {
        /// First device page.
        page: u32,
        /// Length in pages.
        pages: u32,
    },
    /// Pages marked used belong to nothing.
    #[error("{pages} pages from {page} on are marked used but belong to nothing")]
    BlocksLeaked {
        /// First device page.
        page: u32,
        /// Length in pages.
        pages: u32,
    },
    /// Extents lie wholly beyond the end of the file, and no mount will remove them.
    #[error("inode {ino} has data at file page {file_page}, beyond its end")]
    DataBeyondEnd {
        /// The inode.
        ino: u32,
        /// First file page beyond the end.
        file_page: u64,
    },
    /// A directory's pages are not contiguous from its start to its size.
    #[error("directory {ino} lacks its page {file_page}")]
    DirectoryHole {
        /// The directory.
        ino: u32,
        /// First missing file page.
        file_page: u64,
    },
    /// A directory's size is not a whole number of lines.
    #[error("directory {ino} has an impossible size of {size} bytes")]
    DirectorySizeWrong {
        /// The directory.
        ino: u32,
        /// In the inode.
        size: u64,
    },
    /// An entry's length is zero, crosses a page or the directory's end, or is too short for its name.
    #[error("an entry in {at} has an impossible length; what follows it in the page cannot be read")]
    EntryLengthBad {
        /// Where.
        at: EntryAt,
    },
    /// An entry's name is empty, too long, `.`, `..`, or holds `/` or NUL.
    #[error("an entry in {at} has the impossible name \"{name}\"")]
    EntryNameBad {
        /// Where.
        at: EntryAt,
        /// The name.
        name: FoundName,
    },
    /// A name stands in a directory twice.
    #[error("the name \"{name}\" occurs a second time in {at}")]
    EntryNameDuplicate {
        /// Where the later one is.
        at: EntryAt,
        /// The name.
        name: FoundName,
    },
    /// An entry names an inode that is free, or beyond the last.
    #[error("\"{name}\" in {at} names inode {ino}, which is not in use")]
    EntryToFreeInode {
        /// Where.
        at: EntryAt,
        /// The name.
        name: FoundName,
        /// The inode.
        ino: u32,
    },
    /// An entry's type is not the inode's.
    #[error("\"{name}\" in {at} has type {found}, but inode {ino} has type {expected}")]
    EntryTypeWrong {
        /// Where.
        at: EntryAt,
        /// The name.
        name: FoundName,
        /// The inode.
        ino: u32,
        /// In the entry: the `S_IFMT` bits shifted right by 12.
        found: u8,
        /// In the inode.
        expected: u8,
    },
    /// A second entry names a directory, or any entry names the root.
    #[error("directory {ino} has a second name in {at}")]
    DirectoryTwoParents {
        /// The directory with two names.
        ino: u32,
        /// Where the superfluous one is.
        at: EntryAt,
    },
    /// A directory is its own ancestor and cannot be reached from the root.
    #[error("directory {ino} is among its own ancestors and cannot be reached from the root")]
    DirectoryCycle {
        /// One directory of the cycle.
        ino: u32,
    },
    /// A directory's parent pointer names another directory than the one that holds its name.
    #[error("directory {ino} says that its parent is {stored}, but it is {actual}")]
    DirectoryParentWrong {
        /// The directory.
        ino: u32,
        /// In the inode.
        stored: u32,
        /// Where its name is.
        actual: u32,
    },
    /// A symbolic link's target is empty, too long, missing, or holds NUL.
    #[error("symbolic link {ino} has an unusable target: {reason}")]
    SymlinkTargetBad {
        /// The link.
        ino: u32,
        /// What is wrong.
        reason: &'static str,
    },
    /// A page of extended attributes cannot be decoded, is empty, or has a name twice.
    #[error("the extended attributes of inode {ino} (page {page}) cannot be used: {reason}")]
    AttributesBad {
        /// The inode.
        ino: u32,
        /// The page.
        page: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// A device, FIFO or socket has a size or pages.
    #[error("special file {ino} has contents")]
    SpecialHasContents {
        /// The file.
        ino: u32,
    },
}

impl FindingKind {
    /// How bad it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::NotCleanlyUnmounted => Severity::Info,
            Self::SuperStateDamaged
            | Self::MountOptionsBad { .. }
            | Self::BlocksLeaked { .. }
            | Self::OrphanNotInTable { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

/// One thing found, with its severity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    #[serde(flatten)]
    pub kind: FindingKind,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Found for Finding {
    fn severity(&self) -> Severity {
        self.severity
    }
}
