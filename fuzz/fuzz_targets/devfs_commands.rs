//! Fuzz target: a program that writes anything anywhere into its command buffer to a DevFS.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::devfs_commands(input));
