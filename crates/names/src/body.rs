//! What hangs below an inode, by its type, for stores that keep something of their own for each.

use amphi_vfs::{Error, Result};

/// What a store keeps of a regular file `F`, a directory `D`, a symbolic link `L`.
pub enum Body<F, D, L> {
    /// Regular file.
    File(F),
    /// Directory.
    Dir(D),
    /// Symbolic link.
    Symlink(L),
    /// FIFO, socket, device.
    Special,
}

impl<F, D, L> Body<F, D, L> {
    /// The regular file this is.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`].
    #[inline]
    pub const fn file(&self) -> Result<&F> {
        match self {
            Self::File(file) => Ok(file),
            Self::Dir(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// As [`file`](Self::file), to change.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub const fn file_mut(&mut self) -> Result<&mut F> {
        match self {
            Self::File(file) => Ok(file),
            Self::Dir(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// The directory this is.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    #[inline]
    pub const fn dir(&self) -> Result<&D> {
        match self {
            Self::Dir(dir) => Ok(dir),
            _ => Err(Error::NotDirectory),
        }
    }

    /// As [`dir`](Self::dir), to change.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub const fn dir_mut(&mut self) -> Result<&mut D> {
        match self {
            Self::Dir(dir) => Ok(dir),
            _ => Err(Error::NotDirectory),
        }
    }
}
