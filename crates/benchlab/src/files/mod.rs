//! What a workload does to a file system: files and directories by path, data through handles. A workload
//! that is written against [`Files`] runs on a file system called in this process, in virtual or real time,
//! and on one that the kernel has mounted.

mod costs;
mod library;
mod syscalls;

pub use amphi_vfs::{Error, Result};
pub use costs::{Computing, HostCosts};
pub use library::LibraryFiles;
pub use syscalls::SyscallFiles;

/// An open file: what [`Files::open`] gave, and how it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The implementation's own number for it.
    pub id: u64,
    /// How it was opened.
    pub mode: OpenMode,
}

/// What to do about a name that is, or is not, there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// The file must exist.
    #[default]
    Never,
    /// It is made if it is missing.
    IfMissing,
    /// It must not exist.
    New,
}

/// How a file is opened. Every open file can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// It will be written.
    pub write: bool,
    /// Whether it may be, or must be, made.
    pub create: Creation,
    /// Cut to length zero.
    pub truncate: bool,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Each write is durable on return, with what is needed to read it (`O_DSYNC`).
    pub sync_data: bool,
}

impl OpenMode {
    /// For reading.
    pub const READ: Self =
        Self { write: false, create: Creation::Never, truncate: false, direct: false, sync_data: false };
    /// For reading and writing what exists.
    pub const WRITE: Self = Self { write: true, ..Self::READ };
    /// A new file.
    pub const NEW: Self = Self { create: Creation::New, ..Self::WRITE };
}

/// What `stat` answers, as far as workloads care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Length in bytes.
    pub size: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The files below one directory of a file system. Paths are relative to it, `/` between names, without `.`
/// and `..`; an empty path is the directory itself. Any number of threads (in a `Sim`, tasks) may call at
/// once. Durability is the file system's own: what returns before `fsync` may be lost in a crash.
pub trait Files: Send + Sync {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], and what the file system answers.
    fn open(&self, path: &str, mode: OpenMode) -> Result<Handle>;

    /// Closes it; the handle is not used again.
    ///
    /// # Errors
    /// What the file system answers.
    fn close(&self, file: Handle) -> Result<()>;

    /// Its length in bytes.
    ///
    /// # Errors
    /// What the file system answers.
    fn size(&self, file: Handle) -> Result<u64>;

    /// Reads at `offset`; less than asked only at the end.
    ///
    /// # Errors
    /// What the file system answers.
    fn read(&self, file: Handle, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// What the file system answers.
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes all of `data` at the end, wherever that is by then.
    ///
    /// # Errors
    /// What the file system answers.
    fn append(&self, file: Handle, data: &[u8]) -> Result<()>;

    /// Sets its length.
    ///
    /// # Errors
    /// What the file system answers.
    fn set_size(&self, file: Handle, size: u64) -> Result<()>;

    /// Makes its data durable, and its attributes; with `data_only`, only those needed to read the data.
    ///
    /// # Errors
    /// What the file system answers.
    fn fsync(&self, file: Handle, data_only: bool) -> Result<()>;

    /// Makes the names in a directory durable (`fsync` of the directory).
    ///
    /// # Errors
    /// What the file system answers.
    fn sync_directory(&self, path: &str) -> Result<()>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// What the file system answers.
    fn sync(&self) -> Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// [`Error::NotFound`], and what the file system answers.
    fn unlink(&self, path: &str) -> Result<()>;

    /// Makes a directory.
    ///
    /// # Errors
    /// [`Error::Exists`], and what the file system answers.
    fn mkdir(&self, path: &str) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotEmpty`], and what the file system answers.
    fn rmdir(&self, path: &str) -> Result<()>;

    /// Moves a name over another, which need not exist.
    ///
    /// # Errors
    /// [`Error::NotFound`], and what the file system answers.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// What is at a path.
    ///
    /// # Errors
    /// [`Error::NotFound`], and what the file system answers.
    fn stat(&self, path: &str) -> Result<Status>;

    /// Calls `each` with every name in a directory but `.` and `..`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], and what the file system answers.
    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()>;

    /// Bytes that files may still take.
    ///
    /// # Errors
    /// What the file system answers; [`Error::Unsupported`], where these files have no way to know.
    fn free_bytes(&self) -> Result<u64> {
        Err(Error::Unsupported("free space of these files"))
    }

    /// Sets an extended attribute of what is at a path.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Unsupported`], where these files have no way to; what the file system
    /// answers.
    fn set_attribute(&self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        let _ = (path, name, value);
        Err(Error::Unsupported("extended attributes of these files"))
    }

    /// Reads a file from its beginning to its end through `buffer`; how many bytes it has.
    ///
    /// # Errors
    /// What the file system answers.
    fn read_whole(&self, file: Handle, buffer: &mut [u8]) -> Result<u64> {
        let mut offset = 0;
        loop {
            let read = self.read(file, offset, buffer)?;
            offset += read as u64;
            if read < buffer.len() {
                return Ok(offset);
            }
        }
    }
}
