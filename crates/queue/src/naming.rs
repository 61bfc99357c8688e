//! Commands that make, move and remove names. Each tells the watcher of all names and inodes that it changes.

use amphi_vfs::{Attr, Cred, Error, FileSystem, FileType, Ino, Name, Removed, RenameMode};

use crate::command::At;
use crate::done::Done;
use crate::session::{Session, Watcher};
use crate::status::Refusal;
use crate::walk::Walk;

type Result<T> = std::result::Result<T, Refusal>;

impl<F: FileSystem, W: Watcher> Session<F, W> {
    /// Removes a name by `remove`. What it names is not held meanwhile: a file that somebody refers to does
    /// not go with its name, which takes another change when it does.
    pub(crate) fn remove(
        &self,
        cred: &Cred,
        at: At,
        path: &[u8],
        directory: bool,
        remove: impl FnOnce(Ino, Name<'_>) -> amphi_vfs::Result<Removed>,
    ) -> Result<Done> {
        let mut opened = None;
        let start = self.start(at.dir, &mut opened)?;
        let last = Walk::new(&self.checked, cred).last(start, path)?;
        if last.is_dots() {
            return Err(self.cannot_be_removed(&last, directory, cred)?);
        }
        let (dir, name) = (last.dir.ino, last.name()?);
        if last.must_be_directory && !directory {
            self.is_directory(dir, name, cred)?;
        }
        let renames = self.watcher.renames();
        let removed = remove(dir, name)?;
        self.changed(&[Some(removed.ino)], || self.watcher.name(dir, name, renames));
        Ok(Done::default())
    }

    /// Makes something by `make`.
    pub(crate) fn make(
        &self,
        cred: &Cred,
        at: At,
        path: &[u8],
        directory: bool,
        make: impl FnOnce(Ino, Name<'_>) -> amphi_vfs::Result<Attr>,
    ) -> Result<Done> {
        let mut opened = None;
        let start = self.start(at.dir, &mut opened)?;
        let last = Walk::new(&self.checked, cred).last(start, path)?;
        if last.is_dots() || !directory {
            self.can_be_made(&last, cred)?;
        }
        let (dir, name) = (last.dir.ino, last.name()?);
        let renames = self.watcher.renames();
        let attr = make(dir, name)?;
        // The command's answer names nothing that the client could hold on to.
        self.fs().forget(attr.ino, 1);
        self.watcher.name(dir, name, renames);
        Ok(Done::attr(attr))
    }

    /// Moves a name to another one; says whether the other door knew a directory by its name.
    pub(crate) fn rename(
        &self,
        cred: &Cred,
        (from, first): (At, &[u8]),
        (to, second): (At, &[u8]),
        mode: RenameMode,
    ) -> Result<Done> {
        let (mut opened, mut other) = (None, None);
        let start = self.start(from.dir, &mut opened)?;
        let source = Walk::new(&self.checked, cred).last(start, first)?;
        let start = self.start(to.dir, &mut other)?;
        let target = match Walk::new(&self.checked, cred).last(start, second) {
            Ok(target) => target,
            // What is wrong with the first path comes first.
            Err(refusal) => return self.searchable(&source, cred).and(Err(refusal)),
        };
        if source.is_dots() || target.is_dots() {
            self.searchable(&source, cred)?;
            self.searchable(&target, cred)?;
            let is_there = mode == RenameMode::NoReplace && !source.is_dots();
            return Err(if is_there { Error::Exists } else { Error::Busy("a name of dots") }.into());
        }
        let (from, name) = (source.dir.ino, source.name()?);
        let (to, new_name) = (target.dir.ino, target.name()?);
        if source.must_be_directory || target.must_be_directory {
            self.slashes_fit(&source, &target, mode, cred)?;
        }
        let renames = self.watcher.renames();
        let renamed = self.checked.rename(from, name, to, new_name, mode, cred)?;
        // It may have gone since.
        let is_directory =
            |ino| self.fs().getattr(ino).is_ok_and(|attr| attr.file_type == FileType::Directory);
        let exchanged = renamed.target.filter(|_| mode == RenameMode::Exchange);
        let inodes = [Some(renamed.moved), renamed.target.map(|target| target.ino)];
        let is_known = self.changed(&inodes, || {
            let has_moved = self.watcher.name(from, name, renames) && is_directory(renamed.moved);
            let other_has =
                self.watcher.name(to, new_name, renames) && exchanged.is_some_and(|it| is_directory(it.ino));
            has_moved || other_has
        });
        Ok(Done::value(is_known.into()))
    }

    /// Tells the watcher of inodes whose names have changed, and of those by `names`.
    ///
    /// Of the inodes before: who is told of a name may forget the inode, whose number then is given again.
    /// And after: the other door may have been at the same name, and counts a name less for what it believed
    /// it to be, until it lets the directory go and hears of the name.
    fn changed<T>(&self, inodes: &[Option<Ino>], names: impl FnOnce() -> T) -> T {
        let tell = || inodes.iter().flatten().for_each(|ino| self.watcher.inode(*ino));
        tell();
        let told = names();
        tell();
        told
    }

    /// Gives a file that is no directory another name.
    pub(crate) fn link(
        &self,
        cred: &Cred,
        (from, first): (At, &[u8]),
        (to, second): (At, &[u8]),
    ) -> Result<Done> {
        let (mut opened, mut other) = (None, None);
        let start = self.start(from.dir, &mut opened)?;
        let (source, attr) = Walk::new(&self.checked, cred).file(start, first, from.follow)?;
        let start = self.start(to.dir, &mut other)?;
        let target = Walk::new(&self.checked, cred).last(start, second)?;
        self.can_be_made(&target, cred)?;
        let (dir, name) = (target.dir.ino, target.name()?);
        if attr.file_type == FileType::Directory {
            return Err(match self.kind(dir, name, cred) {
                Ok(_) => Error::Exists,
                Err(Error::NotFound) => Error::NotPermitted,
                Err(error) => error,
            }
            .into());
        }
        let renames = self.watcher.renames();
        let attr = self.checked.link(source.ino, dir, name, cred)?.attr;
        self.fs().forget(attr.ino, 1);
        self.watcher.name(dir, name, renames);
        self.watcher.inode(attr.ino);
        Ok(Done::attr(attr))
    }
}
