//! [`Checked`]: a file system for callers who have not been checked, as programs that use it as a library
//! are.

use std::sync::Arc;

use crate::acl::{self, Acl};
use crate::permission::{
    EXECUTE, Protected, READ, WRITE, is_for_acl, may_access, may_change, may_follow, may_get_attribute,
    may_link, may_list_attribute, may_make, may_open_found, may_set_attribute, may_take_any,
    may_take_from_sticky, mode_made, without_foreign_group,
};
use crate::{
    Attr, Capabilities, Cred, DirSink, Entry, Error, FileSystem, FileType, Ino, Name, OpenFlags, Removed,
    RenameMode, Renamed, Result, SetAttr, XattrMode,
};

fn access_list<F: FileSystem + ?Sized>(fs: &F, ino: Ino) -> Result<Option<Acl>> {
    match fs.getxattr(ino, acl::ACCESS) {
        Ok(value) => Acl::decode(&value),
        Err(Error::NoData | Error::Unsupported(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether `cred` may do all of `wanted` with what has these attributes. The access list is read only where
/// it decides.
fn permitted<F: FileSystem + ?Sized>(fs: &F, attr: &Attr, cred: &Cred, wanted: u16) -> Result<()> {
    let list = if is_for_acl(attr, cred, wanted) { access_list(fs, attr.ino)? } else { None };
    may_access(attr, list.as_ref(), cred, wanted)
}

/// Attributes of what `cred` may do all of `wanted` with.
fn accessible<F: FileSystem + ?Sized>(fs: &F, ino: Ino, cred: &Cred, wanted: u16) -> Result<Attr> {
    let attr = fs.getattr(ino)?;
    permitted(fs, &attr, cred, wanted)?;
    Ok(attr)
}

/// Attributes of a directory that may be searched.
fn searchable<F: FileSystem + ?Sized>(fs: &F, dir: Ino, cred: &Cred) -> Result<Attr> {
    let attr = fs.getattr(dir)?;
    if attr.file_type != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    permitted(fs, &attr, cred, EXECUTE)?;
    Ok(attr)
}

/// What `name` names in a directory that has been searched, without a reference.
fn named<F: FileSystem + ?Sized>(fs: &F, dir: Ino, name: Name<'_>) -> Result<Attr> {
    let attr = fs.lookup(dir, name)?.attr;
    fs.forget(attr.ino, 1);
    Ok(attr)
}

fn may_take<F: FileSystem + ?Sized>(fs: &F, dir: &Attr, victim: &Attr, cred: &Cred) -> Result<()> {
    permitted(fs, dir, cred, WRITE | EXECUTE)?;
    may_take_from_sticky(dir, victim, cred)
}

/// Whether what `name` names in `dir` may be taken from there, for a [`FileSystem::unlink_as`] or
/// [`rmdir_as`](FileSystem::rmdir_as) that has no lock to decide it under: whoever changes permissions
/// meanwhile may come too late.
///
/// # Errors
/// [`Error::NotFound`], [`Error::PermissionDenied`]; [`Error::NotPermitted`] in a sticky directory.
pub fn may_remove<F: FileSystem + ?Sized>(fs: &F, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<()> {
    let parent = searchable(fs, dir, cred)?;
    may_take(fs, &parent, &named(fs, dir, name)?, cred)
}

/// A file system whose operations are permitted or refused as Linux would.
///
/// What is done with an open file (reading, writing, listing) is decided when it is [opened](Self::open), and
/// is then done through [`inner`](Self::inner). But for removals ([`FileSystem::unlink_as`]) a check and the
/// operation after it are two steps: of two callers who change permissions and use them at the same moment,
/// either may be first.
#[derive(Debug)]
pub struct Checked<F: ?Sized> {
    fs: Arc<F>,
    protected: Protected,
}

impl<F: FileSystem + ?Sized> Checked<F> {
    /// Checks every use of `fs`. Directories that users share are restricted as on most systems.
    pub fn new(fs: Arc<F>) -> Self {
        Self { fs, protected: Protected::default() }
    }

    /// Restricts directories that users share in another way.
    #[must_use]
    pub fn with_protected(self, protected: Protected) -> Self {
        Self { protected, ..self }
    }

    /// The file system, which checks nothing.
    pub const fn inner(&self) -> &Arc<F> {
        &self.fs
    }

    /// The file system, if nobody else has it.
    #[must_use]
    pub fn into_inner(self) -> Option<F>
    where
        F: Sized,
    {
        Arc::into_inner(self.fs)
    }

    /// Attributes of a directory in which `name` may be made. Whether the name is there is asked only of who
    /// may not make it, who is told that first; else making it tells.
    fn vacant(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Attr> {
        let parent = searchable(&*self.fs, dir, cred)?;
        match permitted(&*self.fs, &parent, cred, WRITE | EXECUTE) {
            Ok(()) => Ok(parent),
            Err(refused) => Err(self.unless_there(dir, name, refused)),
        }
    }

    /// Why `name` is not made in `dir`: it is there, or else what was `refused`.
    fn unless_there(&self, dir: Ino, name: Name<'_>, refused: Error) -> Error {
        match named(&*self.fs, dir, name) {
            Ok(_) => Error::Exists,
            Err(Error::NotFound) => refused,
            Err(error) => error,
        }
    }

    /// See [`FileSystem::lookup`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`] if the directory may not be searched.
    pub fn lookup(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Entry> {
        searchable(&*self.fs, dir, cred)?;
        self.fs.lookup(dir, name)
    }

    /// Opens a file to read, write or both, or a directory to list. The caller releases it.
    ///
    /// # Errors
    /// As [`FileSystem::open`]; [`Error::PermissionDenied`]; [`Error::IsDirectory`] for writing a directory.
    pub fn open(&self, ino: Ino, read: bool, flags: OpenFlags, cred: &Cred) -> Result<()> {
        let writes = flags.write || flags.truncate;
        let wanted = if read { READ } else { 0 } | if writes { WRITE } else { 0 };
        if writes && self.fs.getattr(ino)?.file_type == FileType::Directory {
            return Err(Error::IsDirectory);
        }
        accessible(&*self.fs, ino, cred, wanted)?;
        if flags.truncate {
            let cut = SetAttr { size: Some(0), ..SetAttr::default() };
            self.fs.setattr(ino, &cut, cred)?;
        }
        self.fs.open(ino, OpenFlags { truncate: false, ..flags })
    }

    /// See [`FileSystem::readdir`], of a directory that has not been opened.
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`].
    pub fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>, cred: &Cred) -> Result<()> {
        accessible(&*self.fs, dir, cred, READ)?;
        self.fs.readdir(dir, cookie, sink)
    }

    /// Whether `cred` may do all of `wanted` (`access(2)`: read 4, write 2, execute or search 1).
    ///
    /// # Errors
    /// [`Error::PermissionDenied`].
    pub fn access(&self, ino: Ino, wanted: u16, cred: &Cred) -> Result<()> {
        accessible(&*self.fs, ino, cred, wanted).map(drop)
    }

    /// See [`FileSystem::setattr`].
    ///
    /// # Errors
    /// As there; [`Error::NotPermitted`], [`Error::PermissionDenied`].
    pub fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        let attr = self.fs.getattr(ino)?;
        let change = may_change(&attr, access_list(&*self.fs, ino)?.as_ref(), change, cred)?;
        self.fs.setattr(ino, &change, cred)
    }

    /// See [`FileSystem::create`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`]; [`Error::NotPermitted`] for devices.
    pub fn create(
        &self,
        dir: Ino,
        name: Name<'_>,
        file_type: FileType,
        mode: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Entry> {
        let parent = self.vacant(dir, name, cred)?;
        may_make(file_type, cred).map_err(|refused| self.unless_there(dir, name, refused))?;
        self.fs.create(dir, name, file_type, mode_made(&parent, file_type, mode, cred), rdev, cred)
    }

    /// See [`FileSystem::tmpfile`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`].
    pub fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        let parent = searchable(&*self.fs, dir, cred)?;
        permitted(&*self.fs, &parent, cred, WRITE | EXECUTE)?;
        self.fs.tmpfile(dir, mode_made(&parent, FileType::Regular, mode, cred), cred)
    }

    /// See [`FileSystem::mkdir`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`].
    pub fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.vacant(dir, name, cred)?;
        // As Linux has it: a directory gets a set-group-id bit from its parent only.
        self.fs.mkdir(dir, name, mode & 0o1777, cred)
    }

    /// See [`FileSystem::symlink`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`].
    pub fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        self.vacant(dir, name, cred)?;
        self.fs.symlink(dir, name, target, cred)
    }

    /// See [`FileSystem::link`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`]; [`Error::NotPermitted`] where names of others' files are
    /// restricted.
    pub fn link(&self, ino: Ino, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Entry> {
        let source = self.fs.getattr(ino)?;
        let parent = searchable(&*self.fs, dir, cred)?;
        if named(&*self.fs, dir, name).is_ok() {
            return Err(Error::Exists);
        }
        if self.protected.hardlinks {
            may_link(&source, access_list(&*self.fs, ino)?.as_ref(), cred)?;
        }
        permitted(&*self.fs, &parent, cred, WRITE | EXECUTE)?;
        self.fs.link(ino, dir, name)
    }

    /// Whether the symbolic link that was found in `dir` at the end of a path may be followed.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`] where others' links are restricted; as [`FileSystem::getattr`].
    pub fn may_follow(&self, dir: Ino, link: &Attr, cred: &Cred) -> Result<()> {
        if !self.protected.symlinks || link.uid == cred.uid {
            return Ok(());
        }
        may_follow(&self.fs.getattr(dir)?, link, cred)
    }

    /// Whether the file that was found in `dir` may be opened by who would have made it.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`] where others' files are restricted; as [`FileSystem::getattr`].
    pub fn may_open_found(&self, dir: Ino, file: &Attr, cred: &Cred) -> Result<()> {
        let level = self.protected.regular;
        if level == 0 || file.uid == cred.uid || file.file_type != FileType::Regular {
            return Ok(());
        }
        may_open_found(&self.fs.getattr(dir)?, file, level, cred)
    }

    /// See [`FileSystem::unlink`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`]; [`Error::NotPermitted`] in a sticky directory.
    pub fn unlink(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.fs.unlink_as(dir, name, cred)
    }

    /// See [`FileSystem::rmdir`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`]; [`Error::NotPermitted`] in a sticky directory.
    pub fn rmdir(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.fs.rmdir_as(dir, name, cred)
    }

    /// See [`FileSystem::rename`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`]; [`Error::NotPermitted`] in a sticky directory.
    pub fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
        cred: &Cred,
    ) -> Result<Renamed> {
        let parent = searchable(&*self.fs, from, cred)?;
        let new_parent = if from == to { parent } else { searchable(&*self.fs, to, cred)? };
        // What is moved matters in a sticky directory, and where its own entry `..` changes.
        let any =
            |dir: &Attr| may_take_any(dir, cred) && permitted(&*self.fs, dir, cred, WRITE | EXECUTE).is_ok();
        let is_like_any = from == to || cred.has(Capabilities::DAC_OVERRIDE);
        if !(is_like_any && any(&parent) && any(&new_parent)) {
            let (source, target) = ((&parent, name), (&new_parent, new_name));
            if let Some(same) = self.may_rename(source, target, mode, cred)? {
                return Ok(Renamed { moved: same, target: None });
            }
        }
        self.fs.rename(from, name, to, new_name, mode)
    }

    /// Whether one name may become the other. Some: both are names of this file already.
    fn may_rename(
        &self,
        (from, name): (&Attr, Name<'_>),
        (to, new_name): (&Attr, Name<'_>),
        mode: RenameMode,
        cred: &Cred,
    ) -> Result<Option<Ino>> {
        let source = named(&*self.fs, from.ino, name)?;
        let target = match named(&*self.fs, to.ino, new_name) {
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            (_, Some(target)) if target.ino == source.ino => return Ok(Some(source.ino)),
            _ => {}
        }
        may_take(&*self.fs, from, &source, cred)?;
        match &target {
            Some(target) => may_take(&*self.fs, to, target, cred)?,
            None => permitted(&*self.fs, to, cred, WRITE | EXECUTE)?,
        }
        if from.ino != to.ino {
            // The entry `..` of a directory that moves is in the directory itself.
            let swapped = target.filter(|_| mode == RenameMode::Exchange);
            for moved in [Some(source), swapped].into_iter().flatten() {
                if moved.file_type == FileType::Directory {
                    permitted(&*self.fs, &moved, cred, WRITE)?;
                }
            }
        }
        Ok(None)
    }

    /// See [`FileSystem::getxattr`].
    ///
    /// # Errors
    /// As there; [`Error::PermissionDenied`].
    pub fn getxattr(&self, ino: Ino, name: &[u8], cred: &Cred) -> Result<Vec<u8>> {
        may_get_attribute(&self.fs.getattr(ino)?, access_list(&*self.fs, ino)?.as_ref(), name, cred)?;
        self.fs.getxattr(ino, name)
    }

    /// See [`FileSystem::listxattr`]; without those whose existence is not for everybody.
    ///
    /// # Errors
    /// As there.
    pub fn listxattr(&self, ino: Ino, cred: &Cred) -> Result<Vec<Vec<u8>>> {
        let mut names = self.fs.listxattr(ino)?;
        names.retain(|name| may_list_attribute(name, cred));
        Ok(names)
    }

    /// See [`FileSystem::setxattr`]. An access ACL set by who is not in the file's group takes its
    /// set-group-id bit away, before.
    ///
    /// # Errors
    /// As there; [`Error::NotPermitted`], [`Error::PermissionDenied`].
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode, cred: &Cred) -> Result<()> {
        let attr = self.fs.getattr(ino)?;
        acl::change(name, value, attr.file_type)?;
        may_set_attribute(&attr, access_list(&*self.fs, ino)?.as_ref(), name, cred)?;
        if name == acl::ACCESS {
            let kept = without_foreign_group(attr.mode, attr.gid, cred);
            if kept != attr.mode {
                self.fs.setattr(ino, &SetAttr { mode: Some(kept), ..SetAttr::default() }, cred)?;
            }
        }
        self.fs.setxattr(ino, name, value, mode)
    }

    /// See [`FileSystem::removexattr`].
    ///
    /// # Errors
    /// As there; [`Error::NotPermitted`], [`Error::PermissionDenied`].
    pub fn removexattr(&self, ino: Ino, name: &[u8], cred: &Cred) -> Result<()> {
        may_set_attribute(&self.fs.getattr(ino)?, access_list(&*self.fs, ino)?.as_ref(), name, cred)?;
        self.fs.removexattr(ino, name)
    }
}
