//! Rarer things that programs ask of a local file system, each on a ByteFS mount: kept, or refused with the
//! errno that docs/posix.md names.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, Timespec, Timestamps, fallocate, openat, seek,
    statvfs, syncfs, utimensat,
};
use rustix::io::{Errno, pread, pwrite};

use crate::rig::{Rig, amphi_ok, can_mount, wait_until};

/// A mounted image; nothing where mounting is impossible.
fn mounted(size: &str, options: &[&str]) -> Option<Rig> {
    can_mount().then(|| {
        let rig = Rig::new(size);
        let (image, directory) = (rig.image(), rig.mount_point());
        amphi_ok(&[&["mount", "--free", &image, &directory], options].concat());
        rig
    })
}

fn leave(rig: &Rig) {
    rig.umount();
    rig.fsck().unwrap();
}

/// Sets access and modification time, in seconds since 1970.
fn set_times(path: &Path, atime: i64, mtime: i64) {
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

/// Reads past the kernel's cache, so that the read is seen.
fn read_directly(path: &Path) {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    let mut room = vec![0_u8; 3 * 4096];
    let start = room.as_ptr().align_offset(4096);
    pread(&file, &mut room[start..start + 4096], 0).unwrap();
}

fn written(rig: &Rig) -> u64 {
    let stats = amphi_ok(&["stats", &rig.mount_point(), "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    stats["device"]["host_bytes_written"].as_u64().unwrap()
}

#[test]
fn reading_moves_access_times_as_the_mount_says() {
    let year_ago = 1_700_000_000;
    for (option, moves) in [("relatime", true), ("noatime", false), ("strictatime", true)] {
        let Some(rig) = mounted("256M", &["-o", option]) else { return };
        let path = rig.on_mount("f");
        fs::write(&path, vec![7_u8; 8192]).unwrap();
        set_times(&path, year_ago, year_ago);
        read_directly(&path);
        let atime = path.metadata().unwrap().atime();
        assert_eq!(atime != year_ago, moves, "{option}: {atime}");
        let before = path.metadata().unwrap();
        read_directly(&path);
        let again = path.metadata().unwrap();
        let moved = (before.atime(), before.atime_nsec()) != (again.atime(), again.atime_nsec());
        assert_eq!(moved, option == "strictatime", "{option}: a second read");
        assert_eq!((again.mtime(), again.ctime()), (before.mtime(), before.ctime()), "{option}");
        leave(&rig);
        rig.mount();
        let kept = path.metadata().unwrap();
        assert_eq!(
            (kept.atime(), kept.atime_nsec()),
            (again.atime(), again.atime_nsec()),
            "{option}: remounted"
        );
    }
}

#[test]
fn reading_writes_nothing_to_the_device() {
    let Some(rig) = mounted("256M", &["-o", "strictatime"]) else { return };
    let path = rig.on_mount("f");
    fs::write(&path, vec![7_u8; 8192]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let before = written(&rig);
    for _ in 0..200 {
        read_directly(&path);
        fs::read_dir(rig.mount_point()).unwrap().for_each(drop);
    }
    assert_eq!(written(&rig), before, "200 reads of a file and a directory");
    leave(&rig);
}

#[test]
fn a_file_without_a_name_is_refused() {
    let Some(rig) = mounted("256M", &[]) else { return };
    let opened = openat(CWD, rig.mount_point(), OFlags::TMPFILE | OFlags::WRONLY, Mode::from(0o600));
    assert_eq!(opened.map(drop), Err(Errno::OPNOTSUPP), "what programs fall back from");
    // As Python's and glibc's do.
    let file = tempfile::tempfile_in(rig.mount_point()).unwrap();
    file.set_len(10).unwrap();
    drop(file);
    assert_eq!(fs::read_dir(rig.mount_point()).unwrap().count(), 0);
    leave(&rig);
}

#[test]
fn syncfs_succeeds_and_an_unmount_flushes() {
    let Some(rig) = mounted("256M", &[]) else { return };
    let contents: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 253) as u8).collect();
    fs::write(rig.on_mount("f"), &contents).unwrap();
    syncfs(File::open(rig.mount_point()).unwrap()).unwrap();
    assert!(Command::new("sync").arg("-f").arg(rig.on_mount("f")).status().unwrap().success());
    leave(&rig);
    rig.mount();
    assert!(fs::read(rig.on_mount("f")).unwrap() == contents);
}

#[test]
fn ranges_are_not_collapsed_or_inserted() {
    let Some(rig) = mounted("256M", &[]) else { return };
    let file = File::create(rig.on_mount("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    for flag in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, flag, 4096, 4096), Err(Errno::OPNOTSUPP), "{flag:?}");
    }
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    drop(file);
    leave(&rig);
}

#[test]
fn a_sparse_file_of_4_tib_has_its_size_and_its_bytes() {
    const SIZE: u64 = 4 << 40;
    let Some(rig) = mounted("256M", &[]) else { return };
    let path = rig.on_mount("sparse");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(SIZE).unwrap();
    for at in [0, 5 << 30, (2 << 40) + 17, SIZE - 3] {
        assert_eq!(pwrite(&file, b"end", at), Ok(3));
    }
    file.sync_all().unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(6 << 30)).unwrap(), 2 << 40, "a page, where the data lie in it");
    assert!(file.metadata().unwrap().blocks() < 200, "{} blocks", file.metadata().unwrap().blocks());
    drop(file);
    leave(&rig);
    rig.mount();
    let file = File::open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    let mut three = [0; 3];
    for at in [0, 5 << 30, (2 << 40) + 17, SIZE - 3] {
        assert_eq!((pread(&file, &mut three, at), &three), (Ok(3), b"end"), "at {at}");
    }
    assert_eq!(pread(&file, &mut three, 1 << 40), Ok(3));
    assert_eq!(three, [0; 3], "a hole");
}

#[test]
fn a_file_has_65_000_names_and_no_more() {
    const NAMES: u64 = 65_000;
    let Some(rig) = mounted("256M", &[]) else { return };
    let first = rig.on_mount("0");
    fs::write(&first, b"").unwrap();
    for number in 1..NAMES {
        fs::hard_link(&first, rig.on_mount(&number.to_string())).unwrap();
    }
    let one_more = fs::hard_link(&first, rig.on_mount("more")).unwrap_err();
    assert_eq!(one_more.raw_os_error(), Some(Errno::MLINK.raw_os_error()), "{one_more}");
    assert_eq!(first.metadata().unwrap().nlink(), NAMES);
    leave(&rig);
    rig.mount();
    assert_eq!(first.metadata().unwrap().nlink(), NAMES);
    assert_eq!(fs::read_dir(rig.mount_point()).unwrap().count() as u64, NAMES);
}

#[test]
fn statfs_is_true() {
    let Some(rig) = mounted("256M", &[]) else { return };
    let counts = || statvfs(CString::new(rig.mount_point()).unwrap()).unwrap();
    let before = counts();
    assert_eq!(before.f_namemax, 255);
    let size = 64 << 20;
    let file = File::create(rig.on_mount("f")).unwrap();
    for chunk in 0..64 {
        pwrite(&file, &vec![9_u8; 1 << 20], chunk << 20).unwrap();
    }
    file.sync_all().unwrap();
    let full = counts();
    let taken = (before.f_bfree - full.f_bfree) * full.f_frsize;
    assert!((size..size + (1 << 20)).contains(&taken), "64 MiB took {taken} bytes");
    assert_eq!(before.f_ffree - full.f_ffree, 1);
    // All that is said to be there can be had.
    let rest = full.f_bavail * full.f_frsize;
    fallocate(&file, FallocateFlags::empty(), size, rest * 98 / 100).unwrap();
    let error = fallocate(&file, FallocateFlags::empty(), size, rest + (1 << 20)).unwrap_err();
    assert_eq!(error, Errno::NOSPC);
    drop(file);
    fs::remove_file(rig.on_mount("f")).unwrap();
    // The kernel forgets the file after the removal has returned, and says so when it gets to it.
    wait_until("the inode comes back", || counts().f_ffree == before.f_ffree);
    let after = counts();
    assert!(
        before.f_bfree - after.f_bfree <= 16,
        "{} blocks did not come back",
        before.f_bfree - after.f_bfree
    );
    leave(&rig);
}

#[test]
fn an_unmount_waits_for_nobody_and_loses_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root may use umount(8)");
        return;
    }
    let Some(rig) = mounted("256M", &[]) else { return };
    // Dirty data, an open file without a name, and a file that is still open when the mount is taken away.
    let unnamed = tempfile::tempfile_in(rig.mount_point()).unwrap();
    pwrite(&unnamed, &vec![1_u8; 1 << 20], 0).unwrap();
    let open = File::create(rig.on_mount("open")).unwrap();
    pwrite(&open, b"not synced by anybody", 0).unwrap();
    let busy = crate::rig::amphi(&["umount", &rig.mount_point()]);
    assert_eq!(busy.status.code(), Some(1), "as on ext4, a mount in use stays");
    // `umount -l` takes it away; the files live on until they are closed.
    assert!(Command::new("umount").args(["-l", &rig.mount_point()]).status().unwrap().success());
    pwrite(&open, b"!", 21).unwrap();
    drop((open, unnamed));
    // The daemon ends by itself, after writing everything back.
    let image = File::open(rig.image()).unwrap();
    wait_until("the daemon has let go of the image", || {
        rustix::fs::flock(&image, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok()
    });
    drop(image);
    rig.fsck().unwrap();
    rig.mount();
    assert_eq!(fs::read(rig.on_mount("open")).unwrap(), b"not synced by anybody!");
    assert_eq!(fs::read_dir(rig.mount_point()).unwrap().count(), 1, "what had no name is gone");
    leave(&rig);
}

#[test]
fn the_tests_that_docs_posix_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = String::new();
    let mut directories = vec![root.join("crates")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(&path).unwrap();
            }
        }
    }
    let text = fs::read_to_string(root.join("docs/posix.md")).unwrap();
    let mut named = 0;
    for row in text.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let tests: Vec<_> = last.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test holds: {row}");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "docs/posix.md names {test}, which is nowhere");
            named += 1;
        }
    }
    assert!(named > 40, "{named} tests named");
}
