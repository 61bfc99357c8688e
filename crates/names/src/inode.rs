//! Inodes in memory: what every file system's have, and room for what only one's do.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use amphi_rt::sync::RwLock;
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Attr, FileType, Ino, TimeSpec};

/// What a file system keeps in an inode, under its lock. The type names the file system's inodes: their code
/// need not know what stores them.
pub trait Part: Sized + Send + Sync + 'static {
    /// What it keeps beside the lock.
    type Beside: Default + Send + Sync;

    /// Space that an inode takes, in units of 512 bytes, with what writes to come will take.
    fn sectors(state: &State<Self>) -> u64;
}

/// A cached inode.
pub struct Inode<P: Part> {
    /// Its number.
    pub ino: Ino,
    /// Its type, which never changes: readable without the lock.
    pub file_type: FileType,
    /// References by lookup (`FileSystem::forget`).
    pub(crate) lookups: AtomicU64,
    /// References by open.
    pub(crate) opens: AtomicU64,
    /// Whether it was used since the cache last looked for inodes that can leave.
    used: AtomicBool,
    /// A directory's parent, readable without the lock: renames walk ancestors by it.
    parent: AtomicU64,
    /// What the file system keeps beside the lock.
    pub beside: P::Beside,
    /// Everything else.
    pub state: RwLock<State<P>>,
}

/// What an inode's lock protects. The store's part reads as if its fields were here.
pub struct State<P: Part> {
    /// The inode's type.
    pub file_type: FileType,
    /// Permission bits, with set-id and sticky ones: `0o7777`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Length in bytes, of writes not yet durable too.
    pub size: u64,
    /// Access time, ns since 1970.
    pub atime: i64,
    /// Modification time.
    pub mtime: i64,
    /// Change time.
    pub ctime: i64,
    /// Distinguishes successive files with one number.
    pub generation: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Extended attributes in the order they were first set; none: they have not been read yet.
    pub attributes: Option<Attributes>,
    /// Among the orphans: without a name, and still used.
    pub orphan: bool,
    /// Made without a name, and has had none since.
    pub unnamed: bool,
    /// Deleted: the number may already be somebody else's.
    pub gone: bool,
    /// The access time changed in memory only, which is in no hurry.
    pub atime_dirty: bool,
    /// The file system's own.
    pub part: P,
}

impl<P: Part> Deref for State<P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        &self.part
    }
}

impl<P: Part> DerefMut for State<P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut P {
        &mut self.part
    }
}

impl<P: Part> Inode<P> {
    /// An inode with no references yet; `parent` is a directory's, else without meaning.
    pub fn new(ino: Ino, parent: Ino, state: State<P>) -> Self {
        Self {
            ino,
            file_type: state.file_type,
            lookups: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            used: AtomicBool::new(false),
            parent: AtomicU64::new(parent.0),
            beside: P::Beside::default(),
            state: RwLock::new(state),
        }
    }

    /// Whether any caller may still use the number.
    #[inline]
    pub fn referenced(&self) -> bool {
        self.lookups.load(Ordering::Acquire) > 0 || self.opens.load(Ordering::Acquire) > 0
    }

    /// Whether any caller has it open.
    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }

    /// Notes that it is used. Processors that use one inode share its line, so it is written only if need be.
    #[inline]
    pub(crate) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last time of asking.
    pub(crate) fn take_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Whether it is a directory.
    #[inline]
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// A directory's parent; the root's is itself.
    #[inline]
    pub fn parent(&self) -> Ino {
        Ino(self.parent.load(Ordering::Acquire))
    }

    pub(crate) fn set_parent(&self, parent: Ino) {
        self.parent.store(parent.0, Ordering::Release);
    }

    /// The answer to `stat`.
    pub fn attr(&self, state: &State<P>) -> Attr {
        Attr {
            ino: self.ino,
            generation: state.generation,
            file_type: self.file_type,
            mode: state.mode,
            nlink: state.nlink,
            uid: state.uid,
            gid: state.gid,
            rdev: state.rdev,
            size: state.size,
            blocks: P::sectors(state),
            atime: TimeSpec { ns: state.atime },
            mtime: TimeSpec { ns: state.mtime },
            ctime: TimeSpec { ns: state.ctime },
        }
    }
}
