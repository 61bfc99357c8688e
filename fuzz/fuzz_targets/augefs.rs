//! Fuzz target: AugeFS on damaged records of its metadata store and on a damaged device.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::augefs_image(input));
