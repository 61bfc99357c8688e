//! `amphi tune`, `resize` and `fstrim`, and the file system's own mount options, as a user meets them.

use std::process::Command;

use serde_json::Value;

use crate::rig::{Rig, amphi, amphi_ok, can_mount, complaint};

fn filesystem(image: &str) -> Value {
    let info: Value = serde_json::from_str(&amphi_ok(&["info", image, "--json"])).expect("it is JSON");
    info["filesystem"].clone()
}

#[track_caller]
fn refused(arguments: &[&str], words: &str) {
    let output = amphi(arguments);
    assert!(!output.status.success(), "amphi {arguments:?} should fail");
    assert!(complaint(&output).contains(words), "amphi {arguments:?}: {}", complaint(&output));
}

#[test]
fn tune_changes_what_it_is_told_and_refuses_the_rest() {
    let rig = Rig::new("64M");
    let image = rig.image();
    let before = filesystem(&image);
    amphi_ok(&["tune", &image, "--label", "renamed", "-o", "threshold=16"]);
    let after = filesystem(&image);
    assert_eq!((&after["label"], &after["uuid"]), (&Value::from("renamed"), &before["uuid"]));
    assert_eq!(after["mount_options"], "threshold=16");
    amphi_ok(&["tune", &image, "--uuid", "00112233-4455-6677-8899-aabbccddeeff"]);
    assert_eq!(filesystem(&image)["uuid"], "00112233-4455-6677-8899-aabbccddeeff");
    refused(&["tune", &image], "nothing to change");
    refused(&["tune", &image, "--uuid", "7"], "32 hexadecimal digits");
    refused(&["tune", &image, "-o", "fast"], "`fast`");
    refused(&["tune", &image, "--label", &"x".repeat(33)], "32 bytes");
    amphi_ok(&["fsck", &image]);
}

#[test]
fn resize_grows_to_the_whole_ssd_and_never_shrinks() {
    let rig = Rig::empty();
    let image = rig.image();
    amphi_ok(&["mkfs", &image, "--size", "256M", "--fs-size", "32M"]);
    assert_eq!(filesystem(&image)["size_bytes"], 32 << 20);
    amphi_ok(&["resize", &image, "100M"]);
    assert_eq!(filesystem(&image)["size_bytes"], 100 << 20);
    refused(&["resize", &image, "50M"], "not shrink");
    refused(&["resize", &image, "300M"], "the device has");
    amphi_ok(&["resize", &image]);
    assert_eq!(filesystem(&image)["size_bytes"], 256 << 20);
    amphi_ok(&["fsck", &image]);
}

#[test]
fn fstrim_discards_what_is_free_at_rest_and_under_a_mount() {
    for file_system in ["bytefs", "romefs", "augefs", "devfs", "ext4like"] {
        let rig = Rig::of(file_system, "64M");
        let said = amphi_ok(&["fstrim", &rig.image()]);
        assert!(said.contains("MiB discarded"), "{said}");
        amphi_ok(&["fsck", &rig.image()]);
        if !can_mount() {
            return;
        }
        rig.mount();
        std::fs::write(rig.on_mount("file"), vec![7; 1 << 20]).expect("it can be written");
        let said = amphi_ok(&["fstrim", &rig.mount_point()]);
        assert!(said.contains("MiB discarded"), "{said}");
        assert_eq!(std::fs::read(rig.on_mount("file")).expect("it can be read"), vec![7; 1 << 20]);
        rig.umount();
        amphi_ok(&["fsck", &rig.image()]);
    }
}

#[test]
fn the_fstrim_of_the_system_reaches_the_ssd() {
    let rig = Rig::new("64M");
    if !can_mount() || Command::new("fstrim").arg("--version").output().is_err() {
        return;
    }
    rig.mount();
    let trimmed_pages = || {
        let stats = amphi_ok(&["stats", &rig.mount_point(), "--json"]);
        let stats: Value = serde_json::from_str(&stats).expect("it is JSON");
        stats["device"]["pages_trimmed"].as_u64().expect("a number")
    };
    let fstrim = |arguments: &[&str]| {
        let before = trimmed_pages();
        let output = Command::new("fstrim").arg("-v").args(arguments).arg(rig.mount_point()).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said, complaint(&output), trimmed_pages() - before)
    };
    let (done, said, complaint, pages) = fstrim(&[]);
    assert!(done && pages > 0, "{said}{complaint}");
    assert!(said.contains(&format!("({} bytes)", pages * 4096)), "it says what it did: {said}");
    let (done, said, complaint, part) = fstrim(&["--offset", "32M", "--length", "8M"]);
    assert!(done && part == 2048, "{part} pages of a free range of 8 MiB: {said}{complaint}");
    let (done, _, complaint, pages) = fstrim(&["--offset", "1G"]);
    assert!(!done && pages == 0 && complaint.contains("Invalid argument"), "{complaint}");
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

#[test]
fn with_sync_a_write_survives_a_power_loss_without_fsync() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    for (option, survives) in [("sync,commit=0", true), ("async,commit=0", false)] {
        amphi_ok(&["mount", "--free", "-o", option, &rig.image(), &rig.mount_point()]);
        let name = rig.on_mount(option);
        std::fs::write(&name, b"contents").expect("it can be written");
        amphi_ok(&["power-cut", &rig.mount_point()]);
        rig.mount();
        let found = std::fs::read(&name).expect("the file is there in any case");
        assert_eq!(found == b"contents", survives, "{option}: {found:?}");
        rig.umount();
    }
    amphi_ok(&["fsck", &rig.image()]);
}

#[test]
fn a_mount_takes_the_file_systems_options_and_names_those_that_cannot_be() {
    let rig = Rig::new("64M");
    let mount = |options: &str| amphi(&["mount", "--free", &rig.image(), &rig.mount_point(), "-o", options]);
    if !can_mount() {
        return;
    }
    let said = mount("data=sideways");
    assert!(
        !said.status.success() && complaint(&said).contains("data=ordered or journal"),
        "{}",
        complaint(&said)
    );
    let said = mount("speed=9");
    assert!(!said.status.success() && complaint(&said).contains("`speed=9`"), "{}", complaint(&said));
    let said = mount("data=journal,cache=1M,dirty=256K,threshold=4");
    assert!(said.status.success(), "{}", complaint(&said));
    std::fs::write(rig.on_mount("file"), vec![7; 3 << 20]).expect("it can be written");
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

#[test]
fn an_ssd_that_caches_pages_carries_the_dual_variant() {
    let rig = Rig::empty();
    let image = rig.image();
    amphi_ok(&["mkfs", &image, "--size", "64M", "--firmware", "page-cache"]);
    amphi_ok(&["fsck", &image]);
    if !can_mount() {
        return;
    }
    let refused_options = amphi(&["mount", "--free", &image, &rig.mount_point(), "-o", "data=journal"]);
    assert!(complaint(&refused_options).contains("data=ordered"), "{}", complaint(&refused_options));
    rig.mount();
    for number in 0..50 {
        std::fs::create_dir(rig.on_mount(&format!("d{number}"))).expect("it can be made");
    }
    amphi_ok(&["power-cut", &image, "--seed", "3"]);
    amphi_ok(&["fsck", &image]);
    rig.mount();
    assert_eq!(std::fs::read_dir(rig.on_mount("")).expect("it can be listed").count(), 50);
    rig.umount();
    amphi_ok(&["fsck", &image]);
}
