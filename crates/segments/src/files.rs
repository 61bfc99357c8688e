//! Contents of files, by way of pages in host memory: reading, writing, and who writes back when there are
//! too many. Where a page is on the device, and how it comes there, the file system says ([`Files`]).

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::{Guard, Inode, Part, State, Store, note_write, regular, shed_capability};
use amphi_page_cache::{BoxedFrame, Cached, Listed, Round, Since, shrink};
use amphi_vfs::{Allocate, Cred, Error, Ino, Result, WriteMode};

use crate::domain::Domain;
use crate::format::Address;
use crate::ground::Ground;
pub use crate::pages::{FileCache, FilePages, Promised, Promises};

/// What such a file system keeps in an inode.
pub trait FilePart: Part<Beside = Since> {
    /// What is in memory of a file.
    fn file(&self) -> &FilePages;

    /// As [`file`](Self::file), to change.
    fn file_mut(&mut self) -> &mut FilePages;
}

/// A file system whose files' pages are kept here.
pub trait Files: Store<Part: FilePart> {
    /// The device.
    type Device: BlockPort;

    /// Longest file in bytes.
    const FILE_BYTES_MAX: u64;

    /// What is counted of all files.
    fn cache(&self) -> &FileCache;

    /// The device under them, and where everything is on it.
    fn ground(&self) -> &Ground<Self::Device>;

    /// The domain of a file.
    fn domain(&self, ino: Ino) -> &Domain;

    /// Where the pages `first .. end` of a file are. The caller has its domain's gate.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn addresses(
        &self,
        inode: &Inode<Self::Part>,
        state: &State<Self::Part>,
        first: u64,
        end: u64,
    ) -> Result<Vec<Address>>;

    /// Where the first of these pages are, up to one where a node ends: that one, and nothing if there is no
    /// node for any. The caller has the gate.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn stretch(
        &self,
        inode: &Inode<Self::Part>,
        state: &State<Self::Part>,
        pages: Range<u64>,
    ) -> Result<(Vec<Address>, u64)>;

    /// Puts a page as the device has it into memory.
    fn keep(
        &self,
        inode: &Arc<Inode<Self::Part>>,
        state: &mut State<Self::Part>,
        page: u64,
        bytes: BoxedFrame,
    ) {
        let _ = inode;
        self.cache().insert(state.file_mut(), page, bytes, false);
    }

    /// Before a write of these bytes: has what it changes in part in memory, and a block for each of its
    /// pages, there or promised. Returns the pages that were promised one.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Corrupt`], [`Error::Io`].
    fn prepare(
        &self,
        inode: &Arc<Inode<Self::Part>>,
        state: &mut State<Self::Part>,
        bytes: Range<u64>,
    ) -> Result<Promises>;

    /// Has what was written be where its mode says that it is when the write returns.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn finish(
        &self,
        inode: &Arc<Inode<Self::Part>>,
        state: Guard<'_, Self::Part>,
        mode: WriteMode,
    ) -> Result<()>;

    /// Before a file gets another size: what must be on the device when that counts comes there.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn prepare_resize(
        &self,
        inode: &Arc<Inode<Self::Part>>,
        state: &mut State<Self::Part>,
        size: u64,
    ) -> Result<()>;

    /// What a file has behind its new end goes with a change.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn cut_off<'a>(
        &'a self,
        change: &mut Self::Change<'a>,
        inode: &Arc<Inode<Self::Part>>,
        state: &mut State<Self::Part>,
        size: u64,
    ) -> Result<()>;

    /// See [`amphi_vfs::FileSystem::allocate`].
    ///
    /// # Errors
    /// As there.
    fn allocate(
        &self,
        inode: &Arc<Inode<Self::Part>>,
        offset: u64,
        length: u64,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()>;

    /// Writes a file's dirty pages and its inode back. The caller has it locked.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; the file system is read-only then.
    fn write_back(&self, inode: &Arc<Inode<Self::Part>>, state: &mut State<Self::Part>) -> Result<()>;

    /// Pages that were just brought into memory have been read.
    fn was_loaded(&self, part: &mut Self::Part) {
        let _ = part;
    }
}

/// Writes a file's dirty pages and its inode back.
///
/// # Errors
/// As [`Files::write_back`].
pub fn write_back_file<F: Files>(fs: &F, inode: &Arc<Inode<F::Part>>) -> Result<()> {
    let mut state = inode.state.write();
    if state.gone || regular(inode.file_type).is_err() {
        return Ok(());
    }
    fs.write_back(inode, &mut state)
}

/// Writes all of `data`. Returns the number of bytes.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::write`].
pub fn write<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    offset: u64,
    data: &[u8],
    mode: WriteMode,
    cred: &Cred,
) -> Result<usize> {
    regular(inode.file_type)?;
    fs.names().health.writable()?;
    if data.is_empty() {
        return Ok(0);
    }
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(inode.ino));
    }
    let offset = if mode.append { state.size } else { offset };
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= F::FILE_BYTES_MAX);
    let end = end.ok_or(Error::TooLarge)?;
    shed_capability(fs, inode, &mut state)?;
    let promised = fs.prepare(inode, &mut state, offset..end)?;
    fs.cache().write(state.file_mut(), offset, data, &promised);
    state.size = state.size.max(end);
    note_write(fs, &mut state, cred);
    state.file_mut().changed = true;
    fs.cache().note_dirty(inode);
    fs.finish(inode, state, mode)?;
    relieve(fs, inode)?;
    Ok(data.len())
}

/// The files that have something that is not on the device, oldest first.
fn dirty_files<F: Files>(fs: &F) -> impl Iterator<Item = Arc<Inode<F::Part>>> {
    let listed = fs.cache().dirty.since_before(u64::MAX).into_iter();
    listed.filter_map(|listed: Listed| fs.names().cache.get(listed.0).filter(|inode| inode.beside.is(listed)))
}

/// Writes back all that is dirty, as [`write_back_file`] does.
///
/// # Errors
/// As [`Files::write_back`].
pub fn write_back_all<F: Files>(fs: &F) -> Result<()> {
    dirty_files(fs).try_for_each(|inode| write_back_file(fs, &inode))
}

/// The files whose clean pages can leave.
struct Clean<'f, F>(&'f F);

impl<F: Files> Cached for Clean<'_, F> {
    type File = Inode<F::Part>;

    fn visit(&self, start: usize, each: impl FnMut(&Arc<Inode<F::Part>>) -> ControlFlow<()>) -> usize {
        self.0.names().cache.visit(start, each)
    }

    fn drop_pages(&self, inode: &Arc<Inode<F::Part>>, round: Round) {
        if let Some(mut state) = inode.state.try_write() {
            let budget = &self.0.cache().budget;
            state.file_mut().pages.drop_clean(budget, budget.excess(), round.also_used());
        }
    }
}

/// After a read or write: keeps the number of pages within its limits. The caller has no lock.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn relieve<F: Files>(fs: &F, inode: &Arc<Inode<F::Part>>) -> Result<()> {
    let FileCache { budget, hand, .. } = fs.cache();
    if budget.too_dirty() {
        write_back_file(fs, inode)?;
        dirty_files(fs)
            .take_while(|_| budget.rather_dirty())
            .try_for_each(|other| write_back_file(fs, &other))?;
    }
    shrink(&Clean(fs), budget, hand, &[Round::Unused, Round::Clean]);
    Ok(())
}

/// See [`Store::lock`].
///
/// # Errors
/// As there.
pub fn lock<P: Part>(inode: &Inode<P>, size: Option<u64>) -> Result<Guard<'_, P>> {
    if size.is_some() {
        regular(inode.file_type)?;
    }
    Ok(inode.state.write())
}

/// Whether a file may leave memory, with its pages.
pub fn may_leave<F: Files>(fs: &F, inode: &Inode<F::Part>, state: &mut State<F::Part>) -> bool {
    let file = state.file_mut();
    if !file.pages.is_clean() || file.changed || inode.beside.is_listed() {
        return false;
    }
    fs.cache().drop_clean(file);
    true
}
