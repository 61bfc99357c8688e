//! Small SSDs with a memory area, and a RomeFS on them.

use std::sync::Arc;

use amphi_fs_romefs::{FormatOptions, MountOptions, RomeFs};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::Name;

/// Without a background task: what happens follows from the operations.
pub fn roomy() -> MountOptions {
    MountOptions { checkpoint_interval_ns: 0, ..MountOptions::default() }
}

/// So little host memory that inodes and pages come and go all the time.
pub fn cramped() -> MountOptions {
    MountOptions { page_cache_pages: 64, inode_cache: 3, ..roomy() }
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

pub fn make(format: &FormatOptions, memory_bytes: u64, mount: MountOptions) -> RomeFs<Ssd> {
    let ssd = ssd(memory_bytes, 128 << 20);
    RomeFs::format(&ssd, format).expect("the SSD can be formatted");
    RomeFs::mount(&ssd, mount).expect("what was just formatted can be mounted")
}

pub fn remount(fs: RomeFs<Ssd>, options: MountOptions) -> RomeFs<Ssd> {
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    RomeFs::mount(&ssd, options).expect("what was cleanly unmounted can be mounted")
}

/// As after the program was killed.
pub fn crash(fs: RomeFs<Ssd>, options: MountOptions) -> RomeFs<Ssd> {
    let ssd = Arc::clone(fs.device());
    drop(fs);
    RomeFs::mount(&ssd, options).expect("what was left can be mounted")
}

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}
