//! Attributes of files, between the queue's structures and the file system's.

use amphi_vfs::{Attr, FileType, SetAttr, SetTime, TimeSpec};

use crate::command::Malformed;
use crate::format::{Attributes, Change, change, kind};
use crate::memory::Payload;
use crate::status::Refusal;

/// The kind that means the type.
pub const fn kind_of(file_type: FileType) -> u16 {
    match file_type {
        FileType::Regular => kind::REGULAR,
        FileType::Directory => kind::DIRECTORY,
        FileType::Symlink => kind::SYMLINK,
        FileType::Fifo => kind::FIFO,
        FileType::Socket => kind::SOCKET,
        FileType::CharDevice => kind::CHAR,
        FileType::BlockDevice => kind::BLOCK,
    }
}

/// Attributes as the queue writes them.
pub fn attributes(attr: &Attr) -> Attributes {
    Attributes {
        ino: attr.ino.0.into(),
        size: attr.size.into(),
        blocks: attr.blocks.into(),
        atime: attr.atime.ns.into(),
        mtime: attr.mtime.ns.into(),
        ctime: attr.ctime.ns.into(),
        generation: attr.generation.into(),
        nlink: attr.nlink.into(),
        uid: attr.uid.into(),
        gid: attr.gid.into(),
        rdev: attr.rdev.into(),
        mode: attr.mode.into(),
        kind: kind_of(attr.file_type).into(),
    }
}

/// The change that the data of a command ask for.
pub fn set_attr(data: Payload<'_>) -> Result<SetAttr, Refusal> {
    let mut raw = [0; size_of::<Change>()];
    if data.len() != raw.len() {
        return Err(Malformed("a change of attributes is 40 bytes long").into());
    }
    data.take(&mut raw);
    let asked: Change = zerocopy::transmute!(raw);
    let which = asked.which.get();
    let time = |given, now, ns: i64| match (which & given != 0, which & now != 0) {
        (false, false) => Ok(None),
        (true, false) => Ok(Some(SetTime::At(TimeSpec { ns }))),
        (false, true) => Ok(Some(SetTime::Now)),
        (true, true) => Err(Malformed("a time that is given and now")),
    };
    if which & !change::ALL != 0 || which & change::MODE != 0 && asked.mode.get() > 0o7777 {
        return Err(Malformed("an unknown attribute").into());
    }
    Ok(SetAttr {
        mode: (which & change::MODE != 0).then(|| asked.mode.get() as u16),
        uid: (which & change::UID != 0).then(|| asked.uid.get()),
        gid: (which & change::GID != 0).then(|| asked.gid.get()),
        size: (which & change::SIZE != 0).then(|| asked.size.get()),
        atime: time(change::ATIME, change::ATIME_NOW, asked.atime.get())?,
        mtime: time(change::MTIME, change::MTIME_NOW, asked.mtime.get())?,
        ctime: None,
    })
}
