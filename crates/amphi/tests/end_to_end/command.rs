//! The command without a mount: what it makes, what it says, and with which exit code it refuses.

use std::path::Path;

use amphi_device::{BlockPort, Device, Lpa, PAGE_BYTES, Structure};
use amphi_fs_bytefs::format::Superblock;
use amphi_ssd::{OpenOptions, Ssd};
use serde_json::Value;

use crate::rig::{Rig, amphi, amphi_ok, command, complaint};

/// A failure is one line that starts with the command's name and holds `words`.
pub fn fails_saying(arguments: &[&str], code: i32, words: &[&str]) {
    let output = amphi(arguments);
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.starts_with("amphi: ") && said.lines().count() == 1, "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: {said:?} should contain {word:?}");
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_reader_that_went_away_ends_a_command_quietly_and_a_full_disk_does_not() {
    use std::os::unix::process::ExitStatusExt;
    let broken_pipe = 13;
    for arguments in [&["bench", "list"][..], &["completions", "bash"], &["ssd", "profiles", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(arguments).stdout(writer).output().unwrap();
        assert_eq!(complaint(&output), "", "{arguments:?}");
        assert_eq!(output.status.signal(), Some(broken_pipe), "{arguments:?}: {}", output.status);
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(&["bench", "list"]).stdout(full).output().unwrap();
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("amphi: standard output cannot be written: No space left"), "{said}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let refused = command(&["info", "/nowhere"]).stderr(writer).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "nobody hears the complaint: {}", refused.status);
}

#[test]
fn mkfs_makes_a_sparse_private_image_and_refuses_to_replace_it() {
    use std::os::unix::fs::MetadataExt;
    let rig = Rig::new("8G");
    let metadata = std::fs::metadata(rig.image()).unwrap();
    assert!(metadata.len() > 8 << 30);
    // Each of the 64 allocation groups has a page of the block bitmap, on a die of its own, where 1 MB is
    // reserved with it.
    assert!(metadata.blocks() * 512 < (64 + 8) << 20, "{} bytes allocated", metadata.blocks() * 512);
    assert_eq!(metadata.mode() & 0o777, 0o600);
    fails_saying(&["mkfs", &rig.image()], 1, &["exists already", "--force"]);
    amphi_ok(&["mkfs", &rig.image(), "--force", "--size", "256M", "--label", "second"]);
    let info = json(&amphi_ok(&["info", &rig.image(), "--json"]));
    assert_eq!(info["filesystem"]["label"], "second");
    assert_eq!(info["filesystem"]["type"], "bytefs");
    assert_eq!(info["mounted_at"], Value::Null);
}

#[test]
fn calibrating_twice_prints_the_same_bytes() {
    let first = amphi_ok(&["ssd", "calibrate", "--json"]);
    assert_eq!(first, amphi_ok(&["ssd", "calibrate", "--json"]), "two processes, one seed");
    let report = json(&first);
    let profiles = report["profiles"].as_array().expect("a list");
    let listed = json(&amphi_ok(&["ssd", "profiles", "--json"]));
    assert_eq!(profiles.len(), listed["profiles"].as_array().expect("a list").len());
    let mssd = &profiles[0];
    assert_eq!(mssd["profile"], "mssd-pcie3");
    let line = &mssd["points"][0];
    assert_eq!(
        (&line["name"], &line["measured"], &line["published"]),
        (&"line-read-us".into(), &4.8.into(), &4.8.into())
    );
    assert!(line["source"].as_str().is_some_and(|source| source.contains("table 4")));
    let people = amphi_ok(&["ssd", "calibrate", "2b-ssd"]);
    assert!(people.contains("dma-read-us@4096") && people.contains("internal-read-gb-s"), "{people}");
    fails_saying(&["ssd", "calibrate", "fastest"], 1, &["fastest", "mssd-pcie3"]);
}

#[test]
fn a_profile_that_misses_what_it_claims_fails_calibration() {
    let rig = Rig::empty();
    let path = rig.path("mine.toml");
    let text = include_str!("../../../../profiles/mssd-pcie3.toml");
    std::fs::write(&path, text.replace("line_read_ns = 4800", "line_read_ns = 6000")).unwrap();
    let output = amphi(&["ssd", "calibrate", &path]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("+25.0 %, NOT MET"), "{said}");
    std::fs::write(&path, text.replace("line-read-us", "line-speed")).unwrap();
    fails_saying(&["ssd", "calibrate", &path], 1, &["line-speed"]);
}

#[test]
fn an_ssd_with_a_page_cache_says_so() {
    let rig = Rig::empty();
    amphi_ok(&["mkfs", &rig.image(), "--size", "64M", "--firmware", "page-cache", "--fs", "none"]);
    let info = json(&amphi_ok(&["info", &rig.image(), "--json"]));
    assert_eq!(
        (&info["device"]["firmware"], &info["device"]["cache_bytes"]),
        (&"page-cache".into(), &(256 << 20).into())
    );
    let stats = amphi_ok(&["stats", &rig.image(), "--json"]);
    assert!(stats.contains("\"cache_capacity\":65536"), "256 MiB of pages: {stats}");
}

#[test]
fn an_ssd_with_a_ba_buffer_says_so_and_one_that_cannot_be_saved_is_not_made() {
    let rig = Rig::empty();
    let make = ["mkfs", &rig.image(), "--size", "64M", "--profile", "2b-ssd", "--fs", "none"];
    amphi_ok(&[&make[..], &["--memory", "4M", "--pin-entries", "16"]].concat());
    let info = json(&amphi_ok(&["info", &rig.image(), "--json"]));
    assert_eq!(
        (&info["device"]["firmware"], &info["device"]["memory_bytes"], &info["device"]["pin_entries"]),
        (&"ba-buffer".into(), &(4 << 20).into(), &16.into())
    );
    let stats = json(&amphi_ok(&["stats", &rig.image(), "--json"]));
    assert_eq!((&stats["device"]["pin_capacity"], &stats["device"]["pins"]), (&16.into(), &0.into()));
    let table = amphi_ok(&["stats", &rig.image()]);
    assert!(table.contains("BA-buffer: 0 of 16 entries"), "{table}");
    std::fs::remove_file(rig.image()).unwrap();
    fails_saying(&[&make[..], &["--memory", "16M"]].concat(), 1, &["16777216", "uJ", "capacitance_uf"]);
    assert!(!Path::new(&rig.image()).exists(), "a failed mkfs leaves nothing");
    fails_saying(&[&make[..], &["--pin-entries", "0"]].concat(), 1, &["ba_buffer.entries"]);
    fails_saying(
        &[&make[..], &["--firmware", "log", "--pin-entries", "9"]].concat(),
        1,
        &["--pin-entries", "ba-buffer"],
    );
    fails_saying(&make[..6], 1, &["BA-buffer"]);
}

#[test]
fn an_ssd_with_a_memory_area_says_so_and_what_needs_pages_by_bytes_refuses_it() {
    let rig = Rig::empty();
    let make = ["mkfs", &rig.image(), "--size", "64M", "--profile", "romefs-a"];
    amphi_ok(&[&make[..], &["--memory", "1M", "--fs", "none"]].concat());
    let info = json(&amphi_ok(&["info", &rig.image(), "--json"]));
    assert_eq!(
        (&info["device"]["firmware"], &info["device"]["memory_bytes"], &info["device"]["cache_bytes"]),
        (&"memory".into(), &(1 << 20).into(), &0.into())
    );
    let stats = amphi_ok(&["stats", &rig.image(), "--json"]);
    assert!(stats.contains("\"memory_capacity\":1048576"), "{stats}");
    let table = amphi_ok(&["stats", &rig.image()]);
    assert!(table.contains("memory area"), "{table}");
    std::fs::remove_file(rig.image()).unwrap();
    fails_saying(&make, 1, &["a memory area of its own"]);
    assert!(!Path::new(&rig.image()).exists(), "a failed mkfs leaves nothing");
    fails_saying(
        &[&make[..], &["--memory", "100"]].concat(),
        1,
        &["firmware.memory_bytes is 100", "multiple of 4096"],
    );
    fails_saying(&[&make[..], &["--firmware", "log", "--memory", "1M"]].concat(), 1, &["log.region_bytes"]);
    // The block side is an SSD as any other, and its cache may have the memory instead.
    amphi_ok(&[&make[..], &["--memory", "1M", "--fs", "ext4like"]].concat());
    std::fs::remove_file(rig.image()).unwrap();
    amphi_ok(&[&make[..], &["--firmware", "page-cache", "--memory", "1M", "--fs", "none"]].concat());
    let stats = amphi_ok(&["stats", &rig.image(), "--json"]);
    assert!(stats.contains("\"cache_capacity\":256"), "1 MiB of pages: {stats}");
}

#[test]
fn mkfs_names_what_is_wrong_with_its_arguments() {
    let rig = Rig::empty();
    fails_saying(&["mkfs", &rig.image(), "--profile", "fastest"], 1, &["fastest", "mssd-pcie3"]);
    fails_saying(&["mkfs", &rig.image(), "--profile", &rig.path("none.toml")], 1, &["none.toml"]);
    fails_saying(&["mkfs", &rig.path("no/such/directory.img")], 1, &["directory.img"]);
    fails_saying(&["mkfs", &rig.image(), "--size", "4K"], 1, &["512"]);
    assert!(!Path::new(&rig.image()).exists(), "a failed mkfs leaves nothing");
    let size = amphi(&["mkfs", &rig.image(), "--size", "8Q"]);
    assert_eq!(size.status.code(), Some(2));
    assert!(complaint(&size).contains("`Q` is not a unit"), "{}", complaint(&size));
}

/// What a value that cannot be has cost: nothing.
#[test]
fn a_refused_mkfs_leaves_the_old_image_as_it_was() {
    let rig = Rig::new("256M");
    amphi_ok(&["tune", &rig.image(), "--label", "kept"]);
    let filesystem = || json(&amphi_ok(&["info", &rig.image(), "--json"]))["filesystem"].clone();
    let before = filesystem();
    assert_eq!(before["label"], "kept");
    let long = "x".repeat(40);
    for words in [
        ["--label", &long],
        ["--size", "1000"],
        ["--size", "1M"],
        ["--size", "100000T"],
        ["--journal", "1G"],
        ["--fs-size", "1G"],
        ["--profile", "fastest"],
    ] {
        let output = amphi(&["mkfs", &rig.image(), "--force", "--size", "256M", words[0], words[1]]);
        let output = match words[0] {
            "--size" => amphi(&["mkfs", &rig.image(), "--force", "--size", words[1]]),
            _ => output,
        };
        assert!(!output.status.success(), "{words:?}");
        assert_eq!(filesystem(), before, "{words:?} changed the image");
        amphi_ok(&["fsck", &rig.image()]);
    }
    let left: Vec<_> = std::fs::read_dir(rig.path(".")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "an image and a mount point: {left:?}");
    // What a killed mkfs left beside is no obstacle.
    std::fs::copy(rig.image(), rig.path(".ssd.img.new")).unwrap();
    amphi_ok(&["mkfs", &rig.image(), "--force", "--size", "64M", "--label", "new"]);
    assert_eq!(json(&amphi_ok(&["info", &rig.image(), "--json"]))["filesystem"]["label"], "new");
}

#[test]
fn a_file_system_has_as_many_inodes_as_are_asked_for() {
    let rig = Rig::empty();
    let inodes = |words: &[&str]| {
        amphi_ok(&[&["mkfs", &rig.image(), "--force", "--size", "256M"], words].concat());
        json(&amphi_ok(&["info", &rig.image(), "--json"]))["filesystem"]["inodes"].as_u64().expect("a number")
    };
    for fs in ["bytefs", "ext4like"] {
        let usual = inodes(&["--fs", fs]);
        assert!((16_000..20_000).contains(&usual), "{fs}: {usual}, one for each 16 KiB");
        let many = inodes(&["--fs", fs, "-i", "4K"]);
        assert!((65_000..70_000).contains(&many), "{fs}: {many}, one for each 4 KiB");
        let counted = inodes(&["--fs", fs, "-N", "30000"]);
        assert!((30_000..34_000).contains(&counted), "{fs}: {counted}, 30000 or a few more");
    }
    for words in [["-i", "100"], ["-i", "1G"], ["-N", "0"]] {
        fails_saying(&["mkfs", &rig.image(), "--force", words[0], words[1]], 1, &[words[0]]);
    }
    assert_eq!(
        amphi(&["mkfs", &rig.image(), "--force", "-i", "4K", "-N", "5"]).status.code(),
        Some(2),
        "one of them"
    );
}

#[test]
fn a_check_whose_outcome_cannot_be_printed_could_not_run() {
    let rig = Rig::new("64M");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let code = command(&["fsck", &rig.image()])
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .code();
    assert_eq!(code, Some(8), "1 would say that something was repaired");
}

#[test]
fn files_that_are_no_images_are_refused_by_every_subcommand() {
    let rig = Rig::empty();
    std::fs::write(rig.image(), vec![7_u8; 100_000]).unwrap();
    std::fs::write(rig.path("empty"), b"").unwrap();
    for image in [&rig.image(), &rig.path("empty")] {
        fails_saying(&["info", image], 1, &["is not an Amphi image"]);
        fails_saying(&["stats", image], 1, &["is not an Amphi image"]);
        fails_saying(&["power-cut", image], 1, &["is not an Amphi image"]);
        fails_saying(&["fsck", image], 8, &["is not an Amphi image"]);
        fails_saying(&["mkfs", image, "--force"], 1, &["is not an Amphi image"]);
        fails_saying(&["mount", image, &rig.mount_point()], 1, &["is not an Amphi image"]);
    }
    let missing = rig.path("missing.img");
    for subcommand in ["info", "stats", "power-cut", "umount"] {
        fails_saying(&[subcommand, &missing], 1, &["missing.img"]);
    }
    fails_saying(&["fsck", &missing], 8, &["missing.img"]);
    fails_saying(&["info", &rig.mount_point()], 1, &["nothing of Amphi's is mounted"]);
    fails_saying(&["umount", &rig.mount_point()], 1, &["nothing of Amphi's is mounted"]);
}

#[test]
fn an_image_of_another_version_is_refused() {
    let rig = Rig::new("256M");
    let mut bytes = std::fs::read(rig.image()).unwrap();
    // The version is the little-endian word after the eight bytes of the magic, in both copies of the header.
    for header in [0, 4096] {
        bytes[header + 8..header + 12].copy_from_slice(&99_u32.to_le_bytes());
    }
    std::fs::write(rig.image(), &bytes).unwrap();
    fails_saying(&["info", &rig.image()], 1, &["version 99"]);
    fails_saying(&["fsck", &rig.image()], 8, &["version 99"]);
}

#[test]
fn a_device_without_a_file_system_can_be_looked_at_but_not_mounted() {
    let rig = Rig::empty();
    amphi_ok(&["mkfs", &rig.image(), "--fs", "none", "--size", "256M"]);
    assert_eq!(json(&amphi_ok(&["info", &rig.image(), "--json"]))["filesystem"], Value::Null);
    fails_saying(&["fsck", &rig.image()], 8, &["mkfs"]);
    fails_saying(&["mount", &rig.image(), &rig.mount_point()], 1, &["mkfs"]);
}

#[test]
fn a_fresh_image_is_clean() {
    let rig = Rig::new("256M");
    assert!(amphi_ok(&["fsck", &rig.image()]).contains("clean"));
    let report = json(&amphi_ok(&["fsck", &rig.image(), "--json"]));
    assert_eq!(report["clean"], true);
    assert_eq!(report["filesystem"], "bytefs");
    assert_eq!(amphi(&["fsck", &rig.image(), "--repair"]).status.code(), Some(0), "nothing to repair");
}

/// Overwrites the line of the inode bitmap that says that the root directory is in use.
fn damage(image: &str) {
    let device = Ssd::open(Path::new(image), &OpenOptions::default()).unwrap();
    let mut page = [0; PAGE_BYTES];
    device.read(Lpa(0), &mut page, Structure::Superblock).unwrap();
    let layout = Superblock::decode(&page, device.capacity_pages()).unwrap().layout();
    let bitmap = Lpa(layout.inode_bitmap(0));
    device.write(bitmap, &[0; PAGE_BYTES], Structure::Bitmap).unwrap();
}

#[test]
fn damage_is_found_repaired_and_gone() {
    let rig = Rig::new("256M");
    damage(&rig.image());
    let found = amphi(&["fsck", &rig.image()]);
    assert_eq!(found.status.code(), Some(4), "{}", complaint(&found));
    assert!(String::from_utf8_lossy(&found.stdout).contains("error: "));
    let repaired = amphi(&["fsck", &rig.image(), "--repair", "--json"]);
    assert_eq!(repaired.status.code(), Some(1), "{}", complaint(&repaired));
    let report = json(&String::from_utf8_lossy(&repaired.stdout));
    assert_eq!(report["clean"], true);
    assert!(!report["repaired"].as_array().unwrap().is_empty());
    assert_eq!(
        amphi(&["fsck", &rig.image(), "--repair"]).status.code(),
        Some(0),
        "nothing is left to repair"
    );
}

#[test]
fn counters_outlive_the_process_and_a_power_cut_at_rest_is_counted() {
    let rig = Rig::new("256M");
    let stats = json(&amphi_ok(&["stats", &rig.image(), "--json"]));
    assert!(stats["device"]["host_bytes_written"].as_u64().unwrap() > 0, "mkfs wrote something");
    let before = stats["device"]["power_cuts"].as_u64().unwrap();
    assert!(amphi_ok(&["power-cut", &rig.image(), "--seed", "3"]).contains("seed 3"));
    let stats = json(&amphi_ok(&["stats", &rig.image(), "--json"]));
    assert_eq!(stats["device"]["power_cuts"].as_u64().unwrap(), before + 1);
    rig.fsck().unwrap();
    assert!(amphi_ok(&["stats", &rig.image()]).contains("write amplification"));
}

#[test]
fn help_has_examples_and_shells_get_completions() {
    assert!(amphi_ok(&["--help"]).contains("Examples:"));
    for subcommand in ["mkfs", "mount", "umount", "fsck", "info", "stats", "power-cut", "completions"] {
        assert!(amphi_ok(&[subcommand, "--help"]).contains("Example"), "{subcommand}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(amphi_ok(&["completions", shell]).contains("power-cut"), "{shell}");
    }
}
