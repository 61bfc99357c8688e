//! What a file system brings: where inodes and entries are ([`Store`]), and how several changes become one
//! ([`Change`]).
//!
//! An operation looks first, asks [`Store::begin`] for everything that can run out, changes inodes in memory
//! and the [`Change`] together, and commits. So what fails before the first change leaves nothing behind;
//! what fails after it has host and device apart, and the store turns read-only.

use std::sync::Arc;

use amphi_rt::sync::RwLockWriteGuard;
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirSink, Error, FileType, Ino, Name, Result};

use crate::inode::{Inode, Part, State};
use crate::names::Names;

/// An inode's lock, held to change it.
pub type Guard<'a, P> = RwLockWriteGuard<'a, State<P>>;

/// Cookies below this stand for the start of a listing, `.` and `..`, which are not the store's.
pub const FIRST_COOKIE: u64 = 2;

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<P> {
    /// Where.
    pub slot: P,
    /// What it names.
    pub child: Child,
}

/// What an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// The inode's number.
    pub ino: Ino,
    /// Its type.
    pub file_type: FileType,
}

impl Child {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(self) -> bool {
        self.file_type == FileType::Directory
    }
}

/// What a caller asks of a new inode.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Its type.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: u16,
    /// Device number of a device file.
    pub rdev: u32,
    /// A symbolic link's target, 1 to [`Store::TARGET_BYTES_MAX`] bytes.
    pub target: &'a [u8],
}

/// What a change will do, as far as anything can run out for it.
pub struct Need<'a, S: Store> {
    /// Inserts an entry here.
    pub place: Option<&'a S::Place>,
    /// Makes this inode.
    pub new: Option<&'a NewInode<'a>>,
    /// Stores these attributes; of an inode that is there, with what the store keeps in it.
    pub attributes: Option<(&'a Attributes, Option<&'a S::Part>)>,
    /// Puts an inode among the orphans.
    pub orphan: bool,
    /// Frees what an inode holds.
    pub frees: bool,
}

impl<S: Store> Need<'_, S> {
    /// Nothing that can run out.
    pub const NOTHING: Self = Self { place: None, new: None, attributes: None, orphan: false, frees: false };
}

/// How much of an inode has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// All of it: it is new.
    New,
    /// A directory's entries, with its times, its size and its number of links.
    Entries,
    /// Its attributes, extended ones too.
    Attributes,
    /// Its number of names and its change time.
    Links,
    /// What it holds: a part was freed.
    Contents,
    /// Its access time.
    Times,
}

/// A mounted file system, as far as names are concerned.
///
/// Methods that take a [`State`] are called with the inode's lock held; those that take it to change it, with
/// the lock held to change it.
pub trait Store: Sized + Send + Sync + 'static {
    /// What the store keeps in an inode.
    type Part: Part;
    /// Where an entry is. Other changes of the directory may move it; the name goes with it wherever it is
    /// used.
    type Slot: Copy;
    /// Where an entry will be.
    type Place;
    /// A change of the store under construction. Dropped without a commit it gives back what it took.
    type Change<'a>: Change<Self>;

    /// Most names of one inode, and so most subdirectories (less two) of a directory.
    const LINKS_MAX: u32 = 65_000;
    /// Size of an empty directory in bytes.
    const NEW_DIR_BYTES: u64 = 0;
    /// Longest target of a symbolic link in bytes.
    const TARGET_BYTES_MAX: usize = 4095;

    /// Whether an access time stays in memory until the inode is written for another reason, or leaves the
    /// cache.
    const LAZY_TIMES: bool = true;

    /// What is kept for the store here.
    fn names(&self) -> &Names<Self::Part>;

    /// More than there are inodes: no path is longer.
    fn inodes_max(&self) -> u64;

    /// Reads an inode. Nobody else has it in memory, but others may read it at the same time.
    ///
    /// # Errors
    /// [`Error::Stale`] if no inode has the number; [`Error::Corrupt`], [`Error::Io`].
    fn load(&self, ino: Ino) -> Result<Inode<Self::Part>>;

    /// Whether a directory's entries can be found and listed without [`open_dir`](Self::open_dir).
    fn is_open(state: &State<Self::Part>) -> bool {
        let _ = state;
        true
    }

    /// Makes a directory's entries ready to be found.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn open_dir(&self, dir: &Inode<Self::Part>, state: &mut State<Self::Part>) -> Result<()> {
        let _ = (dir, state);
        Ok(())
    }

    /// Finds a name in an open directory.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn find(
        &self,
        dir: &Inode<Self::Part>,
        state: &State<Self::Part>,
        name: Name<'_>,
    ) -> Result<Option<Found<Self::Slot>>>;

    /// As [`find`](Self::find), with the inode if the store came by it.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    #[inline]
    fn find_inode(
        &self,
        dir: &Inode<Self::Part>,
        state: &State<Self::Part>,
        name: Name<'_>,
    ) -> Result<Option<FoundInode<Self>>> {
        Ok(self.find(dir, state, name)?.map(|found| (found, None)))
    }

    /// Decides where a name that is not there will go.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the directory cannot grow; [`Error::Corrupt`], [`Error::Io`].
    fn place(
        &self,
        dir: &Inode<Self::Part>,
        state: &State<Self::Part>,
        name: Name<'_>,
    ) -> Result<Self::Place>;

    /// Whether an open directory has no entries.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn is_empty(&self, dir: &Inode<Self::Part>, state: &State<Self::Part>) -> Result<bool>;

    /// Lists the entries of an open directory, but for `.` and `..`, from `cookie` on until `sink` declines
    /// one. [`FIRST_COOKIE`] is the first's.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn list(
        &self,
        dir: &Inode<Self::Part>,
        state: &State<Self::Part>,
        cookie: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()>;

    /// A symbolic link's target.
    fn target(link: &State<Self::Part>) -> &[u8];

    /// Reads an inode's extended attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn attributes(&self, ino: Ino, state: &mut State<Self::Part>) -> Result<Attributes>;

    /// Locks an inode for a change of its attributes (of its size to `size`) or its deletion, once nothing is
    /// on the way that would be in the way.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::IsDirectory`] and [`Error::Invalid`] for the size of what has none.
    fn lock<'a>(
        &self,
        inode: &'a Arc<Inode<Self::Part>>,
        size: Option<u64>,
    ) -> Result<Guard<'a, Self::Part>> {
        let _ = size;
        Ok(inode.state.write())
    }

    /// Gives a regular file another size. `apply` changes its attributes, in the change with which the new
    /// size counts.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::NoSpace`]; then nothing has changed. [`Error::Io`].
    fn resize(
        &self,
        inode: &Arc<Inode<Self::Part>>,
        state: &mut State<Self::Part>,
        size: u64,
        apply: impl FnOnce(&mut Self::Change<'_>, &mut State<Self::Part>) -> Result<()>,
    ) -> Result<()>;

    /// Whether an inode without names can be deleted by the change that takes its last name; else it goes
    /// among the orphans first.
    fn deletes_at_once(&self, state: &State<Self::Part>) -> bool;

    /// Whether an inode that nobody uses may leave the cache, now that what it holds in memory and can be had
    /// again has been dropped.
    fn may_leave(&self, inode: &Inode<Self::Part>, state: &mut State<Self::Part>) -> bool {
        let _ = (inode, state);
        true
    }

    /// Somebody has opened an inode that nobody had open. Another task may have closed it already.
    #[inline]
    fn opened(&self, inode: &Inode<Self::Part>) {
        let _ = inode;
    }

    /// Nobody has the inode open any more, unless another task has just opened it.
    #[inline]
    fn closed(&self, inode: Arc<Inode<Self::Part>>) {
        drop(inode);
    }

    /// After [`Error::NoSpace`]: frees what is held for writes to come. Returns whether there may be more
    /// space now.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn make_room(&self) -> Result<bool> {
        Ok(false)
    }

    /// Begins a change.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::NoSpace`] if there is not what the change needs, or if its attributes
    /// fit nowhere.
    fn begin(&self, need: &Need<'_, Self>) -> Result<Self::Change<'_>>;
}

/// An entry that was found, and its inode if the store came by it.
pub type FoundInode<S> = (Found<<S as Store>::Slot>, Option<Arc<Inode<<S as Store>::Part>>>);

/// Several changes of a store that count together: those who look, and a crash, see all of them or none.
///
/// Directories that are passed are open. Whatever a method changes of a [`State`] beyond the store's own part
/// it says.
///
/// Unless said otherwise, errors are [`Error::Corrupt`] and [`Error::Io`]; the store has then turned
/// read-only.
pub trait Change<S: Store>: Sized {
    /// Takes a number for an inode that is made in `dir`, and makes the store's part of it. Nothing has been
    /// changed before.
    ///
    /// # Errors
    /// [`Error::NoInodes`], [`Error::Io`].
    fn new_inode(&mut self, dir: &Inode<S::Part>, new: &NewInode<'_>) -> Result<(Ino, S::Part)>;

    /// Adds an entry; the directory's size follows.
    ///
    /// # Errors
    /// As the trait says.
    fn insert(
        &mut self,
        dir: &Inode<S::Part>,
        state: &mut State<S::Part>,
        place: S::Place,
        name: Name<'_>,
        child: Child,
    ) -> Result<()>;

    /// Takes an entry away.
    ///
    /// # Errors
    /// As the trait says.
    fn remove(
        &mut self,
        dir: &Inode<S::Part>,
        state: &mut State<S::Part>,
        slot: S::Slot,
        name: Name<'_>,
    ) -> Result<()>;

    /// Makes an entry name another inode.
    ///
    /// # Errors
    /// As the trait says.
    fn replace(
        &mut self,
        dir: &Inode<S::Part>,
        state: &mut State<S::Part>,
        slot: S::Slot,
        name: Name<'_>,
        child: Child,
    ) -> Result<()>;

    /// Notes that a directory's parent is another now, as the inode says.
    ///
    /// # Errors
    /// As the trait says.
    fn reparent(&mut self, child: &Inode<S::Part>, state: &mut State<S::Part>) -> Result<()>;

    /// Stores an inode's extended attributes, all of them.
    ///
    /// # Errors
    /// As the trait says.
    fn set_attributes(&mut self, ino: Ino, state: &mut State<S::Part>, attributes: &Attributes)
    -> Result<()>;

    /// Writes an inode, of which so much has changed. Its access time is written in any case, so that
    /// [`State::atime_dirty`] is false from then on.
    ///
    /// # Errors
    /// As the trait says.
    fn write_inode(
        &mut self,
        inode: &Inode<S::Part>,
        state: &mut State<S::Part>,
        changed: Changed,
    ) -> Result<()>;

    /// Puts an inode among the orphans, which the next mount deletes, or takes it out. A new one has been
    /// written before.
    ///
    /// # Errors
    /// As the trait says.
    fn set_orphan(&mut self, inode: &Inode<S::Part>, state: &mut State<S::Part>, orphan: bool) -> Result<()>;

    /// Frees as much as fits the change of what an inode without names holds; the rest with its number, its
    /// attributes and its place among the orphans. Returns whether that was all.
    ///
    /// # Errors
    /// As the trait says.
    fn free_step(&mut self, inode: &Inode<S::Part>, state: &mut State<S::Part>) -> Result<bool>;

    /// Makes the change count.
    ///
    /// # Errors
    /// As the trait says.
    fn commit(self) -> Result<()>;
}

/// The error for the size, or the contents, of what is no regular file.
///
/// # Errors
/// [`Error::IsDirectory`], [`Error::Invalid`].
pub const fn regular(file_type: FileType) -> Result<()> {
    match file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}
