//! What a file system holds, copied into a model: where a sequence starts on a file system that is not empty.

use std::collections::BTreeMap;

use amphi_model::{Limits, Model};
use amphi_vfs::{
    Attr, Cred, Error, FileSystem, FileType, Ino, Name, Result, Seek, SetAttr, SetTime, WriteMode, XattrMode,
};

use crate::harness::list;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 16;

/// Copies everything below the root of `fs`, names of one file as names of one file. Nothing else uses `fs`
/// meanwhile.
///
/// # Errors
/// The first failure to read `fs`. The model fails only for lack of room.
pub fn adopt(fs: &dyn FileSystem) -> Result<Model> {
    let model = Model::with_limits(Limits { file_bytes: 1 << 52, ..Limits::default() });
    model.set_access_times(amphi_vfs::AccessTimes::Never);
    let mut copy = Copy { fs, model: &model, known: BTreeMap::new() };
    let root = fs.getattr(Ino::ROOT)?;
    copy.directory(Ino::ROOT, Ino::ROOT)?;
    copy.attributes(Ino::ROOT, &root)?;
    model.set_access_times(fs.access_times());
    Ok(model)
}

struct Copy<'a> {
    fs: &'a dyn FileSystem,
    model: &'a Model,
    /// The model's inode for each that has been met.
    known: BTreeMap<u64, Ino>,
}

impl Copy<'_> {
    fn directory(&mut self, ours: Ino, models: Ino) -> Result<()> {
        for (bytes, ..) in list(self.fs, ours, 1_000)? {
            let Ok(name) = Name::new(&bytes) else { continue };
            // Before it is listed or read, which may move its access time.
            let attr = self.fs.lookup(ours, name)?.attr;
            let copied = self.entry(&attr, models, name);
            self.fs.forget(attr.ino, 1);
            copied?;
        }
        Ok(())
    }

    fn entry(&mut self, attr: &Attr, dir: Ino, name: Name<'_>) -> Result<()> {
        let model = self.model;
        if let Some(&known) = self.known.get(&attr.ino.0) {
            let linked = model.link(known, dir, name)?;
            model.forget(linked.attr.ino, 1);
            return Ok(());
        }
        let made = match attr.file_type {
            FileType::Directory => model.mkdir(dir, name, 0o700, &Cred::ROOT)?,
            FileType::Symlink => model.symlink(dir, name, &self.fs.readlink(attr.ino)?, &Cred::ROOT)?,
            other => model.create(dir, name, other, 0o600, attr.rdev, &Cred::ROOT)?,
        };
        let ino = made.attr.ino;
        self.known.insert(attr.ino.0, ino);
        match attr.file_type {
            FileType::Directory => self.directory(attr.ino, ino)?,
            FileType::Regular => self.contents(attr, ino)?,
            _ => {}
        }
        self.attributes(ino, attr)?;
        model.forget(ino, 1);
        Ok(())
    }

    fn contents(&self, attr: &Attr, ino: Ino) -> Result<()> {
        let mut bytes = vec![0; CHUNK];
        let mut at = 0;
        while at < attr.size {
            match self.fs.seek(attr.ino, at, Seek::Data) {
                Ok(data) => at = data,
                Err(Error::NoData) => break,
                Err(error) => return Err(error),
            }
            let length = self.fs.read(attr.ino, at, &mut bytes, false)?;
            if length == 0 {
                break;
            }
            self.model.write(ino, at, &bytes[..length], WriteMode::default(), &Cred::ROOT)?;
            at += length as u64;
        }
        let size = SetAttr { size: Some(attr.size), ..SetAttr::default() };
        self.model.setattr(ino, &size, &Cred::ROOT).map(drop)
    }

    /// Extended attributes, then owner, mode and times, which the copying has moved.
    fn attributes(&self, ino: Ino, attr: &Attr) -> Result<()> {
        match self.fs.listxattr(attr.ino) {
            Err(Error::Unsupported(_)) => {}
            names => {
                for name in names? {
                    let value = self.fs.getxattr(attr.ino, &name)?;
                    self.model.setxattr(ino, &name, &value, XattrMode::Set)?;
                }
            }
        }
        // As they are now: copying has read the file.
        let now = self.fs.getattr(attr.ino)?;
        let owner = SetAttr { uid: Some(now.uid), gid: Some(now.gid), ..SetAttr::default() };
        self.model.setattr(ino, &owner, &Cred::ROOT)?;
        let rest = SetAttr {
            mode: Some(now.mode),
            atime: Some(SetTime::At(now.atime)),
            mtime: Some(SetTime::At(now.mtime)),
            ctime: Some(now.ctime),
            ..SetAttr::default()
        };
        self.model.setattr(ino, &rest, &Cred::ROOT).map(drop)
    }
}
