//! One client's use of a file system: its open files, who it is, and who else wants to know what it changes.

use std::sync::Arc;

use amphi_vfs::{Checked, Cred, FileSystem, Ino, Name};

use crate::handles::{Handles, OpenFile};
use crate::status::Refusal;
use crate::walk::Held;

/// Who must know what a client changes before it hears that it is done: another door to the same file system, whose caches would
/// be wrong otherwise.
pub trait Watcher: Send + Sync {
    /// Attributes or contents of the inode have changed.
    fn inode(&self, ino: Ino);

    /// What `name` means in `dir` has changed, and the directory with it.
    fn name(&self, dir: Ino, name: Name<'_>);
}

/// Nobody.
impl Watcher for () {
    fn inode(&self, _ino: Ino) {}

    fn name(&self, _dir: Ino, _name: Name<'_>) {}
}

/// What one lane's commands are carried out with. Its buffers are used again and again.
#[derive(Debug)]
pub struct Caller {
    /// Who asks.
    pub cred: Cred,
    pub(crate) first: Vec<u8>,
    pub(crate) second: Vec<u8>,
}

impl Caller {
    /// Commands of `cred`.
    #[must_use]
    pub const fn new(cred: Cred) -> Self {
        Self { cred, first: Vec::new(), second: Vec::new() }
    }
}

/// A client's session. Its lanes share it.
pub struct Session<F: FileSystem, W: Watcher = ()> {
    pub(crate) checked: Checked<F>,
    pub(crate) handles: Handles<F>,
    pub(crate) watcher: W,
}

impl<F: FileSystem, W: Watcher> Session<F, W> {
    /// A client of `fs` that may have `files_max` files open.
    pub const fn new(fs: Arc<F>, watcher: W, files_max: usize) -> Self {
        Self { checked: Checked::new(fs), handles: Handles::new(files_max), watcher }
    }

    pub(crate) fn fs(&self) -> &Arc<F> {
        self.checked.inner()
    }

    /// What a handle is open on: for whoever must open it in another way.
    ///
    /// # Errors
    /// [`Refusal::BadHandle`].
    pub fn opened(&self, handle: u64) -> Result<Ino, Refusal> {
        self.handles.get(handle).map(|file| file.ino)
    }

    /// Where a path begins: the root, or what is open.
    pub(crate) fn start<'f>(
        &'f self,
        handle: u64,
        opened: &'f mut Option<Arc<OpenFile<F>>>,
    ) -> Result<Held<'f, F>, Refusal> {
        let ino = match handle {
            0 => Ino::ROOT,
            _ => opened.insert(self.handles.get(handle)?).ino,
        };
        Ok(Held::open(self.fs(), ino))
    }
}
