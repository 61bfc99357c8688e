//! What a check finds, and how bad each is.

use amphi_volume::Severity;

/// Something that is wrong. Inodes and pages by number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// What a mount needs cannot be read. Not mended.
    #[error("{0}")]
    Unmountable(String),
    /// The device cannot read it, and may be able to another time. Until then nobody knows which blocks it
    /// has, and what has a name in it: nothing is mended.
    #[error("inode {ino}: {why}")]
    Failed { ino: u64, why: String },
    /// The inode is cleared if it is damaged.
    #[error("inode {ino}: {why}")]
    Unreadable { ino: u64, why: String, is_damaged: bool },
    /// The number is taken.
    #[error("inode {ino} is in use and its number is free")]
    NumberFree { ino: u64 },
    /// The number is freed.
    #[error("the number of inode {ino} is taken, and it is not there")]
    NumberTaken { ino: u64 },
    /// Not mended.
    #[error("inode {ino} has page {page}, which another has too")]
    TwiceHeld { ino: u64, page: u64 },
    /// The right number is written.
    #[error("inode {ino} counts {counts} blocks and has {has}")]
    BlockCount { ino: u64, counts: u64, has: u64 },
    /// Not mended.
    #[error("directory {dir} has pages behind its end")]
    BehindEnd { dir: u64 },
    /// Its unit is cleared.
    #[error("directory {dir} has an entry that makes no sense")]
    BadEntry { dir: u64, entry: (u32, usize) },
    /// The entry goes.
    #[error("directory {dir} has `{name}` twice")]
    NameTwice { dir: u64, name: String, entry: (u32, usize), units: usize },
    /// The entry goes.
    #[error("`{name}` in directory {dir} is inode {ino}, which is not there or of another type")]
    Dangling { dir: u64, name: String, ino: u64, entry: (u32, usize), units: usize },
    /// Not mended.
    #[error("directory {ino} has {names} names")]
    DirectoryNames { ino: u64, names: u32 },
    /// The right number is written.
    #[error("inode {ino} counts {counts} links and has {has}")]
    LinkCount { ino: u64, counts: u32, has: u32 },
    /// It gets the name `#` and its number in the root.
    #[error("inode {ino} has no name, and nobody will delete it")]
    Nameless { ino: u64 },
    /// The right one is written.
    #[error("directory {ino} is not where it says")]
    WrongParent { ino: u64, parent: u64 },
    /// It is taken.
    #[error("page {page} is used, and the bitmap says that it is free")]
    PageFree { page: u64 },
    /// It is freed.
    #[error("page {page} is unused, and the bitmap says that it is used")]
    PageTaken { page: u64 },
}

impl Finding {
    /// How bad it is: a warning where only space or a number is lost.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::NumberTaken { .. }
            | Self::PageTaken { .. }
            | Self::BlockCount { .. }
            | Self::Nameless { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Whether it is about a bitmap alone.
    pub const fn is_of_bitmap(&self) -> bool {
        matches!(
            self,
            Self::NumberFree { .. }
                | Self::NumberTaken { .. }
                | Self::PageFree { .. }
                | Self::PageTaken { .. }
        )
    }
}
