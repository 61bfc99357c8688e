//! From a path to a file: names one after the other, symbolic links followed, every directory searched only
//! by whom it lets.

use std::borrow::Cow;

use amphi_vfs::{Attr, Checked, Cred, Error, FileSystem, FileType, Ino, Name};

use crate::status::Refusal;

type Result<T> = std::result::Result<T, Refusal>;

/// Symbolic links followed on one path, as in Linux.
const LINKS_MAX: u32 = 40;

/// An inode that cannot go away: it holds a reference, or somebody else does.
pub struct Held<'f, F: FileSystem> {
    fs: &'f F,
    /// Its number.
    pub ino: Ino,
    counted: bool,
}

impl<'f, F: FileSystem> Held<'f, F> {
    /// The root, or an inode that the caller holds open.
    pub const fn open(fs: &'f F, ino: Ino) -> Self {
        Self { fs, ino, counted: false }
    }

    /// Takes over the reference that an entry came with.
    pub const fn found(fs: &'f F, ino: Ino) -> Self {
        Self { fs, ino, counted: true }
    }
}

impl<F: FileSystem> Drop for Held<'_, F> {
    fn drop(&mut self) {
        if self.counted {
            self.fs.forget(self.ino, 1);
        }
    }
}

/// The last name of a path and the directory in which it stands, or will.
pub struct Last<'f, 'p, F: FileSystem> {
    /// The directory.
    pub dir: Held<'f, F>,
    name: Cow<'p, [u8]>,
    /// A slash follows: it must be a directory.
    pub must_be_directory: bool,
}

impl<F: FileSystem> Last<'_, '_, F> {
    /// The name.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for `.` and `..`, which name no entry; [`Error::NameTooLong`].
    pub fn name(&self) -> Result<Name<'_>> {
        Ok(Name::new(&self.name)?)
    }

    /// Whether it is `..`.
    pub fn is_parent(&self) -> bool {
        *self.name == *b".."
    }

    /// Whether it is `.` or `..`.
    pub fn is_dots(&self) -> bool {
        matches!(&*self.name, b"." | b"..")
    }
}

impl<'f, F: FileSystem> Last<'f, '_, F> {
    /// The directory alone.
    pub fn into_dir(self) -> Held<'f, F> {
        self.dir
    }
}

/// One walk. What it follows counts together.
pub struct Walk<'f, F: FileSystem> {
    checked: &'f Checked<F>,
    cred: &'f Cred,
    links: u32,
}

impl<'f, F: FileSystem> Walk<'f, F> {
    /// A walk for `cred`.
    pub const fn new(checked: &'f Checked<F>, cred: &'f Cred) -> Self {
        Self { checked, cred, links: 0 }
    }

    /// The file that `path` names from `start`, with its attributes. An empty path names `start`.
    ///
    /// # Errors
    /// As lookups; [`Refusal::Outside`], [`Refusal::LinkLoop`].
    pub fn file(&mut self, start: Held<'f, F>, path: &[u8], follow: bool) -> Result<(Held<'f, F>, Attr)> {
        let mut at = start;
        let mut path = Cow::Borrowed(path);
        loop {
            if path.is_empty() {
                let attr = self.fs().getattr(at.ino)?;
                return Ok((at, attr));
            }
            let last = self.last(at, &path)?;
            if last.is_dots() {
                let found = self.dots(last)?;
                let attr = self.fs().getattr(found.ino)?;
                return Ok((found, attr));
            }
            let attr = self.checked.lookup(last.dir.ino, last.name()?, self.cred)?.attr;
            let found = Held::found(self.fs(), attr.ino);
            if attr.file_type == FileType::Symlink && (follow || last.must_be_directory) {
                self.checked.may_follow(last.dir.ino, &attr, self.cred)?;
                let mut target = self.target(attr.ino)?;
                if last.must_be_directory {
                    target.push(b'/');
                }
                at = last.into_dir();
                path = Cow::Owned(target);
                continue;
            }
            if last.must_be_directory && attr.file_type != FileType::Directory {
                return Err(Error::NotDirectory.into());
            }
            return Ok((found, attr));
        }
    }

    /// The last name of `path`, which is not looked up, and its directory.
    ///
    /// # Errors
    /// As for [`file`](Self::file); [`Error::NotFound`] for an empty path.
    pub fn last<'p>(&mut self, start: Held<'f, F>, path: &'p [u8]) -> Result<Last<'f, 'p, F>> {
        if path.is_empty() {
            return Err(Error::NotFound.into());
        }
        let mut dir = start;
        let mut rest = Cow::Borrowed(path);
        loop {
            if rest.first() == Some(&b'/') {
                // Where that leads is for the kernel to say.
                return Err(Refusal::Outside);
            }
            let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            let behind = rest[end..].iter().position(|&byte| byte != b'/').map(|slashes| end + slashes);
            let Some(behind) = behind else {
                let must_be_directory = end < rest.len();
                let name = match rest {
                    Cow::Borrowed(rest) => Cow::Borrowed(&rest[..end]),
                    Cow::Owned(mut rest) => {
                        rest.truncate(end);
                        Cow::Owned(rest)
                    }
                };
                return Ok(Last { dir, name, must_be_directory });
            };
            let name = &rest[..end];
            if matches!(name, b"." | b"..") {
                dir = self.dots(Last { dir, name: Cow::Borrowed(name), must_be_directory: true })?;
            } else {
                let attr = self.checked.lookup(dir.ino, Name::new(name)?, self.cred)?.attr;
                let found = Held::found(self.fs(), attr.ino);
                match attr.file_type {
                    FileType::Directory => dir = found,
                    FileType::Symlink => {
                        let mut target = self.target(attr.ino)?;
                        target.push(b'/');
                        target.extend_from_slice(&rest[behind..]);
                        rest = Cow::Owned(target);
                        continue;
                    }
                    _ => return Err(Error::NotDirectory.into()),
                }
            }
            rest = match rest {
                Cow::Borrowed(rest) => Cow::Borrowed(&rest[behind..]),
                Cow::Owned(mut rest) => Cow::Owned(rest.split_off(behind)),
            };
        }
    }

    /// Who walks.
    pub const fn cred(&self) -> &'f Cred {
        self.cred
    }

    fn fs(&self) -> &'f F {
        self.checked.inner()
    }

    /// The directory that `.` or `..` means in another one.
    fn dots(&self, last: Last<'f, '_, F>) -> Result<Held<'f, F>> {
        // Whoever may not search a directory does not get through it.
        self.checked.access(last.dir.ino, amphi_vfs::permission::EXECUTE, self.cred)?;
        if &*last.name == b"." {
            return match self.fs().getattr(last.dir.ino)?.file_type {
                FileType::Directory => Ok(last.dir),
                _ => Err(Error::NotDirectory.into()),
            };
        }
        if last.dir.ino == Ino::ROOT {
            return Err(Refusal::Outside);
        }
        let above = self.fs().parent(last.dir.ino)?;
        match self.fs().reference(above) {
            Ok(entry) => Ok(Held::found(self.fs(), entry.attr.ino)),
            Err(Error::Unsupported(_)) => Ok(Held::open(self.fs(), above)),
            Err(error) => Err(error.into()),
        }
    }

    /// What a symbolic link holds, one more on this path.
    pub fn target(&mut self, link: Ino) -> Result<Vec<u8>> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Refusal::LinkLoop);
        }
        Ok(self.fs().readlink(link)?)
    }
}
