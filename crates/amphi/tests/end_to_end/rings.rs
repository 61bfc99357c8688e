//! The command on a mount whose requests come through the kernel's rings, where the kernel can be made to
//! offer them.
//!
//! `amphi-front-fuse` has tests of what rings do; here is what the daemon adds: it gives up its privileges,
//! is killed, and recovers.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::rig::{Rig, amphi, amphi_ok, can_mount, complaint};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers rings, or does not, until this is dropped. Test programs take turns.
struct Offer {
    before: String,
    _turn: File,
}

impl Offer {
    fn new(is_offered: bool) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        if File::options().write(true).open(PARAMETER).is_err() {
            println!("SKIPPED: {PARAMETER} cannot be set here");
            return None;
        }
        let turn = File::create(std::env::temp_dir().join("amphi-test-rings.lock")).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        let offer = Self { before: fs::read_to_string(PARAMETER).unwrap(), _turn: turn };
        fs::write(PARAMETER, if is_offered { "1" } else { "0" }).unwrap();
        Some(offer)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        drop(fs::write(PARAMETER, &self.before));
    }
}

/// Mounts through rings, with more `options` that each begin with a comma, if the kernel has any.
pub fn mount(rig: &Rig, options: &str) -> bool {
    let Some(_offer) = Offer::new(true) else { return false };
    let options = format!("transport=ring{options}");
    amphi_ok(&["mount", "--free", "-o", &options, &rig.image(), &rig.mount_point()]);
    true
}

/// The daemon's threads of that name.
fn threads(rig: &Rig, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", rig.daemon_pid())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    names.filter(|comm| comm.trim() == name).count()
}

#[test]
fn a_mount_through_rings_lives_dies_and_recovers() {
    let rig = Rig::new("256M");
    if !mount(&rig, "") {
        return;
    }
    assert!(threads(&rig, "fuse-ring") >= 4, "requests come through rings");
    fs::create_dir(rig.on_mount("d")).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(rig.on_mount("d/large"), &large).unwrap();
    let file = File::options().read(true).write(true).open(rig.on_mount("d/large")).unwrap();
    file.write_all_at(b"changed", 100_000).unwrap();
    file.sync_all().unwrap();
    assert!(amphi_ok(&["fstrim", &rig.mount_point()]).contains("MiB discarded"));
    rig.kill_daemon();
    assert!(file.write_all_at(b"lost", 0).is_err(), "the mount is dead");
    drop(file);
    assert!(mount(&rig, ""));
    let read = fs::read(rig.on_mount("d/large")).unwrap();
    assert!(read[..100_000] == large[..100_000] && &read[100_000..100_007] == b"changed");
    rig.umount();
    rig.fsck().unwrap();
}

#[test]
fn who_wants_rings_that_are_not_offered_hears_how_to_get_them() {
    let rig = Rig::new("64M");
    let Some(_offer) = Offer::new(false) else { return };
    let output = amphi(&["mount", "-o", "transport=ring", &rig.image(), &rig.mount_point()]);
    let said = complaint(&output);
    assert!(
        !output.status.success() && said.contains(PARAMETER) && said.contains("transport=device"),
        "{said}"
    );
    assert!(!rig.is_mounted());
    // Who leaves the choice open gets what there is.
    rig.mount();
    assert_eq!(threads(&rig, "fuse-ring"), 0);
    assert!(Path::new(&rig.mount_point()).metadata().unwrap().is_dir());
    rig.umount();
}
