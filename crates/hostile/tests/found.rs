//! Inputs that libFuzzer found and what they showed; each was an error once.

use amphi_hostile::{bytefs_image, devfs_image};

/// A superblock that counts 2^64 - 1 mounts: mounting counted one more.
#[test]
fn the_mount_counter_may_be_full() {
    bytefs_image(&[0x18, 0x06, 0x01, 0x3b, 0x01]);
}

/// A superblock whose first time stamp is nearly 2^64: a check and a mount counted on from it.
#[test]
fn the_first_time_stamp_may_be_nearly_the_last() {
    let slot = [0xf8, 0x96, 0x00, 0x80, 0x3a, 0x3a];
    let rest = [0x01, 0x00, 0x00, 0x07, 0x00, 0x69, 0x74, 0x27, 0xff, 0xff, 0xff, 0x0f];
    let end = *b"abilit'-\x8c";
    devfs_image(&[&slot[..], &[0; 22], &rest, &end].concat());
}
