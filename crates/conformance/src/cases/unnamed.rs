//! Files made without a name (`O_TMPFILE`): they live by their references, and by the first name they are
//! given.

use amphi_vfs::acl::DEFAULT;
use amphi_vfs::{Cred, Entry, Error, Ino, OpenFlags, SetAttr, XattrMode};

use super::acls::list;
use super::case_list;
use super::xattrs::offered;
use crate::harness::{Fs, USER, name};

case_list!(
    a_file_without_a_name_lives_by_its_references,
    a_file_without_a_name_can_be_given_one,
    what_lost_its_names_cannot_be_named_again,
    a_file_without_a_name_inherits_as_others_do,
);

/// A file without a name; nothing where they are not offered.
fn unnamed(fs: &Fs, cred: &Cred) -> Option<Ino> {
    match fs.tmpfile(Ino::ROOT, 0o640, cred) {
        Ok(Entry { attr }) => Some(attr.ino),
        Err(Error::Unsupported(_)) => None,
        Err(error) => panic!("tmpfile: {error}"),
    }
}

fn a_file_without_a_name_lives_by_its_references(fs: &Fs) {
    let before = fs.statfs().unwrap().inodes_free;
    let Some(file) = unnamed(fs, &USER) else { return };
    let attr = fs.attr(file);
    assert_eq!((attr.nlink, attr.mode, attr.uid, attr.gid), (0, 0o640, USER.uid, USER.gid));
    assert!(fs.names(Ino::ROOT).is_empty());
    fs.put(file, 0, b"scratch");
    fs.open(file, OpenFlags::default()).unwrap();
    fs.forget(file, 1);
    assert_eq!(fs.get(file, 0, 10), b"scratch");
    fs.release(file);
    assert!(fs.is_gone(file));
    assert_eq!(fs.statfs().unwrap().inodes_free, before);
}

fn a_file_without_a_name_can_be_given_one(fs: &Fs) {
    let Some(file) = unnamed(fs, &Cred::ROOT) else { return };
    fs.put(file, 0, b"complete");
    let linked = fs.link(file, Ino::ROOT, name("f")).unwrap().attr;
    assert_eq!((linked.ino, linked.nlink), (file, 1));
    fs.forget(file, 2);
    assert_eq!(fs.get(fs.find(Ino::ROOT, "f").unwrap().ino, 0, 10), b"complete");
    fs.link(file, Ino::ROOT, name("g")).unwrap();
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    fs.unlink(Ino::ROOT, name("g")).unwrap();
    assert_eq!(fs.attr(file).nlink, 0);
    fs.forget(file, 1);
    assert!(fs.is_gone(file));
}

fn what_lost_its_names_cannot_be_named_again(fs: &Fs) {
    let Some(file) = unnamed(fs, &Cred::ROOT) else { return };
    fs.link(file, Ino::ROOT, name("f")).unwrap();
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    assert_eq!(fs.link(file, Ino::ROOT, name("g")).map(drop), Err(Error::NotFound));
}

fn a_file_without_a_name_inherits_as_others_do(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    fs.change(dir, &SetAttr { gid: Some(77), mode: Some(0o2777), ..SetAttr::default() });
    let cred = Cred { umask: 0o027, ..USER };
    let Ok(Entry { attr }) = fs.tmpfile(dir, 0o666, &cred) else { return };
    assert_eq!((attr.mode, attr.gid), (0o640, 77));
    if offered(fs) {
        fs.setxattr(dir, DEFAULT, &list(7, (5, 6), 5, 7, 0), XattrMode::Set).unwrap();
        assert_eq!(fs.tmpfile(dir, 0o666, &cred).unwrap().attr.mode, 0o660);
    }
    fs.rmdir(Ino::ROOT, name("d")).unwrap();
    assert_eq!(fs.tmpfile(dir, 0o666, &cred).map(drop), Err(Error::NotFound), "a directory that is gone");
}
