//! Directory listings: complete, without duplicates, with cookies that survive changes.

use std::collections::BTreeMap;

use amphi_vfs::{DirEntry, FileType, Ino, RenameMode};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    a_listing_starts_with_the_dots,
    types_and_inodes_are_listed,
    any_step_lists_everything_once,
    what_stays_is_listed_once_while_others_go,
    what_stays_is_listed_once_while_others_come,
    a_cookie_can_be_used_again,
    a_full_sink_takes_nothing,
    a_large_directory,
);

fn fill(fs: &Fs, dir: Ino, count: usize) {
    for number in 0..count {
        let ino = fs.file(dir, &format!("entry-{number:05}"));
        fs.forget(ino, 1);
    }
}

fn a_listing_starts_with_the_dots(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(dir, "f");
    let listed = fs.list(dir, 100).unwrap();
    let expected = [
        (b".".to_vec(), FileType::Directory, dir),
        (b"..".to_vec(), FileType::Directory, Ino::ROOT),
        (b"f".to_vec(), FileType::Regular, file),
    ];
    assert_eq!(listed, expected);
    let root = fs.list(Ino::ROOT, 100).unwrap();
    assert_eq!(root[1], (b"..".to_vec(), FileType::Directory, Ino::ROOT));
}

fn types_and_inodes_are_listed(fs: &Fs) {
    let cred = amphi_vfs::Cred::ROOT;
    fs.file(Ino::ROOT, "file");
    fs.dir(Ino::ROOT, "dir");
    fs.symlink(Ino::ROOT, name("link"), b"x", &cred).unwrap();
    fs.create(Ino::ROOT, name("fifo"), FileType::Fifo, 0o600, 0, &cred).unwrap();
    fs.create(Ino::ROOT, name("char"), FileType::CharDevice, 0o600, 1, &cred).unwrap();
    for (bytes, file_type, ino) in fs.list(Ino::ROOT, 100).unwrap().into_iter().skip(2) {
        let attr = fs.find(Ino::ROOT, std::str::from_utf8(&bytes).unwrap()).unwrap();
        assert_eq!((attr.file_type, attr.ino), (file_type, ino), "{bytes:?}");
    }
}

fn any_step_lists_everything_once(fs: &Fs) {
    fill(fs, Ino::ROOT, 300);
    let whole = fs.list(Ino::ROOT, 10_000).unwrap();
    assert_eq!(whole.len(), 302);
    for step in [1, 2, 3, 7, 64, 301, 302, 303] {
        assert_eq!(fs.list(Ino::ROOT, step).unwrap(), whole, "{step} at a time");
    }
}

/// Lists `dir` in steps of 10, calling `between` after each; names and how often they were seen.
fn list_with(fs: &Fs, dir: Ino, mut between: impl FnMut(usize)) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    let mut cookie = 0;
    for round in 0.. {
        let mut taken = 0;
        fs.readdir(dir, cookie, &mut |entry: DirEntry<'_>| {
            if taken == 10 {
                return false;
            }
            taken += 1;
            cookie = entry.next_cookie;
            *seen.entry(String::from_utf8_lossy(entry.name).into_owned()).or_default() += 1;
            true
        })
        .unwrap();
        if taken == 0 {
            break;
        }
        assert!(round < 10_000, "the listing does not end");
        between(round);
    }
    seen
}

fn what_stays_is_listed_once_while_others_go(fs: &Fs) {
    fill(fs, Ino::ROOT, 400);
    let mut next = 0;
    let seen = list_with(fs, Ino::ROOT, |_| {
        for _ in 0..8 {
            if next < 400 {
                fs.unlink(Ino::ROOT, name(&format!("entry-{next:05}"))).unwrap();
            }
            next += 2;
        }
    });
    for number in (1..400).step_by(2) {
        let text = format!("entry-{number:05}");
        assert_eq!(seen.get(&text), Some(&1), "{text}");
    }
    assert!(seen.values().all(|&count| count == 1), "an entry was listed twice");
}

fn what_stays_is_listed_once_while_others_come(fs: &Fs) {
    fill(fs, Ino::ROOT, 200);
    let seen = list_with(fs, Ino::ROOT, |round| {
        if round < 60 {
            for number in 0..5 {
                let ino = fs.file(Ino::ROOT, &format!("new-{round}-{number}"));
                fs.forget(ino, 1);
            }
            // Replacing a name's file leaves the name where it is.
            let replacement = name("entry-00150");
            fs.rename(
                Ino::ROOT,
                name(&format!("new-{round}-0")),
                Ino::ROOT,
                replacement,
                RenameMode::Replace,
            )
            .unwrap();
        }
    });
    for number in 0..200 {
        let text = format!("entry-{number:05}");
        assert_eq!(seen.get(&text), Some(&1), "{text}");
    }
    assert!(seen.values().all(|&count| count == 1), "an entry was listed twice");
}

fn a_cookie_can_be_used_again(fs: &Fs) {
    fill(fs, Ino::ROOT, 50);
    let mut cookies = Vec::new();
    let mut names = Vec::new();
    fs.readdir(Ino::ROOT, 0, &mut |entry: DirEntry<'_>| {
        cookies.push(entry.next_cookie);
        names.push(entry.name.to_vec());
        true
    })
    .unwrap();
    for (index, &cookie) in cookies.iter().enumerate().rev() {
        let mut next = None;
        fs.readdir(Ino::ROOT, cookie, &mut |entry: DirEntry<'_>| {
            next = Some(entry.name.to_vec());
            false
        })
        .unwrap();
        assert_eq!(next.as_ref(), names.get(index + 1), "after entry {index}");
    }
    fs.unlink(Ino::ROOT, name("entry-00020")).unwrap();
    let position = names.iter().position(|bytes| bytes == b"entry-00020").unwrap();
    let mut next = None;
    fs.readdir(Ino::ROOT, cookies[position], &mut |entry: DirEntry<'_>| {
        next = Some(entry.name.to_vec());
        false
    })
    .unwrap();
    assert_eq!(next.as_ref(), names.get(position + 1), "after an entry that was removed");
}

fn a_full_sink_takes_nothing(fs: &Fs) {
    fill(fs, Ino::ROOT, 3);
    let mut calls = 0;
    fs.readdir(Ino::ROOT, 0, &mut |_| {
        calls += 1;
        false
    })
    .unwrap();
    assert_eq!(calls, 1, "nothing is offered to a sink that is full");
}

fn a_large_directory(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    fill(fs, dir, 5_000);
    assert_eq!(fs.names(dir).len(), 5_000);
    for number in (0..5_000).step_by(3) {
        fs.unlink(dir, name(&format!("entry-{number:05}"))).unwrap();
    }
    let expected: Vec<String> =
        (0..5_000).filter(|number| number % 3 != 0).map(|number| format!("entry-{number:05}")).collect();
    assert!(fs.names(dir) == expected);
    assert!(fs.find(dir, "entry-04999").is_ok() && fs.find(dir, "entry-00000").is_err());
}
