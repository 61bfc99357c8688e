//! What is done with hostile bytes: images to be opened, commands to be obeyed, file systems to be checked
//! and mounted. Each function takes any bytes, and is in order if it returns: no panic, no hang, nothing
//! outside a buffer, and no answer that contradicts another.
//!
//! `fuzz/` drives these functions with libFuzzer, where coverage leads the bytes; `tests/seeded.rs` drives
//! them with a fixed series of random bytes on every run of the tests, so that they cannot rot.
#![forbid(unsafe_code)]

mod augefs;
mod bytefs;
mod commands;
mod devfs;
mod image;
mod input;
mod queue;
mod romefs;
mod used;

pub use augefs::augefs_image;
pub use bytefs::bytefs_image;
pub use commands::commands;
pub use devfs::{devfs_commands, devfs_image};
pub use image::image;
pub use queue::queue;
pub use romefs::romefs_image;

use std::sync::Arc;

use amphi_device::PAGE_BYTES;
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};

/// A profile of a device so small that its image is quickly copied, and that cleans and collects all the
/// time.
fn tiny() -> Profile {
    let mut profile = Profile::named("mssd-pcie3").expect("built in");
    profile.flash.channels = 1;
    profile.flash.ways = 2;
    profile.flash.pages_per_block = 4;
    profile.flash.write_buffer_pages = 4;
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 64 << 10;
    profile
}

/// A device in memory that takes no time, with `memory_bytes` of protected memory and `pages` of flash.
fn with_memory(firmware: Firmware, memory_bytes: u64, pages: u64) -> Arc<Ssd> {
    let mut profile = tiny();
    profile.flash.pages_per_block = 16;
    profile.firmware.kind = firmware;
    profile.firmware.memory_bytes = memory_bytes;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, pages * PAGE_BYTES as u64, &options).expect("a valid profile"))
}
