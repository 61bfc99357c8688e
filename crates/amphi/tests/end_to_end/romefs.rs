//! RomeFS by the command: made, mounted, looked at, checked, and refused what it has not.

use crate::command::fails_saying;
use crate::rig::{Rig, amphi_ok, can_mount};

fn info(rig: &Rig) -> serde_json::Value {
    serde_json::from_str(&amphi_ok(&["info", &rig.image(), "--json"])).expect("JSON")
}

#[test]
fn mkfs_makes_the_memory_area_that_it_needs_and_says_what_it_cannot() {
    let rig = Rig::empty();
    let make = ["mkfs", &rig.image(), "--force", "--size", "256M", "--fs", "romefs"];
    for (words, said) in [
        (["--threshold", "48K"], "49152 bytes is no power of two from 4K to 1M"),
        (["--threshold", "2M"], "no power of two from 4K to 1M"),
        (["--memory", "128K"], "room for too few data logs"),
        (["--fs-size", "512M"], "fewer than asked for"),
        (["--firmware", "log"], "memory area"),
    ] {
        fails_saying(&[&make[..], &words].concat(), 1, &[said]);
    }
    amphi_ok(&make);
    let made = info(&rig);
    assert_eq!(
        (&made["filesystem"]["type"], &made["device"]["firmware"]),
        (&"romefs".into(), &"memory".into())
    );
    assert_eq!(made["filesystem"]["threshold_bytes"], 65_536);
    amphi_ok(&[&make[..], &["--threshold", "16K", "--memory", "32M", "--label", "both"]].concat());
    let made = info(&rig);
    assert_eq!(made["filesystem"]["threshold_bytes"], 16_384);
    assert_eq!(made["device"]["memory_bytes"], 32 << 20);
    amphi_ok(&["fsck", &rig.image()]);
}

#[test]
fn it_is_tuned_and_grows_and_is_mended() {
    let rig = Rig::empty();
    let make = ["mkfs", &rig.image(), "--force", "--size", "256M", "--fs", "romefs", "--fs-size", "64M"];
    amphi_ok(&make);
    amphi_ok(&["tune", &rig.image(), "--label", "new", "-o", "write-back=20"]);
    fails_saying(&["tune", &rig.image(), "-o", "size=3"], 1, &["`size=3` is no mount option of RomeFS"]);
    assert_eq!(info(&rig)["filesystem"]["label"], "new");
    assert_eq!(info(&rig)["filesystem"]["mount_options"], "write-back=20");
    assert_eq!(info(&rig)["filesystem"]["size_max_bytes"], 256 << 20);
    amphi_ok(&["resize", &rig.image(), "128M"]);
    assert_eq!(info(&rig)["filesystem"]["size_bytes"], 128 << 20);
    fails_saying(&["resize", &rig.image(), "64M"], 1, &["it can grow but not shrink"]);
    amphi_ok(&["fsck", &rig.image(), "--repair"]);
}

#[test]
fn files_come_back_after_an_unmount() {
    if !can_mount() {
        return;
    }
    let rig = Rig::of("romefs", "256M");
    let mount = |words: &[&str]| {
        amphi_ok(&[&["mount", "--free", &rig.image(), &rig.mount_point()], words].concat());
    };
    fails_saying(
        &["mount", &rig.image(), &rig.mount_point(), "-o", "threshold=4K"],
        1,
        &["below the data blocks of 65536 bytes"],
    );
    fails_saying(&["mount", &rig.image(), &rig.mount_point(), "-o", "io-threads=many"], 1, &["io-threads=N"]);
    mount(&["-o", "io-threads=2,threshold=128K"]);
    let data: Vec<u8> = (0..3_000_001_u32).map(|byte| (byte % 251) as u8).collect();
    std::fs::write(rig.on_mount("large"), &data).expect("it can be written");
    std::fs::create_dir(rig.on_mount("dir")).expect("it can be made");
    std::os::unix::fs::symlink("large", rig.on_mount("dir/link")).expect("it can be made");
    rig.umount();
    rig.fsck().expect("it is clean");
    mount(&[]);
    assert!(std::fs::read(rig.on_mount("large")).expect("it is there") == data);
    assert_eq!(std::fs::read_link(rig.on_mount("dir/link")).expect("it is there").to_str(), Some("large"));
    rig.umount();
}
