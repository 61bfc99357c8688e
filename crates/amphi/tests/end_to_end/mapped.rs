//! Memory-mapped files: what is stored reaches the device at `msync`, by bytes where it is little and by
//! block where it is much (BY-14, BY-15). And what programs under `amphi run` see of it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::accelerated::{Agent, sum};
use crate::rig::{Rig, amphi_ok, can_mount};

/// Bytes of file data that the device was sent by the byte port and by the block port.
fn data_sent(rig: &Rig) -> (u64, u64) {
    let stats = amphi_ok(&["stats", &rig.mount_point(), "--json"]);
    let stats: Value = serde_json::from_str(&stats).expect("it is JSON");
    let sent = |port: &str| {
        let structures = stats["device"][port]["structures"].as_array().expect("a list");
        let data = structures.iter().find(|entry| entry["structure"] == "data");
        data.map_or(0, |entry| entry["bytes"].as_u64().expect("a number"))
    };
    (sent("byte_write"), sent("block_write"))
}

#[test]
fn what_msync_sends_goes_by_bytes_where_it_is_little_and_by_block_where_it_is_much() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    let program = rig.path("mapped");
    std::fs::write(rig.path("mapped.c"), include_str!("mapped.c")).expect("it can be written");
    let built = Command::new("cc").args(["-O1", "-o", &program, &rig.path("mapped.c")]).status();
    if built.is_err() {
        println!("skipped: cc is not installed");
        return;
    }
    assert!(built.is_ok_and(|status| status.success()), "the program is built");
    // Nothing goes to the device in the background.
    amphi_ok(&["mount", "--free", "-o", "commit=0", &rig.image(), &rig.mount_point()]);
    let file = rig.on_mount("file");
    std::fs::write(&file, vec![1; 4 * 4096]).expect("it can be written");
    std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("it can be synced");
    for (page, lines, value) in [(1, 1, 2), (1, 7, 3), (2, 7, 4), (2, 8, 5), (3, 64, 6)] {
        let before = data_sent(&rig);
        let words = [page, lines, value].map(|number| number.to_string());
        let stored = Command::new(&program).arg(Path::new(&file)).args(words).status();
        assert!(stored.is_ok_and(|status| status.success()), "the program stores");
        let after = data_sent(&rig);
        let sent = (after.0 - before.0, after.1 - before.1);
        let expected = if lines < 8 { (lines * 64, 0) } else { (0, 4096) };
        assert_eq!(sent, expected, "bytes by byte and by block, {lines} lines of page {page} modified");
    }
    amphi_ok(&["power-cut", &rig.mount_point()]);
    rig.mount();
    let bytes = std::fs::read(&file).expect("it can be read");
    let first = |page: usize, line: usize| bytes[page * 4096 + line * 64];
    assert_eq!([first(0, 0), first(1, 0), first(1, 6), first(1, 7)], [1, 3, 3, 1]);
    assert_eq!([first(2, 0), first(2, 7), first(2, 8), first(3, 63)], [5, 5, 1, 6]);
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

/// What a mapping holds behind an end that another process has moved by the queue is gone, and does not bring
/// the end back when the kernel writes it.
#[test]
fn pages_of_a_mapping_do_not_lengthen_a_file_that_was_cut() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let path = rig.on_mount("f");
    for cut in [4096 + 100, 4096, 0] {
        let [mut maps, mut cuts] = [Agent::start(&rig), Agent::start(&rig)];
        for agent in [&mut maps, &mut cuts] {
            agent.number(&format!("open 1 {} 0", path.display()));
        }
        assert_eq!(maps.number("truncate 1 12288"), 0);
        assert_eq!(maps.number("store 1 12288"), 12288);
        assert_eq!(cuts.number(&format!("truncate 1 {cut}")), 0);
        assert_eq!(maps.number("sync 1"), 0);
        assert_eq!(cuts.number("size 1"), cut);
        assert_eq!(std::fs::read(&path).unwrap(), vec![b'm'; cut as usize]);
        let counts = cuts.end();
        assert_eq!(counts["ftruncate"], (1, 0), "{counts:?}");
        maps.end();
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

/// What a process stores by a mapping its other descriptors of the file read, one too that has written by the
/// queue and would read there.
#[test]
fn what_a_mapping_has_stored_is_read_by_other_descriptors() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    for options in [&[][..], &["--real-descriptors"]] {
        let mut agent = Agent::start_with(&rig, options);
        for slot in 1..=2 {
            agent.number(&format!("open {slot} {} 0", rig.on_mount("f").display()));
        }
        assert_eq!(agent.number("pwrite 2 0 8192 119"), 8192);
        assert_eq!(agent.number("store 1 8192"), 8192);
        assert_eq!(agent.asked("pread 2 0 8192"), format!("8192 {}", sum(&[b'm'; 8192])));
        // And it is not put back by what comes later.
        assert_eq!((agent.number("pwrite 2 0 10 119"), agent.number("sync 1")), (10, 0));
        assert_eq!(agent.asked("pread 1 8 4"), format!("4 {}", sum(b"wwmm")));
        agent.end();
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}
