//! Last names of paths that are no plain names: with a slash behind, `.` and `..`. What they are refused with
//! follows Linux, also where several things are wrong.

use amphi_vfs::permission::EXECUTE;
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, RenameMode};

use crate::session::{Session, Watcher};
use crate::status::Refusal;
use crate::walk::Last;

type Result<T> = std::result::Result<T, Refusal>;

impl<F: FileSystem, W: Watcher> Session<F, W> {
    /// That a name with a slash behind it names a directory.
    pub(crate) fn is_directory(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<()> {
        match self.kind(dir, name, cred)? {
            FileType::Directory => Ok(()),
            _ => Err(Error::NotDirectory.into()),
        }
    }

    /// What a name names.
    pub(crate) fn kind(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> amphi_vfs::Result<FileType> {
        let attr = self.checked.lookup(dir, name, cred)?.attr;
        self.fs().forget(attr.ino, 1);
        Ok(attr.file_type)
    }

    /// That names may be looked for where the last one of a path is.
    pub(crate) fn searchable(&self, last: &Last<'_, '_, F>, cred: &Cred) -> Result<()> {
        Ok(self.checked.access(last.dir.ino, EXECUTE, cred)?)
    }

    /// Why a name of dots is not removed.
    pub(crate) fn cannot_be_removed(
        &self,
        last: &Last<'_, '_, F>,
        directory: bool,
        cred: &Cred,
    ) -> Result<Refusal> {
        self.searchable(last, cred)?;
        Ok(match directory {
            false => Error::IsDirectory,
            true if last.is_parent() => Error::NotEmpty,
            true => Error::InvalidName,
        }
        .into())
    }

    /// That the last name of a path is one that something which is no directory can be made with.
    pub(crate) fn can_be_made(&self, last: &Last<'_, '_, F>, cred: &Cred) -> Result<()> {
        if last.is_dots() {
            self.searchable(last, cred)?;
            return Err(Error::Exists.into());
        }
        if last.must_be_directory {
            // The slash is one too many, unless there is something already.
            self.kind(last.dir.ino, last.name()?, cred)?;
            return Err(Error::Exists.into());
        }
        Ok(())
    }

    /// That a rename with a slash behind one of its names has directories there.
    pub(crate) fn slashes_fit(
        &self,
        source: &Last<'_, '_, F>,
        target: &Last<'_, '_, F>,
        mode: RenameMode,
        cred: &Cred,
    ) -> Result<()> {
        self.searchable(target, cred)?;
        let moved = self.kind(source.dir.ino, source.name()?, cred)?;
        let replaced = match self.kind(target.dir.ino, target.name()?, cred) {
            Ok(kind) => Some(kind),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let is_directory = match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists.into()),
            (RenameMode::Exchange, None) => return Err(Error::NotFound.into()),
            (RenameMode::Exchange, Some(kind)) => {
                let there = kind == FileType::Directory || !target.must_be_directory;
                there && (moved == FileType::Directory || !source.must_be_directory)
            }
            _ => moved == FileType::Directory,
        };
        if is_directory { Ok(()) } else { Err(Error::NotDirectory.into()) }
    }
}
