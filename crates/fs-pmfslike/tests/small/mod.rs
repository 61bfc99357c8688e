//! Small SSDs whose firmware caches pages, and a file system of PMFS's kind on them.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;

use amphi_fs_pmfslike::PmfsLike;
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_volume::{FormatOptions, MountOptions, Volume};

/// An SSD that takes no time.
pub fn ssd(bytes: u64) -> Arc<Ssd> {
    let mut profile = Profile::named("free").expect("the profile exists");
    profile.firmware.kind = Firmware::PageCache;
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.firmware.memory_bytes = 1 << 20;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, bytes, &options).expect("an SSD in memory"))
}

pub fn mount(ssd: &Arc<Ssd>, cached_inodes: usize, read_only: bool) -> PmfsLike<Ssd> {
    let options = MountOptions { inode_cache: Some(cached_inodes), read_only, ..MountOptions::default() };
    Volume::mount(ssd, &options).expect("what was made can be mounted")
}

pub fn make(bytes: u64, inodes: u32, cached_inodes: usize) -> PmfsLike<Ssd> {
    let ssd = ssd(bytes);
    let format = FormatOptions { inodes: Some(inodes), ..FormatOptions::default() };
    <PmfsLike<Ssd> as Volume<Ssd>>::format(&ssd, &format).expect("it is large enough");
    mount(&ssd, cached_inodes, false)
}

pub fn roomy() -> PmfsLike<Ssd> {
    make(128 << 20, 12_000, 10_000)
}

/// So few inodes in memory that they come and go all the time, and their logs are read again.
pub fn cramped() -> PmfsLike<Ssd> {
    make(24 << 20, 3000, 3)
}

/// Unmounts, checks, and mounts again.
pub fn remount(fs: PmfsLike<Ssd>, read_only: bool) -> PmfsLike<Ssd> {
    let ssd = Arc::clone(fs.device());
    Volume::unmount(fs).expect("an idle file system unmounts");
    assert_clean(&ssd);
    mount(&ssd, 3, read_only)
}

pub fn assert_clean(ssd: &Arc<Ssd>) {
    let report = <PmfsLike<Ssd> as Volume<Ssd>>::check(ssd, &mut |_| {}).expect("it can be checked");
    assert!(report.is_clean(), "{:?}", report.findings);
}
