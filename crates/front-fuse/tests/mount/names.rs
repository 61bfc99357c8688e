//! Names: links, renames over open files, files without names, times.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use amphi_vfs::{FileSystem, Ino, Name};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::mounted::Mounted;

#[test]
fn a_file_without_names_lives_until_it_is_closed() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"still here").unwrap();
    let inodes_free = || mounted.model.statfs().unwrap().inodes_free;
    let before = inodes_free();
    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, 10));
    file.write_all_at(b"STILL", 0).unwrap();
    let mut text = String::new();
    File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)))
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "STILL here");
    drop(file);
    // The kernel forgets the inode in its own time.
    for _ in 0..500 {
        if inodes_free() > before {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the inode was never freed");
}

#[test]
fn rename_over_an_open_file() {
    let Some(mounted) = Mounted::new() else { return };
    let (target, new) = (mounted.path("target"), mounted.path("new"));
    fs::write(&target, b"old").unwrap();
    fs::write(&new, b"new").unwrap();
    let mut open = File::open(&target).unwrap();
    fs::rename(&new, &target).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), fs::read(&target).unwrap()), ("old", b"new".to_vec()));
    assert!(!new.exists());
    assert_eq!(open.metadata().unwrap().nlink(), 0);
}

#[test]
fn rename_modes() {
    let Some(mounted) = Mounted::new() else { return };
    let (one, two) = (mounted.path("one"), mounted.path("two"));
    fs::write(&one, b"1").unwrap();
    fs::create_dir(&two).unwrap();
    assert_eq!(renameat_with(CWD, &one, CWD, &two, RenameFlags::NOREPLACE), Err(Errno::EXIST));
    renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE).unwrap();
    assert!(one.is_dir() && fs::read(&two).unwrap() == b"1");
    renameat_with(CWD, &two, CWD, mounted.path("three"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(renameat_with(CWD, &one, CWD, &two, RenameFlags::WHITEOUT), Err(Errno::INVAL));
    assert_eq!(fs::rename(&one, one.join("inside")).unwrap_err().raw_os_error(), Some(22));
}

#[test]
fn links_count_and_symlinks_lead() {
    let Some(mounted) = Mounted::new() else { return };
    let (file, link) = (mounted.path("file"), mounted.path("link"));
    fs::write(&file, b"shared").unwrap();
    fs::hard_link(&file, &link).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), link.metadata().unwrap().nlink()), (2, 2));
    assert_eq!(file.metadata().unwrap().ino(), link.metadata().unwrap().ino());
    fs::write(&link, b"changed").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"changed");
    fs::remove_file(&file).unwrap();
    assert_eq!(link.metadata().unwrap().nlink(), 1);
    let sym = mounted.path("sym");
    symlink("link", &sym).unwrap();
    assert_eq!(
        (fs::read_link(&sym).unwrap().as_path(), fs::read(&sym).unwrap()),
        (Path::new("link"), b"changed".to_vec())
    );
    assert_eq!(sym.symlink_metadata().unwrap().len(), 4);
    let long = "x".repeat(4_095);
    symlink(&long, mounted.path("long")).unwrap();
    assert_eq!(fs::read_link(mounted.path("long")).unwrap().to_str(), Some(long.as_str()));
}

#[test]
fn absent_names_are_remembered_and_come_to_be() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("later");
    for _ in 0..3 {
        assert!(!path.exists());
    }
    fs::write(&path, b"now").unwrap();
    assert!(path.exists());
    fs::remove_file(&path).unwrap();
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    assert!(path.is_dir());
    assert_eq!(fs::write(mounted.path(&"n".repeat(256)), b"").unwrap_err().raw_os_error(), Some(36));
    fs::write(mounted.path(&"n".repeat(255)), b"longest").unwrap();
}

#[test]
fn times_are_kept_also_before_1970() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    let file = File::create(&path).unwrap();
    let times = [
        UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789),
        UNIX_EPOCH + Duration::new(5_000_000_000, 1),
        UNIX_EPOCH - Duration::new(86_400, 0),
        UNIX_EPOCH - Duration::new(1, 250_000_000),
    ];
    for time in times {
        file.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
        let metadata = path.metadata().unwrap();
        assert_eq!((metadata.accessed().unwrap(), metadata.modified().unwrap()), (time, time));
        let ino = Ino(metadata.ino());
        assert_eq!(
            mounted.model.getattr(ino).unwrap().mtime.ns,
            metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
        );
    }
    let before = path.metadata().unwrap().ctime_nsec();
    fs::write(&path, b"x").unwrap();
    let after = path.metadata().unwrap();
    assert!(after.modified().unwrap() > times[0] && after.ctime_nsec() != before, "a write moves the times");
}

#[test]
fn attributes_follow_changes_made_through_other_names() {
    let Some(mounted) = Mounted::new() else { return };
    let (one, two) = (mounted.path("one"), mounted.path("two"));
    fs::write(&one, b"12345").unwrap();
    fs::hard_link(&one, &two).unwrap();
    assert_eq!(one.metadata().unwrap().len(), 5);
    OpenOptions::new().append(true).open(&two).unwrap().write_all(b"678").unwrap();
    assert_eq!(one.metadata().unwrap().len(), 8);
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let before = dir.metadata().unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    let after = dir.metadata().unwrap();
    assert_eq!((before.nlink(), after.nlink()), (2, 3));
    assert!(after.modified().unwrap() > before.modified().unwrap());
    fs::rename(dir.join("sub"), mounted.path("sub")).unwrap();
    assert_eq!((dir.metadata().unwrap().nlink(), mounted.root().metadata().unwrap().nlink()), (2, 4));
    let name = Name::new(b"sub").unwrap();
    let found = mounted.model.lookup(Ino::ROOT, name).unwrap().attr.ino;
    assert_eq!(mounted.path("sub").metadata().unwrap().ino(), found.0);
    mounted.model.forget(found, 1);
}
