//! Small SSDs with memory of their own, and a DevFS on them.

pub mod library;

use std::sync::Arc;

use amphi_fs_devfs::{Crash, DevFs, FormatOptions, MountOptions};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, Ino, Name, WriteMode};

/// So little device memory that inodes, entries, pages and slots come and go all the time.
pub fn cramped() -> MountOptions {
    MountOptions { memory: Some(96 << 10), inode_cache: 3, ..MountOptions::default() }
}

/// Without capacitors.
pub fn naive() -> MountOptions {
    MountOptions { crash: Crash::Journal, ..MountOptions::default() }
}

/// An SSD that takes no time, with so many bytes of device memory.
pub fn ssd(memory_bytes: u64, bytes: u64) -> Arc<Ssd> {
    let mut profile = Profile::named("free").expect("the profile exists");
    profile.firmware.kind = Firmware::FileSystem;
    profile.firmware.memory_bytes = memory_bytes;
    profile.log.region_bytes = memory_bytes;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, bytes, &options).expect("an SSD in memory"))
}

pub fn make_on(bytes: u64, mount: &MountOptions) -> DevFs<Ssd> {
    make_with(4 << 20, bytes, mount)
}

/// With so many bytes of device memory.
pub fn make_with(memory_bytes: u64, bytes: u64, mount: &MountOptions) -> DevFs<Ssd> {
    let ssd = ssd(memory_bytes, bytes);
    let format = FormatOptions { inodes: Some(12_000), ..FormatOptions::default() };
    DevFs::format(&ssd, &format).expect("the SSD can be formatted");
    DevFs::mount(&ssd, mount).expect("what was just formatted can be mounted")
}

pub fn make(mount: &MountOptions) -> DevFs<Ssd> {
    make_on(128 << 20, mount)
}

pub fn remount(fs: DevFs<Ssd>, mount: &MountOptions) -> DevFs<Ssd> {
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    DevFs::mount(&ssd, mount).expect("what was cleanly unmounted can be mounted")
}

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

pub fn write(fs: &DevFs<Ssd>, ino: Ino, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(ino, offset, data, WriteMode::default(), &Cred::ROOT), Ok(data.len()));
}

pub fn read(fs: &DevFs<Ssd>, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(fs.read(ino, offset, &mut bytes, false), Ok(len));
    bytes
}

pub fn count(fs: &DevFs<Ssd>, path: &[&str]) -> u64 {
    let stats = serde_json::Value::Object(fs.stats());
    let found = path.iter().fold(&stats, |value, key| &value[*key]);
    found.as_u64().expect("a counter of that name")
}
