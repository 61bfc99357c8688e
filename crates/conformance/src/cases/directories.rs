//! Directories: making and removing them, link counts, parents, names of every kind, errors.

use amphi_vfs::{Cred, Error, FileType, Ino, Name};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    mkdir_counts_links_and_knows_its_parent,
    rmdir_removes_only_empty_directories,
    existing_names_are_not_made_again,
    missing_names_are_not_found,
    files_are_not_directories,
    names_of_every_length_and_byte,
    names_differ_in_case_and_prefix,
    nothing_enters_a_removed_directory_or_is_listed_there,
    removed_names_can_be_used_again,
    deep_trees,
);

fn mkdir_counts_links_and_knows_its_parent(fs: &Fs) {
    let one = fs.dir(Ino::ROOT, "one");
    let two = fs.dir(one, "two");
    assert_eq!((fs.attr(Ino::ROOT).nlink, fs.attr(one).nlink, fs.attr(two).nlink), (3, 3, 2));
    assert_eq!((fs.parent(one), fs.parent(two)), (Ok(Ino::ROOT), Ok(one)));
    fs.file(one, "file");
    assert_eq!(fs.attr(one).nlink, 3, "files do not count");
    fs.rmdir(one, name("two")).unwrap();
    assert_eq!(fs.attr(one).nlink, 2);
    let file = fs.find(one, "file").unwrap().ino;
    assert_eq!(fs.parent(file), Err(Error::NotDirectory));
}

fn rmdir_removes_only_empty_directories(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    fs.file(dir, "f");
    fs.file(Ino::ROOT, "plain");
    assert_eq!(fs.rmdir(Ino::ROOT, name("d")), Err(Error::NotEmpty));
    assert_eq!(fs.rmdir(Ino::ROOT, name("plain")), Err(Error::NotDirectory));
    assert_eq!(fs.rmdir(Ino::ROOT, name("none")), Err(Error::NotFound));
    assert_eq!(fs.unlink(Ino::ROOT, name("d")), Err(Error::IsDirectory));
    fs.unlink(dir, name("f")).unwrap();
    fs.rmdir(Ino::ROOT, name("d")).unwrap();
    assert_eq!(fs.find(Ino::ROOT, "d"), Err(Error::NotFound));
    assert_eq!(fs.names(Ino::ROOT), ["plain"]);
}

fn existing_names_are_not_made_again(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let dir = fs.dir(Ino::ROOT, "d");
    for text in ["f", "d"] {
        let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        assert_eq!(made, Err(Error::Exists), "create {text}");
        assert_eq!(fs.mkdir(Ino::ROOT, name(text), 0o755, &Cred::ROOT), Err(Error::Exists), "mkdir {text}");
        let made = fs.symlink(Ino::ROOT, name(text), b"x", &Cred::ROOT);
        assert_eq!(made, Err(Error::Exists), "symlink {text}");
        assert_eq!(fs.link(file, Ino::ROOT, name(text)), Err(Error::Exists), "link {text}");
    }
    assert_eq!(fs.find(Ino::ROOT, "f").unwrap().ino, file);
    assert_eq!(fs.find(Ino::ROOT, "d").unwrap().ino, dir);
    assert_eq!((fs.attr(file).nlink, fs.attr(Ino::ROOT).nlink), (1, 3));
}

fn missing_names_are_not_found(fs: &Fs) {
    assert_eq!(fs.find(Ino::ROOT, "none"), Err(Error::NotFound));
    assert_eq!(fs.unlink(Ino::ROOT, name("none")), Err(Error::NotFound));
    assert_eq!(fs.rmdir(Ino::ROOT, name("none")), Err(Error::NotFound));
    let absent = Ino(0xFFFF_FFF0);
    assert!(fs.is_gone(absent));
    assert!(matches!(fs.lookup(absent, name("x")), Err(Error::NotFound | Error::Stale(_))));
    assert!(matches!(fs.list(absent, 10), Err(Error::NotFound | Error::Stale(_))));
    for odd in [Ino(0), Ino(u64::MAX), Ino(1 << 32)] {
        assert!(fs.is_gone(odd), "inode {}", odd.0);
    }
}

fn files_are_not_directories(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    assert_eq!(fs.find(file, "x"), Err(Error::NotDirectory));
    let made = fs.create(file, name("x"), FileType::Regular, 0o644, 0, &Cred::ROOT);
    assert_eq!(made, Err(Error::NotDirectory));
    assert_eq!(fs.mkdir(file, name("x"), 0o755, &Cred::ROOT), Err(Error::NotDirectory));
    assert_eq!(fs.unlink(file, name("x")), Err(Error::NotDirectory));
    assert_eq!(fs.rmdir(file, name("x")), Err(Error::NotDirectory));
    assert_eq!(fs.list(file, 10), Err(Error::NotDirectory));
}

fn names_of_every_length_and_byte(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let mut expected: Vec<Vec<u8>> = (1..=255).map(|length| vec![b'n'; length]).collect();
    expected.extend((1..=255_u8).filter(|&byte| !matches!(byte, b'/' | b'.' | b'n')).map(|byte| vec![byte]));
    for bytes in &expected {
        let valid = Name::new(bytes).unwrap();
        let made = fs.create(dir, valid, FileType::Regular, 0o644, 0, &Cred::ROOT).unwrap();
        fs.forget(made.attr.ino, 1);
    }
    for bytes in &expected {
        let found = fs.lookup(dir, Name::new(bytes).unwrap());
        fs.forget(found.unwrap_or_else(|error| panic!("{bytes:?}: {error}")).attr.ino, 1);
    }
    let mut listed: Vec<Vec<u8>> = fs.list(dir, 7).unwrap().into_iter().map(|(bytes, ..)| bytes).collect();
    listed.sort();
    expected.extend([b".".to_vec(), b"..".to_vec()]);
    expected.sort();
    assert!(listed == expected, "{} names listed of {}", listed.len(), expected.len());
}

fn names_differ_in_case_and_prefix(fs: &Fs) {
    let all = ["a", "A", "aa", "a ", " a", "a.", ".a", "...", "ä", "a\u{308}"];
    let inos: Vec<Ino> = all.iter().map(|text| fs.file(Ino::ROOT, text)).collect();
    for (text, ino) in all.iter().zip(&inos) {
        assert_eq!(fs.find(Ino::ROOT, text).unwrap().ino, *ino, "{text:?}");
    }
    fs.unlink(Ino::ROOT, name("a")).unwrap();
    assert_eq!(fs.names(Ino::ROOT).len(), all.len() - 1);
    assert_eq!(fs.find(Ino::ROOT, "aa").unwrap().ino, inos[2]);
}

fn nothing_enters_a_removed_directory_or_is_listed_there(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(Ino::ROOT, "f");
    fs.rmdir(Ino::ROOT, name("d")).unwrap();
    assert_eq!(fs.attr(dir).nlink, 0, "a reference keeps a removed directory");
    assert_eq!(fs.create(dir, name("x"), FileType::Regular, 0, 0, &Cred::ROOT), Err(Error::NotFound));
    assert_eq!(fs.mkdir(dir, name("x"), 0, &Cred::ROOT), Err(Error::NotFound));
    assert_eq!(fs.link(file, dir, name("x")), Err(Error::NotFound));
    let moved = fs.rename(Ino::ROOT, name("f"), dir, name("x"), amphi_vfs::RenameMode::Replace);
    assert_eq!(moved, Err(Error::NotFound));
    assert_eq!(fs.find(Ino::ROOT, "f").unwrap().ino, file);
    assert_eq!(fs.readdir(dir, 0, &mut |_| true), Err(Error::NotFound), "not even its dots");
    fs.forget(dir, 1);
    assert!(fs.is_gone(dir));
}

fn removed_names_can_be_used_again(fs: &Fs) {
    for round in 0..50 {
        let file = fs.file(Ino::ROOT, "x");
        fs.put(file, 0, format!("round {round}").as_bytes());
        assert_eq!(fs.get(file, 0, 100), format!("round {round}").as_bytes());
        fs.unlink(Ino::ROOT, name("x")).unwrap();
        fs.forget(file, 1);
        let dir = fs.dir(Ino::ROOT, "x");
        assert!(fs.names(dir).is_empty(), "round {round}: a new directory is empty");
        fs.rmdir(Ino::ROOT, name("x")).unwrap();
        fs.forget(dir, 1);
    }
    assert!(fs.names(Ino::ROOT).is_empty());
    assert_eq!(fs.attr(Ino::ROOT).nlink, 2);
}

fn deep_trees(fs: &Fs) {
    let mut path = vec![Ino::ROOT];
    for level in 0..200 {
        let dir = *path.last().unwrap();
        path.push(fs.dir(dir, &format!("level-{level}")));
    }
    for pair in path.windows(2) {
        assert_eq!(fs.parent(pair[1]), Ok(pair[0]));
    }
    for level in (0..200).rev() {
        let dir = path[level];
        fs.rmdir(dir, name(&format!("level-{level}"))).unwrap();
    }
    assert_eq!(fs.attr(Ino::ROOT).nlink, 2);
}
