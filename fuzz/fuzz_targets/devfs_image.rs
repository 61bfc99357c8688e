//! Fuzz target: damage to the flash and the protected memory of a DevFS.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::devfs_image(input));
