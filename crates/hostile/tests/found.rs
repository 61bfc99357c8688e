//! Inputs that libFuzzer found and what they showed; each was an error once.

use amphi_hostile::bytefs_image;

/// A superblock that counts 2^64 - 1 mounts: mounting counted one more.
#[test]
fn the_mount_counter_may_be_full() {
    bytefs_image(&[0x18, 0x06, 0x01, 0x3b, 0x01]);
}
