//! Hard and symbolic links.

use amphi_vfs::{Cred, Error, FileType, Ino, Removed, RenameMode, Renamed};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    a_link_is_another_name,
    directories_are_not_linked,
    a_file_without_names_is_not_linked,
    many_links,
    symlinks_keep_their_target,
    symlink_targets_have_limits,
    readlink_is_for_symlinks,
    special_files_can_be_linked,
    removals_tell_what_they_removed,
);

fn a_link_is_another_name(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"shared");
    let linked = fs.link(file, dir, name("g")).unwrap().attr;
    assert_eq!((linked.ino, linked.nlink), (file, 2));
    assert_eq!(fs.find(dir, "g").unwrap(), fs.find(Ino::ROOT, "f").unwrap());
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    assert_eq!((fs.attr(file).nlink, fs.get(file, 0, 10)), (1, b"shared".to_vec()));
    fs.unlink(dir, name("g")).unwrap();
    assert_eq!(fs.attr(file).nlink, 0);
}

fn directories_are_not_linked(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    assert_eq!(fs.link(dir, Ino::ROOT, name("e")), Err(Error::NotPermitted));
    assert_eq!(fs.names(Ino::ROOT), ["d"]);
}

fn a_file_without_names_is_not_linked(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    assert_eq!(fs.link(file, Ino::ROOT, name("g")), Err(Error::NotFound));
    assert!(fs.names(Ino::ROOT).is_empty());
}

fn many_links(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(dir, "0");
    for number in 1..300 {
        let linked = fs.link(file, dir, name(&number.to_string())).unwrap().attr;
        assert_eq!(linked.nlink, number + 1);
    }
    assert_eq!(fs.names(dir).len(), 300);
    for number in 0..300 {
        fs.unlink(dir, name(&number.to_string())).unwrap();
    }
    assert_eq!(fs.attr(file).nlink, 0);
    fs.forget(file, 300);
    assert!(fs.is_gone(file));
}

fn symlinks_keep_their_target(fs: &Fs) {
    for length in [1, 15, 59, 60, 61, 64, 127, 128, 255, 1_000, 4_000, 4_095] {
        let target: Vec<u8> = (0..length).map(|i| b'a' + (i % 26) as u8).collect();
        let text = format!("s{length}");
        let made = fs.symlink(Ino::ROOT, name(&text), &target, &Cred::ROOT).unwrap().attr;
        assert_eq!((made.size, made.nlink), (length as u64, 1), "{text}");
        assert!(fs.readlink(made.ino).unwrap() == target, "{text}");
    }
}

fn symlink_targets_have_limits(fs: &Fs) {
    let make = |target: &[u8]| fs.symlink(Ino::ROOT, name("s"), target, &Cred::ROOT);
    assert_eq!(make(&[b'x'; 4_096]), Err(Error::NameTooLong));
    assert!(make(b"").is_err(), "an empty target");
    assert!(fs.names(Ino::ROOT).is_empty());
}

fn readlink_is_for_symlinks(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    assert!(matches!(fs.readlink(file), Err(Error::Invalid(_))));
    assert!(matches!(fs.readlink(Ino::ROOT), Err(Error::Invalid(_))));
}

fn special_files_can_be_linked(fs: &Fs) {
    let link = fs.symlink(Ino::ROOT, name("s"), b"x", &Cred::ROOT).unwrap().attr.ino;
    let fifo = fs.create(Ino::ROOT, name("p"), FileType::Fifo, 0o600, 0, &Cred::ROOT).unwrap().attr.ino;
    assert_eq!(fs.link(link, Ino::ROOT, name("s2")).unwrap().attr.nlink, 2);
    assert_eq!(fs.link(fifo, Ino::ROOT, name("p2")).unwrap().attr.nlink, 2);
    assert_eq!(fs.readlink(fs.find(Ino::ROOT, "s2").unwrap().ino).unwrap(), b"x");
}

fn removals_tell_what_they_removed(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.link(file, Ino::ROOT, name("g")).unwrap();
    assert_eq!(fs.unlink(Ino::ROOT, name("f")), Ok(Removed { ino: file, nlink: 1 }));
    assert_eq!(fs.unlink(Ino::ROOT, name("g")), Ok(Removed { ino: file, nlink: 0 }));
    let dir = fs.dir(Ino::ROOT, "d");
    assert_eq!(fs.rmdir(Ino::ROOT, name("d")), Ok(Removed { ino: dir, nlink: 0 }));
    let [one, other] = ["one", "other"].map(|text| fs.file(Ino::ROOT, text));
    let rename =
        |from: &str, to: &str, mode| fs.rename(Ino::ROOT, name(from), Ino::ROOT, name(to), mode).unwrap();
    let swapped = Renamed { moved: one, target: Some(Removed { ino: other, nlink: 1 }) };
    assert_eq!(rename("one", "other", RenameMode::Exchange), swapped);
    let replaced = Renamed { moved: one, target: Some(Removed { ino: other, nlink: 0 }) };
    assert_eq!(rename("other", "one", RenameMode::Replace), replaced);
    assert_eq!(rename("one", "new", RenameMode::Replace), Renamed { moved: one, target: None });
}
