//! Small SSDs with a memory area, and an AugeFS on them.

use std::sync::Arc;

use amphi_fs_augefs::{AugeFs, FormatOptions, MountOptions, fsck};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::Name;

/// What happens follows from the operations.
pub fn roomy() -> MountOptions {
    MountOptions { checkpoint_interval_ns: 0, ..MountOptions::default() }
}

/// So little host memory that inodes, names and pages come and go all the time, and small memtables.
pub fn cramped() -> MountOptions {
    let meta = amphi_lsm::Options { memtable_bytes: 32 << 10, ..amphi_lsm::Options::default() };
    MountOptions { page_cache_pages: 64, inode_cache: 3, name_cache: 64, meta, ..roomy() }
}

/// Four domains with segments of 64 KB.
pub fn fine() -> FormatOptions {
    FormatOptions { domains: 4, segment_blocks: 16, ..FormatOptions::default() }
}

/// An SSD that takes no time, with a memory area of so many bytes.
pub fn ssd(memory_bytes: u64, bytes: u64) -> Arc<Ssd> {
    let mut profile = Profile::named("free").expect("the profile exists");
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = memory_bytes;
    profile.log.region_bytes = memory_bytes;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, bytes, &options).expect("an SSD in memory"))
}

/// An SSD of AugeFS's paper, which takes time.
pub fn timed(memory_bytes: u64, bytes: u64) -> Arc<Ssd> {
    let mut profile = Profile::named("p4800x-pmr").expect("the profile exists");
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = memory_bytes;
    profile.log.region_bytes = memory_bytes;
    Arc::new(Ssd::in_memory(&profile, bytes))
}

pub fn make(format: &FormatOptions, bytes: u64, mount: MountOptions) -> AugeFs<Ssd> {
    let ssd = ssd(1 << 20, bytes);
    AugeFs::format(&ssd, format).expect("the SSD can be formatted");
    AugeFs::mount(&ssd, mount).expect("what was just formatted can be mounted")
}

pub fn remount(fs: AugeFs<Ssd>, options: MountOptions) -> AugeFs<Ssd> {
    let ssd = Arc::clone(fs.device());
    assert_clean(fs);
    AugeFs::mount(&ssd, options).expect("what was cleanly unmounted can be mounted")
}

/// As after the program was killed.
pub fn crash(fs: AugeFs<Ssd>, options: MountOptions) -> AugeFs<Ssd> {
    let ssd = Arc::clone(fs.device());
    drop(fs);
    AugeFs::mount(&ssd, options).expect("what was left can be mounted")
}

/// Unmounts and checks.
pub fn assert_clean(fs: AugeFs<Ssd>) {
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    let report = fsck::check(&ssd).expect("it can be checked");
    assert_eq!(report.findings, []);
    assert!(report.cleanly_unmounted);
}

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}
