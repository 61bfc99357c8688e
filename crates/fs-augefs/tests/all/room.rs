//! Extended attributes and long targets of links come until the metadata store is full: then there is
//! `ENOSPC`, nothing is lost, and what is deleted makes room.

use std::sync::Arc;

use amphi_fs_augefs::{AugeFs, FormatOptions};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, RenameMode, XattrMode};

use crate::small::{crash, name, roomy, ssd};

const VALUE_BYTES: usize = 4000;
/// Inodes that a metadata store of 1 MB has room for.
const INODES: u64 = 512;

fn text(number: u64) -> String {
    format!("file {number}")
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; VALUE_BYTES]
}

fn target(number: u64) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; VALUE_BYTES]
}

fn create(fs: &AugeFs<Ssd>, number: u64) -> Ino {
    let made = fs.create(Ino::ROOT, name(&text(number)), FileType::Regular, 0o644, 0, &Cred::ROOT);
    made.expect("there is room for inodes").attr.ino
}

/// Makes files with an attribute each until there is no room for it. Returns how many have one.
fn fill(fs: &AugeFs<Ssd>) -> u64 {
    for number in 0..INODES - 10 {
        match fs.setxattr(create(fs, number), b"user.a", &value(number), XattrMode::Set) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                return number;
            }
        }
    }
    panic!("attributes of 2 MB do not fit into 1 MB");
}

fn assert_all_there(fs: &AugeFs<Ssd>, files: u64) {
    for number in 0..files {
        let found = fs.lookup(Ino::ROOT, name(&text(number))).expect("it is there");
        assert_eq!(fs.getxattr(found.attr.ino, b"user.a"), Ok(value(number)), "file {number}");
        fs.forget(found.attr.ino, 1);
    }
}

#[test]
fn attributes_fill_the_metadata_store_and_deleting_makes_room() {
    let ssd = ssd(256 << 10, 8 << 20);
    let format =
        FormatOptions { domains: 2, segment_blocks: 8, meta_pages: Some(256), ..FormatOptions::default() };
    AugeFs::format(&ssd, &format).expect("it can be formatted");
    let mut fs = AugeFs::mount(&ssd, roomy()).expect("it can be mounted");
    let mut first = None;
    for _ in 0..3 {
        let files = fill(&fs);
        // How many depends on which tables have been merged by then.
        assert!(files > 20, "only {files} after {first:?}");
        assert!(2 * files >= first.unwrap_or(files), "{files} after {first:?}");
        first = first.or(Some(files));
        // What takes no attributes goes on.
        create(&fs, INODES);
        assert_eq!(fs.failure(), None);
        assert_all_there(&fs, files);
        fs = crash(fs, roomy());
        assert_all_there(&fs, files);
        for number in (0..=files).chain([INODES]) {
            fs.unlink(Ino::ROOT, name(&text(number))).expect("it is there");
        }
    }
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("it is idle");
    assert_eq!(amphi_fs_augefs::fsck::check(&ssd).expect("it can be checked").findings, []);
}

/// Makes links with targets of 4 KB until there is no room for them. Returns how many.
fn fill_with_links(fs: &AugeFs<Ssd>) -> u64 {
    for number in 0..INODES - 10 {
        match fs.symlink(Ino::ROOT, name(&text(number)), &target(number), &Cred::ROOT) {
            Ok(made) => fs.forget(made.attr.ino, 1),
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                return number;
            }
        }
    }
    panic!("targets of 2 MB do not fit into 1 MB");
}

#[test]
fn long_targets_fill_the_metadata_store_and_deleting_makes_room() {
    let ssd = ssd(256 << 10, 8 << 20);
    let format =
        FormatOptions { domains: 2, segment_blocks: 8, meta_pages: Some(256), ..FormatOptions::default() };
    AugeFs::format(&ssd, &format).expect("it can be formatted");
    let mut fs = AugeFs::mount(&ssd, roomy()).expect("it can be mounted");
    for _ in 0..3 {
        let links = fill_with_links(&fs);
        assert!(links > 20, "only {links}");
        // A short one goes on, and so does giving each another name, several times over.
        fs.symlink(Ino::ROOT, name("short"), &[b'a'; 128], &Cred::ROOT).expect("it is counted in");
        for round in 0..4 {
            for number in 0..links {
                let (old, new) = (format!("{}{}", text(number), "x".repeat(round)), "x".repeat(round + 1));
                let new = format!("{}{new}", text(number));
                let renamed = fs.rename(Ino::ROOT, name(&old), Ino::ROOT, name(&new), RenameMode::Replace);
                renamed.expect("it needs no more room");
            }
        }
        assert_eq!(fs.failure(), None);
        fs = crash(fs, roomy());
        for number in 0..links {
            let renamed = format!("{}xxxx", text(number));
            let found = fs.lookup(Ino::ROOT, name(&renamed)).expect("it is there");
            assert_eq!(fs.readlink(found.attr.ino), Ok(target(number)), "link {number}");
            fs.forget(found.attr.ino, 1);
            fs.unlink(Ino::ROOT, name(&renamed)).expect("it is there");
        }
        fs.unlink(Ino::ROOT, name("short")).expect("it is there");
    }
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("it is idle");
    assert_eq!(amphi_fs_augefs::fsck::check(&ssd).expect("it can be checked").findings, []);
}
