//! What each command does to the file system.

use std::borrow::Cow;

use amphi_vfs::permission::{READ, WRITE};
use amphi_vfs::{Attr, Cred, DirEntry, Error, FileSystem, FileType, Ino, OpenFlags, SetAttr, WriteMode};
use zerocopy::IntoBytes;

use crate::attributes::{attributes, kind_of, set_attr};
use crate::command::{At, Command, Create, Malformed, OpenHow};
use crate::done::Done;
use crate::format::{Attributes, Completion, ListedName, Space, Span, Submission};
use crate::handles::OpenFile;
use crate::memory::Payload;
use crate::session::{Caller, Session, Watcher};
use crate::status::{Refusal, status};
use crate::walk::{Held, Walk};

type Result<T> = std::result::Result<T, Refusal>;

/// Bytes that a copy between two files moves at a time.
const COPY_BYTES: usize = 128 << 10;
/// Bytes that one command copies at the most, so that none keeps a server's thread: holes may be as long as a
/// file can be.
const COPY_BYTES_MAX: u64 = 16 << 20;

impl<F: FileSystem, W: Watcher> Session<F, W> {
    /// Carries out one command of `caller`, a copy of what the client submitted, whose names and data are in
    /// `payload`.
    pub fn execute(&self, caller: &mut Caller, raw: &Submission, payload: Payload<'_>) -> Completion {
        let decoded = Command::decode(raw, payload.len() as u32).map_err(Refusal::from);
        match decoded.and_then(|command| self.carry_out(caller, command, payload)) {
            Ok(done) => Completion {
                value: done.value.into(),
                other: done.other.into(),
                len: done.len.into(),
                attributes: done.attr.as_ref().map_or_else(Attributes::default, attributes),
                ..Completion::default()
            },
            Err(refusal) => Completion { status: status(&refusal).into(), ..Completion::default() },
        }
    }

    fn carry_out(&self, caller: &mut Caller, command: Command, payload: Payload<'_>) -> Result<Done> {
        let Caller { cred, first, second, .. } = caller;
        let part = |span: Span| part(payload, span);
        match command {
            Command::Open { at, how } => {
                take(part(at.path)?, first);
                self.open(cred, at, first, how)
            }
            Command::Close { handle } => self.handles.remove(handle).map(|_closed| Done::default()),
            Command::Read { handle, offset, data, direct } => {
                let file = self.usable(handle, READ, cred)?;
                Ok(Done::bytes(self.fs().read(file.ino, offset, part(data)?.data_mut(), direct)?))
            }
            Command::Write { handle, offset, data, mode } => {
                let file = self.usable(handle, WRITE, cred)?;
                let written = self.fs().write(file.ino, offset, part(data)?.data(), mode, cred);
                self.watcher.inode(file.ino);
                let end = if mode.append { self.fs().getattr(file.ino)?.size } else { 0 };
                Ok(Done { other: end, ..Done::bytes(written?) })
            }
            Command::SyncFile { handle, data_only } => {
                self.fs().fsync(self.handles.get(handle)?.ino, data_only)?;
                Ok(Done::default())
            }
            Command::Attributes { at } => {
                take(part(at.path)?, first);
                self.with(cred, at, first, |_, attr| Ok(Done::attr(attr)))
            }
            Command::SetAttributes { at, change } => {
                take(part(at.path)?, first);
                let change = set_attr(part(change)?)?;
                self.set_attributes(cred, at, first, &change)
            }
            Command::Unlink { at } => {
                take(part(at.path)?, first);
                self.remove(cred, at, first, false, |dir, name| self.checked.unlink(dir, name, cred))
            }
            Command::RemoveDirectory { at } => {
                take(part(at.path)?, first);
                self.remove(cred, at, first, true, |dir, name| self.checked.rmdir(dir, name, cred))
            }
            Command::Rename { from, to, mode } => {
                take(part(from.path)?, first);
                take(part(to.path)?, second);
                self.rename(cred, (from, first), (to, second), mode)
            }
            Command::MakeDirectory { at, create } => {
                take(part(at.path)?, first);
                cred.umask = create.umask;
                self.make(cred, at, first, true, |dir, name| {
                    Ok(self.checked.mkdir(dir, name, create.mode, cred)?.attr)
                })
            }
            Command::Symlink { at, target } => {
                take(part(at.path)?, first);
                take(part(target)?, second);
                self.make(cred, at, first, false, |dir, name| {
                    Ok(self.checked.symlink(dir, name, second, cred)?.attr)
                })
            }
            Command::ReadLink { at, data } => {
                take(part(at.path)?, first);
                let into = part(data)?;
                self.with(cred, at, first, |found, _| {
                    let target = self.fs().readlink(found)?;
                    let len = target.len().min(into.len());
                    into.put(&target[..len]);
                    Ok(Done::bytes(len))
                })
            }
            Command::Link { from, to } => {
                take(part(from.path)?, first);
                take(part(to.path)?, second);
                self.link(cred, (from, first), (to, second))
            }
            Command::List { handle, cookie, data } => {
                let file = self.handles.get(handle)?;
                if file.file_type != FileType::Directory {
                    return Err(Error::NotDirectory.into());
                }
                if !file.read {
                    return Err(Refusal::BadHandle);
                }
                self.list(file.ino, cookie, part(data)?)
            }
            Command::Allocate { handle, offset, length, what } => {
                let file = self.usable(handle, WRITE, cred)?;
                let allocated = self.fs().allocate(file.ino, offset, length, what, cred);
                self.watcher.inode(file.ino);
                Ok(allocated.map(|()| Done::default())?)
            }
            Command::Seek { handle, offset, what } => {
                Ok(Done::value(self.fs().seek(self.handles.get(handle)?.ino, offset, what)?))
            }
            Command::Access { at, wanted } => {
                take(part(at.path)?, first);
                self.with(cred, at, first, |found, attr| {
                    self.checked.access(found, wanted, cred)?;
                    Ok(Done::attr(attr))
                })
            }
            Command::GetXattr { at, name, data } => {
                take(part(at.path)?, first);
                take(part(name)?, second);
                let into = part(data)?;
                self.with(cred, at, first, |found, _| {
                    answer(&self.checked.getxattr(found, second, cred)?, into)
                })
            }
            Command::SetXattr { at, name, data, mode } => {
                take(part(at.path)?, first);
                take(part(name)?, second);
                let value = part(data)?.to_vec();
                self.with(cred, at, first, |found, _| {
                    self.checked.setxattr(found, second, &value, mode, cred)?;
                    self.watcher.inode(found);
                    Ok(Done::default())
                })
            }
            Command::ListXattr { at, data } => {
                take(part(at.path)?, first);
                let into = part(data)?;
                self.with(cred, at, first, |found, _| {
                    let mut list = Vec::new();
                    for name in self.checked.listxattr(found, cred)? {
                        list.extend_from_slice(&name);
                        list.push(0);
                    }
                    answer(&list, into)
                })
            }
            Command::RemoveXattr { at, name } => {
                take(part(at.path)?, first);
                take(part(name)?, second);
                self.with(cred, at, first, |found, _| {
                    self.checked.removexattr(found, second, cred)?;
                    self.watcher.inode(found);
                    Ok(Done::default())
                })
            }
            Command::Space { data } => {
                let space = self.fs().statfs()?;
                let space = Space {
                    blocks: space.blocks.into(),
                    blocks_free: space.blocks_free.into(),
                    blocks_available: space.blocks_available.into(),
                    inodes: space.inodes.into(),
                    inodes_free: space.inodes_free.into(),
                    block_bytes: space.block_bytes.into(),
                    name_bytes_max: space.name_bytes_max.into(),
                };
                answer(space.as_bytes(), part(data)?)
            }
            Command::Sync => Ok(self.fs().sync().map(|()| Done::default())?),
            Command::Copy { from, offset, to, to_offset, length } => {
                self.copy(cred, (from, offset), (to, to_offset), length)
            }
            Command::Pass { handle } => {
                let file = self.handles.get(handle)?;
                let pass = Some(file.ino).filter(|_| file.file_type == FileType::Regular);
                let pass = pass.and_then(|ino| self.watcher.pass(ino));
                let pass = pass.ok_or(Error::Unsupported("passes without a kernel"))?;
                Ok(Done { value: pass as u64, other: (pass >> 64) as u64, ..Done::default() })
            }
        }
    }

    fn open(&self, cred: &mut Cred, at: At, path: &[u8], how: OpenHow) -> Result<Done> {
        if let Some(create) = how.create {
            cred.umask = create.umask;
        }
        let mut opened = None;
        let start = self.start(at.dir, &mut opened)?;
        let mut walk = Walk::new(&self.checked, cred);
        let (found, attr, made) = match how.create {
            Some(create) if how.unnamed => {
                let (dir, _) = walk.file(start, path, at.follow)?;
                let attr = self.checked.tmpfile(dir.ino, create.mode, cred)?.attr;
                (Held::found(&**self.fs(), attr.ino), attr, true)
            }
            Some(create) => self.find_or_make(&mut walk, start, path, at.follow, (how, create))?,
            None => {
                let (found, attr) = walk.file(start, path, at.follow)?;
                (found, attr, false)
            }
        };
        match attr.file_type {
            FileType::Directory if how.write || how.truncate || how.create.is_some() => {
                return Err(Error::IsDirectory.into());
            }
            FileType::Directory => {}
            _ if how.directory => return Err(Error::NotDirectory.into()),
            FileType::Symlink => return Err(Refusal::LinkLoop),
            FileType::Regular => {}
            // Pipes, sockets and devices are the kernel's to open.
            _ => return Err(Refusal::Outside),
        }
        if made {
            // Who makes a file may use it whatever its mode says.
            return self.keep(found.ino, attr, how, true);
        }
        let truncate = how.truncate && attr.file_type == FileType::Regular;
        let flags = OpenFlags { write: how.write, truncate, ..OpenFlags::default() };
        self.checked.open(found.ino, how.read, flags, cred)?;
        if truncate {
            self.watcher.inode(found.ino);
        }
        let kept = self.fs().getattr(found.ino).map_err(Refusal::from);
        let kept = kept.and_then(|attr| self.keep(found.ino, attr, how, false));
        self.fs().release(found.ino);
        kept
    }

    /// Puts a file that may be opened into the table.
    fn keep(&self, ino: Ino, attr: Attr, how: OpenHow, made: bool) -> Result<Done> {
        let file = OpenFile::new(self.fs(), ino, attr.file_type, how.read, how.write)?;
        let file = if made { file.made_here() } else { file };
        let value = self.handles.insert(file)?;
        Ok(Done { value, other: u64::from(made), attr: Some(attr), ..Done::default() })
    }

    /// The file that `path` names, made if it is not there; and whether it was made.
    fn find_or_make<'f>(
        &'f self,
        walk: &mut Walk<'f, F>,
        mut start: Held<'f, F>,
        path: &[u8],
        follow: bool,
        (how, create): (OpenHow, Create),
    ) -> Result<(Held<'f, F>, Attr, bool)> {
        let mut path = Cow::Borrowed(path);
        loop {
            let last = walk.last(start, &path)?;
            if last.must_be_directory || last.is_dots() {
                self.searchable(&last, walk.cred())?;
                let is_there = last.is_dots() && how.exclusive;
                return Err(if is_there { Error::Exists } else { Error::IsDirectory }.into());
            }
            let (dir, name) = (last.dir.ino, last.name()?);
            // Who wants it made anew hears from that whether it is there.
            let known = if how.exclusive {
                Err(Error::NotFound)
            } else {
                self.checked.lookup(dir, name, walk.cred())
            };
            let next = match known {
                Ok(entry) => {
                    let found = Held::found(&**self.fs(), entry.attr.ino);
                    if entry.attr.file_type != FileType::Symlink || !follow {
                        self.checked.may_open_found(dir, &entry.attr, walk.cred())?;
                        return Ok((found, entry.attr, false));
                    }
                    self.checked.may_follow(dir, &entry.attr, walk.cred())?;
                    walk.target(entry.attr.ino)?
                }
                Err(Error::NotFound) => {
                    let renames = self.watcher.renames();
                    match self.checked.create(dir, name, FileType::Regular, create.mode, 0, walk.cred()) {
                        Ok(entry) => {
                            self.watcher.name(dir, name, renames);
                            return Ok((Held::found(&**self.fs(), entry.attr.ino), entry.attr, true));
                        }
                        // Somebody was faster.
                        Err(Error::Exists) if !how.exclusive => name.bytes().to_vec(),
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            };
            start = last.into_dir();
            path = Cow::Owned(next);
        }
    }

    /// Does something with the file that a path names.
    fn with(
        &self,
        cred: &Cred,
        at: At,
        path: &[u8],
        act: impl FnOnce(Ino, Attr) -> Result<Done>,
    ) -> Result<Done> {
        let mut opened = None;
        let start = self.start(at.dir, &mut opened)?;
        let (found, attr) = Walk::new(&self.checked, cred).file(start, path, at.follow)?;
        act(found.ino, attr)
    }

    fn set_attributes(&self, cred: &Cred, at: At, path: &[u8], change: &SetAttr) -> Result<Done> {
        let cuts = SetAttr { size: change.size, ..SetAttr::default() };
        if path.is_empty() && at.dir != 0 && *change == cuts {
            // Whoever has a file open for writing may change its length.
            let file = self.usable(at.dir, WRITE, cred)?;
            let changed = self.fs().setattr(file.ino, change, cred);
            self.watcher.inode(file.ino);
            return Ok(Done::attr(changed?));
        }
        self.with(cred, at, path, |found, _| {
            let attr = self.checked.setattr(found, change, cred)?;
            self.watcher.inode(found);
            Ok(Done::attr(attr))
        })
    }

    fn list(&self, dir: Ino, cookie: u64, into: Payload<'_>) -> Result<Done> {
        let (mut used, mut next, mut full) = (0, cookie, false);
        self.fs().readdir(dir, cookie, &mut |entry: DirEntry<'_>| {
            let head = ListedName {
                ino: entry.ino.0.into(),
                next: entry.next_cookie.into(),
                kind: kind_of(entry.file_type).into(),
                len: (entry.name.len() as u16).into(),
                zero: 0.into(),
            };
            let len = (size_of::<ListedName>() + entry.name.len()).next_multiple_of(8);
            let room = into.part(used as u32, len as u32);
            full = room.is_none();
            let Some(room) = room else { return false };
            room.put(head.as_bytes());
            let behind = (len - size_of::<ListedName>()) as u32;
            if let Some(room) = room.part(size_of::<ListedName>() as u32, behind) {
                room.put(entry.name);
            }
            used += len;
            next = entry.next_cookie;
            true
        })?;
        if full && used == 0 {
            return Err(Error::BufferTooSmall.into());
        }
        Ok(Done { other: next, ..Done::bytes(used) })
    }

    fn copy(&self, cred: &Cred, from: (u64, u64), to: (u64, u64), length: u64) -> Result<Done> {
        let (source, target) = (self.usable(from.0, READ, cred)?, self.usable(to.0, WRITE, cred)?);
        let mut length = length.min(COPY_BYTES_MAX);
        if source.ino == target.ino {
            // What is copied behind the end is not copied again.
            length = length.min(self.fs().getattr(source.ino)?.size.saturating_sub(from.1));
            if from.1.saturating_add(length) > to.1 && to.1.saturating_add(length) > from.1 {
                return Err(Error::Invalid("ranges of one file that overlap").into());
            }
        }
        let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(length).unwrap_or(COPY_BYTES))];
        let mut copied = 0;
        while copied < length {
            let most = buffer.len().min(usize::try_from(length - copied).unwrap_or(COPY_BYTES));
            let (Some(at), Some(there)) = (from.1.checked_add(copied), to.1.checked_add(copied)) else {
                return Err(Error::TooLarge.into());
            };
            let got = self.fs().read(source.ino, at, &mut buffer[..most], false)?;
            if got == 0 {
                break;
            }
            match self.fs().write(target.ino, there, &buffer[..got], WriteMode::default(), cred) {
                Ok(_) => copied += got as u64,
                // What was copied counts, as for a write that runs out of room.
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.watcher.inode(target.ino);
        Ok(Done::value(copied))
    }
}

/// A part of the payload. Spans were checked against all of it.
fn part(payload: Payload<'_>, span: Span) -> Result<Payload<'_>> {
    payload.part(span.at.get(), span.len.get()).ok_or(Malformed("a span outside the payload").into())
}

/// Copies names out, before anything of them is looked at.
fn take(from: Payload<'_>, into: &mut Vec<u8>) {
    into.clear();
    into.resize(from.len(), 0);
    from.take(into);
}

/// Answers with bytes, or with how many there are if there is no room at all.
fn answer(bytes: &[u8], into: Payload<'_>) -> Result<Done> {
    if into.is_empty() {
        return Ok(Done::value(bytes.len() as u64));
    }
    if bytes.len() > into.len() {
        return Err(Error::BufferTooSmall.into());
    }
    into.put(bytes);
    Ok(Done::bytes(bytes.len()))
}
