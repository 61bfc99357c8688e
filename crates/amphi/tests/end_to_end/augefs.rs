//! AugeFS by the command: made, mounted, looked at, checked, and refused what it has not.

use crate::command::fails_saying;
use crate::rig::{Rig, amphi_ok, can_mount};

#[test]
fn mkfs_makes_the_memory_area_that_it_needs_and_says_what_it_cannot() {
    let rig = Rig::empty();
    let make = ["mkfs", &rig.image(), "--force", "--size", "256M", "--fs", "augefs"];
    for (words, said) in
        [(["--fs-size", "64M"], "takes the whole device"), (["--firmware", "log"], "memory area")]
    {
        fails_saying(&[&make[..], &words].concat(), 1, &[said]);
    }
    amphi_ok(&[&make[..], &["--memory", "16M", "--label", "domains"]].concat());
    let made: serde_json::Value =
        serde_json::from_str(&amphi_ok(&["info", &rig.image(), "--json"])).expect("JSON");
    let about = &made["filesystem"];
    assert_eq!(
        (&about["type"], &about["label"], &about["domains"]),
        (&"augefs".into(), &"domains".into(), &16.into())
    );
    assert_eq!(made["device"]["memory_bytes"], 16 << 20);
    amphi_ok(&["fsck", &rig.image()]);
    let tuned = amphi_ok(&["tune", &rig.image(), "--label", "new"]);
    assert!(tuned.contains("label new"), "{tuned}");
    fails_saying(&["tune", &rig.image(), "-o", "noatime"], 1, &["no mount options", "amphi mount -o"]);
    amphi_ok(&["fsck", &rig.image()]);
    fails_saying(&["resize", &rig.image(), "128M"], 1, &["AugeFS", "cannot be"]);
}

#[test]
fn files_come_back_after_an_unmount() {
    if !can_mount() {
        return;
    }
    let rig = Rig::empty();
    amphi_ok(&["mkfs", &rig.image(), "--fs", "augefs", "--size", "256M"]);
    let mount = |words: &[&str]| {
        amphi_ok(&[&["mount", "--free", &rig.image(), &rig.mount_point()], words].concat());
    };
    fails_saying(&["mount", &rig.image(), &rig.mount_point(), "-o", "names=few"], 1, &["names=N"]);
    mount(&["-o", "names=1000,cache=4M"]);
    let data: Vec<u8> = (0..9_000_001_u32).map(|byte| (byte % 251) as u8).collect();
    std::fs::write(rig.on_mount("large"), &data).expect("it can be written");
    std::fs::create_dir(rig.on_mount("dir")).expect("it can be made");
    std::fs::hard_link(rig.on_mount("large"), rig.on_mount("dir/name")).expect("it can be made");
    std::os::unix::fs::symlink("large", rig.on_mount("dir/link")).expect("it can be made");
    std::fs::rename(rig.on_mount("dir"), rig.on_mount("moved")).expect("it is there");
    rig.umount();
    rig.fsck().expect("it is clean");
    mount(&[]);
    assert!(std::fs::read(rig.on_mount("moved/name")).expect("it is there") == data);
    assert_eq!(std::fs::read_link(rig.on_mount("moved/link")).expect("it is there").to_str(), Some("large"));
    rig.umount();
}
