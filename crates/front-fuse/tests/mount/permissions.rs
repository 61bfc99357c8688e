//! Owners and modes: the kernel checks, the file system keeps and clears. Tests as another user need root.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use amphi_front_fuse::MountOptions;
use amphi_model::Limits;
use amphi_vfs::acl::{ACCESS, Acl, AclEntry, Tag};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, listxattr, makedev, mknodat, setxattr};
use rustix::io::Errno;

use crate::mounted::{Mounted, is_root, options};

const USER: u32 = 65_534;

/// A mount on which tests can be another user.
fn mounted_as_root() -> Option<Mounted> {
    if is_root() {
        // Other users must get to the mount: its parent is a fresh directory of mode 0700 otherwise.
        return Mounted::new();
    }
    println!("skipped: only root can be other users");
    None
}

/// Runs a shell command as `nobody`; whether it succeeded.
fn as_user(directory: &Path, script: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(directory).uid(USER).gid(USER);
    shell.stderr(std::process::Stdio::null()).status().unwrap().success()
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn chmod_chown_and_umask() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(&path).unwrap();
    assert_eq!(mode(&path), 0o640);
    for bits in [0, 0o777, 0o444, 0o1755] {
        set_mode(&path, bits);
        assert_eq!(mode(&path), bits);
    }
    let made = Command::new("sh")
        .args(["-c", "umask 027; echo x > umasked; mkdir umasked-dir"])
        .current_dir(mounted.root())
        .status();
    assert!(made.unwrap().success());
    assert_eq!((mode(&mounted.path("umasked")), mode(&mounted.path("umasked-dir"))), (0o640, 0o750));
    if is_root() {
        chown(&path, Some(12), Some(34)).unwrap();
        let metadata = path.metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
        chown(&path, Some(56), None).unwrap();
        assert_eq!(path.metadata().unwrap().gid(), 34);
    }
}

#[test]
fn others_are_kept_out() {
    let Some(mounted) = mounted_as_root() else { return };
    let (secret, public) = (mounted.path("secret"), mounted.path("public"));
    fs::write(&secret, b"s").unwrap();
    set_mode(&secret, 0o600);
    fs::write(&public, b"p").unwrap();
    set_mode(&public, 0o644);
    let root = mounted.root();
    assert!(!as_user(root, "cat secret"));
    assert!(as_user(root, "cat public"));
    assert!(!as_user(root, "echo x > public"));
    assert!(!as_user(root, "rm -f public"));
    assert!(!as_user(root, "echo x > new"));
    assert!(!as_user(root, "chmod 777 public"));
    set_mode(root, 0o1777);
    assert!(as_user(root, "echo x > mine && cat mine && chmod 600 mine && mv mine ours && rm ours"));
    assert!(!as_user(root, "rm -f public"), "sticky: only the owner may remove");
    assert!(!as_user(root, "mv public elsewhere"));
    assert!(as_user(root, "echo x > mine; mkdir d; ln -s x s"));
    let metadata = mounted.path("mine").metadata().unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (USER, USER));
    assert!(!as_user(root, "chown 0 mine"));
    fs::create_dir(mounted.path("closed")).unwrap();
    fs::write(mounted.path("closed/inside"), b"").unwrap();
    set_mode(&mounted.path("closed"), 0o700);
    assert!(!as_user(root, "ls closed") && !as_user(root, "cat closed/inside"));
}

#[test]
fn set_id_bits_go_when_they_must() {
    let Some(mounted) = mounted_as_root() else { return };
    let path = mounted.path("f");
    let prepare = |bits| {
        fs::write(&path, b"program").unwrap();
        chown(&path, Some(USER), Some(USER)).unwrap();
        set_mode(&path, bits);
        assert_eq!(mode(&path), bits);
    };
    let root = mounted.root();
    prepare(0o6777);
    assert!(as_user(root, "echo x >> f"));
    assert_eq!(mode(&path), 0o777, "a write by a user");
    prepare(0o6777);
    assert!(as_user(root, "truncate -s 3 f"));
    assert_eq!(mode(&path), 0o777, "a truncate by a user");
    prepare(0o6777);
    assert!(as_user(root, "echo x > f"));
    assert_eq!(mode(&path), 0o777, "an open with O_TRUNC by a user");
    prepare(0o6755);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"x").unwrap();
    assert_eq!(mode(&path), 0o6755, "root may write to set-id programs");
    chown(&path, Some(0), Some(0)).unwrap();
    assert_eq!(mode(&path), 0o755, "a new owner");
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    chown(&dir, None, Some(77)).unwrap();
    set_mode(&dir, 0o2777);
    assert!(as_user(root, "echo x > d/f; mkdir d/sub"));
    assert_eq!(mounted.path("d/f").metadata().unwrap().gid(), 77);
    assert_eq!(
        (mounted.path("d/sub").metadata().unwrap().gid(), mode(&mounted.path("d/sub")) & 0o2000),
        (77, 0o2000)
    );
}

#[test]
fn special_files() {
    let Some(mounted) = mounted_as_root() else { return };
    mknodat(CWD, mounted.path("fifo"), FileType::Fifo, Mode::from(0o666), 0).unwrap();
    mknodat(CWD, mounted.path("null"), FileType::CharacterDevice, Mode::from(0o666), makedev(1, 3)).unwrap();
    let null = mounted.path("null").metadata().unwrap();
    assert_eq!(null.rdev(), makedev(1, 3));
    File::create(mounted.path("null")).unwrap().write_all(b"swallowed").unwrap();
    let fifo = mounted.path("fifo");
    let writer = std::thread::spawn(move || fs::write(fifo, b"through").unwrap());
    assert_eq!(fs::read(mounted.path("fifo")).unwrap(), b"through");
    writer.join().unwrap();
    let socket = std::os::unix::net::UnixListener::bind(mounted.path("socket")).unwrap();
    std::os::unix::net::UnixStream::connect(mounted.path("socket")).unwrap();
    drop(socket);
}

#[test]
fn lists_decide_who_opens_fifos_and_devices() {
    let Some(mounted) = mounted_as_root() else { return };
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let list = |user| {
        let entries = vec![
            entry(Tag::Owner, 6),
            entry(Tag::User(USER), user),
            entry(Tag::OwningGroup, 0),
            entry(Tag::Mask, 6),
            entry(Tag::Other, 0),
        ];
        Acl::new(entries).unwrap().encode()
    };
    mknodat(CWD, mounted.path("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    mknodat(CWD, mounted.path("null"), FileType::CharacterDevice, Mode::from(0o600), makedev(1, 3)).unwrap();
    let root = mounted.root();
    for name in ["fifo", "null"] {
        // Opened to read and write, a FIFO waits for nobody.
        let opens = format!(": <> {name}");
        assert!(!as_user(root, &opens), "{name} by its mode");
        setxattr(mounted.path(name), ACCESS, &list(6), XattrFlags::empty()).unwrap();
        assert!(as_user(root, &opens), "{name}, granted by a list");
        setxattr(mounted.path(name), ACCESS, &list(4), XattrFlags::empty()).unwrap();
        assert!(!as_user(root, &opens), "{name}, to read only");
        set_mode(&mounted.path(name), 0o600);
        assert_eq!(mode(&mounted.path(name)), 0o600, "the mask follows");
    }
}

#[test]
fn extended_attributes() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"").unwrap();
    setxattr(&path, "user.key", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&path, "user.key", b"value", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.none", b"value", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut buffer = [0; 100];
    let length = getxattr(&path, "user.key", &mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"value");
    assert_eq!(getxattr(&path, "user.key", &mut buffer[..2]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.none", &mut buffer), Err(Errno::NODATA));
    let length = listxattr(&path, &mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"user.key\0");
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let Some(mounted) = Mounted::with(Limits::default(), &MountOptions { read_only: true, ..options() })
    else {
        return;
    };
    let error = fs::write(mounted.path("f"), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30), "{error}");
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0);
}
