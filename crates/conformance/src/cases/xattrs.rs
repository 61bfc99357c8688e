//! Extended attributes, for file systems that have them; the others refuse every call.

use amphi_vfs::{Allocate, Cred, Error, Ino, SetAttr, WriteMode, XattrMode};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    values_are_kept,
    modes_create_and_replace,
    lists_name_what_is_set,
    attributes_go_with_their_file,
    limits_are_enforced,
    capabilities_go_with_any_change,
);

/// Whether the file system has extended attributes; if not, that it says so everywhere.
pub(super) fn offered(fs: &Fs) -> bool {
    let refused = |result: Result<(), Error>| matches!(result, Err(Error::Unsupported(_)));
    if !refused(fs.getxattr(Ino::ROOT, b"user.none").map(drop)) {
        return true;
    }
    assert!(refused(fs.setxattr(Ino::ROOT, b"user.a", b"v", XattrMode::Set)));
    assert!(refused(fs.listxattr(Ino::ROOT).map(drop)));
    assert!(refused(fs.removexattr(Ino::ROOT, b"user.a")));
    false
}

fn values_are_kept(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    for length in [0, 1, 100, 4_000] {
        let value: Vec<u8> = (0..length).map(|i| i as u8).collect();
        fs.setxattr(file, b"user.key", &value, XattrMode::Set).unwrap();
        assert!(fs.getxattr(file, b"user.key").unwrap() == value, "{length} bytes");
    }
    assert_eq!(fs.getxattr(file, b"user.other"), Err(Error::NoData));
    let dir = fs.dir(Ino::ROOT, "d");
    fs.setxattr(dir, b"user.key", b"on a directory", XattrMode::Set).unwrap();
    assert_eq!(fs.getxattr(dir, b"user.key").unwrap(), b"on a directory");
}

fn modes_create_and_replace(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    assert_eq!(fs.setxattr(file, b"user.k", b"1", XattrMode::Replace), Err(Error::NoData));
    assert_eq!(fs.setxattr(file, b"user.k", b"2", XattrMode::Create), Ok(()));
    assert_eq!(fs.setxattr(file, b"user.k", b"3", XattrMode::Create), Err(Error::Exists));
    assert_eq!(fs.getxattr(file, b"user.k").unwrap(), b"2");
    assert_eq!(fs.setxattr(file, b"user.k", b"4", XattrMode::Replace), Ok(()));
    assert_eq!(fs.removexattr(file, b"user.k"), Ok(()));
    assert_eq!(fs.removexattr(file, b"user.k"), Err(Error::NoData));
}

fn lists_name_what_is_set(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    assert!(fs.listxattr(file).unwrap().is_empty());
    let names: Vec<Vec<u8>> = (10..30).map(|number| format!("user.{number}").into_bytes()).collect();
    for key in &names {
        fs.setxattr(file, key, key, XattrMode::Create).unwrap();
    }
    let mut listed = fs.listxattr(file).unwrap();
    listed.sort();
    assert_eq!(listed, names);
    fs.removexattr(file, b"user.20").unwrap();
    assert_eq!(fs.listxattr(file).unwrap().len(), 19);
}

fn attributes_go_with_their_file(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    fs.setxattr(file, b"user.k", b"v", XattrMode::Set).unwrap();
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    assert_eq!(fs.getxattr(file, b"user.k").unwrap(), b"v");
    fs.forget(file, 1);
    let again = fs.file(Ino::ROOT, "f");
    assert!(fs.listxattr(again).unwrap().is_empty(), "a new file has none");
}

fn limits_are_enforced(fs: &Fs) {
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    let large = vec![1; 65_537];
    assert!(matches!(
        fs.setxattr(file, b"user.k", &large, XattrMode::Set),
        Err(Error::XattrTooLarge | Error::NoSpace)
    ));
    assert_eq!(fs.getxattr(file, b"user.k"), Err(Error::NoData));
    assert!(fs.setxattr(file, b"", b"v", XattrMode::Set).is_err(), "an empty name");
    assert!(fs.setxattr(file, &[b'n'; 256], b"v", XattrMode::Set).is_err(), "a name of 256 bytes");
}

fn capabilities_go_with_any_change(fs: &Fs) {
    const CAPABILITY: &[u8] = b"security.capability";
    // What `setcap cap_chown=p` writes: the kernel lets nothing else through.
    let value = [&[0, 0, 0, 2, 1][..], &[0; 15]].concat();
    if !offered(fs) {
        return;
    }
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"a program");
    fs.setxattr(file, b"user.note", b"stays", XattrMode::Set).unwrap();
    let changes: [(&str, &dyn Fn()); 5] = [
        ("a write", &|| fs.put(file, 0, b"x")),
        ("a direct write", &|| {
            let mode = WriteMode { direct: true, ..WriteMode::default() };
            fs.write(file, 0, b"y", mode, &Cred::ROOT).unwrap();
        }),
        ("a truncate", &|| {
            fs.resize(file, 5);
        }),
        ("a new owner", &|| {
            fs.change(file, &SetAttr { uid: Some(7), ..SetAttr::default() });
        }),
        ("a hole", &|| match fs.allocate(file, 0, 2, Allocate::PunchHole, &Cred::ROOT) {
            Err(Error::Unsupported(_)) => fs.put(file, 0, b"z"),
            punched => punched.unwrap(),
        }),
    ];
    for (what, change) in changes {
        fs.setxattr(file, CAPABILITY, &value, XattrMode::Set).unwrap();
        fs.change(file, &SetAttr { mode: Some(0o755), ..SetAttr::default() });
        assert!(fs.getxattr(file, CAPABILITY).is_ok(), "a chmod leaves them");
        change();
        assert_eq!(fs.getxattr(file, CAPABILITY), Err(Error::NoData), "after {what}");
    }
    assert_eq!(fs.getxattr(file, b"user.note").unwrap(), b"stays");
}
