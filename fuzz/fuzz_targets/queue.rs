//! Fuzz target: a client of the shared-memory queue that writes anything anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::queue(input));
