//! A file system with pins keeps what `vfs::FileSystem` promises where nothing is pinned.

use std::sync::Arc;

use amphi_fs_ext4like::{Ext4Like, FormatOptions, MountOptions};
use amphi_pins::Pinned;
use amphi_pins::logs::{Options, Rule};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};

#[test]
fn keeps_the_promises() {
    amphi_conformance::check_all(|| {
        let mut profile = Profile::named("2b-ssd").expect("built in");
        profile.firmware.kind = Firmware::BaBuffer;
        let options = OpenOptions { free: true, ..OpenOptions::default() };
        let device = Arc::new(Ssd::try_in_memory(&profile, 64 << 20, &options).expect("64 MB in memory"));
        let format = FormatOptions { inodes: Some(20_480), ..FormatOptions::default() };
        Ext4Like::format(&*device, &format).expect("a 64 MB device can be formatted");
        let options = MountOptions { commit_interval_ns: 0, ..MountOptions::default() };
        Pinned::mount(&device, || Ext4Like::mount(Arc::clone(&device), options)).expect("it can be mounted")
    });
}

/// A file system of which every file is a log from its first sync on, in parts of two pages.
fn of_logs() -> Pinned<Ext4Like<Ssd>, Ssd> {
    let mut profile = Profile::named("2b-ssd").expect("built in");
    profile.firmware.kind = Firmware::BaBuffer;
    (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (16 * 4096, 4);
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    let device = Arc::new(Ssd::try_in_memory(&profile, 64 << 20, &options).expect("64 MB in memory"));
    let format = FormatOptions { inodes: Some(20_480), ..FormatOptions::default() };
    Ext4Like::format(&*device, &format).expect("a 64 MB device can be formatted");
    let options = MountOptions { commit_interval_ns: 0, ..MountOptions::default() };
    let rules = vec![Rule::parse("*").expect("a rule")];
    let logs = Options { rules, part_bytes: Some(2 * 4096), after_syncs: 1 };
    let below = || Ext4Like::mount(Arc::clone(&device), options);
    Pinned::mount_with_logs(&device, &logs, below).expect("it can be mounted")
}

#[test]
fn keeps_the_promises_where_every_file_is_a_log() {
    amphi_conformance::check_all(of_logs);
    for seed in 0..20 {
        amphi_conformance::random::run(of_logs, seed, 300);
    }
}
