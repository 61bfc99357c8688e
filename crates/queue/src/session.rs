//! One client's use of a file system: its open files, who it is, and who else wants to know what it changes.

use std::sync::Arc;

use amphi_vfs::permission::{Protected, READ};
use amphi_vfs::{Checked, Cred, FileSystem, Ino, Name};

use crate::handles::{Handles, OpenFile};
use crate::planted::{self, Bug};
use crate::status::Refusal;
use crate::walk::Held;

/// Who must know what a client changes before it hears that it is done: another door to the same file system,
/// whose caches would be wrong otherwise.
pub trait Watcher: Send + Sync {
    /// A client begins, that may change something.
    fn begins(&self) {}

    /// Attributes or contents of the inode have changed.
    fn inode(&self, ino: Ino);

    /// How many renames of the other door have ended: to be asked before a name is changed. One that ends
    /// later may have moved there what the name meant before.
    fn renames(&self) -> u64 {
        0
    }

    /// What `name` means in `dir` has changed, and the directory with it; before that so many renames of the
    /// other door had ended. Whether the other door may have known what it meant.
    fn name(&self, dir: Ino, name: Name<'_>, renames: u64) -> bool;

    /// A number that nobody can guess, with which the kernel finds an inode once, for a client that has it
    /// open and now needs a descriptor of the kernel's. None where there is no kernel.
    fn pass(&self, ino: Ino) -> Option<u128> {
        let _ = ino;
        None
    }
}

/// Nobody.
impl Watcher for () {
    fn inode(&self, _ino: Ino) {}

    fn name(&self, _dir: Ino, _name: Name<'_>, _renames: u64) -> bool {
        false
    }
}

/// What one lane's commands are carried out with. Its buffers are used again and again.
#[derive(Debug)]
pub struct Caller {
    /// Who asks.
    pub cred: Cred,
    /// Of which version these credentials are, for an executor that keeps a table of them; 0: of none.
    pub version: u64,
    pub(crate) first: Vec<u8>,
    pub(crate) second: Vec<u8>,
}

impl Caller {
    /// Commands of `cred`.
    #[must_use]
    pub const fn new(cred: Cred) -> Self {
        Self { cred, version: 0, first: Vec::new(), second: Vec::new() }
    }
}

/// A client's session. Its lanes share it.
pub struct Session<F: FileSystem, W: Watcher = ()> {
    pub(crate) checked: Checked<F>,
    pub(crate) handles: Handles<F>,
    pub(crate) watcher: W,
    /// Whether a command on an open file asks for permission again.
    asks_each_time: bool,
}

impl<F: FileSystem, W: Watcher> Session<F, W> {
    /// A client of `fs` that may have `files_max` files open.
    pub fn new(fs: Arc<F>, watcher: W, files_max: usize) -> Self {
        Self { checked: Checked::new(fs), handles: Handles::new(files_max), watcher, asks_each_time: false }
    }

    /// The same, with directories that users share restricted so.
    #[must_use]
    pub fn protecting(self, protected: Protected) -> Self {
        Self { checked: self.checked.with_protected(protected), ..self }
    }

    /// The same, with every read and write of an open file checked against the file's permissions of that
    /// moment (DevFS §4.5), not only when the file is opened, as POSIX has it. Who made the file may use what
    /// it was made with.
    #[must_use]
    pub const fn asking_each_time(mut self) -> Self {
        self.asks_each_time = true;
        self
    }

    /// The file behind a handle, if `cred` may use it as `wanted` says: `READ` or `WRITE`.
    pub(crate) fn usable(&self, handle: u64, wanted: u16, cred: &Cred) -> Result<Arc<OpenFile<F>>, Refusal> {
        let file = self.handles.get(handle)?;
        if !(if wanted == READ { file.read } else { file.write }) {
            return Err(Refusal::BadHandle);
        }
        if self.asks_each_time && !file.made && !planted::has(Bug::CheckedAtOpenOnly) {
            self.checked.access(file.ino, wanted, cred)?;
        }
        Ok(file)
    }

    pub(crate) fn fs(&self) -> &Arc<F> {
        self.checked.inner()
    }

    /// Who must know what the client changes.
    pub const fn watcher(&self) -> &W {
        &self.watcher
    }

    /// Closes all files that the client has open.
    pub fn close_all(&self) {
        self.handles.clear();
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
