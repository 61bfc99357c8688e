//! Operations that mean something on every tree, so that a sequence stays a sequence when some are taken out.

use amphi_vfs::{Allocate, FileType, RenameMode, Seek, XattrMode};

/// Component names; a path is a list of indices into it.
pub(super) const COMPONENTS: usize = 8;

/// The name with this index. Lengths are spread so that directory entries of all sizes replace each other.
pub(super) fn component(index: u8) -> Vec<u8> {
    match index {
        6 => vec![b'L'; 240],
        7 => b"a name of a moderate length, as people give".to_vec(),
        short => vec![b'a' + short],
    }
}

/// A path from the root, which is the empty path: indices of components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(pub Vec<u8>);

/// What an operation works on: what a path names now, or what a handle was opened on, named or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// What this path names.
    At(Path),
    /// What this handle holds.
    Handle(u8),
}

/// Bytes to write: `length` of them, all different from those of another `seed`, and telling where they
/// belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Distinguishes one write's bytes from another's.
    pub seed: u8,
    /// Number of bytes.
    pub length: u32,
}

impl Data {
    /// The bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let step = |i: u32| (i ^ (i >> 8) ^ (i >> 16)) as u8;
        (0..self.length).map(|i| step(i).wrapping_mul(13).wrapping_add(self.seed) | 1).collect()
    }
}

/// One step of a sequence. Users are 0 (the superuser) and others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Create {
        path: Path,
        file_type: FileType,
        mode: u16,
        rdev: u32,
        user: u32,
    },
    Mkdir {
        path: Path,
        mode: u16,
        user: u32,
    },
    Symlink {
        path: Path,
        length: u16,
        user: u32,
    },
    Readlink {
        path: Path,
    },
    Link {
        from: Object,
        to: Path,
    },
    Unlink {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        mode: RenameMode,
    },
    Open {
        path: Path,
        handle: u8,
        keep_lookup: bool,
        truncate: bool,
    },
    Close {
        handle: u8,
    },
    Write {
        object: Object,
        offset: u64,
        data: Data,
        append: bool,
        direct: bool,
        user: u32,
    },
    Read {
        object: Object,
        offset: u64,
        length: u32,
        direct: bool,
    },
    Resize {
        object: Object,
        size: u64,
        user: u32,
    },
    SetMode {
        object: Object,
        mode: u16,
    },
    SetOwner {
        object: Object,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    SetTimes {
        object: Object,
        atime: Option<i64>,
        mtime: Option<i64>,
    },
    GetAttr {
        object: Object,
    },
    List {
        path: Path,
        step: u8,
    },
    Parent {
        path: Path,
    },
    Seek {
        object: Object,
        offset: u64,
        what: Seek,
    },
    Allocate {
        object: Object,
        offset: u64,
        length: u32,
        what: Allocate,
        user: u32,
    },
    SetXattr {
        object: Object,
        key: u8,
        length: u16,
        mode: XattrMode,
    },
    GetXattr {
        object: Object,
        key: u8,
    },
    ListXattr {
        object: Object,
    },
    RemoveXattr {
        object: Object,
        key: u8,
    },
    /// Sets one of a few ACLs; number 0 removes it.
    SetAcl {
        object: Object,
        default: bool,
        number: u8,
    },
    /// Opens a new file without a name.
    Tmpfile {
        directory: Path,
        handle: u8,
        mode: u16,
        user: u32,
    },
    Fsync {
        object: Object,
        data_only: bool,
    },
    Sync,
    /// Unmount and mount again; handles are closed by it.
    Remount,
}
