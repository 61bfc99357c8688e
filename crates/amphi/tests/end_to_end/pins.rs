//! Pins on a mount, and logs that the window holds: as a user of the command meets them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use crate::command::fails_saying;
use crate::rig::{Rig, amphi_ok, can_mount};

/// An image with a BA-buffer and the ext4-like file system.
fn rig(words: &[&str]) -> Rig {
    let rig = Rig::empty();
    let image = rig.image();
    let make = ["mkfs", &image, "--size", "256M", "--profile", "2b-ssd", "--firmware", "ba-buffer"];
    amphi_ok(&[&make[..], &["--fs", "ext4like"], words].concat());
    rig
}

fn pins(rig: &Rig) -> Vec<serde_json::Value> {
    let shown = amphi_ok(&["pins", &rig.mount_point(), "--json"]);
    serde_json::from_str::<serde_json::Value>(&shown).expect("JSON").as_array().expect("a list").clone()
}

#[test]
fn a_range_of_a_file_is_pinned_shown_and_unpinned() {
    if !can_mount() {
        return;
    }
    let rig = rig(&["--pin-entries", "2"]);
    rig.mount();
    let path = rig.on_mount("file");
    let file = path.to_str().expect("text");
    fs::write(&path, vec![7; 40_960]).expect("it can be written");
    amphi_ok(&["pin", file, "--range", "4K-12K"]);
    let shown = pins(&rig);
    assert_eq!((&shown[0]["offset"], &shown[0]["length"]), (&4096.into(), &8192.into()));
    assert!(amphi_ok(&["pins", &rig.mount_point()]).contains("8 KiB from 4 KiB"));
    let opened = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
    opened.write_all_at(b"by bytes", 8190).expect("it can be written");
    for (words, said) in [
        (&["pin", file, "--range", "8K-16K"][..], "pinned already"),
        (&["pin", file, "--range", "100-4K"], "whole pages"),
        (&["pin", file, "--range", "0-1M"], "inside of the file"),
        (&["unpin", file, "--range", "4K-8K"], "as a whole"),
        (&["unpin", file, "--range", "20K-24K"], "nothing of the range"),
    ] {
        fails_saying(words, 1, &[said]);
    }
    assert!(opened.set_len(5000).is_err(), "its pages are pinned");
    amphi_ok(&["pin", file, "--range", "16K-20K"]);
    fails_saying(&["pin", file, "--range", "24K-28K"], 1, &["no room"]);
    // A write to a pinned range is durable without being synced.
    amphi_ok(&["power-cut", &rig.mount_point()]);
    rig.mount();
    let mut found = [0; 8];
    OpenOptions::new().read(true).open(&path).unwrap().read_exact_at(&mut found, 8190).expect("it is there");
    assert_eq!(&found, b"by bytes");
    assert_eq!(pins(&rig).len(), 0, "pins last as long as a mount");
    amphi_ok(&["pin", file]);
    amphi_ok(&["unpin", file]);
    fails_saying(&["unpin", file], 1, &["nothing of the range"]);
    rig.umount();
    rig.fsck().expect("it is clean");
    fails_saying(&["pins", &rig.image()], 1, &["not mounted"]);
}

#[test]
fn without_a_ba_buffer_pins_are_refused_with_what_would_help() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let path = rig.on_mount("file");
    fs::write(&path, vec![7; 4096]).expect("it can be written");
    fails_saying(&["pin", path.to_str().expect("text")], 1, &["no pins", "--firmware ba-buffer"]);
    fails_saying(&["pins", &rig.mount_point()], 1, &["cannot be pinned"]);
    rig.umount();
}

#[test]
fn what_a_program_synced_to_its_log_is_there_after_a_power_cut() {
    if !can_mount() {
        return;
    }
    let rig = rig(&[]);
    let mounted = |words: &[&str]| {
        amphi_ok(
            &[&["mount", "--free", "-o", "logs=known", &rig.image(), &rig.mount_point()], words].concat(),
        );
    };
    mounted(&["-o", "log=logs/*"]);
    fs::create_dir(rig.on_mount("logs")).expect("it can be made");
    let mut due = Vec::new();
    for (life, name) in ["logs/1", "a.db-wal", "logs/1"].into_iter().enumerate() {
        if life == 1 {
            due.clear();
        }
        if life == 2 {
            due = fs::read(rig.on_mount(name)).expect("it is there");
        }
        let mut log =
            OpenOptions::new().create(true).append(true).open(rig.on_mount(name)).expect("it opens");
        for record in 0..2000_u32 {
            let bytes = vec![record as u8; 1 + (record % 900) as usize];
            log.write_all(&bytes).expect("it can be written");
            due.extend_from_slice(&bytes);
            if record % 4 == 3 {
                log.sync_data().expect("it can be synced");
            }
        }
        assert!(fs::read(rig.on_mount(name)).expect("it is there") == due);
        match life {
            0 => rig.kill_daemon(),
            _ => drop(amphi_ok(&["power-cut", &rig.mount_point()])),
        }
        drop(log);
        mounted(&["-o", "log=logs/*"]);
        assert!(fs::read(rig.on_mount(name)).expect("it is there") == due, "life {life}");
    }
    rig.umount();
    rig.fsck().expect("it is clean");
    fails_saying(&["mount", &rig.image(), &rig.mount_point(), "-o", "log=a//b"], 1, &["is no rule"]);
}
