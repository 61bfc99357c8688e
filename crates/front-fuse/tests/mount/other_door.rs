//! Changes that come in by another door: the kernel shows each as soon as it was told, whatever it is just
//! being answered.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use amphi_queue::Watcher;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, RenameMode, SetAttr, WriteMode};

use rustix::fs::{self as sys, CWD, Mode, OFlags, mknodat};
use rustix::io::Errno;

use crate::mounted::{Mounted, can_mount, mount, options, own_model};
use crate::observed::Observed;

/// Without what this is about dozens of the changes go unseen.
const ROUNDS: u64 = 2000;

/// In each round one thread asks about a file that the kernel has just been made to forget, while another one
/// changes it: sooner or later than it is answered. When both are done the change is to be seen.
///
/// Not before: while the kernel's driver stores an answer, even a fresh one, others may see what was there.
#[test]
fn a_change_is_seen_although_the_kernel_is_just_given_the_inode() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    std::fs::write(&path, b"").unwrap();
    let ino = Ino(std::fs::metadata(&path).unwrap().ino());
    let caches = mounted.caches();
    let (begun, looked) = (AtomicU64::new(0), AtomicU64::new(0));
    let reached = |count: &AtomicU64, round: u64| {
        while count.load(Ordering::SeqCst) < round {
            thread::yield_now();
        }
    };
    let unseen = thread::scope(|threads| {
        threads.spawn(|| {
            for round in 1..=ROUNDS {
                caches.name(Ino::ROOT, Name::new(b"f").unwrap(), caches.renames());
                reached(&begun, round);
                std::fs::metadata(&path).unwrap();
                looked.store(round, Ordering::SeqCst);
            }
        });
        (1..=ROUNDS)
            .filter(|&round| {
                begun.store(round, Ordering::SeqCst);
                for _ in 0..round % 64 * 50 {
                    std::hint::spin_loop();
                }
                let change = SetAttr { size: Some(round), ..SetAttr::default() };
                mounted.model.setattr(ino, &change, &Cred::ROOT).unwrap();
                caches.inode(ino);
                reached(&looked, round);
                std::fs::metadata(&path).unwrap().len() != round
            })
            .count()
    });
    assert_eq!(unseen, 0, "of {ROUNDS} changes");
    mounted.unmount();
}

/// The kernel takes the attributes in these answers whatever it is told before it has them.
#[test]
fn a_change_is_seen_that_overtakes_the_answer_to_another_one() {
    if !can_mount() {
        return;
    }
    let model = own_model();
    let fs = Observed::new(Arc::clone(&model), |_, _| ());
    let directory = tempfile::tempdir().unwrap();
    let session = mount(Arc::clone(&fs), directory.path(), &options()).unwrap();
    let caches = session.caches().unwrap().clone();
    caches.begins();
    let path = directory.path().join("f");
    std::fs::write(&path, b"").unwrap();
    let ino = Ino(std::fs::metadata(&path).unwrap().ino());
    let changes: [&dyn Fn(); 3] = [
        &|| std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap(),
        &|| OpenOptions::new().write(true).open(&path).unwrap().set_len(5).unwrap(),
        &|| std::fs::hard_link(&path, directory.path().join("g")).unwrap(),
    ];
    for (change, size) in changes.into_iter().zip([7777, 8888, 9999]) {
        let (model, caches) = (Arc::clone(&model), caches.clone());
        fs.overtake(move || {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            model.setattr(ino, &set, &Cred::ROOT).unwrap();
            caches.inode(ino);
        });
        change();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
    }
    drop(session.detach());
    session.wait().unwrap();
}

/// The kernel has let go of the mount without giving its inodes back: nobody waits for it.
#[test]
fn a_change_after_the_end_of_the_mount_waits_for_nobody() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    std::fs::write(&path, b"").unwrap();
    let ino = Ino(std::fs::metadata(&path).unwrap().ino());
    let (caches, model) = (mounted.caches(), Arc::clone(&mounted.model));
    mounted.unmount();
    model.setattr(ino, &SetAttr { size: Some(1), ..SetAttr::default() }, &Cred::ROOT).unwrap();
    let begun = Instant::now();
    caches.inode(ino);
    assert!(begun.elapsed().as_secs() < 5, "it waits for the kernel to take an inode that it gave up");
}

/// Another door has put another file under a name, and before the kernel has heard of it, it moves the name:
/// what it believes goes with it, and is told then where it is.
#[test]
fn a_name_that_the_kernel_moves_before_it_hears_of_it_is_another_one() {
    let Some(mounted) = Mounted::new() else { return };
    mounted.caches().begins();
    let ino = |name: &str| std::fs::metadata(mounted.path(name)).map(|metadata| metadata.ino());
    for name in ["one", "other", "two"] {
        std::fs::write(mounted.path(name), name).unwrap();
    }
    let (other, two) = (ino("other").unwrap(), ino("two").unwrap());
    ino("one").unwrap();
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    let renamed = |from: &'static str, to: &'static str, mode| {
        mounted.model.rename(Ino::ROOT, name(from), Ino::ROOT, name(to), mode).unwrap();
    };
    let renames = mounted.caches().renames();
    renamed("other", "one", RenameMode::Replace);
    std::fs::rename(mounted.path("one"), mounted.path("first")).unwrap();
    std::fs::rename(mounted.path("first"), mounted.path("second")).unwrap();
    let exchange = sys::RenameFlags::EXCHANGE;
    sys::renameat_with(CWD, mounted.path("two"), CWD, mounted.path("second"), exchange).unwrap();
    for changed in ["other", "one"] {
        mounted.caches().name(Ino::ROOT, name(changed), renames);
    }
    assert_eq!(ino("two").unwrap(), other);
    assert_eq!(ino("second").unwrap(), two);
    for gone in ["one", "other", "first"] {
        assert_eq!(ino(gone).unwrap_err().kind(), ErrorKind::NotFound, "{gone}");
    }
    mounted.unmount();
}

/// A name that the kernel forgets is taken from under programs that work in the directory.
#[test]
fn a_directory_that_the_kernel_moved_before_a_change_of_its_old_name_stays_known() {
    let Some(mounted) = Mounted::new() else { return };
    let caches = mounted.caches();
    caches.begins();
    std::fs::create_dir(mounted.path("old")).unwrap();
    let works_in = File::open(mounted.path("old")).unwrap();
    std::fs::rename(mounted.path("old"), mounted.path("new")).unwrap();
    let renames = caches.renames();
    let old = Name::new(b"old").unwrap();
    mounted.model.mkdir(Ino::ROOT, old, 0o755, &Cred::ROOT).unwrap();
    caches.name(Ino::ROOT, old, renames);
    let is_at = std::fs::read_link(format!("/proc/self/fd/{}", works_in.as_raw_fd())).unwrap();
    drop(works_in);
    assert_eq!(is_at, mounted.path("new"));
    mounted.unmount();
}

/// Direct I/O that hears of an end before the one that the kernel believes in goes on in the kernel's pages.
#[test]
fn pages_that_a_direct_read_leaves_behind_are_forgotten() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    std::fs::write(&path, [b'a'; 8192]).unwrap();
    let ino = Ino(std::fs::metadata(&path).unwrap().ino());
    mounted.caches().inode(ino);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    let cut = SetAttr { size: Some(100), ..SetAttr::default() };
    mounted.model.setattr(ino, &cut, &Cred::ROOT).unwrap();
    let direct = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(&path).unwrap();
    file.read_at(&mut [0; 8192], 0).unwrap();
    mounted.caches().inode(ino);
    mounted.model.write(ino, 100, &[b'b'; 100], WriteMode::default(), &Cred::ROOT).unwrap();
    mounted.caches().inode(ino);
    assert_eq!(std::fs::read(&path).unwrap(), [[b'a'; 100], [b'b'; 100]].concat());
    drop(file);
    mounted.unmount();
}

/// The kernel was told that there is no such name, and before it makes one, and has heard of it, the other
/// door does. `open` with `O_CREAT` opens that one; what has to make it anew says that it is there.
#[test]
fn a_file_that_another_door_makes_first_is_opened() {
    let Some(mounted) = Mounted::new() else { return };
    let faster = |name: &str| {
        let path = mounted.path(name);
        assert_eq!(std::fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let name = Name::new(name.as_bytes()).unwrap();
        let made = mounted.model.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT).unwrap();
        mounted.model.forget(made.attr.ino, 1);
        (path, made.attr.ino.0)
    };
    let (path, ino) = faster("opened");
    let opened = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    assert_eq!(opened.metadata().unwrap().ino(), ino);
    drop(opened);
    let (path, _) = faster("exclusive");
    assert_eq!(File::create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let (path, _) = faster("node");
    let node = mknodat(CWD, &path, sys::FileType::RegularFile, Mode::RUSR, 0);
    assert_eq!(node, Err(Errno::EXIST));
    let (path, _) = faster("directory");
    assert_eq!(std::fs::create_dir(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    mounted.unmount();
}
