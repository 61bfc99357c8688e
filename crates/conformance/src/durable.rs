//! What a crash must not take: everything, once each file was made durable by itself.

use amphi_vfs::{FileSystem, FileType, Ino, Name, SetAttr, SetTime};

/// Makes all files durable by an `fsync` of each. A file system that is dropped then instead of unmounted
/// holds the same in its next mount, and has to recover it: unlike a `sync`, this leaves behind what a
/// recovery reads. Access times are set to what they are, since a crash may take one that reading has moved.
///
/// # Panics
/// If the file system cannot list, find or sync one of them.
pub fn sync_each<F: FileSystem>(fs: &F) {
    sync_below(fs, Ino::ROOT);
    sync(fs, Ino::ROOT);
}

fn sync_below<F: FileSystem>(fs: &F, dir: Ino) {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            names.push(entry.name.to_vec());
        }
        true
    })
    .expect("a directory is listed");
    for name in names {
        let name = Name::new(&name).expect("it was listed");
        let found = fs.lookup(dir, name).expect("it was listed").attr;
        if found.file_type == FileType::Directory {
            sync_below(fs, found.ino);
        }
        sync(fs, found.ino);
        fs.forget(found.ino, 1);
    }
}

fn sync<F: FileSystem>(fs: &F, ino: Ino) {
    let attr = fs.getattr(ino).expect("it is there");
    let atime = SetAttr { atime: Some(SetTime::At(attr.atime)), ..SetAttr::default() };
    fs.setattr(ino, &atime, &amphi_vfs::Cred::ROOT).expect("times can be set");
    if matches!(attr.file_type, FileType::Regular | FileType::Directory) {
        fs.fsync(ino, false).expect("it is made durable");
    }
}
