//! One inode of the model.

use std::collections::BTreeMap;

use amphi_vfs::permission::mode_after_change;
use amphi_vfs::{Attr, Capabilities, Cred, Error, FileType, Ino, Result, TimeSpec, acl};

use crate::bytes::{Bytes, PAGE};
use crate::names::Names;

/// What an inode holds.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Regular(Bytes),
    Directory(Names),
    Symlink(Vec<u8>),
    /// A FIFO, socket or device node.
    Node(FileType),
}

#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) generation: u32,
    pub(crate) mode: u16,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) atime: TimeSpec,
    pub(crate) mtime: TimeSpec,
    pub(crate) ctime: TimeSpec,
    pub(crate) body: Body,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// References held by lookups.
    pub(crate) lookups: u64,
    /// References held by opens.
    pub(crate) opens: u64,
    /// Made without a name, and has had none since.
    pub(crate) unnamed: bool,
}

impl Body {
    pub(crate) const fn file_type(&self) -> FileType {
        match self {
            Self::Regular(_) => FileType::Regular,
            Self::Directory(_) => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Node(file_type) => *file_type,
        }
    }
}

impl Inode {
    pub(crate) const fn file_type(&self) -> FileType {
        self.body.file_type()
    }

    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    pub(crate) fn attr(&self, ino: Ino) -> Attr {
        let (size, blocks) = match &self.body {
            Body::Regular(bytes) => (bytes.size(), bytes.page_count() * (PAGE / 512)),
            Body::Directory(names) => (names.len() as u64 * 32, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Node(_) => (0, 0),
        };
        Attr {
            ino,
            generation: self.generation,
            file_type: self.file_type(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }

    pub(crate) const fn names(&self) -> Result<&Names> {
        match &self.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(crate) const fn names_mut(&mut self) -> Result<&mut Names> {
        match &mut self.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Contents of a regular file.
    pub(crate) const fn bytes(&self) -> Result<&Bytes> {
        match &self.body {
            Body::Regular(bytes) => Ok(bytes),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    pub(crate) const fn bytes_mut(&mut self) -> Result<&mut Bytes> {
        match &mut self.body {
            Body::Regular(bytes) => Ok(bytes),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// What a change of contents, owner or group takes away: capabilities always, set-id bits as `privileged`
    /// says.
    pub(crate) fn shed_privileges(&mut self, cred: &Cred, privileged: bool) {
        if !self.is_directory() {
            self.xattrs.remove(CAPABILITY);
            if !privileged {
                self.mode = mode_after_change(self.mode, self.gid, cred);
            }
        }
    }

    /// As [`shed_privileges`](Self::shed_privileges), for new contents, which leave set-id bits to those who
    /// may keep them.
    pub(crate) fn note_new_contents(&mut self, cred: &Cred) {
        self.shed_privileges(cred, cred.has(Capabilities::FSETID));
    }

    /// Sets the permission bits; an access ACL follows.
    pub(crate) fn set_mode(&mut self, mode: u16) -> Result<()> {
        self.mode = mode & 0o7777;
        if let Some(value) = self.xattrs.get_mut(acl::ACCESS) {
            *value = acl::after_chmod(value, self.mode)?;
        }
        Ok(())
    }
}

/// The attribute that gives a program capabilities.
const CAPABILITY: &[u8] = b"security.capability";
