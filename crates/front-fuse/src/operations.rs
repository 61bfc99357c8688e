//! What each request of the kernel does to the file system, whichever way it came and its answer goes:
//! through `serve`, which is fuser's, or the rings.
//!
//! Files are not opened here: `open` and `create` are answered with "not implemented", on which the kernel
//! stops sending them, and opens and closes files it knows by itself. An open file is an inode the kernel has
//! looked up and not forgotten, so it lives, with or without names, as long as anybody needs it; `O_TRUNC`
//! arrives as a `setattr`, and creating a file is one `mknod`. Directories need no opening either, but "not
//! implemented" lets the kernel keep listings: see `negotiate`.

use std::sync::Arc;

use amphi_vfs::{
    Allocate, Attr, Capabilities, Entry, Error, FileSystem, Ino, Name, Promise, Removed, RenameMode, Renamed,
    Result, Seek, SetAttr, StatFs, WriteMode, XattrMode, acl,
    permission::{may_change, may_list_attribute, without_foreign_group},
};
use fuser::Errno;
use rustix::fs::{FallocateFlags, OFlags, RenameFlags, XattrFlags};

use crate::answered::Answered;
use crate::answers::{Answer, OrErrno, Xattr, xattr_that_fits};
use crate::attributes::node_type;
use crate::caller::Caller;
use crate::errno::errno_of_seek;
use crate::listing;
use crate::room::Removals;
use crate::{pins, trim};

/// Bit of a write's flags: it is of pages that the kernel has kept, those of a mapping for one.
const WRITE_KEPT: u32 = 1 << 0;
/// Bit of a write's flags: set-id bits have to go.
const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// One file system, as requests see it.
#[derive(Debug)]
pub(crate) struct Operations<F> {
    pub(crate) fs: Arc<F>,
    pub(crate) answered: Arc<Answered>,
    /// Whether there are extended attributes at all. Before most writes the kernel asks for one; if not, it
    /// can be told to stop.
    has_xattrs: bool,
    /// What is durable without being asked for.
    promise: Promise,
    /// The kernel keeps what programs write, so what it writes back may lie behind the end.
    keeps_writes: bool,
    pub(crate) removals: Removals,
}

impl<F: FileSystem> Operations<F> {
    /// `keeps_writes`: as [`MountOptions::write_back`](crate::MountOptions::write_back).
    pub(crate) fn new(fs: Arc<F>, answered: Arc<Answered>, keeps_writes: bool) -> Self {
        let absent = matches!(fs.getxattr(Ino::ROOT, b"user.amphi"), Err(Error::Unsupported(_)));
        let promise = fs.promise();
        Self { fs, answered, has_xattrs: !absent, promise, keeps_writes, removals: Removals::default() }
    }

    /// The result of a change to `inodes`, to be answered to the caller.
    fn changed<T>(&self, caller: Caller, inodes: &[Ino], result: Result<T>) -> Result<T> {
        if result.is_ok() {
            for ino in inodes {
                self.answered.changed(*ino, caller.thread);
            }
        }
        result
    }

    /// The result of making an inode in `parent`, to be answered to the caller with attributes read after it
    /// was noted who gets them.
    fn made(&self, caller: Caller, parent: Ino, result: Result<Entry>) -> Result<Entry> {
        let made = self.changed(caller, &[parent], result)?;
        listing::referenced(&*self.fs, &self.answered, made.attr.ino, caller.thread)
    }

    /// Notes what has lost a name, if that was its last one.
    fn note_removed(&self, removed: Removed) {
        if removed.nlink == 0 {
            self.removals.note(removed.ino);
        }
    }

    /// The inode, once more known to the kernel, with attributes read after it was noted who gets them.
    fn reference(&self, caller: Caller, ino: Ino) -> Result<Entry> {
        self.answered.give(ino, caller.thread);
        self.fs.reference(ino).inspect_err(|_| self.answered.given.take_back(ino, 1))
    }

    /// Whether a change of owner or contents takes set-id bits away, depending on who asks.
    fn may_lose_set_id(&self, ino: Ino) -> bool {
        self.fs.getattr(ino).is_ok_and(|attr| attr.mode & 0o6000 != 0)
    }

    /// Whether the caller may take the set-id bits of a file that gets a new owner or group. Of that the
    /// kernel leaves nothing to us but this.
    fn may_give_away(&self, caller: Caller, ino: Ino, change: &SetAttr) -> Result<()> {
        if change.uid.is_none() && change.gid.is_none() {
            return Ok(());
        }
        // A caller that cannot be seen has been permitted by the kernel as far as it goes.
        let Some(caller) = caller.in_full() else { return Ok(()) };
        let given = SetAttr { uid: change.uid, gid: change.gid, ..SetAttr::default() };
        may_change(&self.fs.getattr(ino)?, None, &given, &caller).map(drop)
    }

    /// An access ACL from who is not in the file's group takes its set-group-id bit away. The kernel leaves
    /// that to us, and fuser does not pass on what it says about it.
    fn before_access_list(&self, caller: Caller, ino: Ino, name: &[u8]) -> Result<()> {
        if name != acl::ACCESS {
            return Ok(());
        }
        let attr = self.fs.getattr(ino)?;
        if attr.mode & 0o2000 == 0 {
            return Ok(());
        }
        let caller = caller.at_least();
        let kept = without_foreign_group(attr.mode, attr.gid, &caller);
        if kept != attr.mode {
            let change = SetAttr { mode: Some(kept), ..SetAttr::default() };
            self.fs.setattr(ino, &change, &caller)?;
        }
        Ok(())
    }
}

/// Permission bits of a mode.
const fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// Whether the file was opened with `O_DIRECT`.
const fn is_direct(open_flags: u32) -> bool {
    open_flags & OFlags::DIRECT.bits() != 0
}

/// Names and inodes.
impl<F: FileSystem> Operations<F> {
    /// The inode called `name`; none if there is no such name, which may be remembered.
    pub(crate) fn lookup(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<Option<Entry>> {
        // With FUSE_EXPORT_SUPPORT the kernel asks for the first two when it has a file handle and no longer
        // the inode.
        let found = match name {
            b"." => self.reference(caller, parent),
            b".." => self.fs.parent(parent).and_then(|above| self.reference(caller, above)),
            _ => {
                let found = Name::new(name)
                    .and_then(|name| listing::lookup(&*self.fs, &self.answered, parent, name, caller.thread));
                if found == Err(Error::NotFound) {
                    return Ok(None);
                }
                found
            }
        };
        found.or_errno().map(Some)
    }

    /// The inode that a [pass](crate::passes) names, which the kernel may not remember by it.
    pub(crate) fn passed(&self, caller: Caller, parent: Ino, name: &[u8]) -> Option<Entry> {
        let ino = self.answered.passes.take(parent, name)?;
        self.reference(caller, ino).ok()
    }

    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        // Before the number can be given to another inode.
        self.answered.given.take_back(ino, count);
        self.removals.forgotten(ino, || self.fs.forget(ino, count));
    }

    pub(crate) fn getattr(&self, caller: Caller, ino: Ino) -> Answer<Attr> {
        self.answered.note(ino, caller.thread);
        self.fs.getattr(ino).or_errno()
    }

    pub(crate) fn setattr(&self, caller: Caller, ino: Ino, change: &SetAttr) -> Answer<Attr> {
        self.answered.known.attributes(ino);
        let mut cred = caller.permitted(0);
        let may_matter = change.size.is_some() || change.uid.is_some() || change.gid.is_some();
        if may_matter && self.may_lose_set_id(ino) {
            cred = caller.at_least();
            self.may_give_away(caller, ino, change).or_errno()?;
        }
        self.fs.setattr(ino, change, &cred).or_errno()
    }

    pub(crate) fn readlink(&self, ino: Ino) -> Answer<Vec<u8>> {
        self.answered.known.contents(ino);
        self.fs.readlink(ino).or_errno()
    }

    pub(crate) fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Answer<Entry> {
        self.answered.known.name(parent, name);
        let created = Name::new(name).and_then(|name| {
            let file_type = node_type(mode).ok_or(Error::Invalid("a type that mknod does not make"))?;
            let cred = caller.permitted(umask);
            self.removals
                .with_room(|| self.fs.create(parent, name, file_type, permissions(mode), rdev, &cred))
        });
        match self.made(caller, parent, created) {
            // The kernel believed that there is none: another door was faster. Whether an `open` may use that
            // one the kernel does not say here. Told that what it knows is old, it looks once more.
            Err(Error::Exists) => Err(Errno::ESTALE),
            made => made.or_errno(),
        }
    }

    pub(crate) fn mkdir(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Answer<Entry> {
        self.answered.known.name(parent, name);
        let created = Name::new(name).and_then(|name| {
            let cred = caller.permitted(umask);
            self.removals.with_room(|| self.fs.mkdir(parent, name, permissions(mode), &cred))
        });
        self.made(caller, parent, created).or_errno()
    }

    pub(crate) fn unlink(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
        self.answered.known.name(parent, name);
        let removed = Name::new(name).and_then(|name| self.fs.unlink(parent, name));
        let removed = removed.map(|removed| self.note_removed(removed));
        self.changed(caller, &[parent], removed).or_errno()
    }

    pub(crate) fn rmdir(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
        self.answered.known.name(parent, name);
        let removed = Name::new(name).and_then(|name| self.fs.rmdir(parent, name));
        let removed = removed.map(|removed| self.note_removed(removed));
        self.changed(caller, &[parent], removed).or_errno()
    }

    pub(crate) fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Answer<Entry> {
        self.answered.known.name(parent, name);
        let created = Name::new(name).and_then(|name| {
            let cred = caller.permitted(0);
            self.removals.with_room(|| self.fs.symlink(parent, name, target, &cred))
        });
        self.made(caller, parent, created).or_errno()
    }

    /// `flags` as `renameat2` has them.
    pub(crate) fn rename(
        &self,
        caller: Caller,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        flags: u32,
    ) -> Answer<()> {
        let mode = match RenameFlags::from_bits_retain(flags) {
            RenameFlags::NOREPLACE => RenameMode::NoReplace,
            RenameFlags::EXCHANGE => RenameMode::Exchange,
            flags if flags.is_empty() => RenameMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        self.answered.known.name(parent, name);
        self.answered.known.name(new_parent, new_name);
        let renamed = Name::new(name)
            .and_then(|from| self.fs.rename(parent, from, new_parent, Name::new(new_name)?, mode));
        let renamed = renamed.map(|Renamed { moved, target }| {
            let both = [(parent, name), (new_parent, new_name)];
            let moves = [(both[0], both[1]), (both[1], both[0])];
            self.answered.moved(if mode == RenameMode::Exchange { &moves } else { &moves[..1] });
            self.answered.changed(moved, caller.thread);
            match target {
                Some(other) if mode == RenameMode::Exchange => {
                    self.answered.changed(other.ino, caller.thread)
                }
                Some(replaced) => self.note_removed(replaced),
                None => {}
            }
        });
        self.changed(caller, &[parent, new_parent], renamed).or_errno()
    }

    pub(crate) fn link(&self, caller: Caller, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Answer<Entry> {
        self.answered.known.name(new_parent, new_name);
        self.answered.give(ino, caller.thread);
        let linked = Name::new(new_name)
            .and_then(|name| self.fs.link(ino, new_parent, name))
            .inspect_err(|_| self.answered.given.take_back(ino, 1));
        self.changed(caller, &[ino, new_parent], linked).or_errno()
    }

    /// Passes entries to `add` until it says, by true, that it has no more room.
    pub(crate) fn readdir(&self, ino: Ino, cookie: u64, add: &mut listing::AddName<'_>) -> Answer<()> {
        listing::plain(&*self.fs, ino, cookie, add).or_errno()
    }

    /// As [`readdir`](Self::readdir), with attributes; each entry but `.` and `..` takes a reference.
    pub(crate) fn readdirplus(
        &self,
        caller: Caller,
        ino: Ino,
        cookie: u64,
        add: &mut listing::AddAttr<'_>,
    ) -> Answer<()> {
        listing::with_attributes(&*self.fs, &self.answered, ino, cookie, caller.thread, add).or_errno()
    }

    pub(crate) fn statfs(&self) -> Answer<StatFs> {
        self.removals.settle();
        self.fs.statfs().or_errno()
    }
}

/// Contents and extended attributes.
impl<F: FileSystem> Operations<F> {
    /// Reads into the start of `into`; how many bytes.
    pub(crate) fn read(&self, ino: Ino, offset: u64, into: &mut [u8], open_flags: u32) -> Answer<usize> {
        // A direct read, too, that ends early leaves what it may have missed to the kernel's pages.
        self.answered.known.contents(ino);
        self.fs.read(ino, offset, into, is_direct(open_flags)).or_errno()
    }

    /// Writes `data`; how many bytes. The kernel knows the caller's capabilities and says whether set-id bits
    /// have to go.
    pub(crate) fn write(
        &self,
        caller: Caller,
        ino: Ino,
        offset: u64,
        data: &[u8],
        write_flags: u32,
        open_flags: u32,
    ) -> Answer<u32> {
        let whole = data.len() as u32;
        let is_kept = write_flags & WRITE_KEPT != 0;
        let data = if is_kept && !self.keeps_writes {
            self.within_file(ino, offset, data).or_errno()?
        } else {
            data
        };
        if data.is_empty() {
            return Ok(whole);
        }
        let kill_set_id = write_flags & WRITE_KILL_SUIDGID != 0;
        // The kernel has turned O_APPEND into the offset where it believes the end is; another door may have
        // moved that. After an O_SYNC write it sends an fsync of its own.
        let append = !is_kept && OFlags::from_bits_retain(open_flags).contains(OFlags::APPEND);
        let mode = WriteMode { direct: is_direct(open_flags), append, ..WriteMode::default() };
        self.answered.known.contents(ino);
        let mut cred = caller.permitted(0);
        cred.capabilities = if kill_set_id {
            cred.capabilities.without(Capabilities::FSETID)
        } else {
            cred.capabilities.with(Capabilities::FSETID)
        };
        let loses_set_id = kill_set_id && self.may_lose_set_id(ino);
        let written = self.removals.with_room(|| self.fs.write(ino, offset, data, mode, &cred)).or_errno()?;
        if loses_set_id {
            // A write's answer carries no attributes; the kernel would run the program with the old mode.
            self.answered.outdated(ino);
        }
        if append && self.fs.getattr(ino).is_ok_and(|attr| attr.size != offset + written as u64) {
            self.answered.misplaced(ino, mode.direct);
        }
        // What was cut off is written too, as far as the kernel goes.
        Ok(if written == data.len() { whole } else { written as u32 })
    }

    /// What of mapped pages lies within their file. The kernel cuts them at the end that it knows of, and
    /// another door may have cut the file since.
    fn within_file<'d>(&self, ino: Ino, offset: u64, data: &'d [u8]) -> Result<&'d [u8]> {
        let left = self.fs.getattr(ino)?.size.saturating_sub(offset);
        Ok(&data[..data.len().min(usize::try_from(left).unwrap_or(usize::MAX))])
    }

    pub(crate) fn fsync(&self, ino: Ino, data_only: bool) -> Answer<()> {
        if self.promise.data_durable_on_return {
            // The kernel still writes back what is mapped, and waits for that; it need not ask for more.
            return Err(Errno::ENOSYS);
        }
        self.fs.fsync(ino, data_only).or_errno()
    }

    pub(crate) fn fsyncdir(&self, ino: Ino, data_only: bool) -> Answer<()> {
        if self.promise.metadata_durable_on_return {
            // There is nothing left to do, and the kernel stops asking.
            return Err(Errno::ENOSYS);
        }
        self.fs.fsync(ino, data_only).or_errno()
    }

    /// `mode` as `fallocate` has it.
    pub(crate) fn fallocate(
        &self,
        caller: Caller,
        ino: Ino,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Answer<()> {
        let flags = FallocateFlags::from_bits_retain(mode);
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let what = match flags - FallocateFlags::KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE => Allocate::PunchHole,
            FallocateFlags::ZERO_RANGE => Allocate::Zero { keep_size },
            rest if rest.is_empty() => Allocate::Reserve { keep_size },
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let loses_set_id = self.may_lose_set_id(ino);
        let cred = if loses_set_id { caller.at_least() } else { caller.permitted(0) };
        let allocated = self.removals.with_room(|| self.fs.allocate(ino, offset, length, what, &cred));
        if loses_set_id {
            self.answered.outdated(ino);
        }
        self.changed(caller, &[ino], allocated).or_errno()
    }

    /// `whence` as `lseek` has it.
    pub(crate) fn lseek(&self, ino: Ino, offset: i64, whence: u32) -> Answer<u64> {
        const SEEK_DATA: u32 = 3;
        const SEEK_HOLE: u32 = 4;
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        self.fs.seek(ino, offset, what).map_err(|error| errno_of_seek(&error))
    }

    /// The argument as the caller gets it back, if it does.
    pub(crate) fn ioctl(&self, caller: Caller, ino: Ino, command: u32, argument: &[u8]) -> Answer<Vec<u8>> {
        match command {
            trim::FITRIM => trim::trim(&*self.fs, caller, argument).map(Vec::from).or_errno(),
            pins::PIN | pins::UNPIN => {
                pins::change(&*self.fs, caller, ino, command, argument).map(|()| Vec::new()).or_errno()
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// `flags` as `setxattr` has them.
    pub(crate) fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Answer<()> {
        let mode = match XattrFlags::from_bits_retain(flags) {
            XattrFlags::CREATE => XattrMode::Create,
            XattrFlags::REPLACE => XattrMode::Replace,
            flags if flags.is_empty() => XattrMode::Set,
            _ => return Err(Errno::EINVAL),
        };
        let set = self
            .before_access_list(caller, ino, name)
            .and_then(|()| self.fs.setxattr(ino, name, value, mode));
        self.changed(caller, &[ino], set).or_absent()
    }

    pub(crate) fn getxattr(&self, ino: Ino, name: &[u8], room: u32) -> Answer<Xattr> {
        if !self.has_xattrs {
            return Err(Errno::ENOSYS);
        }
        xattr_that_fits(room, self.fs.getxattr(ino, name))
    }

    pub(crate) fn listxattr(&self, caller: Caller, ino: Ino, room: u32) -> Answer<Xattr> {
        let joined = self.fs.listxattr(ino).map(|mut names| {
            let nobody = caller.permitted(0).without_capabilities();
            if names.iter().any(|name| !may_list_attribute(name, &nobody)) {
                let cred = caller.at_least();
                names.retain(|name| may_list_attribute(name, &cred));
            }
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            list
        });
        xattr_that_fits(room, joined)
    }

    pub(crate) fn removexattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Answer<()> {
        let removed = self.fs.removexattr(ino, name);
        self.changed(caller, &[ino], removed).or_absent()
    }
}
