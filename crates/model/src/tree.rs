//! All inodes of the model, their references and limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_rt::time::wall_ns;
use amphi_vfs::{AccessTimes, Cred, Entry, Error, Ino, Name, Removed, Result, TimeSpec, acl};

use crate::inode::{Body, Inode};
use crate::limits::Limits;
use crate::names::Names;

/// Copies share inodes until one of them changes.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) inodes: BTreeMap<u64, Arc<Inode>>,
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
    pub(crate) pages_used: u64,
    pub(crate) access_times: AccessTimes,
    next_ino: u64,
}

/// The time stamp of a change made now.
pub(crate) fn now() -> TimeSpec {
    TimeSpec { ns: wall_ns() }
}

impl Tree {
    pub(crate) fn new(limits: Limits) -> Self {
        let mut tree = Self {
            inodes: BTreeMap::new(),
            limits,
            read_only: false,
            pages_used: 0,
            access_times: AccessTimes::default(),
            next_ino: Ino::ROOT.0,
        };
        tree.add(Body::Directory(Names::new(Ino::ROOT)), 0o755, 0, 0, 0);
        tree
    }

    /// Adds an inode without references; directories start with two links, others with one.
    pub(crate) fn add(&mut self, body: Body, mode: u16, uid: u32, gid: u32, rdev: u32) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        let time = now();
        let nlink = if matches!(body, Body::Directory(_)) { 2 } else { 1 };
        let inode = Inode {
            generation: 1,
            mode: mode & 0o7777,
            nlink,
            uid,
            gid,
            rdev,
            atime: time,
            mtime: time,
            ctime: time,
            body,
            xattrs: BTreeMap::new(),
            lookups: 0,
            opens: 0,
            unnamed: false,
        };
        self.inodes.insert(ino, Arc::new(inode));
        Ino(ino)
    }

    pub(crate) fn get(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino.0).map(|inode| &**inode).ok_or(Error::Stale(ino))
    }

    pub(crate) fn get_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino.0).map(Arc::make_mut).ok_or(Error::Stale(ino))
    }

    /// Refuses changes to a read-only file system.
    pub(crate) const fn writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The inode that `name` names in `dir`.
    pub(crate) fn find(&self, dir: Ino, name: Name<'_>) -> Result<Ino> {
        self.get(dir)?.names()?.get(name.bytes()).ok_or(Error::NotFound)
    }

    /// Checks that `name` can be added to `dir`: the directory exists, was not removed, and does not have the
    /// name.
    pub(crate) fn vacant(&self, dir: Ino, name: Name<'_>) -> Result<()> {
        let directory = self.get(dir)?;
        let names = directory.names()?;
        if directory.nlink == 0 {
            return Err(Error::NotFound);
        }
        if names.get(name.bytes()).is_some() { Err(Error::Exists) } else { Ok(()) }
    }

    /// Adds an inode named `name` in `dir`, owned as `cred` and the directory say, and takes a reference on
    /// it.
    pub(crate) fn add_named(
        &mut self,
        dir: Ino,
        name: Name<'_>,
        body: Body,
        mode: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Entry> {
        self.writable()?;
        self.vacant(dir, name)?;
        let is_directory = matches!(body, Body::Directory(_));
        if is_directory && self.get(dir)?.nlink >= self.limits.links {
            return Err(Error::TooManyLinks);
        }
        let ino = self.add_owned(dir, body, mode, rdev, cred)?;
        let parent = self.get_mut(dir)?;
        parent.names_mut()?.set(name.bytes(), ino);
        if is_directory {
            parent.nlink += 1;
        }
        self.touch(dir)?;
        self.entry(ino)
    }

    /// Adds an inode without a name, owned as `cred` and the directory say, with what it inherits.
    pub(crate) fn add_owned(
        &mut self,
        dir: Ino,
        body: Body,
        mode: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Ino> {
        if self.inodes.len() as u64 >= self.limits.inodes {
            return Err(Error::NoInodes);
        }
        let parent = self.get(dir)?;
        let passes_group = parent.mode & 0o2000 != 0;
        let gid = if passes_group { parent.gid } else { cred.gid };
        let file_type = body.file_type();
        let default = parent.xattrs.get(acl::DEFAULT);
        let (mode, xattrs) = acl::inherit(default.map(Vec::as_slice), mode, file_type, cred)?;
        let mode = if passes_group && matches!(body, Body::Directory(_)) { mode | 0o2000 } else { mode };
        let ino = self.add(body, mode, cred.uid, gid, rdev);
        self.get_mut(ino)?.xattrs.extend(xattrs);
        Ok(ino)
    }

    /// Notes that `ino` has been read.
    pub(crate) fn touch_atime(&mut self, ino: Ino) {
        let (policy, now) = (self.access_times, now());
        let Some(inode) = self.inodes.get_mut(&ino.0).filter(|_| !self.read_only) else { return };
        if policy.moves(inode.atime.ns, inode.mtime.ns, inode.ctime.ns, now.ns) {
            Arc::make_mut(inode).atime = now;
        }
    }

    /// Takes a reference on `ino`.
    pub(crate) fn entry(&mut self, ino: Ino) -> Result<Entry> {
        let inode = self.get_mut(ino)?;
        inode.lookups += 1;
        Ok(Entry { attr: inode.attr(ino) })
    }

    /// Notes that the contents of `ino` changed.
    pub(crate) fn touch(&mut self, ino: Ino) -> Result<()> {
        let time = now();
        let inode = self.get_mut(ino)?;
        inode.mtime = time;
        inode.ctime = time;
        Ok(())
    }

    /// Notes that the attributes of `ino` changed.
    pub(crate) fn touch_ctime(&mut self, ino: Ino) -> Result<()> {
        self.get_mut(ino)?.ctime = now();
        Ok(())
    }

    /// Takes away one name of `ino` (all that remain, of a directory), and frees it if nothing holds it.
    pub(crate) fn drop_name(&mut self, ino: Ino) -> Result<Removed> {
        let inode = self.get_mut(ino)?;
        inode.nlink = if inode.is_directory() { 0 } else { inode.nlink - 1 };
        inode.ctime = now();
        let removed = Removed { ino, nlink: inode.nlink };
        self.free_if_unheld(ino);
        Ok(removed)
    }

    /// Frees an inode that has neither names nor references.
    pub(crate) fn free_if_unheld(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(&ino.0) else { return };
        if inode.nlink == 0 && inode.lookups == 0 && inode.opens == 0 {
            if let Body::Regular(bytes) = &inode.body {
                self.pages_used -= bytes.page_count();
            }
            self.inodes.remove(&ino.0);
        }
    }

    pub(crate) fn drop_references(&mut self) {
        let all: Vec<Ino> = self.inodes.keys().map(|&ino| Ino(ino)).collect();
        for ino in all {
            if let Ok(inode) = self.get_mut(ino) {
                inode.lookups = 0;
                inode.opens = 0;
            }
            self.free_if_unheld(ino);
        }
    }

    /// Whether `dir` is `ancestor` or lies below it.
    pub(crate) fn is_within(&self, mut dir: Ino, ancestor: Ino) -> Result<bool> {
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            if dir == Ino::ROOT {
                return Ok(false);
            }
            dir = self.get(dir)?.names()?.parent;
        }
    }
}
