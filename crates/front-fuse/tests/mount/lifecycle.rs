//! Mounting, unmounting, and what can be in the way.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;

use crate::mounted::{Mounted, can_mount, is_root, mount, options, own_model, wait_until};
use crate::offered::Offered;
use amphi_front_fuse::{MountError, MountOptions};

#[test]
fn a_busy_mount_stays_until_it_is_left() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("f"), b"x").unwrap();
    let directory = mounted.root().to_owned();
    let mut inside = Command::new("sleep").arg("60").current_dir(&directory).spawn().unwrap();
    let status = Command::new("umount").arg(&directory).stderr(Stdio::null()).status().unwrap();
    assert!(!status.success(), "umount of a mount in use");
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x");
    inside.kill().unwrap();
    inside.wait().unwrap();
    mounted.unmount();
    assert!(!directory.join("f").exists());
}

#[test]
fn busy_is_an_error_of_its_own() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let session = mount(own_model(), directory.path(), &options()).unwrap();
    let file = fs::File::create(directory.path().join("f")).unwrap();
    let error = session.unmount().unwrap_err();
    assert!(matches!(error, MountError::Busy(_)), "{error}");
    session.detach().unwrap();
    assert!(!directory.path().join("f").exists(), "detached at once");
    file.sync_all().unwrap();
    drop(file);
    session.wait().unwrap();
}

#[test]
fn an_unmount_from_outside_ends_the_session() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let session = mount(own_model(), directory.path(), &options()).unwrap();
    fs::write(directory.path().join("f"), b"x").unwrap();
    let (program, arguments) = if is_root() { ("umount", &[][..]) } else { ("fusermount3", &["-u"][..]) };
    // A helper that looks at every new mount may keep it busy for a moment.
    let unmounted = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let mut command = Command::new(program);
        command.args(arguments).arg(directory.path()).stderr(Stdio::null());
        command.status().unwrap().success()
    });
    assert!(unmounted, "{program} never succeeded");
    session.wait().unwrap();
    assert!(!directory.path().join("f").exists());
}

#[test]
fn what_is_mounted_under_the_mount_survives_it() {
    if !can_mount() || !is_root() {
        println!("skipped: fusermount3 cannot enter another user's mount");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let lower = mount(own_model(), directory.path(), &options()).unwrap();
    fs::create_dir(directory.path().join("d")).unwrap();
    let error = mount(own_model(), directory.path(), &options()).unwrap_err();
    assert!(matches!(error, MountError::AlreadyMounted(_)), "{error}");
    let below = directory.path().join("d");
    let upper = mount(own_model(), &below, &options()).unwrap();
    fs::write(below.join("f"), b"x").unwrap();
    upper.unmount().unwrap();
    upper.wait().unwrap();
    assert!(below.is_dir() && !below.join("f").exists(), "the lower mount is still there");
    lower.unmount().unwrap();
    lower.wait().unwrap();
}

#[test]
fn errors_say_what_to_do() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let refused =
        |path: &std::path::Path| mount(own_model(), path, &MountOptions::default()).unwrap_err().to_string();
    assert!(refused(&file).contains("not a directory"), "{}", refused(&file));
    assert!(refused(&directory.path().join("none")).contains("none"));
}

/// What `statfs(2)` says of every FUSE mount.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// The server of this mount is another process, which is killed.
#[test]
fn a_dead_mount_is_recognised_and_replaced() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Who is killed sets nothing back.
    let offered = Offered::to(&options());
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifecycle::serves_until_killed", "--include-ignored"])
        .env("AMPHI_TEST_MOUNTPOINT", directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Asked from here: a process that is killed in the middle of a request to itself never ends.
    let is_mounted =
        || rustix::fs::statfs(directory.path()).is_ok_and(|stat| stat.f_type == FUSE_SUPER_MAGIC);
    wait_until("the other process has mounted", is_mounted);
    drop(offered);
    server.kill().unwrap();
    server.wait().unwrap();
    let ask = || rustix::fs::statfs(directory.path()).map(drop);
    let mut dead = ask();
    for _ in 0..100 {
        // The kernel takes rings down in the background, and cancels or aborts what is asked meanwhile.
        if !matches!(dead, Err(Errno::CANCELED | Errno::CONNABORTED)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        dead = ask();
    }
    assert_eq!(dead, Err(Errno::NOTCONN));
    let keep = MountOptions { replace_dead: false, ..options() };
    let error = mount(own_model(), directory.path(), &keep).unwrap_err();
    assert!(matches!(error, MountError::Dead(_)) && error.to_string().contains("fusermount3 -uz"), "{error}");
    let session = mount(own_model(), directory.path(), &options()).unwrap();
    fs::write(directory.path().join("f"), b"alive").unwrap();
    session.unmount().unwrap();
    session.wait().unwrap();
}

#[test]
#[ignore = "the other process of a_dead_mount_is_recognised_and_replaced"]
fn serves_until_killed() {
    let Some(directory) = std::env::var_os("AMPHI_TEST_MOUNTPOINT") else { return };
    amphi_front_fuse::mount(own_model(), directory.as_ref(), &options()).unwrap().wait().unwrap();
}
