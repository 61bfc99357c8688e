//! DevFS by the command: made, mounted, killed, looked at, checked, and refused what it has not.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::accelerated::Agent;
use crate::command::fails_saying;
use crate::rig::{self, Rig, amphi_ok, can_mount};

#[test]
fn mkfs_makes_the_firmware_that_it_is_and_says_what_it_cannot() {
    let rig = Rig::empty();
    let make = ["mkfs", &rig.image(), "--force", "--size", "256M", "--fs", "devfs"];
    fails_saying(&[&make[..], &["--firmware", "log"]].concat(), 1, &["file-system"]);
    amphi_ok(&[&make[..], &["--profile", "devfs-dram", "--memory", "16M", "--label", "inside"]].concat());
    let made: serde_json::Value =
        serde_json::from_str(&amphi_ok(&["info", &rig.image(), "--json"])).expect("JSON");
    let about = &made["filesystem"];
    assert_eq!((&about["type"], &about["label"]), (&"devfs".into(), &"inside".into()));
    assert_eq!(made["device"]["memory_bytes"], 16 << 20);
    amphi_ok(&["fsck", &rig.image()]);
    let tuned = amphi_ok(&["tune", &rig.image(), "--label", "new"]);
    assert!(tuned.contains("label new"), "{tuned}");
    amphi_ok(&["fsck", &rig.image()]);
    fails_saying(&["resize", &rig.image(), "128M"], 1, &["DevFS", "cannot be"]);
}

#[test]
fn files_come_back_after_an_unmount_and_after_a_kill() {
    if !can_mount() {
        return;
    }
    let rig = Rig::empty();
    amphi_ok(&["mkfs", &rig.image(), "--fs", "devfs", "--size", "256M"]);
    let mount = |words: &[&str]| {
        amphi_ok(&[&["mount", "--free", &rig.image(), &rig.mount_point()], words].concat());
    };
    fails_saying(&["mount", &rig.image(), &rig.mount_point(), "-o", "crash=never"], 1, &["crash="]);
    mount(&["-o", "memory=4M,inodes=100"]);
    let data: Vec<u8> = (0..9_000_001_u32).map(|byte| (byte % 251) as u8).collect();
    fs::write(rig.on_mount("large"), &data).expect("it can be written");
    fs::create_dir(rig.on_mount("dir")).expect("it can be made");
    for number in 0..500 {
        fs::write(rig.on_mount(&format!("dir/small{number}")), b"words").expect("it can be written");
    }
    fs::hard_link(rig.on_mount("large"), rig.on_mount("dir/name")).expect("it can be made");
    fs::rename(rig.on_mount("dir"), rig.on_mount("moved")).expect("it is there");
    rig.umount();
    rig.fsck().expect("it is clean");
    mount(&[]);
    assert!(fs::read(rig.on_mount("moved/name")).expect("it is there") == data);
    // Every call is durable when it returns: the device's capacitors see to it.
    fs::write(rig.on_mount("last"), b"before the kill").expect("it can be written");
    rig.kill_daemon();
    mount(&[]);
    assert_eq!(fs::read(rig.on_mount("last")).expect("it is there"), b"before the kill");
    assert_eq!(fs::read_dir(rig.on_mount("moved")).expect("it is there").count(), 501);
    rig.umount();
    rig.fsck().expect("it is clean");
}

/// A counter of the mounted file system.
fn counter(rig: &Rig, name: &str) -> u64 {
    let stats: serde_json::Value =
        serde_json::from_str(&amphi_ok(&["stats", &rig.mount_point(), "--json"])).expect("JSON");
    stats["filesystem"][name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {stats}"))
}

fn allow(rig: &Rig, name: &str, mode: u32) {
    fs::set_permissions(rig.on_mount(name), Permissions::from_mode(mode)).expect("it is root's");
}

#[test]
fn programs_put_their_commands_into_the_devices_buffers() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let rig = Rig::empty();
    fs::set_permissions(rig.path(""), Permissions::from_mode(0o755)).expect("it is ours");
    amphi_ok(&["mkfs", &rig.image(), "--fs", "devfs", "--size", "256M"]);
    rig.mount_for_all();
    allow(&rig, ".", 0o777);
    let path = |name: &str| rig.on_mount(name).display().to_string();

    // What the device has been told past the kernel is what the kernel's callers see, also if they have
    // looked.
    let mut root = Agent::start(&rig);
    root.number(&format!("open 1 {} 0", path("f")));
    assert_eq!(root.number("pwrite 1 0 5000 97"), 5000);
    assert_eq!(fs::read(path("f")).unwrap(), [b'a'; 5000]);
    let before = counter(&rig, "buffered_commands");
    assert_eq!(root.number("pwrite 1 0 10 98"), 10);
    assert_eq!(fs::read(path("f")).unwrap()[..11], *b"bbbbbbbbbba");
    assert_eq!(counter(&rig, "buffered_commands"), before + 1, "one command for one call");

    // Another user has a buffer of its own, which speaks for that user.
    let mut user = Agent::as_user(&rig, 1234);
    allow(&rig, "f", 0o666);
    user.number(&format!("open 1 {} 0", path("f")));
    assert_eq!(user.number("pwrite 1 0 1 99"), 1);
    // The device asks for permission at each command and refuses; the kernel, which the library asks then,
    // has the file open for that user.
    allow(&rig, "f", 0o644);
    let before = counter(&rig, "buffered_commands");
    assert_eq!(user.number("pwrite 1 0 1 100"), 1);
    assert_eq!(counter(&rig, "buffered_commands"), before + 1);
    assert_eq!(root.number("pwrite 1 1 1 100"), 1);
    assert_eq!(fs::read(path("f")).unwrap()[..3], *b"ddb");
    assert_eq!(root.number(&format!("mkdir {}", path("roots"))), 0);
    assert_eq!(user.number(&format!("mkdir {}", path("roots/users"))), -13, "EACCES");
    assert_eq!(user.number(&format!("mkdir {}", path("users"))), 0);
    assert_eq!(fs::metadata(path("users")).unwrap().uid(), 1234);

    // A program that is killed has nothing open any more, and no credentials.
    let inodes = || {
        let stat = rustix::fs::statvfs(rig.mount_point().as_str()).unwrap();
        stat.f_files - stat.f_ffree
    };
    let used = inodes();
    user.number(&format!("open 2 {} 0", path("users/f")));
    assert_eq!(user.number("write 2 100 65"), 100);
    fs::remove_file(path("users/f")).unwrap();
    assert_eq!(user.number("pwrite 2 0 100 66"), 100, "an open file lives without a name");
    user.child.kill().expect("killed");
    user.child.wait().expect("an end");
    rig::wait_until("what the client had open is closed", || inodes() == used);

    // What a command has said is durable when it returns, without a sync: the daemon may die.
    assert_eq!(root.number("pwrite 1 0 100 66"), 100);
    rig.kill_daemon();
    let refused = root.number("pwrite 1 0 100 67");
    assert!([-107, -5, -103].contains(&refused), "a dead mount answered {refused}");
    root.end();
    rig.mount();
    assert_eq!(fs::read(path("f")).unwrap()[..101], [&[66; 100][..], b"a"].concat());
    rig.umount();
    rig.fsck().expect("it is clean");
}
