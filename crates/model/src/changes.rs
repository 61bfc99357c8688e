//! What changes more than one thing of the tree: sizes, space and names.

use amphi_vfs::{Allocate, Cred, Error, Ino, Name, Removed, RenameMode, Renamed, Result};

use crate::tree::Tree;

impl Tree {
    /// Cuts or extends a regular file.
    pub(crate) fn resize(&mut self, ino: Ino, size: u64, cred: &Cred) -> Result<()> {
        let limit = self.limits.file_bytes;
        let inode = self.get_mut(ino)?;
        let bytes = inode.bytes_mut()?;
        if size > limit {
            return Err(Error::TooLarge);
        }
        let before = bytes.page_count();
        bytes.set_size(size);
        let freed = before - bytes.page_count();
        inode.note_new_contents(cred);
        self.pages_used -= freed;
        self.touch(ino)
    }

    pub(crate) fn allocate(
        &mut self,
        ino: Ino,
        offset: u64,
        length: u64,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()> {
        let limits = self.limits;
        let pages_used = self.pages_used;
        let inode = self.get_mut(ino)?;
        let bytes = inode.bytes_mut()?;
        if length == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let before = bytes.page_count();
        let end = offset.saturating_add(length);
        if let Allocate::Reserve { keep_size } | Allocate::Zero { keep_size } = what {
            if end > limits.file_bytes {
                return Err(Error::TooLarge);
            }
            if pages_used + bytes.pages_missing(offset, end) > limits.pages {
                return Err(Error::NoSpace);
            }
            if !keep_size && end > bytes.size() {
                bytes.grow(end);
            }
        }
        if !matches!(what, Allocate::Reserve { .. }) {
            bytes.clear(offset, end);
        }
        if !matches!(what, Allocate::PunchHole) {
            bytes.reserve(offset, end);
        }
        let after = bytes.page_count();
        inode.note_new_contents(cred);
        self.pages_used = pages_used - before + after;
        self.touch(ino)
    }

    /// Moves a name; the order of the checks is the kernel's.
    pub(crate) fn rename(
        &mut self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        // As when a path is walked: what is no directory is noticed before what has no such name.
        self.get(from)?.names()?;
        self.get(to)?.names()?;
        let source = self.find(from, name)?;
        let target = self.get(to)?.names()?.get(new_name.bytes());
        if self.get(to)?.nlink == 0 {
            return Err(Error::NotFound);
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        let source_is_directory = self.get(source)?.is_directory();
        if source_is_directory && self.is_within(to, source)? {
            return Err(Error::IntoItself);
        }
        let Some(target) = target else {
            self.move_name(from, name, to, new_name, source)?;
            return Ok(Renamed { moved: source, target: None });
        };
        if source == target {
            return Ok(Renamed { moved: source, target: None });
        }
        let target_is_directory = self.get(target)?.is_directory();
        if mode == RenameMode::Exchange {
            if target_is_directory && self.is_within(from, target)? {
                return Err(Error::IntoItself);
            }
            self.exchange((from, name, source), (to, new_name, target))?;
            let lost = Removed { ino: target, nlink: self.get(target)?.nlink };
            return Ok(Renamed { moved: source, target: Some(lost) });
        }
        match (source_is_directory, target_is_directory) {
            // As Linux has it, whatever is moved there.
            (_, true) if self.is_within(from, target)? => return Err(Error::NotEmpty),
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            (true, true) if !self.get(target)?.names()?.is_empty() => return Err(Error::NotEmpty),
            _ => {}
        }
        if target_is_directory {
            self.get_mut(to)?.nlink -= 1;
        }
        self.move_name(from, name, to, new_name, source)?;
        Ok(Renamed { moved: source, target: Some(self.drop_name(target)?) })
    }

    /// Takes `name` from `from` and makes `new_name` in `to` name `source`, whatever it named before.
    fn move_name(
        &mut self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        source: Ino,
    ) -> Result<()> {
        if self.get(source)?.is_directory() && from != to {
            if self.get(to)?.nlink >= self.limits.links {
                return Err(Error::TooManyLinks);
            }
            self.reparent(source, from, to)?;
        }
        self.get_mut(from)?.names_mut()?.remove(name.bytes());
        self.get_mut(to)?.names_mut()?.set(new_name.bytes(), source);
        self.touch(from)?;
        self.touch(to)?;
        self.touch_ctime(source)
    }

    fn exchange(&mut self, one: (Ino, Name<'_>, Ino), other: (Ino, Name<'_>, Ino)) -> Result<()> {
        for ((dir, name, old), (other_dir, _, new)) in [(one, other), (other, one)] {
            self.get_mut(dir)?.names_mut()?.set(name.bytes(), new);
            if self.get(old)?.is_directory() && dir != other_dir {
                self.reparent(old, dir, other_dir)?;
            }
            self.touch(dir)?;
            self.touch_ctime(old)?;
        }
        Ok(())
    }

    /// Moves the link that the directory's `..` holds.
    fn reparent(&mut self, directory: Ino, from: Ino, to: Ino) -> Result<()> {
        self.get_mut(directory)?.names_mut()?.parent = to;
        self.get_mut(from)?.nlink -= 1;
        self.get_mut(to)?.nlink += 1;
        Ok(())
    }
}
