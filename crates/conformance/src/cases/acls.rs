//! Access control lists: they and the mode follow each other, new files inherit them in place of the umask,
//! and what is none is refused. For file systems that have extended attributes.

use amphi_vfs::acl::{ACCESS, Acl, AclEntry, DEFAULT, Tag};
use amphi_vfs::{Capabilities, Checked, Cred, Error, FileType, Ino, OpenFlags, SetAttr, XattrMode};

use super::case_list;
use super::xattrs::offered;
use crate::harness::{Fs, USER, name};

case_list!(
    the_mode_follows_an_access_list,
    an_access_list_follows_the_mode,
    lists_that_are_only_a_mode_are_not_kept,
    new_files_inherit_the_default_list,
    the_umask_counts_without_a_default_list,
    what_is_no_list_is_refused,
    lists_decide_who_may_open,
);

/// A list with one named user.
pub(crate) fn list(owner: u16, user: (u32, u16), group: u16, mask: u16, other: u16) -> Vec<u8> {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    Acl::new(vec![
        entry(Tag::Owner, owner),
        entry(Tag::User(user.0), user.1),
        entry(Tag::OwningGroup, group),
        entry(Tag::Mask, mask),
        entry(Tag::Other, other),
    ])
    .expect("a sound list")
    .encode()
}

/// A list that says no more than a mode.
pub(crate) fn plain(owner: u16, group: u16, other: u16) -> Vec<u8> {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let entries = vec![entry(Tag::Owner, owner), entry(Tag::OwningGroup, group), entry(Tag::Other, other)];
    Acl::new(entries).expect("a sound list").encode()
}

fn the_mode_follows_an_access_list(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    fs.change(file, &SetAttr { mode: Some(0o4644), ..SetAttr::default() });
    let value = list(7, (5, 6), 4, 5, 1);
    fs.setxattr(file, ACCESS, &value, XattrMode::Set).unwrap();
    assert_eq!(fs.attr(file).mode, 0o4751, "owner, mask and other; set-id bits stay");
    assert_eq!(fs.getxattr(file, ACCESS).unwrap(), value);
    assert_eq!(fs.listxattr(file).unwrap(), [ACCESS]);
}

fn an_access_list_follows_the_mode(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"contents");
    fs.setxattr(file, ACCESS, &list(7, (5, 6), 4, 5, 1), XattrMode::Set).unwrap();
    fs.change(file, &SetAttr { mode: Some(0o2624), size: Some(3), ..SetAttr::default() });
    assert_eq!(fs.attr(file).mode, 0o2624);
    assert_eq!(fs.getxattr(file, ACCESS).unwrap(), list(6, (5, 6), 4, 2, 4), "the mask, not the group");
    let other = SetAttr { uid: Some(3), ..SetAttr::default() };
    fs.change(file, &other);
    assert_eq!(fs.getxattr(file, ACCESS).unwrap(), list(6, (5, 6), 4, 2, 4), "a new owner changes no list");
    for _ in 0..2 {
        assert_eq!(fs.removexattr(file, ACCESS), Ok(()), "a list to remove need not be there");
    }
    assert_eq!(fs.attr(file).mode & 0o777, 0o624, "without the list the mode stays");
}

fn lists_that_are_only_a_mode_are_not_kept(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    fs.setxattr(file, ACCESS, &list(7, (5, 6), 4, 5, 1), XattrMode::Set).unwrap();
    fs.setxattr(file, ACCESS, &plain(6, 4, 2), XattrMode::Set).unwrap();
    assert_eq!((fs.attr(file).mode, fs.getxattr(file, ACCESS)), (0o642, Err(Error::NoData)));
    assert!(fs.listxattr(file).unwrap().is_empty());
    fs.setxattr(file, ACCESS, &list(7, (5, 6), 4, 5, 1), XattrMode::Set).unwrap();
    for empty in [&[][..], &[2, 0, 0, 0]] {
        assert_eq!(fs.setxattr(file, ACCESS, empty, XattrMode::Set), Ok(()), "no list removes the list");
        assert_eq!((fs.attr(file).mode, fs.getxattr(file, ACCESS)), (0o751, Err(Error::NoData)));
    }
}

fn new_files_inherit_the_default_list(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let dir = fs.dir(Ino::ROOT, "d");
    let default = list(7, (5, 6), 5, 7, 0);
    fs.setxattr(dir, DEFAULT, &default, XattrMode::Set).unwrap();
    assert_eq!(fs.attr(dir).mode, 0o755, "a default list says nothing about the directory itself");
    let cred = Cred { umask: 0o077, ..USER };
    let file = fs.create(dir, name("f"), FileType::Regular, 0o666, 0, &cred).unwrap().attr;
    assert_eq!(file.mode, 0o660, "the list in place of the umask");
    assert_eq!(fs.attr(file.ino), file);
    assert_eq!(fs.getxattr(file.ino, ACCESS).unwrap(), list(6, (5, 6), 5, 6, 0));
    assert_eq!(fs.getxattr(file.ino, DEFAULT), Err(Error::NoData));
    let sub = fs.mkdir(dir, name("sub"), 0o777, &cred).unwrap().attr;
    assert_eq!(sub.mode, 0o770);
    assert_eq!(fs.getxattr(sub.ino, ACCESS).unwrap(), default);
    assert_eq!(fs.getxattr(sub.ino, DEFAULT).unwrap(), default, "and so on below");
    let link = fs.symlink(dir, name("l"), b"f", &cred).unwrap().attr;
    assert_eq!((link.mode, fs.getxattr(link.ino, ACCESS).is_err()), (0o777, true));
    fs.setxattr(dir, DEFAULT, &plain(6, 4, 0), XattrMode::Set).unwrap();
    let file = fs.create(dir, name("g"), FileType::Fifo, 0o777, 0, &cred).unwrap().attr;
    assert_eq!((file.mode, fs.getxattr(file.ino, ACCESS).is_err()), (0o640, true));
}

fn the_umask_counts_without_a_default_list(fs: &Fs) {
    let cred = Cred { umask: 0o027, ..USER };
    let file = fs.create(Ino::ROOT, name("f"), FileType::Regular, 0o4666, 0, &cred).unwrap().attr;
    assert_eq!(file.mode, 0o4640);
    assert_eq!(fs.mkdir(Ino::ROOT, name("d"), 0o1777, &cred).unwrap().attr.mode, 0o1750);
    assert_eq!(fs.symlink(Ino::ROOT, name("l"), b"f", &cred).unwrap().attr.mode, 0o777);
}

fn what_is_no_list_is_refused(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    let good = list(7, (5, 6), 4, 5, 1);
    let unmasked: Vec<u8> = [&good[..28], &good[36..]].concat();
    for bad in [&good[..good.len() - 1], b"no list", &unmasked] {
        let set = fs.setxattr(file, ACCESS, bad, XattrMode::Set);
        assert!(matches!(set, Err(Error::Invalid(_) | Error::Unsupported(_))), "{set:?}");
    }
    assert_eq!(fs.setxattr(file, DEFAULT, &good, XattrMode::Set), Err(Error::PermissionDenied));
    assert_eq!(fs.setxattr(file, DEFAULT, &[], XattrMode::Set), Ok(()), "to have none is right");
    let link = fs.symlink(Ino::ROOT, name("l"), b"f", &Cred::ROOT).unwrap().attr.ino;
    assert!(matches!(fs.setxattr(link, ACCESS, &good, XattrMode::Set), Err(Error::Unsupported(_))));
    assert_eq!(fs.attr(file).mode, 0o644, "nothing changed");
}

fn lists_decide_who_may_open(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let checked = Checked::new(fs.clone_shared());
    let file = fs.file(Ino::ROOT, "f");
    fs.setxattr(file, ACCESS, &list(6, (USER.uid, 6), 0, 4, 2), XattrMode::Set).unwrap();
    let open = |read, write, cred: &Cred| {
        let flags = OpenFlags { write, ..OpenFlags::default() };
        checked.open(file, read, flags, cred).inspect(|()| fs.release(file))
    };
    assert_eq!(open(true, false, &USER), Ok(()), "named, and within the mask");
    assert_eq!(open(true, true, &USER), Err(Error::PermissionDenied), "beyond the mask");
    let stranger = Cred::user(77, 77);
    assert_eq!(open(false, true, &stranger), Ok(()));
    assert_eq!(open(true, false, &stranger), Err(Error::PermissionDenied));
    let reader = Cred { capabilities: Capabilities::DAC_READ_SEARCH, ..stranger };
    assert_eq!(open(true, false, &reader), Ok(()));
}
