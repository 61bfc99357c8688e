//! What a transfer is for: the file-system structure it serves. Traffic is accounted by it (ByteFS figs 1, 8,
//! 9).

/// The structure a transfer serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Structure {
    /// Superblock.
    Superblock = 0,
    /// Block and inode bitmaps.
    Bitmap = 1,
    /// Inodes.
    Inode = 2,
    /// Directory entries.
    Dentry = 3,
    /// Data pointers: extents, block maps, log indexes.
    Pointer = 4,
    /// File data.
    Data = 5,
    /// Journals and transaction records.
    Journal = 6,
    /// Anything else, such as a raw device user.
    Other = 7,
}

impl Structure {
    /// Every structure, in the order of its discriminant.
    pub const ALL: [Self; 8] = [
        Self::Superblock,
        Self::Bitmap,
        Self::Inode,
        Self::Dentry,
        Self::Pointer,
        Self::Data,
        Self::Journal,
        Self::Other,
    ];

    /// The name used in reports and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Bitmap => "bitmap",
            Self::Inode => "inode",
            Self::Dentry => "dentry",
            Self::Pointer => "pointer",
            Self::Data => "data",
            Self::Journal => "journal",
            Self::Other => "other",
        }
    }
}
