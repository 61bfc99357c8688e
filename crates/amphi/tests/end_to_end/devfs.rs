//! DevFS by the command: made, mounted, killed, looked at, checked, and refused what it has not.

use crate::command::fails_saying;
use crate::rig::{Rig, amphi_ok, can_mount};

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
    fails_saying(&["tune", &rig.image(), "--label", "new"], 1, &["DevFS", "cannot be"]);
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
    std::fs::write(rig.on_mount("large"), &data).expect("it can be written");
    std::fs::create_dir(rig.on_mount("dir")).expect("it can be made");
    for number in 0..500 {
        std::fs::write(rig.on_mount(&format!("dir/small{number}")), b"words").expect("it can be written");
    }
    std::fs::hard_link(rig.on_mount("large"), rig.on_mount("dir/name")).expect("it can be made");
    std::fs::rename(rig.on_mount("dir"), rig.on_mount("moved")).expect("it is there");
    rig.umount();
    rig.fsck().expect("it is clean");
    mount(&[]);
    assert!(std::fs::read(rig.on_mount("moved/name")).expect("it is there") == data);
    // Every call is durable when it returns: the device's capacitors see to it.
    std::fs::write(rig.on_mount("last"), b"before the kill").expect("it can be written");
    rig.kill_daemon();
    mount(&[]);
    assert_eq!(std::fs::read(rig.on_mount("last")).expect("it is there"), b"before the kill");
    assert_eq!(std::fs::read_dir(rig.on_mount("moved")).expect("it is there").count(), 501);
    rig.umount();
    rig.fsck().expect("it is clean");
}
