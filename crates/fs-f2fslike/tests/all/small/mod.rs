//! Small SSDs whose firmware caches pages, and a file system of F2FS's kind on them.

use std::sync::Arc;

use amphi_fs_f2fslike::F2fsLike;
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

pub fn mount(ssd: &Arc<Ssd>, cached: usize, read_only: bool) -> F2fsLike<Ssd> {
    let options = MountOptions {
        inode_cache: Some(cached),
        page_cache_pages: Some(cached),
        background_interval_ns: Some(0),
        read_only,
        ..MountOptions::default()
    };
    Volume::mount(ssd, &options).expect("what was made can be mounted")
}

pub fn make(bytes: u64, cached: usize) -> F2fsLike<Ssd> {
    let ssd = ssd(bytes);
    <F2fsLike<Ssd> as Volume<Ssd>>::format(&ssd, &FormatOptions::default()).expect("it is large enough");
    mount(&ssd, cached, false)
}

pub fn roomy() -> F2fsLike<Ssd> {
    make(128 << 20, 10_000)
}

/// So few inodes and pages in memory that they come and go all the time, and so few segments that garbage is
/// collected.
pub fn cramped() -> F2fsLike<Ssd> {
    make(24 << 20, 3)
}

/// Unmounts, checks, and mounts again.
pub fn remount(fs: F2fsLike<Ssd>, read_only: bool) -> F2fsLike<Ssd> {
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("memory does not fail");
    check(&ssd);
    mount(&ssd, 3, read_only)
}

/// As after the program was killed.
pub fn crash(fs: F2fsLike<Ssd>) -> F2fsLike<Ssd> {
    let ssd = Arc::clone(fs.device());
    drop(fs);
    check(&ssd);
    mount(&ssd, 3, false)
}

/// Nothing is wrong, and nothing is lost.
pub fn check(ssd: &Arc<Ssd>) {
    let report = <F2fsLike<Ssd> as Volume<Ssd>>::check(ssd, &mut |_| {}).expect("it can be checked");
    assert_eq!((report.errors, report.warnings), (0, 0), "{:?}", report.findings);
}
