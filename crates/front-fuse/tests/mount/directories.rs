//! Listings through the kernel's readdir.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::mounted::Mounted;

fn listed(path: &std::path::Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn ten_thousand_entries_under_change() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for number in 0..10_000 {
        fs::write(dir.join(format!("stays-{number}")), b"").unwrap();
    }
    assert_eq!(listed(&dir).len(), 10_000);
    let changing = {
        let dir = dir.clone();
        std::thread::spawn(move || {
            for number in 0..3_000 {
                let path = dir.join(format!("comes-and-goes-{number}"));
                fs::write(&path, b"").unwrap();
                if number % 3 != 0 {
                    fs::remove_file(&path).unwrap();
                }
            }
        })
    };
    let mut rounds = 0;
    while !changing.is_finished() || rounds < 2 {
        let names = listed(&dir);
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "a name was listed twice");
        let stays = names.iter().filter(|name| name.starts_with("stays-")).count();
        assert_eq!(stays, 10_000, "names that stay are listed");
        rounds += 1;
    }
    changing.join().unwrap();
    assert_eq!(listed(&dir).len(), 11_000);
}

#[test]
fn a_listing_repeated_shows_what_changed() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for round in 0..20 {
        fs::write(dir.join(round.to_string()), b"").unwrap();
        assert_eq!(listed(&dir).len(), round + 1);
        assert_eq!(listed(&dir).len(), round + 1);
    }
    fs::rename(dir.join("3"), dir.join("three")).unwrap();
    let names = listed(&dir);
    assert!(names.contains(&"three".to_owned()) && !names.contains(&"3".to_owned()));
    for (removed, number) in (0..20).filter(|&number| number != 3).enumerate() {
        fs::remove_file(dir.join(number.to_string())).unwrap();
        assert_eq!(listed(&dir).len(), 19 - removed);
    }
    fs::remove_dir_all(&dir).unwrap();
    assert!(!dir.exists());
}

#[test]
fn entries_have_types_and_inodes() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("file"), b"").unwrap();
    fs::create_dir(mounted.path("dir")).unwrap();
    std::os::unix::fs::symlink("x", mounted.path("link")).unwrap();
    for entry in fs::read_dir(mounted.root()).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.path().symlink_metadata().unwrap();
        assert_eq!(entry.file_type().unwrap(), metadata.file_type());
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), metadata.ino());
    }
}

#[test]
fn removing_while_listing_removes_everything() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for number in 0..3_000 {
        fs::write(dir.join(format!("{number}-{}", "x".repeat(number % 200))), b"").unwrap();
    }
    for entry in fs::read_dir(&dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(&dir).unwrap();
    for depth in 0..60 {
        let path: std::path::PathBuf = (0..depth).map(|level| format!("level-{level}")).collect();
        fs::create_dir_all(mounted.path("deep").join(path)).unwrap();
    }
    fs::remove_dir_all(mounted.path("deep")).unwrap();
    assert!(listed(mounted.root()).is_empty());
}
